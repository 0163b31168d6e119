"""A session on Spark: its analyser, its jobs, its readers and writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from thalweg.batch.loop import Loop
from thalweg.batch.run import BatchRunner
from thalweg.engine.analyzer import SparkAnalyzer
from thalweg.engine.failure import root_cause
from thalweg.engine.landing import Landing, landing_directory
from thalweg.engine.lease import Lease
from thalweg.engine.spark import batch_session, cores
from thalweg.engine.spark_runner import SparkRunner
from thalweg.engine.spark_sink import SparkSink
from thalweg.engine.tables import read_rows
from thalweg.engine.writer_check import check_writer
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.sink.contract import SinkContext
from thalweg.state.storage import Storage


class SparkEngine:
    """Over a session that the user brought, or one that is made here and ended with `stop`."""

    def __init__(self, spark: SparkSession | None, settings: Mapping[str, Any], landing: str | None = None) -> None:
        """`landing`: the directory in which streaming DataFrames are landed; with the state unless given."""
        self._landing = landing
        self._lease = Lease(spark, settings)
        self.spark = self._lease.spark
        try:
            self.analyzer = SparkAnalyzer(self.spark)
            self.runner = SparkRunner(batch_session(self.spark), cores(self.spark))
        except BaseException:
            self.stop()
            raise
        self._loop: Loop | None = None

    def pipeline(
        self,
        batches: BatchRunner,
        known: Callable[[], Mapping[str, Stream]],
        used: Callable[[], Mapping[str, Stream]],
        after_batch: Callable[[], None],
    ) -> Loop:
        self._loop = Loop(batches, known, used, after_batch, root_cause)
        return self._loop

    def source(self, name: str, given: Any, storage: Storage, place: str) -> Any:
        if not isinstance(given, DataFrame):
            return given
        directory = landing_directory(self._landing, storage, place)
        return Landing(self.spark, name, given, storage, directory, self._wake, place)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def read_table(self, name: str, given: Any, schema: Schema | None, kind: str | None) -> pa.Table:
        # Times in text are in UTC, whatever the zone of the user's session. A DataFrame is of its own session.
        spark = self.spark if isinstance(given, DataFrame) else batch_session(self.spark)
        return read_rows(spark, name, given, schema, kind)

    def check_sink(self, query: Query) -> None:
        check_writer(self.spark, query)

    def open_sink(self, query: Query, id_: str, context: SinkContext, storage: Storage) -> SparkSink:
        return SparkSink(self.spark, query, id_, context, storage)

    def stop(self) -> None:
        self._lease.end()
