"""Oracle: results equal batch Spark SQL before, during and after any change of the partitioning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.randomly import Shape, random_feed, random_queries
from tests.support.side import Side
from tests.support.unsettled import unsettle

import thalweg
from thalweg.adapt import slot_count as scaling
from thalweg.testing.compare import difference, rows_equal
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SECOND = 1_000_000
WINDOW = "window(ts, '20 seconds', '10 seconds')"
RAW = (
    "SELECT userID, percentile(price, 0.5) AS m, count(DISTINCT pack) AS packs, window.end AS until "
    f"FROM purchases GROUP BY userID, {WINDOW}",
    "SELECT pack, percentile(price, 0.25) AS m, sum(price) AS s, window.end AS until "
    f"FROM purchases GROUP BY pack, {WINDOW}",
    "SELECT shop, percentile(price, 0.9) AS m, window.end AS until FROM purchases WHERE price > 20 "
    "GROUP BY shop, window(ts, '15 seconds')",
    "SELECT userID, pack, max(price) AS m, window.end AS until FROM purchases WHERE shop <> 's1' "
    f"GROUP BY userID, pack, {WINDOW}",
    "SELECT percentile(price, 0.5) AS m, window.end AS until FROM purchases GROUP BY window(ts, '10 seconds')",
)


def purchases(seed: int, batches: int = 8, rows: int = 400, users: int = 60) -> Feed:
    """Packs lie inside users, shops do not; some rows come late, some keys are missing."""
    rng = np.random.default_rng(seed)
    tables = []
    for batch in range(batches):
        user = rng.integers(0, users, rows)
        late = (rng.exponential(4, rows) * SECOND).astype(np.int64)
        times = np.maximum(0, (batch * 7 + rng.integers(0, 8, rows)) * SECOND - late)
        pack = (user * 4 + rng.integers(0, 4, rows)) * 7919 % 1_000_003
        tables.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "userID": pa.array(user, pa.int64(), mask=rng.random(rows) < 0.02),
                    "pack": pa.array(pack, pa.int64()),
                    "shop": pa.array([f"s{i}" for i in rng.integers(0, 9, rows)]),
                    "price": pa.array(rng.integers(1, 90, rows), pa.int32()),
                }
            )
        )
    return Feed("purchases", "ts", 5 * SECOND, tuple(tables))


def open_stream(session: thalweg.Session, feed: Feed) -> object:
    source = thalweg.memory(feed.schema, max_files_per_batch=1)
    session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    return source


@pytest.mark.parametrize(("seed", "slots"), [(1, 2), (2, 5)])
def test_rows_shipped_whole_while_everything_moves(side: Side, state_dir: Path, seed: int, slots: int) -> None:
    feed = purchases(seed)
    with side.connect(state_dir, slots=slots, repartition=None) as session:
        unsettle(session, seed)
        source = open_stream(session, feed)
        handles = [session.create_query(f"q{i}", select) for i, select in enumerate(RAW)]
        changes = session.sql(f"CREATE QUERY changes AS {RAW[0]} EMIT UPDATES")
        for table in feed.batches:
            source.append(table)
        session.run_available()
        assert session.progress()["partitioning"]["switches"] >= 7
        latest = {(row["userID"], row["until"]): row for row in changes.results().to_pylist()}
        closed = {(row["userID"], row["until"]) for row in handles[0].results().to_pylist()}
        rows = [row for key, row in latest.items() if key in closed]
        rows_equal(pa.Table.from_pylist(rows, changes.results().schema), side.expected(feed, RAW[0]))
        for handle, select in zip(handles, RAW, strict=True):
            rows_equal(handle.results(), side.expected(feed, select))


@pytest.mark.parametrize("seed", [41, 42])
def test_random_queries_while_everything_moves(side: Side, state_dir: Path, seed: int) -> None:
    feed = random_feed(seed, Shape(batches=6))
    queries = random_queries(seed, feed, 8)
    wrong = {}
    with side.connect(state_dir, slots=3, repartition=None) as session:
        unsettle(session, seed)
        source = open_stream(session, feed)
        handles = {q.name: session.create_query(q.name, q.select) for q in queries}
        for table in feed.batches:
            source.append(table)
        session.run_available()
        for query in queries:
            wanted = side.expected(feed, query.select)
            message = difference(handles[query.name].results(), wanted, approximate=query.approximate)
            if message:
                wrong[query.select] = message
    assert not wrong, "\n\n".join(f"{select}\n{message}" for select, message in wrong.items())


def test_joins_while_everything_moves(side: Side, state_dir: Path) -> None:
    feeds = [
        purchases(5, batches=6, rows=120),
        *[Feed("ads", f.time, f.delay_us, f.batches) for f in [purchases(6, 6, 90)]],
    ]
    pair = "FROM purchases p JOIN ads a ON p.userID = a.userID WITHIN 3 SECONDS"
    until, window = "window.end AS until", "window(p.ts, '10 seconds')"
    selects = (
        f"SELECT p.userID, p.ts AS t, a.ts AS u, a.price {pair}",
        f"SELECT p.pack, percentile(a.price, 0.5) AS m, {until} {pair} GROUP BY p.pack, {window}",
        f"SELECT p.shop, percentile(a.price, 0.5) AS m, {until} {pair} GROUP BY p.shop, {window}",
        "SELECT p.userID, p.ts AS t, a.ts AS u FROM purchases p LEFT JOIN ads a "
        "ON p.userID = a.userID AND p.shop = a.shop WITHIN 3 SECONDS",
    )
    with side.connect(state_dir, slots=3, repartition=None) as session:
        unsettle(session, 9)
        sources = [open_stream(session, feed) for feed in feeds]
        handles = [session.create_query(f"q{i}", select) for i, select in enumerate(selects)]
        for tables in zip(*(feed.batches for feed in feeds), strict=True):
            for source, table in zip(sources, tables, strict=True):
                source.append(table)
        session.run_available()
        assert session.progress()["partitioning"]["switches"] >= 5
        for handle, select in zip(handles, selects, strict=True):
            wanted = side.expected_of_joins(feeds, select)
            assert wanted.num_rows > 20
            rows_equal(handle.results(), wanted)


def test_groups_of_joined_rows_that_are_many(side: Side, state_dir: Path) -> None:
    """Almost every row is a group of its own: after the first batch rows are shipped whole, joined ones too."""
    feed = purchases(7, batches=4, rows=300, users=20_000)
    shops = pa.table({"shop": [f"s{i}" for i in range(9)], "region": [f"r{i % 3}" for i in range(9)]})
    regions = [[f"r{int(shop[1:]) % 3}" for shop in table["shop"].to_pylist()] for table in feed.batches]
    wider = tuple(t.append_column("region", [r]) for t, r in zip(feed.batches, regions, strict=True))
    wider = Feed(feed.stream, feed.time, feed.delay_us, wider)
    by = "GROUP BY userID, region, window(ts, '10 seconds')"
    selects = (
        f"SELECT userID, region, count(*) AS n, max(price) AS m, window.end AS until FROM purchases {by}",
        f"SELECT userID, region, percentile(price, 0.5) AS m, window.end AS until FROM purchases {by}",
    )
    with side.connect(state_dir, slots=3, repartition=None) as session:
        unsettle(session, 4, loads=False)
        source = open_stream(session, feed)
        session.create_table("shops", shops)
        handles = []
        for i, select in enumerate(selects):
            joined = select.replace("FROM purchases", "FROM purchases JOIN shops ON purchases.shop = shops.shop")
            handles.append(session.create_query(f"q{i}", joined))
        for table in feed.batches:
            source.append(table)
        session.run_available()
        assert "groups are many: combined in the slots" in session.explain()
        for handle, select in zip(handles, selects, strict=True):
            assert handle.status["error"] is None
            wanted = side.expected(wider, select)
            assert wanted.num_rows > 100
            rows_equal(handle.results(), wanted)


def test_the_optimiser_switches_by_itself(side: Side, state_dir: Path) -> None:
    """Packs lie inside users: after a few batches each row is shipped once instead of twice, with equal results."""
    feed = purchases(3, batches=6, rows=6000, users=3000)
    selects = RAW[:2]
    with side.connect(state_dir, slots=4, repartition="1 millisecond") as session:
        source = open_stream(session, feed)
        whole = {"partitioner": "hash"}
        handles = [session.create_query(f"q{i}", select, options=whole) for i, select in enumerate(selects)]
        copies = []
        for table in feed.batches:
            source.append(table)
            session.run_available()
            session._parts.runner.adaptations.wait(60)
            copies.append(session.progress()["partitioning"]["streams"]["purchases"]["copies"])
        report = session.progress()["partitioning"]
        text = session.explain()
        assert copies[0] > 1.6
        assert copies[-1] < 1.2  # rows of windows that are about to close go where these are finished
        assert report["switches"] >= 1
        assert report["streams"]["purchases"]["hashed"] == pytest.approx(1.75, abs=0.05)
        assert "its rows follow those by userID" in text
        assert "last optimised after batch" in text
        # Every run ends with a batch without data.
        empty = feed.schema.empty_table()
        whole = Feed(feed.stream, feed.time, feed.delay_us, tuple(t for b in feed.batches for t in (b, empty)))
        for handle, select in zip(handles, selects, strict=True):
            rows_equal(handle.results(), side.expected(whole, select))


def test_slots_come_and_go_with_the_work(side: Side, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as many after one epoch, all of them again after the next."""
    asked: list[int] = []

    def turn(now: int, busy_seconds: float, most: int) -> int:
        assert busy_seconds > 0
        asked.append(now)
        return most if now < most else max(1, most // 2)

    monkeypatch.setattr(scaling, "next_slots", turn)
    feed = purchases(11, batches=20, rows=60)
    with side.connect(state_dir, slots="auto", repartition=None) as session:
        most = session.progress()["slots"]
        source = open_stream(session, feed)
        handles = [session.create_query(f"q{i}", select) for i, select in enumerate(RAW)]
        for table in feed.batches:
            source.append(table)
        session.run_available()
        assert asked == [most, max(1, most // 2)]
        assert session.progress()["slots"] == most
        for handle, select in zip(handles, RAW, strict=True):
            rows_equal(handle.results(), side.expected(feed, select))


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, "many"])
def test_numbers_of_slots_that_are_none(side: Side, state_dir: Path, slots: object) -> None:
    with pytest.raises(thalweg.ThalwegError, match="is not a number of slots"):
        side.connect(state_dir, slots=slots)  # type: ignore[arg-type]
