"""Oracle: results are the same whichever way batches run, and whichever way the batch before has run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.support.randomly import RandomQuery, Shape, random_feed, random_queries
from tests.support.side import Side

import thalweg
from thalweg import user_aggregates
from thalweg.adapt.small_batches import Load
from thalweg.errors import StateError
from thalweg.model.plan import Plan
from thalweg.model.way import Way
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed

PAIR = "ON e.k = o.k AND e.gemPackID = o.gemPackID WITHIN 2 SECONDS"
JOINS = {
    "joined": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts, o.gemPackID FROM events e JOIN others o {PAIR}",
    "joined_windows": f"SELECT e.k, count(*) AS n, max(o.ts) AS last, window.end AS until FROM events e "
    f"JOIN others o {PAIR} GROUP BY e.k, window(e.ts, '5 seconds')",
    "chain": "SELECT a.k, a.ts AS first_ts, o.ts AS middle_ts, b.ts AS last_ts FROM events a "
    "JOIN others o ON a.k = o.k WITHIN 1 SECOND JOIN events b ON o.gemPackID = b.gemPackID WITHIN 1 SECOND",
    "unpaired": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts FROM events e LEFT JOIN others o {PAIR}",
}
OWN = (
    "SELECT gemPackID, own_total(k) AS s, window.end AS until FROM events GROUP BY gemPackID, window(ts, '8 seconds')"
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(user_aggregates, "_defined", {})

    def added(one: int | None, other: int | None) -> int | None:
        return other if one is None else one if other is None else one + other

    def update(state: int | None, batch: pa.RecordBatch) -> int | None:
        return added(state, pc.sum(batch.column(0)).as_py())

    thalweg.aggregate("own_total", lambda: None, update, added, lambda state: state, returns="bigint")


class Chosen:
    """Says which way each batch runs, instead of what is predicted."""

    def __init__(self, ways: Iterator[Way]) -> None:
        self._ways = ways
        self.taken: list[Way] = []

    def choose(self, plan: Plan, load: Load) -> Way:
        self.taken.append(next(self._ways))
        return self.taken[-1]

    def take_in(self, load: Load, seconds: float) -> None:
        """Nothing is learned."""


def at_random(seed: int) -> Iterator[Way]:
    rng = random.Random(seed)
    while True:
        yield rng.choice(list(Way))


def run(session: Any, feeds: list[Feed], queries: tuple[RandomQuery, ...], ways: Iterator[Way]) -> set[Way]:
    """A batch for every table of the feeds, and one without rows after each."""
    chosen = session._parts.runner.job.small_batches = Chosen(ways)
    sources = [thalweg.memory(feed.schema) for feed in feeds]
    for feed, source in zip(feeds, sources, strict=True):
        session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    for name, select in {**{q.name: q.select for q in queries}, **JOINS, "own": OWN}.items():
        session.create_query(name, select)
    for number in range(len(feeds[0].batches)):
        for feed, source in zip(feeds, sources, strict=True):
            source.append(feed.batches[number])
        session.run_available()
    assert {handle.status.error for handle in session.queries.values()} == {None}
    return set(chosen.taken)


def check(side: Side, session: Any, feeds: list[Feed], queries: tuple[RandomQuery, ...]) -> None:
    lived = [with_empty_batches(feed) for feed in feeds]
    for query in queries:
        wanted = side.expected(lived[0], query.select)
        rows_equal(session.query(query.name).results(), wanted, approximate=query.approximate)
    for name, select in JOINS.items():
        wanted = side.expected_of_joins(lived, select)
        assert wanted.num_rows > 5
        rows_equal(session.query(name).results(), wanted)
    rows_equal(session.query("own").results(), side.expected(lived[0], OWN.replace("own_total(", "sum(")))


def with_empty_batches(feed: Feed) -> Feed:
    """As the pipeline sees it: every `run_available` ends with a batch without rows."""
    empty = feed.schema.empty_table()
    return Feed(feed.stream, feed.time, feed.delay_us, tuple(t for table in feed.batches for t in (table, empty)))


def world(seed: int) -> tuple[list[Feed], tuple[RandomQuery, ...]]:
    shape = Shape(batches=6, rows=60)
    feeds = [random_feed(seed, shape), random_feed(seed + 1, shape, stream="others")]
    return feeds, tuple(random_queries(seed, feeds[0], 5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5])
def test_ways_at_random_in_this_process(side: Side, state_dir: Path, seed: int) -> None:
    feeds, queries = world(seed)
    with side.connect(state_dir) as session:
        assert run(session, feeds, queries, at_random(seed)) == set(Way)
        check(side, session, feeds, queries)


@pytest.mark.on_spark
def test_ways_at_random_on_spark(side: Side, state_dir: Path) -> None:
    feeds, queries = world(5)
    with side.connect(state_dir) as session:
        assert run(session, feeds, queries, at_random(5)) == set(Way)
        check(side, session, feeds, queries)


# -- on Spark


def rows(*seconds: int) -> pa.Table:
    times = pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": times, "k": pa.array(seconds, pa.int64())})


SUMS = "SELECT sum(k) AS s FROM events GROUP BY window(ts, '10 seconds')"


def open_session(state_dir: Path, spark: SparkSession, **options: Any) -> tuple[thalweg.Session, Any]:
    session = thalweg.connect(state_dir, spark=spark, **options)
    source = thalweg.memory("ts timestamp, k bigint")
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    return session, source


def choose(session: thalweg.Session, way: Way) -> None:
    session._parts.runner.job.small_batches = Chosen(repeat(way))  # type: ignore[assignment]


@pytest.mark.parametrize(("setting", "wanted"), [("spark", Way.FUSED), ("driver", Way.DRIVER)])
def test_small_batches_run_where_they_should(spark: SparkSession, state_dir: Path, setting: str, wanted: Way) -> None:
    session, source = open_session(state_dir, spark, small_batches=setting)
    with session:
        sums = session.create_query("sums", SUMS)
        for number in range(6):
            source.append(rows(*range(10 * number, 10 * number + 10)))
            session.run_available()
        reports = session._parts.runner.reports
        assert {r.way for r in reports if r.rows} == {wanted}
        assert {r.way for r in reports if not r.rows} == {Way.DRIVER}
        assert sums.results()["s"].to_pylist() == [45 + 100 * i for i in range(5)]
        # Code of users does not run in this process.
        session.create_query("own", "SELECT own_total(k) AS s FROM events GROUP BY window(ts, '10 seconds')")
        before = len(session._parts.runner.reports)
        source.append(rows(61, 75))
        session.run_available()
        assert {r.way for r in session._parts.runner.reports[before:]} == {Way.FUSED}
        assert session.query("own").results()["s"].to_pylist() == [61]


@pytest.mark.parametrize("way", Way)
def test_state_that_is_gone_is_told_alike(spark: SparkSession, state_dir: Path, way: Way) -> None:
    session, source = open_session(state_dir, spark)
    with session:
        session.create_query("sums", SUMS)
        source.append(rows(1, 2))
        session.run_available()
        for path in (state_dir / "buckets").iterdir():
            path.unlink()
        choose(session, way)
        source.append(rows(30))
        with pytest.raises(StateError, match="missing"):
            session.run_available()


@pytest.mark.parametrize("way", [Way.STAGES, Way.FUSED])
def test_a_task_that_breaks_is_told_alike(
    spark: SparkSession, state_dir: Path, way: Way, break_tasks: Callable[[], None]
) -> None:
    session, source = open_session(state_dir, spark)
    with session:
        session.create_query("sums", SUMS)
        choose(session, way)
        source.append(rows(1, 2))
        break_tasks()
        for times in ("run again", "has failed 2 times"):
            with pytest.raises(thalweg.ThalwegError, match="in batch 0") as raised:
                session.run_available()
            assert raised.value.detail == "RuntimeError: no such luck"
            assert times in str(raised.value.hint)


@pytest.fixture
def break_tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Plans that arrive in workers cannot be used."""

    class Broken(dict[str, Any]):
        def __reduce__(self) -> Any:
            return _raise, ()

    def patch() -> None:
        from thalweg.batch.in_force import PlanInForce

        make_plan = PlanInForce.make

        def broken(self: PlanInForce, *arguments: Any) -> Plan:
            plan = make_plan(self, *arguments)
            object.__setattr__(plan, "notes", Broken())
            return plan

        monkeypatch.setattr(PlanInForce, "make", broken)

    return patch


def _raise() -> None:
    raise RuntimeError("no such luck")


def test_a_setting_that_is_none_is_refused(state_dir: Path) -> None:
    with pytest.raises(thalweg.ThalwegError, match="does not say where small batches run"):
        thalweg.connect(state_dir, small_batches="fast")
    assert not state_dir.exists()
