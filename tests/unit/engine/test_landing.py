"""Unit: a streaming DataFrame becomes files of a stream, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from thalweg.engine.landing import Landing
from thalweg.errors import SourceError, StateError
from thalweg.model.stream import Stream
from thalweg.source.inventory import Inventory
from thalweg.source.log import LANDED, Log
from thalweg.source.read import read
from thalweg.state import durable
from thalweg.state.disk import Handle, OperatingSystem
from thalweg.state.local_storage import LocalStorage


def landing_of(spark: SparkSession, frame: DataFrame, state: Path, directory: Path | None = None) -> Landing:
    return Landing(spark, "s", frame, LocalStorage(str(state)), str(directory or state / "sources" / "s"))


def write_rows(spark: SparkSession, low: int, high: int, path: Path) -> None:
    rows = spark.range(low, high, 1, 2).selectExpr("id AS a", "timestamp_seconds(id) AS ts")
    rows.write.mode("append").parquet(str(path))


def test_landing_brings_a_dataframe_in_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    spark.range(0, 1000, 1, 3).selectExpr("id AS a", "timestamp_seconds(id) AS ts").write.parquet(str(incoming))
    frame = spark.readStream.schema("a bigint, ts timestamp").parquet(str(incoming))
    state = tmp_path / "state"
    directory = state / "sources" / "s"
    landing = landing_of(spark, frame, state)
    stream = Stream("s", landing.schema(), "ts", 0, landing.spec())
    inventory = Inventory(stream, LocalStorage(str(state)))
    assert inventory.available() == 0
    landing.run_available()
    landing.run_available()
    assert inventory.available() == 1
    spark.range(1000, 1500).selectExpr("id AS a", "timestamp_seconds(id) AS ts").write.mode("append").parquet(
        str(incoming)
    )
    landing_of(spark, frame, state).run_available()
    assert inventory.available() == 2
    assert landed(inventory, stream, 0, 2) == list(range(1500))
    forget_last(directory / "checkpoint" / "commits")
    landing_of(spark, frame, state).run_available()
    assert inventory.available() == 2
    inventory.release(1)
    assert landed(inventory, stream, 1, 2) == list(range(1000, 1500))
    with pytest.raises(SourceError, match="vanished"):
        landed(inventory, stream, 0, 1)


def test_landing_runs_along_and_stops(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    landing = landing_of(spark, frame, tmp_path)
    stream = Stream("s", landing.schema(), "timestamp", 0, landing.spec())
    inventory = Inventory(stream, LocalStorage(str(tmp_path)))
    landing.start("0 seconds")
    wait_for(lambda: inventory.available() >= 2)
    landing.check()
    landing.stop()
    count = inventory.available()
    values = [
        value
        for split in inventory.splits(0, count)
        for chunk in read(split, stream, ["value"], LocalStorage(str(tmp_path)))
        for value in chunk.table["value"].to_pylist()
    ]
    assert sorted(values) == list(range(len(values)))


def test_a_micro_batch_without_rows_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in")).where("id < 0")
    state = tmp_path / "state"
    directory = state / "sources" / "s"
    landing = landing_of(spark, frame, state)
    landing.run_available()
    assert (directory / "checkpoint" / "commits" / "0").exists()
    assert list(directory.glob("b[0-9]*")) == []
    assert not landing.is_started


def test_landing_refuses_what_it_cannot_carry(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a streaming one"):
        landing_of(spark, spark.range(1), tmp_path)
    nested = spark.readStream.format("rate").load().selectExpr("struct(value) AS v")
    with pytest.raises(SourceError, match="column v of stream s is nested"):
        landing_of(spark, nested, tmp_path)


def test_a_dataframe_that_spark_does_not_run_is_a_source_error(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().groupBy("timestamp").count()
    landing = landing_of(spark, frame, tmp_path)
    for run in (landing.start, landing.run_available):
        with pytest.raises(SourceError, match="feeds stream s has failed"):
            run()
        assert not landing.is_started


def test_a_failing_dataframe_is_a_source_error(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    spark.range(3).write.parquet(str(incoming))
    frame = spark.readStream.schema("id bigint").parquet(str(incoming)).selectExpr("1 div (id - 1) AS a")
    with pytest.raises(SourceError, match="feeds stream s has failed"):
        landing_of(spark, frame, tmp_path).run_available()


def test_offsets_that_spark_has_lost_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans the batch anew, with other rows: they are not to be taken for those that have landed."""
    incoming, state = tmp_path / "in", tmp_path / "state"
    frame = stream_from(spark, incoming)
    for low in (0, 10):
        write_rows(spark, low, low + 10, incoming)
        landing_of(spark, frame, state).run_available()
    log = Log(LocalStorage(str(state)), "s", LANDED)
    assert [entry.batch for entry in log.entries] == [0, 1]
    checkpoint = state / "sources" / "s" / "checkpoint"
    forget_last(checkpoint / "commits")
    forget_last(checkpoint / "offsets")
    write_rows(spark, 20, 30, incoming)
    landing = landing_of(spark, frame, state)
    with pytest.raises(SourceError, match="stream s has lost its offsets: Spark plans its batch 1 anew"):
        landing.run_available()
    landing.start()
    with pytest.raises(SourceError, match="has lost its offsets"):
        wait_for(lambda: is_unhurt(landing))
    landing.stop()
    assert log.read_new() == []


def test_what_a_batch_is_repeated_from_is_durable_before_its_log_entry(spark: SparkSession, tmp_path: Path) -> None:
    synced: list[str] = []
    real = OperatingSystem()

    class Watched(OperatingSystem):
        def open(self, path: Path, private: bool = False) -> Handle:
            synced.append(str(path))
            return real.open(path, private)

        def sync_directory(self, path: Path) -> None:
            synced.append(str(path))
            real.sync_directory(path)

    write_rows(spark, 0, 10, tmp_path / "in")
    frame = stream_from(spark, tmp_path / "in")
    with durable.use(Watched()):
        landing_of(spark, frame, tmp_path / "state").run_available()
    folder = tmp_path / "state" / "sources" / "s"
    logged = next(at for at, path in enumerate(synced) if path.startswith(f"{folder}/landed/"))
    before = synced[:logged]
    for path in ("offsets/0", "offsets/.0.crc", "offsets", "sources/0/0", "sources/0", "metadata", ""):
        assert str(folder / "checkpoint" / path) in before, path
    assert str(folder) in before


def test_a_batch_that_the_log_has_lost_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    incoming, state = tmp_path / "in", tmp_path / "state"
    frame = stream_from(spark, incoming)
    for low in (0, 10):
        write_rows(spark, low, low + 10, incoming)
        landing_of(spark, frame, state).run_available()
    (state / "sources" / "s" / "landed" / "000000000001").unlink()
    with pytest.raises(StateError, match=r"s/landed does not tell of batch 1"):
        landing_of(spark, frame, state).run_available()


def test_a_directory_elsewhere_and_a_state_that_is_moved(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    write_rows(spark, 0, 10, incoming)
    frame = stream_from(spark, incoming)
    landing_of(spark, frame, tmp_path / "a", tmp_path / "elsewhere").run_available()
    landing_of(spark, frame, tmp_path / "b").run_available()
    for name in "ab":
        (tmp_path / name).rename(tmp_path / f"{name} moved")
        landing = landing_of(spark, frame, tmp_path / f"{name} moved")
        stream = Stream("s", landing.schema(), "ts", 0, landing.spec())
        inventory = Inventory(stream, LocalStorage(str(tmp_path / f"{name} moved")))
        assert inventory.available() == 1
        assert landed(inventory, stream, 0, 1) == list(range(10))


def is_unhurt(landing: Landing) -> bool:
    """Never; but it raises what has ended it."""
    landing.check()
    return False


def stream_from(spark: SparkSession, path: Path) -> DataFrame:
    path.mkdir(exist_ok=True)
    return spark.readStream.schema("a bigint, ts timestamp").parquet(str(path))


def landed(inventory: Inventory, stream: Stream, start: int, end: int) -> list[int]:
    return sorted(
        value
        for split in inventory.splits(start, end)
        for chunk in read(split, stream, ["a"], LocalStorage("/nowhere"))
        for value in chunk.table["a"].to_pylist()
    )


def forget_last(log: Path) -> None:
    """As if the process had died, or the power had gone, before the newest was written."""
    last = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
