"""A session on Spark: its analyser, its jobs, its readers and writers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from thalweg.batch.loop import Loop
from thalweg.batch.run import BatchRunner
from thalweg.engine.analyzer import SparkAnalyzer
from thalweg.engine.failure import root_cause
from thalweg.engine.landing import Landing
from thalweg.engine.spark import batch_session, check_settings, cores, create_session, warm_up
from thalweg.engine.spark_runner import SparkRunner
from thalweg.errors import bad_table, failed_sink, landing_wanted
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.sink.base import RowSink
from thalweg.state.local_storage import LocalStorage
from thalweg.state.storage import Storage

TABLE_FORMATS = ("parquet", "csv", "json", "orc")


class SparkEngine:
    """Over a session that the user brought, or one that is made here and ended with `stop`."""

    def __init__(self, spark: SparkSession | None, settings: Mapping[str, Any], landing: str | None = None) -> None:
        """`landing`: the directory in which streaming DataFrames are landed; with the state unless given."""
        self._landing = landing
        self.spark = create_session(**settings) if spark is None else check_settings(spark)
        self._warming = warm_up(self.spark) if spark is None else None
        self.analyzer = SparkAnalyzer(self.spark)
        self.runner = SparkRunner(batch_session(self.spark), cores(self.spark))
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

    def source(self, name: str, given: Any, storage: Storage) -> Any:
        if not isinstance(given, DataFrame):
            return given
        directory = landing_directory(self._landing, storage, name)
        return Landing(self.spark, name, given, storage, directory, self._wake)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def read_table(self, name: str, given: Any, schema: Schema | None, kind: str | None) -> pa.Table:
        return read_rows(self.spark, name, given, schema, kind)

    def check_sink(self, query: Query) -> None:
        """Spark's own writers say when they are used what they miss."""

    def open_sink(self, query: Query, id_: str, owner: str) -> SparkSink:
        return SparkSink(self.spark, dict(query.sink.options), id_, owner)

    def stop(self) -> None:
        if self._warming is not None:  # the Spark session is ours
            self.spark.stop()  # which also ends what still warms up
            self._warming.join(10)


def landing_directory(given: str | None, storage: Storage, stream: str) -> str:
    """Where the rows of a streaming DataFrame land: Spark writes files, so it must be a directory."""
    if given is not None:
        return os.path.join(os.path.abspath(given), stream)
    if not isinstance(storage, LocalStorage):
        raise landing_wanted(stream, storage.place)
    return storage.locate(f"sources/{stream}")


def read_rows(spark: SparkSession, name: str, source: Any, schema: Schema | None, kind: str | None) -> pa.Table:
    """The rows of a DataFrame, an Arrow table or a file, as Arrow."""
    if isinstance(source, DataFrame):
        if source.isStreaming:
            raise bad_table(name, "it is a streaming DataFrame", "create a stream from it")
        try:
            return source.toArrow()
        except PySparkException as error:
            raise bad_table(name, f"its DataFrame cannot be read: {str(error).splitlines()[0]}", None) from None
    if isinstance(source, pa.Table):
        return source
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise bad_table(name, f"{source!r} is not a DataFrame, an Arrow table or a path", None)
    kind = kind or os.path.splitext(source)[1].lstrip(".") or "parquet"
    if kind not in TABLE_FORMATS:
        raise bad_table(name, f"{kind!r} is not one of {', '.join(TABLE_FORMATS)}", "say format = '...'")
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", str(schema is None).lower())
    try:
        if schema is not None:
            reader = reader.schema(", ".join(f"`{f.name}` {f.type}" for f in schema.fields))
        return reader.load(str(source)).toArrow()
    except PySparkException as error:
        raise bad_table(name, f"{source} cannot be read as {kind}: {str(error).splitlines()[0]}", None) from None


class SparkSink(RowSink):
    """Any batch writer of Spark's. Whether a repeated batch shows twice is up to the format: Delta is told the
    batch (txnAppId, txnVersion) and keeps the first. Batches of another pipeline are others."""

    kind = "spark"

    def __init__(self, spark: SparkSession, options: dict[str, Any], query: str, owner: str) -> None:
        self.spark = spark
        self.format = options.pop("format")
        self.options = options
        self.query = query
        self.owner = owner

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        options = {"txnAppId": f"{self.owner}/{self.query}", "txnVersion": batch_id, **self.options}
        try:
            writer = self.spark.createDataFrame(table).write.format(self.format).mode("append")
            writer.options(**options).save()
        except Exception as error:
            raise failed_sink(self.query, self.format, root_cause(error)) from error
