"""A streaming Spark DataFrame as a source: a small query of its own lands every micro-batch as Arrow files.

Rows go from the JVM through Arrow straight into files, inside the tasks; the driver sees only names. A file's
name is made of the batch and the partition, and a batch counts once it is in the log, so a replayed batch
writes the same files again and is never logged twice.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from thalweg import errors
from thalweg.engine.source import source_error_in
from thalweg.ingest.durable import Log, sync_directory
from thalweg.ingest.inventory import LANDED_LOG
from thalweg.model.stream import Field, Schema, SourceSpec
from thalweg.model.types import to_arrow

_RECORDS_PER_BATCH = "100000"
"""Rows per Arrow batch: the default of 10,000 makes ten times as many round trips."""


class Landing:
    """Keeps `directory` (the source directory of the stream) filled with what the DataFrame brings."""

    def __init__(
        self, spark: SparkSession, stream_name: str, dataframe: DataFrame, directory: str | Path
    ) -> None:
        if not dataframe.isStreaming:
            raise errors.source_not_streaming(stream_name)
        self._spark = spark
        self._stream = stream_name
        self._dataframe = dataframe
        self._directory = Path(directory)
        self._schema = schema_of(stream_name, dataframe)
        self._query: StreamingQuery | None = None
        self._log: Log | None = None
        self._last = -1
        self._lock = threading.Lock()

    def spec(self) -> SourceSpec:
        return SourceSpec("spark", {})

    def schema(self) -> Schema:
        return self._schema

    def start(self, trigger: str | None = None) -> None:
        """Land micro-batches from now on, as they come or at every `trigger` interval ("1 second")."""
        self._start({"processingTime": trigger or "0 seconds"})

    def run_available(self) -> None:
        """Land everything that the DataFrame's sources have now, then return."""
        self._start({"availableNow": True})
        query = self._query
        assert query is not None
        try:
            query.awaitTermination()
        except Exception as failure:
            raise self._failed(str(failure)) from failure
        finally:
            self._query = None

    def stop(self) -> None:
        """Return once no micro-batch of this landing can write any more."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def check(self) -> None:
        """Raises what ended the query, if it was not `stop`."""
        failure = self._query.exception() if self._query is not None else None
        if failure is not None:
            raise self._failed(str(failure))

    def _start(self, trigger: dict[str, Any]) -> None:
        self.stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log = Log(self._directory / LANDED_LOG)
        self._last = max((entry["batch"] for entry in self._log.read_new()), default=-1)
        self._query = (
            self._dataframe.writeStream.foreachBatch(self._land)
            .queryName(f"thalweg-landing-{self._stream}-{uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(**trigger)
            .start()
        )

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        """Write the files, then the log line: all of the batch becomes visible with that line."""
        with self._lock:
            if batch_id <= self._last:
                return
            batch.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _RECORDS_PER_BATCH)
            write = _writer(str(self._directory), batch_id)
            landed = batch.mapInArrow(write, "name string, rows bigint, bytes bigint").collect()
            if landed and self._log is not None:
                files = sorted([row["name"], row["rows"], row["bytes"]] for row in landed)
                sync_directory(self._directory)
                self._log.append([{"batch": batch_id, "files": files}])
            self._last = batch_id

    def _failed(self, reason: str) -> errors.SourceError:
        return source_error_in(reason) or errors.source_query_failed(self._stream, reason.split("\n\n")[0])


def is_dataframe(source: object) -> bool:
    return isinstance(source, DataFrame)


def schema_of(stream: str, dataframe: DataFrame) -> Schema:
    """The columns of the DataFrame as a stream's; nested ones cannot be carried."""
    fields = []
    for field in dataframe.schema.fields:
        kind = field.dataType.simpleString()
        try:
            to_arrow(kind)
        except ValueError:
            raise errors.source_column_nested(stream, field.name, kind) from None
        fields.append(Field(field.name, kind))
    return Schema(tuple(fields))


def _writer(directory: str, batch_id: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Runs in the tasks: a partition becomes one file, none if it has no rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        landed = _write_partition(directory, f"b{batch_id:010d}-p{partition:05d}.arrow", batches)
        if landed is not None:
            yield landed

    return write


def _write_partition(directory: str, name: str, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Under a name of this attempt first: two attempts of a task may run at once."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    temporary = os.path.join(directory, f".{name}.{uuid.uuid4().hex}")
    rows = first.num_rows
    with open(temporary, "wb") as out:
        with pa_ipc.new_file(out, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
    os.replace(temporary, os.path.join(directory, name))
    return pa.RecordBatch.from_pydict({"name": [name], "rows": [rows], "bytes": [size]})
