"""Unit: random feeds and queries are reproducible, of every kind promised, and valid Spark SQL."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.support.randomly import COLUMNS, Shape, random_feed, random_queries

from thalweg.model.window import Window
from thalweg.testing.oracle import Feed, event_times, expected, late_rows, parse_select

SEEDS = range(30)


@pytest.fixture(scope="module")
def feeds() -> list[Feed]:
    return [random_feed(seed) for seed in SEEDS]


def test_same_seed_same_everything(feeds: list[Feed]) -> None:
    again = random_feed(3)
    assert all(one.equals(other) for one, other in zip(again.batches, feeds[3].batches, strict=True))
    assert random_queries(5, again, 20) == random_queries(5, feeds[3], 20)
    assert random_queries(6, again, 20) != random_queries(5, again, 20)


def test_feeds_hold_what_breaks_engines(feeds: list[Feed]) -> None:
    assert {c.name for c in COLUMNS} <= {name for feed in feeds for name in feed.schema.names}
    assert any(table.num_rows == 0 for feed in feeds for table in feed.batches)
    assert any(event_times(table, "ts").null_count for feed in feeds for table in feed.batches)
    assert sum(late_rows(feed, Window(10_000_000, 5_000_000)) for feed in feeds) > 20


def test_event_times_are_unique(feeds: list[Feed]) -> None:
    for feed in feeds:
        times = [t for table in feed.batches for t in event_times(table, "ts").to_pylist() if t is not None]
        assert len(times) == len(set(times))


def test_key_is_skewed(feeds: list[Feed]) -> None:
    keys = [k for feed in feeds for table in feed.batches for k in table.column("k").to_pylist()]
    assert keys.count(0) > 2 * keys.count(3) > 0
    assert None in keys


def test_every_kind_of_query_comes_up(feeds: list[Feed]) -> None:
    texts = " ".join(q.select for seed, feed in enumerate(feeds) for q in random_queries(seed, feed, 30))
    wanted = {
        *("count(*)", "count(DISTINCT", "sum(", "min(", "max(", "avg(", "stddev(", "stddev_pop("),
        *("variance(", "var_pop(", "approx_count_distinct(", "median(", "percentile(", "min_by(", "max_by("),
        *("first(", "last(", "bool_and(", "bool_or(", "HAVING", "LIMIT", "FILTER", "LIKE", "BETWEEN"),
        *("milliseconds", "window.end", "window.start", "CASE", "IGNORE NULLS"),
    }
    assert [word for word in wanted if word not in texts] == []
    assert any(not parse_select(q.select).grouped for q in random_queries(0, feeds[0], 30))


def test_nans_on_request() -> None:
    feeds = [random_feed(seed, Shape(nans=True)) for seed in range(4)]
    prices = [f.batches[i].column("price") for f in feeds if "price" in f.schema.names for i in range(6)]
    assert any(pc.any(pc.is_nan(column)).as_py() for column in prices)


def test_spark_accepts_the_queries(spark: SparkSession, feeds: list[Feed]) -> None:
    for seed, feed in enumerate(feeds[:6]):
        spark.createDataFrame(feed.schema.empty_table()).createOrReplaceTempView(feed.stream)
        for query in random_queries(seed, feed, 20):
            spark.sql(parse_select(query.select).text())


def test_the_oracle_evaluates_them(spark: SparkSession, feeds: list[Feed]) -> None:
    tables = [expected(spark, feeds[1], query.select) for query in random_queries(1, feeds[1], 4)]
    assert sum(table.num_rows for table in tables) > 0
