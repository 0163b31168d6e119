"""Unit: a streaming DataFrame becomes files of a stream, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from thalweg.engine.landing import Landing
from thalweg.errors import SourceError
from thalweg.model.stream import Stream
from thalweg.source.inventory import Inventory
from thalweg.source.read import read
from thalweg.source.registry import source_dir


def test_landing_brings_a_dataframe_in_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    spark.range(0, 1000, 1, 3).selectExpr("id AS a", "timestamp_seconds(id) AS ts").write.parquet(str(incoming))
    frame = spark.readStream.schema("a bigint, ts timestamp").parquet(str(incoming))
    directory = source_dir(tmp_path / "state", "s")
    landing = Landing(spark, "s", frame, directory)
    stream = Stream("s", landing.schema(), "ts", 0, landing.spec())
    inventory = Inventory(stream, tmp_path / "state")
    assert inventory.available() == 0
    landing.run_available()
    landing.run_available()
    assert inventory.available() == 1
    spark.range(1000, 1500).selectExpr("id AS a", "timestamp_seconds(id) AS ts").write.mode("append").parquet(
        str(incoming)
    )
    again = Landing(spark, "s", frame, directory)
    again.run_available()
    assert inventory.available() == 2
    assert landed(inventory, stream, 0, 2) == list(range(1500))
    forget_last_commit(directory / "checkpoint")
    Landing(spark, "s", frame, directory).run_available()
    assert inventory.available() == 2
    inventory.release(1)
    assert landed(inventory, stream, 1, 2) == list(range(1000, 1500))
    with pytest.raises(SourceError, match="vanished"):
        landed(inventory, stream, 0, 1)


def test_landing_runs_along_and_stops(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    landing = Landing(spark, "s", frame, source_dir(tmp_path, "s"))
    stream = Stream("s", landing.schema(), "timestamp", 0, landing.spec())
    inventory = Inventory(stream, tmp_path)
    landing.start("0 seconds")
    wait_for(lambda: inventory.available() >= 2)
    landing.check()
    landing.stop()
    count = inventory.available()
    values = [
        value
        for split in inventory.splits(0, count)
        for chunk in read(split, stream, ["value"])
        for value in chunk.table["value"].to_pylist()
    ]
    assert sorted(values) == list(range(len(values)))


def test_a_micro_batch_without_rows_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in")).where("id < 0")
    directory = source_dir(tmp_path / "state", "s")
    landing = Landing(spark, "s", frame, directory)
    landing.run_available()
    assert (directory / "checkpoint" / "commits" / "0").exists()
    assert list(directory.glob("b[0-9]*")) == []
    assert not landing.is_started


def test_landing_refuses_what_it_cannot_carry(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a streaming one"):
        Landing(spark, "s", spark.range(1), tmp_path)
    nested = spark.readStream.format("rate").load().selectExpr("struct(value) AS v")
    with pytest.raises(SourceError, match="column v of stream s is nested"):
        Landing(spark, "s", nested, tmp_path)


def test_a_dataframe_that_spark_does_not_run_is_a_source_error(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().groupBy("timestamp").count()
    landing = Landing(spark, "s", frame, source_dir(tmp_path, "s"))
    for run in (landing.start, landing.run_available):
        with pytest.raises(SourceError, match="feeds stream s has failed"):
            run()
        assert not landing.is_started


def test_a_failing_dataframe_is_a_source_error(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    spark.range(3).write.parquet(str(incoming))
    frame = spark.readStream.schema("id bigint").parquet(str(incoming)).selectExpr("1 div (id - 1) AS a")
    with pytest.raises(SourceError, match="feeds stream s has failed"):
        Landing(spark, "s", frame, source_dir(tmp_path, "s")).run_available()


def landed(inventory: Inventory, stream: Stream, start: int, end: int) -> list[int]:
    return sorted(
        value
        for split in inventory.splits(start, end)
        for chunk in read(split, stream, ["a"])
        for value in chunk.table["a"].to_pylist()
    )


def forget_last_commit(checkpoint: Path) -> None:
    """As if the process had died between the last batch and its commit."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
