"""Oracle: results equal batch Spark SQL whatever deals the rows out; the engine picks by what it measures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.side import Side

import thalweg
from thalweg import partition
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SECOND = 1_000_000


def sales(seed: int, *, batches: int = 5, rows: int = 3000, zipf: float | None = 1.5, whole: bool = False) -> Feed:
    """Purchases by shop, skewed or not, a few without one; prices that come again only if `whole`."""
    rng = np.random.default_rng(seed)
    tables = []
    for batch in range(batches):
        shop = np.minimum(rng.zipf(zipf, rows), 400) if zipf else rng.integers(0, 400, rows)
        times = (batch * 8 + rng.integers(0, 9, rows)) * SECOND - (rng.exponential(2, rows) * SECOND).astype(np.int64)
        price = rng.integers(0, 9, rows).astype(float) if whole else np.round(rng.random(rows) * 1000, 6)
        tables.append(
            pa.table(
                {
                    "ts": pa.array(np.maximum(times, 0), pa.timestamp("us", "UTC")),
                    "shop": pa.array(shop * 7919, pa.int64(), mask=rng.random(rows) < 0.02),
                    "kind": pa.array([f"k{i}" for i in rng.integers(0, 3, rows)]),
                    "price": pa.array(price, mask=rng.random(rows) < 0.05),
                }
            )
        )
    return Feed("sales", "ts", 4 * SECOND, tuple(tables))


MEDIAN = (
    "SELECT shop, percentile(price, 0.5) AS m, percentile(price, 0.9) AS high, count(*) AS n, window.end AS until "
    "FROM sales GROUP BY shop, window(ts, '12 seconds', '6 seconds')"
)
COUNTS = (
    "SELECT shop, kind, count(*) AS n, count(DISTINCT price) AS prices, sum(price) AS s, window.end AS until "
    "FROM sales WHERE price > 100 GROUP BY shop, kind, window(ts, '10 seconds')"
)
PLAIN = (
    "SELECT kind, sum(price) AS s, max(shop) AS m, window.end AS until "
    "FROM sales GROUP BY kind, window(ts, '7 seconds')"
)


def feed_in(session: thalweg.Session, feed: Feed) -> None:
    source = thalweg.memory(feed.schema, max_files_per_batch=1)
    session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    for table in feed.batches:
        source.append(table)


@pytest.mark.parametrize("name", [*partition.names(), "local", "combine", "auto"])
def test_results_never_depend_on_the_partitioner(side: Side, state_dir: Path, name: str) -> None:
    feed = sales(sum(map(ord, name)), rows=700)
    with side.connect(state_dir, slots=3, repartition=None) as session:
        feed_in(session, feed)
        medians = session.sql(f"CREATE QUERY medians OPTIONS (partitioner = '{name}') AS {MEDIAN}")
        counts = session.create_query("counts", COUNTS, options={"partitioner": name})
        plain = session.create_query("plain", PLAIN, options={"partitioner": name})
        session.run_available()
        assert 600 < sum(_pieces(session, "shop")) <= 700
        text = session.explain("medians")
        how = "stays at the source (local)" if name == "local" else f"dealt out by {name}"
        assert name in ("combine", "auto") or f"{how}: as a query asks" in text, text
        for handle, select in ((medians, MEDIAN), (counts, COUNTS), (plain, PLAIN)):
            wanted = side.expected(feed, select)
            assert wanted.num_rows > 10
            rows_equal(handle.results(), wanted)


def _pieces(session: thalweg.Session, key: str) -> tuple[int, ...]:
    """The rows of each worker in the last batch with rows, of a grouping by `key` and prices."""
    plan = session._parts.runner.plan
    reports = session.progress()["partitioning"]["aggregations"]
    (found,) = [
        reports[id_]["loads"] for id_, g in plan.groupings.items() if g.keys == (key,) and "price" in g.values
    ]
    return tuple(found)


def test_hot_keys_are_noticed(side: Side, state_dir: Path) -> None:
    feed = sales(1, rows=20_000)
    with side.connect(state_dir, slots=4, repartition=None) as session:
        feed_in(session, feed)
        medians = session.create_query("medians", MEDIAN)
        session.run_available()
        text = session.explain("medians")
        assert "stays at the source (local): values hardly come again" in text, text
        assert "by dalton: hashed, the busiest of 4 slots has" in text, text
        loads = _pieces(session, "shop")
        assert max(loads) < 1.1 * sum(loads) / len(loads), loads
        rows_equal(medians.results(), side.expected(feed, MEDIAN))


def test_hot_keys_are_split(side: Side, state_dir: Path) -> None:
    feed = sales(1, rows=20_000)
    with side.connect(state_dir, slots=4, repartition=None) as session:
        feed_in(session, feed)
        medians = session.create_query("medians", MEDIAN, options={"partitioner": "dalton"})
        session.run_available()
        loads = _pieces(session, "shop")
        assert len(loads) == 4
        assert max(loads) < 1.1 * sum(loads) / 4, loads
        (report,) = [
            r for r in session.progress()["partitioning"]["aggregations"].values() if r["partitioner"] == "dalton"
        ]
        assert report["imbalance"] == pytest.approx(max(loads) - sum(loads) / 4)
        assert report["aggregation"] > 50
        assert report["pinned"]
        rows_equal(medians.results(), side.expected(feed, MEDIAN))


def test_even_keys_stay_whole(side: Side, state_dir: Path) -> None:
    feed = sales(2, batches=3, rows=20_000, zipf=None)
    with side.connect(state_dir, slots=2, repartition=None) as session:
        feed_in(session, feed)
        medians = session.create_query("medians", MEDIAN)
        session.run_available()
        assert "by hash: hashed, the busiest of 2 slots has" in session.explain("medians")
        rows_equal(medians.results(), side.expected(feed, MEDIAN))


def test_values_that_come_again_are_combined_at_the_source(side: Side, state_dir: Path) -> None:
    feed = sales(3, batches=3, rows=20_000, whole=True)
    with side.connect(state_dir, slots=4, repartition=None) as session:
        feed_in(session, feed)
        medians = session.create_query("medians", MEDIAN)
        session.run_available()
        text = session.explain("medians")
        assert "dealt out" not in text
        assert "combined at the source into 1 partial" in text
        rows_equal(medians.results(), side.expected(feed, MEDIAN))


def test_what_a_query_may_not_ask_for(side: Side, state_dir: Path) -> None:
    feed = sales(4, batches=1, rows=10)
    with side.connect(state_dir, repartition=None) as session:
        feed_in(session, feed)
        pin = {"partitioner": "dalton"}
        with pytest.raises(thalweg.ThalwegError, match="there is no partitioner 'fastest'"):
            session.create_query("q", MEDIAN, options={"partitioner": "fastest"})
        for select in ("SELECT shop FROM sales", "SELECT count(*) AS n FROM sales GROUP BY window(ts, '5 seconds')"):
            with pytest.raises(thalweg.ThalwegError, match="cannot have the partitioner 'dalton'"):
                session.create_query("q", select, options=pin)
        with pytest.raises(thalweg.ThalwegError, match="cannot have the partitioner 'dalton'"):
            session.create_query("q", MEDIAN, emit="updates", options=pin)
        session.create_query("q", MEDIAN, emit="updates", options={"partitioner": "hash"})


def test_changes_are_told_beside_a_split_key(side: Side, state_dir: Path) -> None:
    """A query with EMIT UPDATES needs all rows of a key in one slot, at once: it overrules the other's wish."""
    feed = sales(5, rows=500)
    with side.connect(state_dir, slots=3, repartition=None) as session:
        feed_in(session, feed)
        medians = session.create_query("medians", MEDIAN, options={"partitioner": "dalton"})
        changes = session.create_query("changes", MEDIAN, emit="updates")
        session.run_available()
        wanted = side.expected(feed, MEDIAN)
        rows_equal(medians.results(), wanted)
        latest = {(row["shop"], row["until"]): row for row in changes.results().to_pylist()}
        closed = {(row["shop"], row["until"]) for row in medians.results().to_pylist()}
        rows = [row for key, row in latest.items() if key in closed]
        rows_equal(pa.Table.from_pylist(rows, changes.results().schema), wanted)
