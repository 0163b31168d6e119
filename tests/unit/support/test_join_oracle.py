"""Unit: the join oracle's own rules, against results worked out by hand, plain Spark SQL and nested loops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.join_oracle import (
    bag_difference,
    counting_rows,
    emissions,
    expected,
    join_watermarks,
    parse_join,
)
from tests.support.join_randomly import random_world

from thalweg.errors import UsageError
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed, event_times

SECOND = 1_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)
BASE = int(START.timestamp()) * SECOND
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
JOIN = "SELECT a.v AS x, b.v AS y FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rows(*values: tuple[int | None, str, float | None]) -> pa.Table:
    data = [{"k": k, "v": v, "ts": None if s is None else at(s)} for k, v, s in values]
    return pa.Table.from_pylist(data, SCHEMA)


def feed(stream: str, *batches: pa.Table, delay: int = 0) -> Feed:
    return Feed(stream, "ts", delay * SECOND, batches)


def tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def emitted(spark: SparkSession, feeds: list[Feed], select: str) -> list[tuple[int | None, tuple[object, ...]]]:
    """(batch, row) of everything, whether it can be emitted or not."""
    found = emissions(spark, feeds, select)
    values = [tuple(row.values()) for row in found.rows.to_pylist()]
    return sorted(zip(found.batches, values, strict=True), key=str)


def test_the_least_watermark_counts() -> None:
    feeds = [
        feed("a", rows((1, "a", 10)), rows((1, "a", 30)), rows()),
        feed("b", rows(), rows((1, "b", 20)), rows(), delay=5),
        feed("c", rows(), rows(), rows()),
    ]
    marks = join_watermarks(feeds, {"a", "b"})
    assert [None if m is None else (m - BASE) // SECOND for m in marks] == [None, None, 15, 15]
    assert join_watermarks(feeds, {"a", "c"}) == [None] * 4
    with pytest.raises(ValueError):
        join_watermarks([feeds[0], feed("b", rows())], {"a", "b"})


def test_at_the_watermark_of_the_batch_before_is_late() -> None:
    given = feed("a", rows((1, "x", 10)), rows(), rows((1, "at", 10), (1, "after", 10.001), (1, "null", None)))
    kept = counting_rows(given, join_watermarks([given], {"a"}))
    assert kept["v"].to_pylist() == ["x", "after"]
    # The watermark of 10 s comes into force with batch 1: there the row is not yet late.
    early = feed("a", rows((1, "x", 10)), rows((1, "at", 10)))
    assert counting_rows(early, join_watermarks([early], {"a"})).num_rows == 2


def test_a_joined_row_comes_with_its_last_row(spark: SparkSession) -> None:
    feeds = [
        feed("a", rows((1, "a1", 1), (None, "a0", 1)), rows((1, "a2", 6)), rows((1, "late", 1))),
        feed("b", rows((1, "b1", 6), (None, "b0", 1)), rows((1, "b2", 6.001), (1, "b3", 11)), rows((2, "b4", 30))),
    ]
    # Watermarks: none, 1 s, 6 s. The row at 1 s in batch 2 is late; 6.001 - 1 is out of bounds.
    assert emitted(spark, feeds, JOIN) == [
        (0, ("a1", "b1")),
        (1, ("a2", "b1")),
        (1, ("a2", "b2")),
        (1, ("a2", "b3")),
    ]
    assert tuples(emissions(spark, feeds, JOIN).through(0)) == [("a1", "b1")]
    assert expected(spark, feeds, JOIN).num_rows == 4


@pytest.mark.parametrize(
    "join",
    [
        "FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS",
        "FROM a INNER JOIN b ON b.k = a.k AND a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts + INTERVAL 5 SECONDS",
        "FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL 5000 MILLISECONDS",
        "FROM a, b WHERE a.k = b.k AND a.ts <= b.ts + INTERVAL 5 SECONDS AND a.ts >= b.ts - INTERVAL 5 SECONDS",
    ],
)
def test_every_way_to_write_a_bound(spark: SparkSession, join: str) -> None:
    feeds = [feed("a", rows((1, "a", 1))), feed("b", rows((1, "b", 6), (1, "c", 6.001), (1, "d", -4)))]
    assert tuples(expected(spark, feeds, f"SELECT b.v AS v {join}")) == [("b",), ("d",)]
    limits = parse_join(f"SELECT b.v AS v {join}", feeds).limits
    assert limits == {("a", "b"): 5 * SECOND, ("b", "a"): 5 * SECOND}


def test_bounds_that_are_not_symmetric(spark: SparkSession) -> None:
    select = (
        "SELECT b.v AS v FROM a JOIN b ON a.k = b.k "
        "AND b.ts BETWEEN a.ts + INTERVAL 1 SECOND AND a.ts + INTERVAL 3 SECONDS"
    )
    parsed = parse_join(select, [feed("a", rows()), feed("b", rows())])
    assert parsed.limits == {("b", "a"): 3 * SECOND, ("a", "b"): -1 * SECOND}
    assert (parsed.reach("a"), parsed.reach("b")) == (3 * SECOND, -1 * SECOND)
    strict = parse_join("SELECT 1 FROM a, b WHERE a.k = b.k AND a.ts < b.ts AND a.ts > b.ts - INTERVAL 1 SECOND",
                        [feed("a", rows()), feed("b", rows())])  # fmt: skip
    assert strict.limits == {("a", "b"): -1, ("b", "a"): SECOND - 1}
    feeds = [feed("a", rows((1, "a", 0))), feed("b", rows(*((1, f"b{t}", t) for t in range(6))))]
    assert tuples(expected(spark, feeds, select)) == [("b1",), ("b2",), ("b3",)]


def test_bounds_are_closed_over_all_relations() -> None:
    select = """SELECT x.v AS v FROM a x JOIN b ON x.k = b.k WITHIN 2 SECONDS
                JOIN c AS z ON b.k = z.k AND x.v <> z.v WITHIN 3 SECONDS
                JOIN a y ON upper(x.v) = upper(y.v) AND y.k = z.k WITHIN 1 MINUTE"""
    parsed = parse_join(select, [feed(name, rows()) for name in "abc"])
    assert parsed.relations == (("x", "a"), ("b", "b"), ("z", "c"), ("y", "a"))
    seconds = {pair: most // SECOND for pair, most in parsed.limits.items()}
    assert seconds["x", "b"] == 2
    assert seconds["x", "z"] == seconds["z", "x"] == 5
    assert seconds["y", "x"] == seconds["z", "y"] == 60
    assert seconds["b", "y"] == 62
    assert parsed.streams == {"a", "b", "c"}


def test_same_window(spark: SparkSession) -> None:
    select = "SELECT b.v AS v FROM a, b WHERE a.k = b.k AND window(a.ts, '10 seconds') = window(b.ts, '10 seconds')"
    feeds = [feed("a", rows((1, "a", 9))), feed("b", rows((1, "b", 0), (1, "c", 9.999), (1, "d", 10)))]
    assert tuples(expected(spark, feeds, select)) == [("b",), ("c",)]
    assert parse_join(select, feeds).reach("a") == 10 * SECOND - 1


def test_a_window_waits_for_what_can_be_joined_with_its_rows(spark: SparkSession) -> None:
    """Windows over a: b may be 3 s later, so [0, 10) is emitted at a watermark of 13 s; over b at 10 s."""
    bound = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS"
    select = f"SELECT count(*) AS n, window.end AS e FROM a JOIN b ON {bound} GROUP BY window(%s.ts, '10 seconds')"
    feeds = [
        feed("a", rows((1, "a", 1), (1, "a", 9)), rows((1, "a", 10)), rows((1, "a", 13)), rows()),
        feed("b", rows((1, "b", 1)), rows((1, "b", 12.999)), rows((1, "b", 13)), rows((1, "b", 40))),
    ]
    # The watermarks of batches 1 to 4 are 1, 10, 13 and 13: the window that ends at 20 is never closed.
    over_a = [(3, (1, at(10))), (None, (3, at(20)))]
    over_b = [(2, (1, at(10))), (None, (3, at(20)))]
    assert emitted(spark, feeds, select % "a") == over_a
    assert emitted(spark, feeds, select % "b") == over_b


def test_outer_joins_wait_for_the_watermark(spark: SparkSession) -> None:
    """b may be up to 2 s after a and 1 s before it."""
    bound = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 2 SECONDS"
    feeds = [
        feed("a", rows((1, "a1", 10), (2, "a2", 10)), rows((None, "a3", 12)), rows((3, "a4", 20)), rows()),
        feed("b", rows((1, "b1", 12)), rows((9, "b2", 11)), rows((3, "b3", 19)), rows()),
    ]
    # The watermarks of batches 1 to 4 are 10, 12, 19 and 19.
    pairs = [(0, ("a1", "b1")), (2, ("a4", "b3"))]
    left = [(2, ("a2", None)), (3, ("a3", None))]
    right = [(2, (None, "b2"))]
    text = "SELECT a.v AS x, b.v AS y FROM a {} JOIN b ON " + bound
    assert emitted(spark, feeds, text.format("LEFT OUTER")) == sorted(pairs + left, key=str)
    assert emitted(spark, feeds, text.format("RIGHT")) == sorted(pairs + right, key=str)
    assert emitted(spark, feeds, text.format("FULL OUTER")) == sorted(pairs + left + right, key=str)
    one = "SELECT a.v AS x FROM a {} JOIN b ON " + bound
    assert emitted(spark, feeds, one.format("LEFT ANTI")) == [(2, ("a2",)), (3, ("a3",))]
    assert emitted(spark, feeds, one.format("LEFT SEMI")) == [(2, ("a1",)), (None, ("a4",))]


def test_conditions_of_on_decide_who_has_a_partner(spark: SparkSession) -> None:
    feeds = [
        feed("a", rows((1, "a", 1), (1, "z", 1), (1, "null", None)), rows((7, "end", 90))),
        feed("b", rows((1, "m", 1)), rows((7, "end", 90))),
    ]
    select = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v WITHIN 1 SECOND WHERE a.k = 1"
    assert emitted(spark, feeds, select) == [(0, ("a", "m")), (2, ("z", None))]


def test_a_row_without_a_partner_that_could_only_be_older_is_emitted_at_once(spark: SparkSession) -> None:
    """Partners lie 5 to 9 s before it: when it comes, all of them are late."""
    bound = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 9 SECONDS AND a.ts - INTERVAL 5 SECONDS"
    select = f"SELECT a.v AS x FROM a LEFT ANTI JOIN b ON {bound}"
    feeds = [
        feed("a", rows((1, "a0", 100)), rows((1, "a1", 102)), rows((1, "a2", 104)), rows()),
        feed("b", rows((5, "b", 100)), rows((5, "b", 99)), rows(), rows()),
    ]
    # The watermark is 100 from batch 1 on: a0 and a1 are decided there, a2 when it comes.
    assert emitted(spark, feeds, select) == [(1, ("a0",)), (1, ("a1",)), (2, ("a2",))]


def test_static_tables_in_their_versions(spark: SparkSession) -> None:
    names = [pa.table({"k": [1, 2], "name": names}) for names in (["one", "two"], ["ONE", "TWO"])]
    versions = {"names": [(0, names[0]), (1, names[1])]}
    feeds = [
        feed("a", rows((1, "a", 50)), rows((2, "b", 2), (3, "c", None))),
        feed("b", rows((1, "x", 50)), rows((2, "y", 2))),
    ]
    alone = "SELECT v, name FROM a LEFT JOIN names n ON a.k = n.k"
    assert emissions(spark, feeds, alone, tables=versions).through(0).to_pylist() == [{"v": "a", "name": "one"}]
    # A stream alone joins nothing that must be kept: no row of it is late.
    assert tuples(expected(spark, feeds, alone, tables=versions)) == [("a", "one"), ("b", "TWO"), ("c", None)]
    both = "SELECT a.v AS v, n.name FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND JOIN names n ON b.k = n.k"
    assert tuples(expected(spark, feeds, both, tables=versions)) == [("a", "one"), ("b", "TWO")]
    grouped = "SELECT count(*) AS n FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND GROUP BY window(a.ts, '1 second')"
    with pytest.raises(UsageError, match="replaced"):
        expected(spark, feeds, grouped, tables=versions)


def test_star_shows_no_column_of_the_oracle(spark: SparkSession) -> None:
    feeds = [feed("a", rows((1, "a", 1))), feed("b", rows((1, "b", 1)))]
    table = expected(spark, feeds, "SELECT a.*, b.v AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND")
    assert table.column_names == ["k", "v", "ts", "w"]


def test_what_a_query_created_later_must_and_may_give(spark: SparkSession) -> None:
    feeds = [
        feed("a", rows((1, "a1", 1), (1, "a2", 4)), rows((1, "a3", 5)), rows()),
        feed("b", rows((1, "b1", 3)), rows(), rows((1, "b2", 4))),
    ]
    found = emissions(spark, feeds, JOIN)
    must, may = found.of_later(1, at(1))
    assert tuples(may) == [("a1", "b2"), ("a2", "b2"), ("a3", "b1"), ("a3", "b2")]
    assert tuples(must) == [("a2", "b2"), ("a3", "b1"), ("a3", "b2")]
    assert found.of_later(1, None)[0].num_rows == 4
    assert bag_difference(may, must, may) is None
    assert bag_difference(must, must, may) is None
    assert "missing" in str(bag_difference(may.slice(1), may, may))
    assert "not expected" in str(bag_difference(pa.concat_tables([may, may.slice(3)]), must, may))


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a.v FROM a JOIN b ON a.k = b.k",
        "SELECT a.v FROM a JOIN b ON a.k = b.k AND a.ts <= b.ts",
        JOIN + " ORDER BY x",
        "SELECT count(*) FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND GROUP BY a.k",
    ],
)
def test_what_it_cannot_judge_it_refuses(select: str) -> None:
    with pytest.raises(UsageError, match="oracle"):
        parse_join(select, [feed("a", rows()), feed("b", rows())])


def test_without_late_rows_it_is_plain_spark_sql(spark: SparkSession) -> None:
    """All rows in one batch: the result is the SELECT itself, run by Spark over the whole."""
    world = random_world(4)
    whole = [Feed(f.stream, f.time, f.delay_us, (pa.concat_tables(f.batches).combine_chunks(),)) for f in world.feeds]
    query = next(q for q in world.queries if "GROUP BY" not in q.select and "LEFT" not in q.select)
    parsed = parse_join(query.select, whole)
    actual = expected(spark, whole, query.select)
    for f in whole:
        spark.createDataFrame(f.batches[0]).createOrReplaceTempView(f.stream)
    plain = spark.sql(f"{parsed.select.head}\n{parsed.select.body}").toArrow()
    rows_equal(actual, plain)


def test_nested_loops_agree(spark: SparkSession) -> None:
    """Over random rows, late and out of order: the same pairs in the same batches as by the definition."""
    world = random_world(2)
    one, other = world.feeds[:2]
    a, b = (f"{f.stream}.{f.time}" for f in (one, other))
    bound = f"{b} BETWEEN {a} - INTERVAL 1 SECOND AND {a} + INTERVAL 4 SECONDS"
    names = f"FROM {one.stream} JOIN {other.stream} ON {one.stream}.k = {other.stream}.k"
    select = f"SELECT {one.stream}.id AS i, {other.stream}.id AS j {names} AND {bound}"
    marks = join_watermarks([one, other], {one.stream, other.stream})

    def alive(given: Feed) -> list[tuple[int, int, int, int | None]]:
        found = []
        for batch, table in enumerate(given.batches):
            late = marks[batch - 1] if batch else None
            times = event_times(table, given.time).to_pylist()
            for row, time in zip(table.to_pylist(), times, strict=True):
                if time is not None and (late is None or time > late):
                    found.append((batch, time, row["id"], row["k"]))
        return found

    wanted = [
        (max(x[0], y[0]), (x[2], y[2]))
        for x, y in product(alive(one), alive(other))
        if x[3] is not None and x[3] == y[3] and -1 * SECOND <= y[1] - x[1] <= 4 * SECOND
    ]
    assert len(wanted) > 50
    assert emitted(spark, [one, other], select) == sorted(wanted, key=str)


@pytest.mark.slow
def test_random_worlds_are_reproducible_and_of_every_kind() -> None:
    again, same = random_world(3), random_world(3)
    assert again.queries == same.queries
    assert all(one.batches == other.batches for one, other in zip(again.feeds, same.feeds, strict=True))
    worlds = [random_world(seed) for seed in range(40)]
    parsed = [parse_join(query.select, world.feeds) for world in worlds for query in world.queries]
    assert {len(p.relations) for p in parsed} == {2, 3, 4, 5}
    assert {p.kind for p in parsed} == {"inner", "left", "right", "full", "semi", "anti"}
    assert any(len(p.streams) < len(p.relations) for p in parsed)
    texts = " ".join(query.select for world in worlds for query in world.queries)
    wanted = (
        "WITHIN",
        "BETWEEN",
        ">=",
        ") = window(",
        "upper(",
        "% 13",
        "coalesce(",
        "GROUP BY",
        ", basalt",
        "name = ",
    )
    assert [word for word in wanted if word not in texts] == []
    feeds = [feed for world in worlds for feed in world.feeds]
    assert any(table.num_rows == 0 for feed in feeds for table in feed.batches)
    assert len({feed.delay_us for feed in feeds}) > 3
    late = sum(feed.rows - counting_rows(feed, join_watermarks([feed], {feed.stream})).num_rows for feed in feeds)
    assert 0.02 < late / sum(feed.rows for feed in feeds) < 0.2


def test_random_joins_give_rows_but_not_too_many(spark: SparkSession) -> None:
    sizes = []
    for seed in (1, 2):
        world = random_world(seed)
        sizes += [expected(spark, world.feeds, query.select).num_rows for query in world.queries]
    assert max(sizes) < 20_000
    assert sum(size > 0 for size in sizes) > len(sizes) // 2
