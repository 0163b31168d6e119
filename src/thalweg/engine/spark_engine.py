"""A session on Spark: its analyser, its jobs, its readers and writers."""

from __future__ import annotations

import os
import sys
import threading
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
from thalweg.engine.own_spark import OWN
from thalweg.engine.spark import batch_session, cores, warm_up
from thalweg.engine.spark_runner import SparkRunner
from thalweg.engine.spark_sink import SparkSink
from thalweg.engine.workers import check_workers
from thalweg.engine.writer_check import check_writer
from thalweg.errors import ThalwegError, bad_table, landing_wanted
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream, name_in
from thalweg.observe import log
from thalweg.sink.contract import SinkContext
from thalweg.source.conform import match_names
from thalweg.state.local_storage import LocalStorage
from thalweg.state.storage import Storage

TABLE_FORMATS = ("parquet", "csv", "json", "orc")


class SparkEngine:
    """Over a session that the user brought, or one that is made here and ended with `stop`."""

    def __init__(self, spark: SparkSession | None, settings: Mapping[str, Any], landing: str | None = None) -> None:
        """`landing`: the directory in which streaming DataFrames are landed; with the state unless given."""
        self._landing = landing
        self._own = OWN.take(settings) if spark is None else None
        self._warming: threading.Thread | None = None
        try:
            self.spark = self._own or spark or SparkSession.active()
            zone, master = self.spark.conf.get("spark.sql.session.timeZone"), self.spark.sparkContext.master
            log.info("session", "spark", own=self._own is not None, master=master, zone=zone, computed_in="UTC")
            if self._own is None or os.environ.get("PYSPARK_PYTHON") != sys.executable:
                check_workers(self.spark)
            else:
                self._warming = warm_up(self.spark)
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
        if self._own is not None and OWN.give_back(self._own) and self._warming is not None:
            self._warming.join(10)  # the end of Spark ends what still warms up


def landing_directory(given: str | None, storage: Storage, place: str) -> str:
    """Where the rows of a streaming DataFrame land: Spark writes files, so it must be a directory."""
    if given is not None:
        return os.path.join(os.path.abspath(given), place)
    if not isinstance(storage, LocalStorage):
        raise landing_wanted(name_in(place), storage.place)
    return storage.locate(f"sources/{place}")


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
    try:
        return _load(spark, name, str(source), schema, kind).toArrow()
    except ThalwegError:
        raise
    except Exception as error:  # whatever the JVM raises, what the file says is its last cause
        raise bad_table(name, f"{source} cannot be read as {kind}: {root_cause(error)}", None) from None


def _load(spark: SparkSession, name: str, path: str, schema: Schema | None, kind: str) -> DataFrame:
    """By the names of its columns. A value that is none of its column refuses the table."""
    reader = spark.read.format(kind)
    if kind in ("csv", "json"):
        reader = reader.option("mode", "FAILFAST")
    if schema is None:
        return reader.options(header="true", inferSchema="true").load(path) if kind == "csv" else reader.load(path)
    if kind != "csv":
        return reader.schema(", ".join(f"`{f.name}` {f.type}" for f in schema.fields)).load(path)
    # Spark takes columns of CSV by their place: so it gets the columns in the order of the file.
    header = spark.read.format("csv").option("header", "true").load(path).columns
    found = match_names(header, schema.names)
    if missing := [column for column in schema.names if column not in found]:
        raise bad_table(name, f"{path} has no column {', '.join(missing)}", f"its columns: {', '.join(header)}")
    types = {found[f.name]: f.type for f in schema.fields}
    placed = ", ".join(f"`{column}` {types.get(column, 'string')}" for column in header)
    rows = reader.options(header="true", enforceSchema="false").schema(placed).load(path)
    return rows.select([rows[f"`{found[column]}`"].alias(column) for column in schema.names])
