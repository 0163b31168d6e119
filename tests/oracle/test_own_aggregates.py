"""Oracle: aggregates that a user defines give what Spark's own of the same meaning give over the same rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.side import Side

import thalweg
from thalweg import user_aggregates
from thalweg.errors import SqlError, ThalwegError
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed

SECOND = 1_000_000
SCHEMA = pa.schema(
    {"ts": pa.timestamp("us", tz="UTC"), "k": pa.int32(), "x": pa.float64(), "s": pa.string(), "id": pa.int64()}
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(user_aggregates, "_defined", {})


def mean_of(state: tuple[float, int], batch: pa.RecordBatch) -> tuple[float, int]:
    x = batch.column("x")
    return state[0] + (pc.sum(x).as_py() or 0.0), state[1] + len(x) - x.null_count


def add(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return a[0] + b[0], a[1] + b[1]


def values_of(state: list[Any], batch: pa.RecordBatch) -> list[Any]:
    return state + batch.column(0).drop_null().to_pylist()


def define() -> None:
    mean = (lambda: (0.0, 0), mean_of, add, lambda s: s[0] / s[1] if s[1] else None)
    thalweg.aggregate("my_mean", *mean, returns="double")
    middle = (list, values_of, lambda a, b: a + b, lambda s: float(median(s)) if s else None)
    thalweg.aggregate("my_median", *middle, returns="double")
    thalweg.aggregate("my_list", list, values_of, lambda a, b: a + b, sorted, returns="array<string>")


def random_rows(seed: int, batches: int, rows: int = 60) -> Feed:
    rng = random.Random(seed)
    tables = []
    for number in range(batches):
        times = [int((number * 6 + rng.uniform(-4, 6)) * SECOND) for _ in range(rows)]
        columns = [
            pa.array(times).cast(SCHEMA.field("ts").type),
            pa.array([rng.choice([None, 1, 2, 3]) for _ in range(rows)], pa.int32()),
            pa.array([rng.choice([None, rng.uniform(-5, 5)]) for _ in range(rows)], pa.float64()),
            pa.array([rng.choice([None, "a", "bb", "c"]) for _ in range(rows)]),
            pa.array(range(rows), pa.int64()),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    return Feed("events", "ts", 3 * SECOND, tuple(tables))


def open_stream(session: thalweg.Session, feed: Feed) -> Any:
    source = thalweg.memory(feed.schema, max_files_per_batch=1)
    session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    return source


TUMBLING, SLIDING = "window(ts, '10 seconds')", "window(ts, '20 seconds', '4 seconds')"
QUERIES = {
    "tumbling": f"SELECT k, my_mean(x) AS m, count(*) AS n, window.end AS e FROM events GROUP BY k, {TUMBLING}",
    "sliding": f"SELECT k, my_median(x) AS m, my_mean(x) AS a, window.end AS e FROM events GROUP BY k, {SLIDING}",
    "filtered": (
        "SELECT k, my_mean(x) FILTER (WHERE s = 'bb') + 1 AS m, my_list(s) FILTER (WHERE x > 4) AS l, "
        f"window.end AS e FROM events WHERE id > 20 GROUP BY k, {SLIDING} HAVING my_mean(x) > -0.5"
    ),
    "best": (
        "SELECT k, my_list(s) AS l, window.end AS e FROM events "
        f"GROUP BY k, {TUMBLING} ORDER BY my_median(x) DESC NULLS LAST, k LIMIT 2"
    ),
}
SPARKS = (("my_mean(", "avg("), ("my_median(", "median("))


def in_spark(select: str) -> str:
    for ours, theirs in SPARKS:
        select = select.replace(ours, theirs)
    start = 0
    while (start := select.find("my_list(s)", start)) >= 0:
        end = start + len("my_list(s)")
        if select[end:].startswith(" FILTER"):
            end = select.index(")", end) + 1
        call = select[start:end].replace("my_list", "collect_list")
        select = select[:start] + f"sort_array({call})" + select[end:]
        start += len(call)
    return select


def flat(table: pa.Table) -> pa.Table:
    """Lists as text, so that they can be compared."""
    for i, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            lists = table.column(i).cast(pa.list_(pa.string()))
            table = table.set_column(i, field.name, pc.binary_join(lists, ", "))
    return table


def check(side: Side, feed: Feed, handles: dict[str, thalweg.QueryHandle]) -> None:
    for name, handle in handles.items():
        assert handle.status["error"] is None, handle.status
        wanted = side.expected(feed, in_spark(QUERIES[name]))
        assert wanted.num_rows > 4
        rows_equal(flat(handle.results()), flat(wanted))


def test_they_equal_spark_s_own(side: Side, state_dir: Path) -> None:
    """Tumbling and sliding windows, several batches, FILTER, HAVING, top-k, queries that share their states."""
    define()
    feed = random_rows(1, 4)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        handles = {name: session.create_query(name, select) for name, select in QUERIES.items()}
        for table in feed.batches:
            source.append(table)
        session.run_available()
        check(side, feed, handles)


def test_after_a_restart_they_must_be_defined_and_go_on(side: Side, state_dir: Path) -> None:
    define()
    feed = random_rows(2, 4)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        session.create_query("sliding", QUERIES["sliding"])
        for table in feed.batches[:2]:
            source.append(table)
        session.run_available()
    user_aggregates._defined.clear()
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        for table in feed.batches[2:]:
            source.append(table)
        for begin in (session.run_available, session.start):
            with pytest.raises(ThalwegError, match="query 'sliding' uses the aggregate 'my_median'"):
                begin()
        assert session.explain("sliding"), "it can be asked without them"
        define()
        handle = session.create_query("sliding", QUERIES["sliding"])
        session.run_available()
        empty = feed.schema.empty_table()
        whole = Feed(feed.stream, feed.time, feed.delay_us, (*feed.batches[:2], empty, *feed.batches[2:]))
        check(side, whole, {"sliding": handle})


def raises(state: float, batch: pa.RecordBatch) -> float:
    if pc.max(batch.column(0)).as_py() > 40:
        raise ZeroDivisionError("forty is too many")
    return state


def test_one_that_raises_stops_its_query_only(side: Side, state_dir: Path) -> None:
    define()
    thalweg.aggregate("bad", float, raises, max, float)
    thalweg.aggregate("wrong", float, lambda s, b: s, max, lambda s: "text" if s == 0 else s, returns="double")
    feed = random_rows(3, 3)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        good = session.create_query("tumbling", QUERIES["tumbling"])
        tail = f"window.end AS e FROM events GROUP BY k, {TUMBLING}"
        bad = session.create_query("bad", f"SELECT k, bad(id) AS b, {tail}")
        wrong = session.create_query("wrong", f"SELECT k, wrong(id) AS b, {tail}")
        for table in feed.batches:
            source.append(table)
        session.run_available()
        assert bad.status["state"] == wrong.status["state"] == "failed"
        assert "aggregate bad: update raised ZeroDivisionError: forty is too many" in bad.status["error"]
        assert wrong.status["error"] == "aggregate wrong: finish gave 'text', which is not of the type double"
        check(side, feed, {"tumbling": good})


@dataclass
class Range:
    """A state of a class that no worker can import."""

    low: float
    high: float

    def widened(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def range_of(state: Range, batch: pa.RecordBatch) -> Range:
    low, high = pc.min_max(batch.column(0)).as_py().values()
    return state if low is None else state.widened(Range(low, high))


def test_states_may_be_of_a_class_of_the_program(side: Side, state_dir: Path) -> None:
    width = (lambda: Range(1e9, -1e9), range_of, Range.widened, lambda s: max(0.0, s.high - s.low))
    with pytest.raises(ThalwegError, match="give encode= and decode="):
        thalweg.aggregate("width", *width)
    thalweg.aggregate("width", *width, encode=lambda s: (s.low, s.high), decode=lambda v: Range(*v))
    feed = random_rows(8, 3)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        select = f"SELECT k, width(x) AS w, coalesce(max(x) - min(x), 0.0) AS s FROM events GROUP BY k, {SLIDING}"
        query = session.create_query("q", select)
        for table in feed.batches:
            source.append(table)
        session.run_available()
        rows = query.results().to_pylist()
        assert query.status["error"] is None
        assert len(rows) > 4
        assert [row["w"] for row in rows] == pytest.approx([row["s"] for row in rows])


def test_a_new_definition_is_for_new_queries(side: Side, state_dir: Path) -> None:
    def by(factor: int) -> None:
        thalweg.aggregate("times", lambda: 0, lambda s, b: s + factor * len(b), lambda a, b: a + b, lambda s: s)

    feed = random_rows(4, 4)
    select = f"SELECT times(id) AS t, count(*) AS n, window.end AS e FROM events GROUP BY {SLIDING} EMIT UPDATES"
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        by(1)
        old = session.sql(f"CREATE QUERY old AS {select}")
        by(10)
        new = session.sql(f"CREATE QUERY new AS {select}")
        for table in feed.batches:
            source.append(table)
        session.run_available()
        for handle, factor in ((old, 1), (new, 10)):
            rows = handle.results().to_pylist()
            assert rows
            assert {row["t"] - factor * row["n"] for row in rows} == {0}


def test_joined_rows_can_be_aggregated(side: Side, state_dir: Path) -> None:
    define()
    feed = random_rows(5, 3)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        other = thalweg.memory(feed.schema, max_files_per_batch=1)
        session.create_stream("others", other, time="ts", watermark="3 seconds")
        tail = "FROM events a JOIN others b ON a.id = b.id WITHIN 2 SECONDS GROUP BY window(a.ts, '10 seconds')"
        joined = session.create_query("joined", f"SELECT my_mean(b.x) AS m, avg(b.x) AS a, count(*) AS n {tail}")
        for table in feed.batches:
            source.append(table)
            other.append(table)
        session.run_available()
        rows = joined.results().to_pylist()
        assert sum(row["n"] for row in rows) > 50
        assert [row["m"] for row in rows] == pytest.approx([row["a"] for row in rows])


def test_correlation_clusters_of_a_window(side: Side, state_dir: Path) -> None:
    """Names apart enough that there is one best clustering, whatever way the rows are cut."""
    thalweg.clustering.define("same_people", threshold=0.4)
    people = ("anna meier", "jonas weber", "wei chen")
    names, ids = [], []
    for number, name in enumerate(people):
        for i in range(8):
            names.append(name if i % 2 else name + name[-1])
            ids.append(number * 100 + i)
    order = random.Random(6).sample(range(len(ids)), len(ids))
    times = pa.array([i * SECOND // 3 for i in range(len(ids))]).cast(SCHEMA.field("ts").type)
    end = pa.array([100 * SECOND]).cast(SCHEMA.field("ts").type)
    rows = pa.table(
        {"ts": times, "zip": ["z"] * len(ids), "id": [ids[i] for i in order], "name": [names[i] for i in order]}
    )
    with side.connect(state_dir) as session:
        source = thalweg.memory(rows.schema, max_files_per_batch=1)
        session.create_stream("registry", source, time="ts", watermark="0 seconds")
        query = session.create_query(
            "people",
            "SELECT zip, same_people(id, name) AS people FROM registry "
            "GROUP BY zip, window(ts, '10 seconds', '5 seconds')",
        )
        for start in range(0, len(rows), 7):
            source.append(rows.slice(start, 7))
        source.append(pa.table({"ts": end, "zip": ["z"], "id": [999], "name": ["x"]}))
        session.run_available()
        found = query.results()
        assert found.schema.field("people").type == pa.list_(pa.list_(pa.int64()))
        whole = max(found.column("people").to_pylist(), key=lambda clusters: sum(map(len, clusters)))
        assert sorted(i for cluster in whole for i in cluster) == sorted(ids)
        assert [sorted({i // 100 for i in cluster}) for cluster in whole] == [[0], [1], [2]]


BAD = [
    ("SELECT my_mean(nope) AS m FROM events GROUP BY window(ts, '1 minute')", "nope", "column"),
    ("SELECT k, my_mean(sum(x)) FROM events GROUP BY k, window(ts, '1 minute')", "sum(x)", "aggregate"),
    (
        "SELECT k, my_mean(DISTINCT x) FROM events GROUP BY k, window(ts, '1 minute')",
        "my_mean(DISTINCT x)",
        "DISTINCT",
    ),
    ("SELECT my_mean(x) FROM events", "my_mean(x)", "window"),
    ("SELECT my_mean(x) FILTER (WHERE y > 1) FROM events GROUP BY window(ts, '1 minute')", "y", "column"),
    ("SELECT k FROM events GROUP BY k, window(ts, '1 minute') HAVING my_means(x) > 1", "my_means(x)", "my_means"),
]


def test_what_is_said_wrong_is_underlined(side: Side, state_dir: Path) -> None:
    define()
    with side.connect(state_dir) as session:
        open_stream(session, random_rows(7, 1))
        select, sink = f"SELECT my_list(s) AS l FROM events GROUP BY {TUMBLING}", thalweg.to_files("out", "json")
        with pytest.raises(ThalwegError, match="the array 'l' cannot be written as json"):
            session.create_query("q", select, sink)
        for select, place, word in BAD:
            with pytest.raises(SqlError) as caught:
                session.create_query("q", select)
            assert word in str(caught.value), select
            assert caught.value.span is not None
            assert place in select[slice(*caught.value.span)], str(caught.value)
        assert not session.queries
