"""Oracle: joins as users write them, all in one pipeline, compared with batch Spark SQL after every batch."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.side import Side

import thalweg
from thalweg.errors import SqlError, ThalwegError
from thalweg.source.memory import Memory
from thalweg.testing.compare import difference, rows_equal
from thalweg.testing.oracle import Feed

SECOND = 1_000_000
BASE = 1_780_000_000 * SECOND
STREAMS = ("a", "b", "c", "d", "e")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("j", pa.int64()),
        ("name", pa.string()),
        ("x", pa.int32()),
        ("flag", pa.bool_()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
STEPS = 5


def rows(rng: random.Random, step: int, count: int, serial: int) -> pa.Table:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.08 else value

    def time() -> int | None:
        late = rng.uniform(4, 15) if rng.random() < 0.07 else 0
        seconds = step * 6 + rng.uniform(-1.5, 6) - late
        return None if rng.random() < 0.02 else BASE + round(seconds * 20) * 50_000

    columns: dict[str, list[Any]] = {
        "id": [serial + i for i in range(count)],
        "k": [maybe(int(8 * rng.random() ** 1.5)) for _ in range(count)],
        "j": [maybe(rng.randint(0, 15)) for _ in range(count)],
        "name": [maybe(f"{rng.choice('nN')}{rng.randint(0, 5)}") for _ in range(count)],
        "x": [maybe(rng.randint(-20, 20)) for _ in range(count)],
        "flag": [maybe(rng.random() < 0.6) for _ in range(count)],
    }
    arrays = [pa.array(columns[f.name], f.type) for f in list(SCHEMA)[:-1]]
    times = pa.array([time() for _ in range(count)], pa.int64()).cast(SCHEMA.field("ts").type)
    return pa.Table.from_arrays([*arrays, times], schema=SCHEMA)


def make_feeds() -> list[Feed]:
    rng = random.Random("five streams")
    feeds = []
    for place, stream in enumerate(STREAMS):
        counts = [rng.choice((0, 20, 40, 60)) if step else 30 for step in range(STEPS)]
        batches = tuple(rows(rng, step, count, 1000 * step) for step, count in enumerate(counts))
        feeds.append(Feed(stream, "ts", (place % 3) * SECOND, batches))
    return feeds


FEEDS = make_feeds()

QUERIES = {
    "within": "SELECT a.id AS i, b.id AS j, a.name, b.x FROM a JOIN b ON a.k = b.k WITHIN 2 SECONDS",
    "within_other_way": "SELECT b.id AS i, a.id AS j FROM b JOIN a ON b.k = a.k WITHIN 2 SECONDS",
    "narrower": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k WITHIN 500 MILLISECONDS",
    "at_the_same_time": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k WITHIN 0 SECONDS",
    "comma": """SELECT a.id AS i, b.id AS j FROM a, b WHERE a.k = b.k AND a.x > 0
                AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 2 SECONDS""",
    "asymmetric": """SELECT a.id AS i, b.id AS j, b.ts AS t FROM a JOIN b ON a.k = b.k
                     AND b.ts BETWEEN a.ts + INTERVAL 500 MILLISECONDS AND a.ts + INTERVAL 3 SECONDS""",
    "only_before": """SELECT a.id AS i, c.id AS j FROM a JOIN c ON a.j = c.j
                      AND c.ts >= a.ts - INTERVAL 6 SECONDS AND c.ts <= a.ts - INTERVAL 2 SECONDS""",
    "strictly_after": """SELECT a.id AS i, c.id AS j FROM a, c WHERE a.j = c.j
                         AND c.ts > a.ts AND c.ts < a.ts + INTERVAL 4 SECONDS""",
    "two_bounds": """SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k
                     AND b.ts >= a.ts - INTERVAL 1 SECOND WITHIN 2 SECONDS""",
    "same_window": """SELECT a.id AS i, b.id AS j FROM a JOIN b
                      ON a.k = b.k AND window(a.ts, '4 seconds') = window(b.ts, '4 seconds')""",
    "self_join": "SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON x.k = y.k AND x.id < y.id WITHIN 1 SECOND",
    "self_join_of_three": """SELECT x.id AS i, y.id AS j, z.id AS l FROM d AS x
                             JOIN d AS y ON x.j = y.j WITHIN 2 SECONDS
                             JOIN d AS z ON y.j = z.j WITHIN 2 SECONDS WHERE x.id <> y.id AND y.flag""",
    "self_join_of_different_keys": """SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON x.k = y.j WITHIN 2 SECONDS
                                      WHERE x.flag AND NOT y.flag""",
    "string_key": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.name = b.name WITHIN 1 SECOND",
    "composite_key": """SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k AND a.name = b.name
                        WITHIN 5 SECONDS""",
    "mixed_types": "SELECT a.id AS i, c.id AS j FROM a JOIN c ON a.k = c.j WITHIN 2 SECONDS",
    "expression_keys": """SELECT a.id AS i, b.id AS j FROM a JOIN b ON upper(a.name) = upper(b.name)
                          AND a.k % 3 = b.k % 3 WITHIN 1 SECOND""",
    "null_keys_made_equal": """SELECT a.id AS i, b.id AS j FROM a JOIN b ON coalesce(a.k, -1) = coalesce(b.k, -1)
                               WITHIN 5 SECONDS WHERE a.k IS NULL""",
    "residual": """SELECT a.id AS i, b.id AS j, a.x + b.x AS s FROM a JOIN b
                   ON a.k = b.k AND a.x + b.x > 3 WITHIN 3 SECONDS WHERE a.x < b.x OR a.name = b.name""",
    "selections": """SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k WITHIN 3 SECONDS
                     WHERE a.x > 5 AND a.k IN (0, 1) AND b.name LIKE 'n%' AND b.flag""",
    "selects_nothing": "SELECT a.id FROM a JOIN b ON a.k = b.k WITHIN 3 SECONDS WHERE a.x > 1000",
    "contradiction": "SELECT a.id FROM a JOIN b ON a.k = b.k WITHIN 3 SECONDS WHERE a.x > 5 AND a.x < 5",
    "expressions": """SELECT concat(a.name, '-', coalesce(b.name, '?')) AS pair, a.x * b.x AS p, b.ts,
                      CASE WHEN a.flag THEN b.k END AS c FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND""",
    "constant": "SELECT 1 AS one FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND",
    "star_of_one": "SELECT a.*, b.id AS j FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND",
    "three": """SELECT a.id AS i, b.id AS j, c.id AS l FROM a JOIN b ON a.k = b.k WITHIN 2 SECONDS
                JOIN c ON b.j = c.j WITHIN 3 SECONDS""",
    "three_by_one_key": """SELECT a.id AS i, b.id AS j, c.id AS l FROM a JOIN b ON a.j = b.j WITHIN 2 SECONDS
                           JOIN c ON a.j = c.j WITHIN 2 SECONDS WHERE c.flag""",
    "triangle": """SELECT a.id AS i, b.id AS j, c.id AS l FROM a, b, c
                   WHERE a.k = b.k AND b.j = c.j AND a.name = c.name
                   AND b.ts BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts + INTERVAL 4 SECONDS
                   AND c.ts BETWEEN b.ts - INTERVAL 4 SECONDS AND b.ts + INTERVAL 4 SECONDS""",
    "both_pairs_within": """SELECT a.id AS i, b.id AS j, c.id AS l FROM a JOIN b ON a.k = b.k WITHIN 3 SECONDS
                            JOIN c ON a.j = c.j AND b.name = c.name WITHIN 4 SECONDS""",
    "four": """SELECT a.id AS i, b.id AS j, c.id AS l, d.id AS m FROM a JOIN b ON a.j = b.j WITHIN 2 SECONDS
               JOIN c ON b.k = c.k WITHIN 1 SECOND JOIN d ON a.name = d.name AND a.k = d.k WITHIN 3 SECONDS""",
    "five": """SELECT a.id AS i, b.id AS j, c.id AS l, d.id AS m, e.id AS n FROM a
               JOIN b ON a.j = b.j WITHIN 2 SECONDS JOIN c ON b.j = c.j WITHIN 2 SECONDS
               JOIN d ON c.k = d.k WITHIN 3 SECONDS JOIN e ON d.j = e.j WITHIN 2 SECONDS WHERE a.x + e.x > -10""",
    "grouped": """SELECT a.k, count(*) AS n, sum(a.x * b.x) AS s, window.start AS w FROM a JOIN b ON a.k = b.k
                  WITHIN 2 SECONDS GROUP BY a.k, window(a.ts, '4 seconds')""",
    "grouped_by_the_later": """SELECT count(*) AS n, max(a.name) AS m, window.end AS w FROM a JOIN b ON a.k = b.k
                  AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS
                  GROUP BY window(b.ts, '4 seconds', '2 seconds')""",
    "grouped_by_the_earlier": """SELECT count(*) AS n, max(a.name) AS m, window.end AS w FROM a JOIN b ON a.k = b.k
                  AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS
                  GROUP BY window(a.ts, '4 seconds', '2 seconds')""",
    "grouped_three": """SELECT c.flag, count(DISTINCT a.id) AS n, avg(b.x) AS m, window FROM a JOIN b ON a.k = b.k
                  WITHIN 1 SECOND JOIN c ON b.j = c.j WITHIN 2 SECONDS GROUP BY c.flag, window(b.ts, '3 seconds')
                  HAVING count(*) > 2""",
    "grouped_same_window": """SELECT count(*) AS n, min(b.x) AS m, window.end AS w FROM a JOIN b ON a.name = b.name
                  AND window(a.ts, '2 seconds') = window(b.ts, '2 seconds') GROUP BY window(a.ts, '2 seconds')""",
    "grouped_filter": """SELECT b.name, count(*) FILTER (WHERE a.flag) AS n, sum(b.x) AS s FROM a JOIN b ON a.k = b.k
                  WITHIN 2 SECONDS WHERE a.x <> b.x GROUP BY b.name, window(a.ts, '5 seconds', '1 second')""",
    "left": "SELECT a.id AS i, b.id AS j, b.name FROM a LEFT JOIN b ON a.k = b.k WITHIN 1 SECOND",
    "left_asymmetric": """SELECT a.id AS i, c.id AS j FROM a LEFT OUTER JOIN c ON a.j = c.j
                          AND c.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 500 MILLISECONDS""",
    "left_of_the_past": """SELECT a.id AS i, c.id AS j FROM a LEFT JOIN c ON a.j = c.j
                          AND c.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts - INTERVAL 1 SECOND""",
    "left_same_window": """SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b
                           ON a.j = b.j AND window(a.ts, '2 seconds') = window(b.ts, '2 seconds')""",
    "left_with_conditions": """SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON a.k = b.k AND a.x < b.x AND a.flag
                               AND b.x > 0 WITHIN 1 SECOND WHERE a.k < 5""",
    "left_without_partner": """SELECT a.id AS i FROM a LEFT JOIN b ON a.j = b.j WITHIN 1 SECOND
                               WHERE b.id IS NULL AND a.x > -10""",
    "left_grouped": """SELECT a.flag, count(*) AS n, count(b.id) AS m, window.end AS w FROM a LEFT JOIN b ON a.k = b.k
                       WITHIN 1 SECOND GROUP BY a.flag, window(a.ts, '3 seconds')""",
    "right": "SELECT a.id AS i, c.id AS j FROM a RIGHT JOIN c ON a.j = c.j WITHIN 1 SECOND WHERE c.x > -10",
    "full": """SELECT a.id AS i, c.id AS j, coalesce(a.j, c.j) AS l FROM a FULL OUTER JOIN c ON a.j = c.j
               WITHIN 1 SECOND""",
    "full_of_itself": "SELECT x.id AS i, y.id AS j FROM d x FULL JOIN d y ON x.k = y.j AND x.flag WITHIN 1 SECOND",
    "semi": "SELECT a.id, a.name FROM a LEFT SEMI JOIN c ON a.j = c.j WITHIN 1 SECOND",
    "semi_with_conditions": """SELECT a.id FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.x < b.x WITHIN 2 SECONDS
                               WHERE a.flag""",
    "anti": "SELECT a.id, a.name FROM a LEFT ANTI JOIN c ON a.j = c.j WITHIN 1 SECOND",
    "anti_with_conditions": """SELECT a.id, a.ts FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.flag
                               AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 2 SECONDS""",
}  # fmt: skip
TWICE = ["within", "residual", "three", "grouped", "grouped_three", "left", "left_grouped", "full", "semi", "anti"]
"""What two queries ask alike is shared, and counts once for each of them."""
QUERIES |= {f"{name}_again": QUERIES[name] for name in TWICE}


@dataclass
class Run:
    """What became of every query: the error of its creation, or its results after every step."""

    refused: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, list[pa.Table]] = field(default_factory=dict)
    errors: dict[str, str | None] = field(default_factory=dict)


def open_streams(session: thalweg.Session, feeds: list[Feed]) -> dict[str, Memory]:
    sources = {}
    for feed in feeds:
        sources[feed.stream] = thalweg.memory(feed.schema)
        delay = f"{feed.delay_us} microseconds"
        session.create_stream(feed.stream, sources[feed.stream], time=feed.time, watermark=delay)
    return sources


def steps(session: thalweg.Session, sources: dict[str, Memory], feeds: list[Feed]) -> Iterator[int]:
    """Feeds a table of every stream, runs, and gives the last batch."""
    for step in range(len(feeds[0].batches)):
        for feed in feeds:
            sources[feed.stream].append(feed.batches[step])
        session.run_available()
        yield 2 * step + 1


@pytest.fixture(scope="module")
def ran(module_side: Side, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All queries in one pipeline; a query that is refused does not keep the others from being looked at."""
    run = Run()
    with module_side.connect(tmp_path_factory.mktemp("joins") / "state") as session:
        sources = open_streams(session, FEEDS)
        handles = {}
        for name, select in QUERIES.items():
            try:
                handles[name] = session.create_query(name, select)
            except ThalwegError as error:
                run.refused[name] = str(error)
        for _ in steps(session, sources, FEEDS):
            for name, handle in handles.items():
                run.snapshots.setdefault(name, []).append(handle.results())
        run.errors = {name: handle.status["error"] for name, handle in handles.items()}
    return run


@pytest.mark.parametrize("name", QUERIES)
def test_emits_what_batch_spark_gives(side: Side, ran: Run, name: str) -> None:
    assert name not in ran.refused, ran.refused[name]
    assert ran.errors[name] is None
    due = side.emissions([feed.closed() for feed in FEEDS], QUERIES[name])
    if name not in ("selects_nothing", "contradiction"):
        assert due.through().num_rows > 0
    for step, actual in enumerate(ran.snapshots[name]):
        problem = difference(actual, due.through(2 * step + 1))
        assert problem is None, f"after step {step}: {problem}"


# late rows


def one(*values: tuple[int | None, int, float | None]) -> pa.Table:
    """Rows of (k, id, seconds)."""
    times = pa.array([None if s is None else BASE + round(s * SECOND) for *_, s in values], pa.int64())
    arrays = {
        "id": pa.array([i for _, i, _ in values], pa.int64()),
        "k": pa.array([k for k, _, _ in values], pa.int32()),
        "ts": times.cast(pa.timestamp("us", tz="UTC")),
    }
    return pa.table(arrays)


PAIRS = "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k WITHIN 10 SECONDS"


def test_the_slower_stream_decides_what_is_late(side: Side, state_dir: Path) -> None:
    feeds = [
        Feed(
            "a",
            "ts",
            0,
            (one((1, 1, 100)), one((1, 2, 20)), one((1, 3, 100)), one((1, 4, 15), (1, 5, 40), (1, 8, 42))),
        ),
        Feed(
            "b",
            "ts",
            0,
            (one((2, 1, 20)), one((1, 2, 15)), one((2, 3, 40)), one((1, 6, 41), (1, 7, 40), (1, 9, None))),
        ),
    ]
    of_a_alone = "SELECT o.id AS i, p.id AS j FROM a o JOIN a AS p ON o.k = p.k WITHIN 10 SECONDS"
    with side.connect(state_dir) as session:
        sources = open_streams(session, feeds)
        both = session.create_query("both", PAIRS)
        left = session.create_query("preserving", PAIRS.replace("JOIN", "LEFT JOIN"))
        fast = session.create_query("fast", of_a_alone)
        closed = [feed.closed() for feed in feeds]
        for batch in steps(session, sources, feeds):
            for handle in (both, left, fast):
                rows_equal(handle.results(), side.emissions(closed, handle.definition.text).through(batch))
        # Worked out: after the first step the watermark of both is 20. Row 2 of a is at it: late, as is row 2 of b.
        # After the third it is 40: rows 4 and 5 of a and row 7 of b are late, 8 and 6 are not. That of a is 100.
        assert both.results().to_pylist() == [{"i": 8, "j": 6}]
        assert fast.results().num_rows == 1


# static tables

NAMES = pa.table({"k": pa.array([0, 1, 2, 2, None], pa.int32()), "label": ["zero", "one", "two", "deux", "none"]})
OTHERS = pa.table({"k": pa.array([1, 2, 3, 4], pa.int32()), "label": ["ONE", "TWO", "THREE", None]})
TABLE_QUERIES = {
    "stream_table": "SELECT a.id, n.label FROM a JOIN names n ON a.k = n.k WHERE a.x > -15",
    "stream_left_table": "SELECT a.id, n.label FROM a LEFT JOIN names n ON a.k = n.k",
    "stream_table_condition": "SELECT a.id, n.label FROM a LEFT JOIN names n ON a.k = n.k AND length(n.label) > a.x",
    "joined_table": """SELECT a.id AS i, b.id AS j, n.label FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
                       JOIN names n ON b.k = n.k""",
    "joined_left_table": """SELECT a.id AS i, b.id AS j, n.label FROM a JOIN b ON a.j = b.j WITHIN 1 SECOND
                            LEFT JOIN names n ON a.k = n.k WHERE a.x > 0 OR n.label = 'two'""",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrow", pytest.param("dataframe", marks=pytest.mark.on_spark), "path"])
def test_static_tables(side: Side, state_dir: Path, tmp_path: Path, kind: str) -> None:
    def given(table: pa.Table, name: str) -> Any:
        if kind == "arrow":
            return table
        pq.write_table(table, tmp_path / name)
        return side.spark.read.parquet(str(tmp_path / name)) if kind == "dataframe" else str(tmp_path / name)

    feeds = FEEDS[:2]
    versions = {"names": [(0, NAMES), (4, OTHERS)]}
    with side.connect(state_dir) as session:
        sources = open_streams(session, feeds)
        session.create_table("names", given(NAMES, "names.parquet"))
        handles = {name: session.create_query(name, select) for name, select in TABLE_QUERIES.items()}
        for batch in steps(session, sources, feeds):
            if batch == 3:
                session.create_table("names", given(OTHERS, "others.parquet"), replace=True)
        closed = [feed.closed() for feed in feeds]
        for name, handle in handles.items():
            assert handle.status["error"] is None
            due = side.emissions(closed, TABLE_QUERIES[name], tables=versions)
            rows_equal(handle.results(), due.through())


@pytest.mark.on_spark
def test_a_stream_joined_with_a_table_is_grouped(side: Side, state_dir: Path) -> None:
    select = """SELECT n.label, count(*) AS c, sum(a.x) AS s, window.end AS w FROM a JOIN names n ON a.k = n.k
                GROUP BY n.label, window(a.ts, '4 seconds', '2 seconds')"""
    joined = """SELECT n.label, count(*) AS c, window.end AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
                JOIN names n ON a.k = n.k GROUP BY n.label, window(a.ts, '4 seconds')"""
    with side.connect(state_dir) as session:
        sources = open_streams(session, FEEDS[:2])
        session.create_table("names", NAMES)
        alone, both = session.create_query("alone", select), session.create_query("both", joined)
        assert list(steps(session, sources, FEEDS[:2]))[-1] == 2 * STEPS - 1
        closed = [feed.closed() for feed in FEEDS[:2]]
        side.spark.createDataFrame(NAMES).createOrReplaceTempView("names")
        rows_equal(alone.results(), side.expected(closed[0], select))
        rows_equal(both.results(), side.emissions(closed, joined, tables={"names": [(0, NAMES)]}).through())


@pytest.mark.on_spark
def test_a_table_must_be_replaced_on_purpose(side: Side, state_dir: Path) -> None:
    with side.connect(state_dir) as session:
        open_streams(session, FEEDS[:1])
        session.create_table("names", NAMES)
        with pytest.raises(ThalwegError, match="names"):
            session.create_table("names", OTHERS)
        with pytest.raises(ThalwegError, match="'a'"):
            session.create_table("a", OTHERS)
        failing = side.spark.range(1).selectExpr("CAST(raise_error('no') AS INT) AS k")
        with pytest.raises(ThalwegError, match="'bad' cannot be made: its DataFrame cannot be read"):
            session.create_table("bad", failing)


def test_a_table_that_is_slow_to_read_holds_nobody_up(
    side: Side, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read_slowly(*given: Any) -> pa.Table:
        reading.set()
        go_on.wait(30)
        return OTHERS

    with side.connect(state_dir) as session:
        source = open_streams(session, FEEDS[:1])["a"]
        session.create_table("names", NAMES)
        query = session.create_query("q", "SELECT id FROM a")
        monkeypatch.setattr(session._parts.engine, "read_table", read_slowly)
        replacing = threading.Thread(target=session.create_table, args=("names", "file"), kwargs={"replace": True})
        replacing.start()
        assert reading.wait(30)
        source.append(FEEDS[0].batches[0])
        session.run_available()
        assert query.results().num_rows > 0
        assert replacing.is_alive()
        # What comes into use while the table is read keeps its columns.
        session.create_query("labels", "SELECT n.label FROM a JOIN names n ON a.k = n.k")
        go_on.set()
        replacing.join(30)
        assert session.tables["names"].version.rows == OTHERS.num_rows


# bad input

ON = "ON a.k = b.k WITHIN 1 SECOND"
FIVE = "b" + "".join(f" JOIN {s} ON b.k = {s.split()[-1]}.k WITHIN 1 SECOND" for s in ("c", "d", "e", "b x"))
BAD = {
    "cross_product": ("SELECT a.id FROM a, b WHERE a.ts BETWEEN b.ts AND b.ts + INTERVAL 1 SECOND", "equal", "b"),
    "no_equality": ("SELECT a.id FROM a JOIN b ON a.k < b.k WITHIN 1 SECOND", "equal", "b"),
    "unconnected": (f"SELECT a.id FROM a JOIN b {ON} JOIN c ON c.x > a.x WITHIN 1 SECOND", "equal", "c"),
    "equality_of_one": ("SELECT a.id FROM a JOIN b ON a.k = a.j WITHIN 1 SECOND", "equal", "b"),
    "no_bound": ("SELECT a.id FROM a JOIN b ON a.k = b.k", "within|bound", "a|b"),
    "half_a_bound": ("SELECT a.id FROM a JOIN b ON a.k = b.k AND a.ts <= b.ts", "within|bound", "b"),
    "one_bound_of_two": (f"SELECT a.id FROM a JOIN b {ON} JOIN c ON a.k = c.k", "within|bound", "c"),
    "ambiguous": (f"SELECT id FROM a JOIN b {ON}", "ambiguous", "id"),
    "ambiguous_in_where": (f"SELECT a.id FROM a JOIN b {ON} WHERE x > 1", "ambiguous", "x"),
    "unknown_column": (f"SELECT a.nope FROM a JOIN b {ON}", "nope", "nope"),
    "unknown_in_on": ("SELECT a.id FROM a JOIN b ON a.kk = b.k WITHIN 1 SECOND", "kk", "kk"),
    "unknown_alias": (f"SELECT z.id FROM a JOIN b {ON}", r"\bz\b", "z"),
    "unknown_stream": ("SELECT a.id FROM a JOIN zz ON a.k = zz.k WITHIN 1 SECOND", "zz", "zz"),
    "name_given_twice": ("SELECT a.id FROM a JOIN a ON a.k = a.k WITHIN 1 SECOND", "alias|twice|ambiguous", "a"),
    "incompatible_types": ("SELECT a.id FROM a JOIN b ON a.k = b.flag WITHIN 1 SECOND", "type|mismatch", "flag"),
    "six_streams": (f"SELECT b.id FROM {FIVE} JOIN a ON b.k = a.k WITHIN 1 SECOND", "five|5", r"\ba\b"),
    "within_what": ("SELECT a.id FROM a JOIN b ON a.k = b.k WITHIN soon", "within|soon|interval", "soon"),
    "no_window": (f"SELECT a.k, count(*) FROM a JOIN b {ON} GROUP BY a.k", "window", "a.k"),
    "outer_of_3": (f"SELECT 1 FROM a LEFT JOIN b {ON} JOIN c ON a.k = c.k WITHIN 1 SECOND", "two|outer", "LEFT|b|c"),
    "random": (f"SELECT a.id FROM a JOIN b {ON} WHERE rand() > a.x + b.x", "rand", "rand"),
    "semi_shows_other": ("SELECT b.id FROM a LEFT SEMI JOIN b ON a.k = b.k WITHIN 1 SECOND", "column|b.id", "b.id"),
}  # fmt: skip


@pytest.fixture(scope="module")
def idle(module_side: Side, tmp_path_factory: pytest.TempPathFactory) -> Iterator[thalweg.Session]:
    """Streams, and nothing that runs."""
    with module_side.connect(tmp_path_factory.mktemp("idle") / "state") as session:
        open_streams(session, FEEDS)
        yield session


@pytest.mark.parametrize("name", BAD)
def test_a_bad_join_is_refused_with_its_place(idle: thalweg.Session, name: str) -> None:
    select, words, place = BAD[name]
    with pytest.raises(SqlError, match=f"(?is){words}") as caught:
        idle.create_query("bad", select)
    error = caught.value
    assert error.span is not None
    assert "^" in str(error)
    assert "org.apache" not in str(error)
    assert re.search(place, select[slice(*error.span)])
    assert "bad" not in idle.queries


def test_too_frequent_a_key_stops_its_query_alone(side: Side, state_dir: Path) -> None:
    def crowd(seconds: float, key: int, count: int) -> pa.Table:
        return one(*((key, i, seconds) for i in range(count)), *((i, 900 + i, seconds) for i in range(5)))

    feeds = [
        Feed("a", "ts", SECOND, (crowd(1, 77, 3), crowd(4, 77, 50), crowd(7, 78, 2))),
        Feed("b", "ts", SECOND, (crowd(1, 77, 3), crowd(4, 77, 50), crowd(7, 78, 2))),
    ]
    closed = [feed.closed() for feed in feeds]
    select = PAIRS.replace("10 SECONDS", "1 SECOND")
    with side.connect(state_dir) as session:
        sources = open_streams(session, feeds)
        careful = session.sql(f"CREATE QUERY careful OPTIONS (join_limit = '1000') AS {select}")
        free = session.create_query("free", select)
        roomy = session.create_query("roomy", select, options={"join_limit": "1000000"})
        picky = session.sql(f"CREATE QUERY picky OPTIONS (join_limit = '1000') AS {select} WHERE a.k < 77")
        states = [careful.status["state"] for _ in steps(session, sources, feeds)]
        assert states == ["idle", "failed", "failed"]
        assert "77" in careful.status["error"]
        assert "join_limit" in careful.status["error"]
        for handle in (free, roomy, picky):
            assert handle.status["state"] == "idle"
            text = handle.definition.text
            rows_equal(handle.results(), side.emissions(closed, text).through())
        assert free.results().num_rows > 2500
        rows_equal(careful.results(), side.emissions(closed, select).through(1))
