"""The one Structured Streaming query under all of Thalweg's: it brings split descriptors, batch by batch."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from thalweg.batch.run import BatchRunner
from thalweg.engine.failure import root_cause
from thalweg.engine.source import ThalwegSource, source_error_in
from thalweg.engine.spark import await_ending, describe_jobs
from thalweg.errors import (
    ThalwegError,
    missing_offsets,
    pipeline_failed,
    session_stopped,
    stopped_inside_batch,
)
from thalweg.source.registry import load_tick, save_tick

NAME = "thalweg"
_PATIENCE_SECONDS = 20.0
"""How long a query that is being stopped may take to start."""


class Pipeline:
    """Starts and stops the streaming query and hands its batches to the runner."""

    def __init__(
        self, spark: SparkSession, state_dir: Path, runner: BatchRunner, after_batch: Callable[[], None]
    ) -> None:
        self.spark = spark
        self.state_dir = state_dir
        self.runner = runner
        self.after_batch = after_batch
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._ticks = threading.Lock()
        self._batch = threading.Lock()
        """Held while a batch runs."""
        self._thread: int | None = None
        """The thread of the batch that runs."""
        self._begun = threading.Event()
        """Whether a batch has come since the start."""
        self._stopping = False
        self._failed = (-1, 0)
        """A batch, and how often it has failed."""
        self._is_counted = False
        spark.dataSource.register(ThalwegSource)

    @property
    def is_running(self) -> bool:
        query = self._query  # once: another thread may be setting it to None
        return query is not None and query.isActive

    def start(self, every_us: int) -> None:
        """Batches as data arrives, at most one in every `every_us` microseconds."""
        self._failure, self._is_counted = None, False
        self._begun.clear()
        # In whole milliseconds: Spark reads no fractions of a unit.
        trigger = f"{every_us // 1000} milliseconds"
        self._query = self._writer().trigger(processingTime=trigger).start()
        self.tick()

    def run_available(self) -> None:
        """All that is there, in batches, and one last batch that closes what the final watermark closes."""
        self._failure, self._is_counted = None, False
        self._begun.clear()
        self.tick()  # keeps the tick that is asked for from falling behind the one that has been reached
        query = self._query = self._writer().trigger(availableNow=True).start()
        try:
            await_ending(query)
        except PySparkException as error:
            if not self._stopping:
                raise self._reason(error) from None
        except BaseException:  # Ctrl-C: without its caller the query would run on, unknown to the session
            query.stop()
            raise
        finally:
            self._query = None

    def stop(self) -> None:
        """Lets the batch that runs come to its end, and no other begin. A stopped pipeline stays stopped."""
        if self._thread == threading.get_ident():
            raise stopped_inside_batch()
        self._stopping = True
        with self._batch:
            pass
        query, self._query = self._query, None
        if query is not None:
            self._await_first_batch(query)
            query.stop()

    def _await_first_batch(self, query: StreamingQuery) -> None:
        """A query that has just been started is still starting the process that plans its input, which would not find
        whom to speak to, and say so at length. The tick at the start makes sure that a batch comes; it is not run."""
        patience = time.monotonic() + _PATIENCE_SECONDS
        while query.isActive and time.monotonic() < patience and not self._begun.wait(0.05):
            pass

    def check(self) -> None:
        """Raises what ended the pipeline, if it did not end by `stop`: from when on it can be started again."""
        query = self._query
        if query is not None and query.isActive:
            return
        if isinstance(self._failure, ThalwegError):
            raise self._failure
        if query is not None and (error := query.exception()) is not None:
            raise self._reason(error)

    def tick(self) -> None:
        """Asks for a batch even where no stream has anything new."""
        with self._ticks:
            save_tick(self.state_dir, load_tick(self.state_dir) + 1)

    def _writer(self) -> DataStreamWriter:
        if self._stopping:
            raise session_stopped()
        self._check_offsets()
        splits = (
            self.spark.readStream.format("thalweg")
            .option("dir", str(self.state_dir))
            .option("tasks", str(self.runner.tasks))
            .load()
        )
        writer = splits.writeStream.foreachBatch(self._run).queryName(self._free_name())
        return writer.option("checkpointLocation", str(self.state_dir / "checkpoint"))

    def _free_name(self) -> str:
        """What Spark's UI and listeners call the query. Two pipelines on one Spark cannot have the same."""
        taken = {query.name for query in self.spark.streams.active}
        return NAME if NAME not in taken else f"{NAME}-{uuid.uuid4().hex[:6]}"

    def _check_offsets(self) -> None:
        """Without Spark's offset log nobody knows how far the streams have been read."""
        batch = self.runner.manifest.batch
        if batch >= 0 and not (self.state_dir / "checkpoint" / "offsets" / str(batch)).exists():
            raise missing_offsets(self.state_dir / "checkpoint", batch)

    def _run(self, splits: DataFrame, batch: int) -> None:
        with self._batch:
            self._begun.set()
            if self._stopping:
                raise session_stopped()  # not a return: Spark would take the batch for done
            self._thread = threading.get_ident()
            describe_jobs(self.spark, f"batch {batch} of {self.state_dir.name}")
            try:
                self.runner.run(splits, batch)
                self.after_batch()
                if self.runner.has_more_to_close():
                    self.tick()
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._thread = None

    def _reason(self, error: BaseException | None) -> ThalwegError:
        if isinstance(self._failure, ThalwegError):
            return self._failure
        cause = self._failure or error or RuntimeError("unknown reason")
        return source_error_in(str(cause)) or pipeline_failed(root_cause(cause), *self._count_failure())

    def _count_failure(self) -> tuple[int, int]:
        """The batch that has failed, and how often it has; what is told twice has failed once."""
        batch = self.runner.manifest.batch + 1
        if not self._is_counted:
            before, times = self._failed
            self._failed = batch, times + 1 if batch == before else 1
            self._is_counted = True
        return self._failed
