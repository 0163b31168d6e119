"""A streaming Spark DataFrame as a source: a small query of its own lands every micro-batch as Parquet files.

Spark writes the rows itself, inside its tasks; they meet neither Python nor the driver on the way. That took
about three quarters of the time of sending them through Arrow to a Python worker that writes them. A batch
lands in a directory named by its id and counts once it is in the log: a replayed batch is written over, or
left alone if the log has it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from thalweg import errors
from thalweg.engine.failure import source_error_in
from thalweg.engine.spark import await_ending, describe_jobs
from thalweg.model.stream import Field, Schema, SourceSpec
from thalweg.model.types import check_flat
from thalweg.source.inventory import LANDED_LOG
from thalweg.source.log import Log
from thalweg.state.durable import delete_tree, make_directory, sync_directory, sync_file

_PLAIN = {
    "compression": "none",
    "parquet.enable.dictionary": "false",
    "parquet.block.size": str(32 << 20),
}
"""Files that live for one batch: quick to write and to read, and small row groups to share among tasks."""
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Of the session that Spark clones for the query: the user's own is not touched."""


class Landing:
    """Keeps `directory` (the source directory of the stream) filled with what the DataFrame brings."""

    def __init__(
        self,
        spark: SparkSession,
        stream_name: str,
        dataframe: DataFrame,
        directory: str | Path,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` is called after every micro-batch that has landed."""
        if not dataframe.isStreaming:
            raise errors.source_not_streaming(stream_name)
        self._spark = spark
        self._stream = stream_name
        self._dataframe = dataframe
        self._directory = Path(directory)
        self._tell = tell
        self._schema = schema_of(stream_name, dataframe)
        self._query: StreamingQuery | None = None
        self._log: Log | None = None
        self._last = -1
        self._lock = threading.Lock()

    def spec(self) -> SourceSpec:
        return SourceSpec("spark", {})

    def schema(self) -> Schema:
        return self._schema

    @property
    def is_started(self) -> bool:
        """Whether it was started and not stopped since; it may have failed: see `check`."""
        return self._query is not None

    def start(self, trigger: str | None = None) -> None:
        """Land micro-batches from now on, as they come or at every `trigger` interval ("1 second")."""
        self._start({"processingTime": trigger or "0 seconds"})

    def run_available(self) -> None:
        """Land everything that the DataFrame's sources have now, then return."""
        query = self._start({"availableNow": True})
        try:
            await_ending(query)
        except Exception as failure:
            raise self._failed(str(failure)) from failure
        except BaseException:  # Ctrl-C
            query.stop()
            raise
        finally:
            self._query = None

    def stop(self) -> None:
        """Return once no micro-batch of this landing can write any more."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def check(self) -> None:
        """Raises what ended the query, if it was not `stop`."""
        query = self._query
        failure = query.exception() if query is not None else None
        if failure is not None:
            raise self._failed(str(failure))

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        self.stop()
        make_directory(self._directory)
        self._log = Log(self._directory / LANDED_LOG)
        self._last = max((entry["batch"] for entry in self._log.read_new()), default=-1)
        writer = (
            self._dataframe.writeStream.foreachBatch(self._land)
            .queryName(f"thalweg-landing-{self._stream}-{uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(**trigger)
        )
        try:
            query = self._query = writer.start()
        except Exception as failure:  # a plan that Spark does not run as a stream, such as a sum without a watermark
            raise self._failed(str(failure)) from failure
        return query

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        """Write the files, then the log line: all of the batch becomes visible with that line."""
        with self._lock:
            if batch_id <= self._last:
                return
            describe_jobs(batch.sparkSession, f"landing batch {batch_id} of stream {self._stream}")
            for name, value in _SETTINGS.items():
                batch.sparkSession.conf.set(name, value)
            name = f"b{batch_id:010d}"
            batch.write.mode("overwrite").options(**_PLAIN).parquet(str(self._directory / name))
            files = _files_of(self._directory, name)
            if not files:  # what is not in the log is never given back
                delete_tree(self._directory / name)
            elif self._log is not None:
                self._log.append([{"batch": batch_id, "files": files}])
            self._last = batch_id
        self._tell()

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
            check_flat(kind)
        except ValueError:
            raise errors.source_column_nested(stream, field.name, kind) from None
        fields.append(Field(field.name, kind))
    return Schema(tuple(fields))


def _files_of(directory: Path, name: str) -> list[list[Any]]:
    """[path, rows, bytes, row groups] of the files of a batch, which are durable after this."""
    found = []
    for path in sorted((directory / name).glob("part-*.parquet")):
        sync_file(path)  # Hadoop's local file system closes files without making them durable
        footer = pq.read_metadata(path)
        if footer.num_rows:
            size = path.stat().st_size
            found.append([f"{name}/{path.name}", footer.num_rows, size, footer.num_row_groups])
    sync_directory(directory / name)
    sync_directory(directory)
    return found
