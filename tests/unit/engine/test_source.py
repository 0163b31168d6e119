"""Unit: the streaming source under a real query: growth, restarts, new streams, batches without data."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from thalweg.engine.landing import Landing
from thalweg.engine.source import ThalwegReader, ThalwegSource, source_error_in
from thalweg.errors import SourceError
from thalweg.model.stream import Stream
from thalweg.source.inventory import Inventory
from thalweg.source.read import read
from thalweg.source.registry import save_streams, save_tick, source_dir
from thalweg.source.sources import Memory, files, generate, memory
from thalweg.source.split import Split, parse_splits
from thalweg.source.split_planner import SplitPlanner, plan_splits


class Rig:
    """A state directory, its memory streams, and queries over them that collect what every batch got."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        spark.dataSource.register(ThalwegSource)
        self.spark = spark
        self.directory = directory
        self.streams: dict[str, Stream] = {}
        self.batches: list[list[list[Split]]] = []
        """Per batch, per task, its splits."""
        self.values: list[list[Any]] = []
        """Per batch, the values of all streams."""

    def add(self, name: str, **options: Any) -> Memory:
        source = memory("a bigint", **options)
        source.bind(source_dir(self.directory, name))
        self.register(Stream(name, source.schema(), "a", 0, source.spec()))
        return source

    def register(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        save_streams(self.directory, self.streams.values())

    def start(self, on_batch: Callable[[int], None] = lambda batch: None, **trigger: Any) -> Any:
        def collect(frame: DataFrame, batch_id: int) -> None:
            on_batch(batch_id)
            self.batches.append([parse_splits(row.splits) for row in frame.collect()])
            self.values.append(self.read(self.batches[-1]))  # now: what has been read is given back

        reader = self.spark.readStream.format("thalweg").option("dir", str(self.directory)).option("tasks", 2)
        writer = reader.load().writeStream.foreachBatch(collect)
        return writer.option("checkpointLocation", f"{self.directory}/checkpoint").trigger(**trigger).start()

    def run_available(self, on_batch: Callable[[int], None] = lambda batch: None) -> list[list[Any]]:
        """Per batch of this run, the values of all streams."""
        before = len(self.values)
        self.start(on_batch, availableNow=True).awaitTermination()
        return self.values[before:]

    def read(self, batch: list[list[Split]]) -> list[Any]:
        return [
            value
            for task in batch
            for split in task
            for chunk in read(split, self.streams[split.stream], ["a"])
            for value in chunk.table["a"].to_pylist()
        ]


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def table(*values: int) -> pa.Table:
    return pa.table({"a": values})


def test_available_now_takes_all_then_ticks_once(rig: Rig) -> None:
    source = rig.add("s", max_files_per_batch=2)
    for i in range(3):
        source.append(table(i))
    assert rig.run_available() == [[0, 1], [2], []]
    assert all(len(batch) == 2 for batch in rig.batches)
    source.append(table(3, 4))
    assert rig.run_available() == [[3, 4], []]
    assert rig.run_available() == [[]]


def test_rows_that_come_during_the_run_wait_for_the_next(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))
    assert rig.run_available(lambda batch: source.append(table(10 + batch))) == [[1], []]
    assert rig.run_available() == [[10, 11], []]


def test_a_batch_that_failed_is_given_again(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))

    def fail(batch: int) -> None:
        source.append(table(2))
        raise RuntimeError("cut off")

    with pytest.raises(StreamingQueryException):
        rig.run_available(fail)
    assert rig.run_available() == [[1], [2], []]


def test_a_stream_added_between_runs_starts_at_its_beginning(rig: Rig) -> None:
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1], []]
    rig.add("t").append(table(7))
    assert rig.run_available() == [[7], []]


def test_running_picks_up_data_streams_and_ticks(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))
    query = rig.start(processingTime="0 seconds")
    try:
        wait_for(lambda: len(rig.batches) == 1)
        save_tick(rig.directory, 1)
        wait_for(lambda: len(rig.batches) == 2)
        rig.add("t").append(table(5))
        wait_for(lambda: len(rig.batches) == 3)
        source.append(table(2))
        wait_for(lambda: len(rig.batches) == 4)
        time.sleep(0.3)
    finally:
        query.stop()
    assert rig.values == [[1], [], [5], [2]]


def test_an_error_in_the_reader_is_readable(rig: Rig) -> None:
    (rig.directory / "streams.json").write_text("{")
    with pytest.raises(StreamingQueryException) as caught:
        rig.run_available()
    found = source_error_in(str(caught.value))
    assert found is not None
    assert found.message == f"cannot read {rig.directory}/streams.json"
    assert found.hint == "Restore the state directory."


def test_a_directory_that_is_gone_does_not_stop_the_other_streams(rig: Rig) -> None:
    rig.register(Stream("f", memory("a int").schema(), "a", 0, files(f"{rig.directory}/gone/*.csv").spec()))
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1], []]


def test_a_tick_waits_until_the_limits_leave_nothing(tmp_path: Path) -> None:
    source = generate("facts", rows=250, rows_per_batch=100)
    save_streams(tmp_path, [Stream("s", source.schema(), "ts", 0, source.spec())])
    save_tick(tmp_path, 3)
    reader = ThalwegReader(str(tmp_path), 2)
    seen = []
    offset = reader.initialOffset()
    for _ in range(4):
        offset = reader.latestOffset(offset, None)
        seen.append((offset["tick"], offset["streams"]["s"]))
    assert seen == [(0, 100), (0, 200), (3, 250), (3, 250)]


def test_an_endless_generator_is_available_for_one_batch(tmp_path: Path) -> None:
    source = generate("facts", rows_per_batch=100)
    save_streams(tmp_path, [Stream("s", source.schema(), "ts", 0, source.spec())])
    reader = ThalwegReader(str(tmp_path), 2)
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(reader.initialOffset(), None)
    second = reader.latestOffset(first, None)
    assert (first, second) == (
        {"tick": 0, "streams": {"s": 100}},
        {"tick": 1, "streams": {"s": 100}},
    )
    assert reader.latestOffset(second, None) == second


def test_plan_splits_from_offsets_alone(tmp_path: Path) -> None:
    source = generate("facts", rows=400_000)
    save_streams(tmp_path, [Stream("s", source.schema(), "ts", 0, source.spec())])
    start, end = {"tick": 0, "streams": {}}, {"tick": 0, "streams": {"s": 200_000}}
    tasks = plan_splits(tmp_path, start, end, 2)
    assert [[(s.start, s.end) for s in task] for task in tasks] == [[(0, 100_000)], [(100_000, 200_000)]]
    assert plan_splits(tmp_path, end, end, 3) == [[], [], []]


def test_the_planner_keeps_inventories_while_the_registry_changes(tmp_path: Path) -> None:
    source = generate("facts", rows=10)
    first = Stream("a", source.schema(), "ts", 0, source.spec())
    save_streams(tmp_path, [first])
    planner = SplitPlanner(tmp_path)
    before = planner.inventories()["a"]
    save_streams(tmp_path, [first, Stream("b", source.schema(), "ts", 0, source.spec())])
    assert set(planner.inventories()) == {"a", "b"}
    assert planner.inventories()["a"] is before


def test_a_stream_that_rests_keeps_its_place_and_its_planned_rows(tmp_path: Path) -> None:
    source = generate("facts", rows=100, rows_per_batch=60)
    stream = Stream("s", source.schema(), "ts", 0, source.spec())
    save_streams(tmp_path, [stream])
    reader = ThalwegReader(str(tmp_path), 1)
    first = reader.latestOffset(reader.initialOffset(), None)
    save_streams(tmp_path, [])
    assert reader.latestOffset(first, None) == first
    for planned in (reader.partitions(reader.initialOffset(), first), replan(tmp_path, first)):
        assert [(s.start, s.end) for s in parse_splits(planned[0].value)] == [(0, 60)]
    save_tick(tmp_path, 1)
    resting = reader.latestOffset(first, None)
    assert resting == {"tick": 1, "streams": {"s": 60}}
    save_streams(tmp_path, [stream])
    assert reader.latestOffset(resting, None)["streams"] == {"s": 100}


def replan(state_dir: Path, end: dict[str, Any]) -> Any:
    """By a reader that was started after the stream had gone."""
    reader = ThalwegReader(str(state_dir), 1)
    return reader.partitions(reader.initialOffset(), end)


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


def test_a_reader_ends_quietly_when_spark_asks_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PySpark's `main`: it reads the number of the next call, and stops the reader whatever comes of it."""
    reader, ended = ThalwegReader(str(tmp_path), 1), []
    monkeypatch.setattr("os._exit", ended.append)

    def read_int() -> None:
        raise EOFError

    def latest_offset() -> None:
        read_int()  # an end that our own code has run into

    def main(call: Callable[[], None]) -> None:
        call()

    for call, quiet in ((latest_offset, []), (read_int, [0])):
        try:
            main(call)
        except EOFError as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this test's frame
            reader.stop()
        assert ended == quiet
    reader.stop()
    assert ended == [0]
