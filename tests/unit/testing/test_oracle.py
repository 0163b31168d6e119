"""Unit: the oracle's own rules, against results worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from thalweg.errors import UsageError
from thalweg.model.window import Window
from thalweg.testing.oracle import Feed, expected, expected_emissions, late_rows, parse_select, watermarks

SECOND = 1_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)
INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("ts", INSTANT)])


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rows(*values: tuple[str, int, float | None]) -> pa.Table:
    data = [{"k": k, "x": x, "ts": None if s is None else at(s)} for k, x, s in values]
    return pa.Table.from_pylist(data, SCHEMA)


def feed(*batches: pa.Table, delay: int = 2) -> Feed:
    return Feed("events", "ts", delay * SECOND, batches)


def tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_watermark_follows_the_batches_before() -> None:
    marks = watermarks(feed(rows(("a", 1, 10.0009)), rows(), rows(("a", 1, 5)), rows(("a", 1, 20))))
    base = int(START.timestamp()) * SECOND
    assert marks[0] is None
    assert [m - base for m in marks[1:] if m is not None] == [8 * SECOND, 8 * SECOND, 8 * SECOND, 18 * SECOND]
    assert watermarks(feed(rows(("a", 1, None)))) == [None, None]


def test_row_is_late_only_for_windows_already_closed(spark: SparkSession) -> None:
    """Worked out by hand: watermarks None, 18, 18; windows of 10 s every 5 s.

    The row at 9 arrives in batch 2 under watermark 18 (that of batch 1): its windows [0,10) and [5,15) have
    closed. The row at 12 is late for [5,15) and still counts in [10,20), which closes with the last batch.
    """
    third = rows(("a", 8, 9), ("a", 16, 12), ("a", 32, 40))
    given = feed(rows(("a", 1, 1), ("a", 2, 20)), rows(("a", 4, 8)), third)
    select = "SELECT sum(x) AS s, window.end AS e FROM events GROUP BY window(ts, '10 seconds', '5 seconds')"
    assert tuples(expected(spark, given, select)) == [
        (1, at(5)),
        (2, at(25)),
        (2, at(30)),
        (4, at(15)),
        (5, at(10)),
        (16, at(20)),
    ]
    assert late_rows(given, Window(10 * SECOND, 5 * SECOND)) == 1


def test_emissions_name_the_batch(spark: SparkSession) -> None:
    given = feed(rows(("a", 1, 1)), rows(("a", 1, 20)), rows(("a", 1, 30)), rows(("a", 1, 2)))
    select = "SELECT count(*) AS n FROM events GROUP BY window(ts, '10 seconds')"
    emitted = expected_emissions(spark, given, select)
    assert [(batch, tuples(table)) for batch, table in emitted] == [(2, [(1,)]), (4, [])]


def test_query_sees_rows_from_its_creation(spark: SparkSession) -> None:
    given = feed(rows(("a", 1, 1), ("a", 1, 11)), rows(("a", 1, 12)), rows(("a", 1, 13), ("a", 1, 40)))
    select = "SELECT count(*) AS n FROM events GROUP BY window(ts, '10 seconds')"
    assert tuples(expected(spark, given, select, since=1)) == [(2,)]


def test_top_k_is_per_window(spark: SparkSession) -> None:
    given = feed(rows(("a", 1, 1), ("b", 5, 2), ("c", 3, 3), ("a", 9, 11), ("b", 2, 12), ("z", 0, 60)))
    select = """SELECT k, sum(x) FROM events GROUP BY k, window(ts, '10 seconds') -- ORDER BY k
                ORDER BY 2 DESC, k LIMIT 2"""
    assert tuples(expected(spark, given, select)) == [("a", 9), ("b", 2), ("b", 5), ("c", 3)]


def test_first_and_last_are_by_event_time(spark: SparkSession) -> None:
    given = feed(rows(("a", 3, 3), ("a", 1, 1)), rows(("a", 4, 4), ("a", 2, 2), ("b", 0, 60)))
    select = "SELECT first(x) AS f, last(x) AS l, first(k) AS k FROM events GROUP BY window(ts, '10 seconds')"
    assert tuples(expected(spark, given, select)) == [(1, 4, "a")]


def test_plain_query_keeps_every_row(spark: SparkSession) -> None:
    given = feed(rows(("a", 1, 60)), rows(("a", 2, 1), ("b", 3, None)), rows())
    assert tuples(expected(spark, given, "SELECT x + 1 AS y FROM events WHERE x > 1")) == [(3,), (4,)]


def test_times_without_a_zone_stay_so(spark: SparkSession) -> None:
    naive = SCHEMA.set(2, pa.field("ts", pa.timestamp("us")))
    batch = rows(("a", 1, 1), ("a", 2, 60)).cast(naive)
    select = "SELECT max(ts) AS t, window FROM events GROUP BY window(ts, '10 seconds')"
    table = expected(spark, feed(batch), select)
    assert table.schema.field("t").type == pa.timestamp("us")
    assert table.schema.field("window").type.field("end").type == pa.timestamp("us")
    assert table.column("t").to_pylist() == [at(1).replace(tzinfo=None)]


def test_nothing_closes_without_rows(spark: SparkSession) -> None:
    select = "SELECT k, count(*) AS n FROM events GROUP BY k, window(ts, '1 second')"
    table = expected(spark, feed(rows()), select)
    assert table.num_rows == 0
    assert table.schema.names == ["k", "n"]


def test_clauses_inside_brackets_and_strings_are_left_alone() -> None:
    parsed = parse_select(
        "SELECT extract(hour FROM ts) AS h, ' FROM ' AS t, `GROUP BY` FROM s WHERE k = 'x LIMIT 3' "
        "GROUP BY 1, window(ts, '1 second') HAVING count(*) > 1 ORDER BY h DESC LIMIT 3 EMIT FINAL;"
    )
    assert parsed.body.startswith("FROM s WHERE")
    assert parsed.body.endswith("HAVING count(*) > 1")
    assert (parsed.order, parsed.limit, parsed.grouped) == ("h DESC", 3, True)


@pytest.mark.parametrize(
    "select", ["SELECT 1", "SELECT k FROM s ORDER BY k", "SELECT k FROM s GROUP BY k EMIT UPDATES"]
)
def test_what_it_cannot_judge_it_refuses(select: str) -> None:
    with pytest.raises(UsageError, match="oracle"):
        parse_select(select)
