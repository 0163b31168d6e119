"""A streaming Spark DataFrame as a source: a small query of its own lands every micro-batch as Parquet files.

Spark writes the rows itself, inside its tasks; they meet neither Python nor the driver on the way. That took
about three quarters of the time of sending them through Arrow to a Python worker that writes them. A batch
lands in a directory named by its id and counts once it is in the log: a replayed batch is written over, or
left alone if the log has it. What Spark needs to replay it alike is durable before the log has it.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from thalweg import errors
from thalweg.engine.failure import source_error_in
from thalweg.engine.spark import await_ending, describe_jobs
from thalweg.model.stream import Field, Schema, SourceSpec, name_in
from thalweg.model.types import check_flat
from thalweg.source.contract import Source
from thalweg.source.log import LANDED, File, Landed, Log, folder_of
from thalweg.state.durable import delete_tree, make_directory, sync_directory, sync_file
from thalweg.state.local_storage import LocalStorage
from thalweg.state.storage import Storage

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


class Landing(Source):
    """Keeps `directory` filled with what the DataFrame brings, and the log of it in the storage."""

    def __init__(
        self,
        spark: SparkSession,
        stream_name: str,
        dataframe: DataFrame,
        storage: Storage,
        directory: str,
        tell: Callable[[], None] = lambda: None,
        place: str | None = None,
    ) -> None:
        """`directory`: a local one, of this stream alone. `tell` is called after every micro-batch that landed.
        `place`: of the stream in the storage; its name unless given."""
        if not dataframe.isStreaming:
            raise errors.source_not_streaming(stream_name)
        self._spark = spark
        self._stream = stream_name
        self._place = place or stream_name
        self._dataframe = dataframe
        self._storage = storage
        self._directory = Path(directory)
        self._checkpoint = self._directory / "checkpoint"
        self._tell = tell
        self._schema = schema_of(stream_name, dataframe)
        self._query: StreamingQuery | None = None
        self._log: Log[Landed] | None = None
        self._last = -1
        self._settled: set[Path] = set()
        """The files of Spark's checkpoint that are durable."""
        self._raised: errors.ThalwegError | None = None
        """What this landing itself has ended the query with."""
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
        self._raised = None
        self._log = Log(self._storage, self._place, LANDED)
        self._last = max((entry.batch for entry in self._log.entries), default=-1)
        self._check_log(self._log)
        writer = (
            self._dataframe.writeStream.foreachBatch(self._land)
            .queryName(f"thalweg-landing-{self._stream}-{uuid.uuid4().hex[:6]}")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
        )
        try:
            query = self._query = writer.start()
        except Exception as failure:  # a plan that Spark does not run as a stream, such as a sum without a watermark
            raise self._failed(str(failure)) from failure
        return query

    def _check_log(self, log: Log[Landed]) -> None:
        """A batch that Spark has committed is in the log if it had rows; one that was read has no directory."""
        logged = {entry.batch for entry in log.entries}
        for path in self._directory.glob("b[0-9]*"):
            batch = int(path.name[1:])
            is_done = (self._checkpoint / "commits" / str(batch)).exists()
            if batch not in logged and is_done and _files_of(self._directory, path.name):
                raise errors.landing_log_behind(
                    self._storage.locate(f"{folder_of(self._place)}{LANDED.folder}"), batch
                )

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        try:
            with self._lock:
                if batch_id <= self._last:
                    self._check_repeat(batch_id)
                    return
                self._land_new(batch, batch_id)
                self._last = batch_id
        except errors.ThalwegError as error:
            self._raised = error
            raise
        self._tell()

    def _check_repeat(self, batch_id: int) -> None:
        """Spark repeats the newest batch that it has planned, with the rows it had. If its offsets are lost, it plans
        a batch of that number anew, and those rows are nowhere else."""
        entries = self._log.entries if self._log is not None else []
        landed = next((entry for entry in reversed(entries) if entry.batch == batch_id), None)
        if landed is not None and landed.offsets_crc in (None, zlib.crc32(self._offsets(batch_id).read_bytes())):
            return
        raise errors.landing_offsets_lost(self._stream, batch_id, str(self._checkpoint))

    def _land_new(self, batch: DataFrame, batch_id: int) -> None:
        """Write the files, then the log entry: all of the batch becomes visible with it."""
        describe_jobs(batch.sparkSession, f"landing batch {batch_id} of stream {self._stream}")
        for name, value in _SETTINGS.items():
            batch.sparkSession.conf.set(name, value)
        name = f"b{batch_id:010d}"
        batch.write.mode("overwrite").options(**_PLAIN).parquet(str(self._directory / name))
        files = _files_of(self._directory, name)
        if not files:  # what is not in the log is never given back
            delete_tree(self._directory / name)
        elif self._log is not None:
            self._settle_checkpoint(batch_id)
            crc = zlib.crc32(self._offsets(batch_id).read_bytes())
            self._log.append([Landed(batch_id, tuple(files), self._kept_directory(), crc)])

    def _settle_checkpoint(self, batch_id: int) -> None:
        """Spark closes the files of its checkpoint without making them durable. Of commits none are needed: a batch
        whose commit is lost is repeated, and left alone."""
        offsets = self._offsets(batch_id)
        found = {
            *_with_checksums(self._checkpoint / "metadata", offsets),
            *_files_below(self._checkpoint / "sources"),
        }
        fresh = found - self._settled
        for file in fresh:
            sync_file(file)
        above = {directory for file in fresh for directory in file.parents}
        for directory in above - set(self._directory.parents):
            sync_directory(directory)
        self._settled = {file for file in found if file.parent != offsets.parent}

    def _offsets(self, batch_id: int) -> Path:
        return self._checkpoint / "offsets" / str(batch_id)

    def _kept_directory(self) -> str:
        """Nothing, if it lies with the state: that may be moved."""
        is_beside = self._directory == Path(self._storage.locate(folder_of(self._place)))
        return "" if is_beside else str(self._directory)

    def _failed(self, reason: str) -> errors.ThalwegError:
        if self._raised is not None:
            return self._raised
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


def _with_checksums(*files: Path) -> list[Path]:
    """Those that are there, and what Hadoop keeps beside each."""
    beside = [file.with_name(f".{file.name}.crc") for file in files]
    return [file for file in (*files, *beside) if file.exists()]


def _files_below(directory: Path) -> Iterator[Path]:
    for path, _, names in os.walk(directory):
        yield from (Path(path, name) for name in names)


def _files_of(directory: Path, name: str) -> list[File]:
    """The files of a batch, which are durable after this."""
    found = []
    for path in sorted((directory / name).glob("part-*.parquet")):
        sync_file(path)  # Hadoop's local file system closes files without making them durable
        footer = pq.read_metadata(path)
        if footer.num_rows:
            size = path.stat().st_size
            found.append(File(f"{name}/{path.name}", size, footer.num_rows, footer.num_row_groups))
    sync_directory(directory / name)
    sync_directory(directory)
    return found


def landing_directory(given: str | None, storage: Storage, place: str) -> str:
    """Where the rows of a streaming DataFrame land: Spark writes files, so it must be a directory."""
    if given is not None:
        return os.path.join(os.path.abspath(given), place)
    if not isinstance(storage, LocalStorage):
        raise errors.landing_wanted(name_in(place), storage.place)
    return storage.locate(f"sources/{place}")
