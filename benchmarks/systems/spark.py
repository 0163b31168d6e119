"""Plain Structured Streaming: every query an independent one, started together in one Spark.

Settings: as many shuffle partitions as cores, a heap of 12 GiB (state lies on it; with 3 GiB eight queries do not get
through), the parallel collector, UTC, the checkpoint manager that does not ask the shell for permissions; for joins
state format 2 with the default store, 4 with RocksDB. `bench settings` tries others. A name with a dot among the
settings of a side is one of Spark's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.result import CORES
from benchmarks.systems import Given, eventlog, linked
from benchmarks.systems.usage import CpuWatch, process_started
from benchmarks.workloads.model import Query, Stream

MEMORY = "12g"
STORES = {
    "spark": {"spark.sql.streaming.join.stateFormatVersion": "2"},
    "spark-rocksdb": {
        "spark.sql.streaming.join.stateFormatVersion": "4",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    },
}
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
SQL_TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
}


def missing() -> str | None:
    return None if find_spec("pyspark") else "not installed (pip install pyspark)"


def run(system: str, given: Given) -> dict[str, Any]:
    if system == "spark-foreach":
        from benchmarks.systems.foreach import run_foreach

        return run_foreach(given)
    with tempfile.TemporaryDirectory() as name, linked(given) as files, CpuWatch() as cpu:
        directory = Path(name)
        shuffles = directory / "events" if given.settings.get("shuffle") else None
        spark = plain_spark(given, {**STORES[system], **(eventlog.settings(shuffles) if shuffles else {})})
        views(spark, given, files)
        queries = [
            _start(spark, text, directory / str(i), given.out / f"q{i}" if given.out else None)
            for i, text in enumerate(map(text_of, given.work.queries))
        ]
        for query in queries:
            query.awaitTermination()
        found = steady([ends_of(query, given.batches) for query in queries], given, cpu)
        # A sink that does not count says -1.
        output = [p["sink"]["numOutputRows"] for query in queries for p in query.recentProgress]
        if min(output) >= 0:
            found["output_rows"] = sum(output)
        spark.stop()
        if shuffles is not None:
            found |= shuffled(shuffles, given)
    return found


def plain_spark(given: Given, settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    memory = given.settings.get("memory", MEMORY)
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.driver.memory", memory)
    own = {key: value for key, value in given.settings.items() if "." in key}
    for key, value in {**SETTINGS, **settings, **own}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def views(spark: Any, given: Given, files: Path) -> None:
    for stream in given.work.streams:
        frame = streaming_frame(spark, given, stream, files)
        delay = f"{round(stream.delay_seconds * 1000)} milliseconds"
        frame.withWatermark(stream.time, delay).createOrReplaceTempView(stream.name)
    for static in given.work.statics:
        spark.read.parquet(str(files / f"{static.name}.parquet")).createOrReplaceTempView(static.name)


def streaming_frame(spark: Any, given: Given, stream: Stream, files: Path) -> Any:
    reader = spark.readStream.schema(columns_of(stream.schema)).option("maxFilesPerTrigger", given.files_per_batch)
    return reader.parquet(str(files / stream.name))


def columns_of(schema: pa.Schema) -> str:
    """As SQL column definitions."""
    return ", ".join(f"{field.name} {_sql_type(field.type)}" for field in schema)


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    return SQL_TYPES[str(type_)]


def text_of(query: Query) -> str:
    text = query.text if query.spark is None else query.spark
    if not text:
        raise RuntimeError(f"{query.name} cannot be said as one query of Structured Streaming")
    return text


def _start(spark: Any, text: str, checkpoint: Path, out: Path | None) -> Any:
    writer = spark.sql(text).writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = writer.format("parquet").option("path", str(out)) if out else writer.format("noop")
    return writer.start()


@dataclass(frozen=True)
class Ends:
    """Of one query: when its first batch began, and when each that had files ended, in seconds since the epoch."""

    began: float
    ended: tuple[float, ...]


def ends_of(query: Any, batches: int) -> Ends:
    """Files are counted, not rows: of a file that a predicate rules out Spark reports none."""
    spans = []
    for progress in query.recentProgress[:batches]:
        began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        spans.append((began, began + progress["batchDuration"] / 1000))
    return Ends(spans[0][0], tuple(end for _, end in spans))


def steady(queries: Sequence[Ends], given: Given, cpu: CpuWatch) -> dict[str, Any]:
    """From when every query has ended its first batch; what some are ahead by then counts for them."""
    began, first = min(q.began for q in queries), max(q.ended[0] for q in queries)
    found: dict[str, Any] = {
        "batches": given.batches,
        "start_seconds": began - process_started(),
        "first_batch_seconds": first - began,
    }
    last = max(q.ended[-1] for q in queries)
    if given.batches > 1:
        rows = given.rows_from(given.files_per_batch)
        found |= {
            "rows_per_second": rows / (last - first),
            "seconds": last - first,
            "rows": rows,
            "cpu_seconds_per_million": cpu.seconds_between(first, last) / rows * 1e6,
        }
    return found


def shuffled(log: Path, given: Given) -> dict[str, float]:
    """Records are rows here."""
    totals = eventlog.written(log)
    return {
        "shuffled_bytes_per_row": totals["bytes"] / given.rows,
        "shuffled_rows_per_row": totals["records"] / given.rows,
    }
