"""Spark's own analyser as the judge of names and types; its complaints as errors with a place in the SQL."""

from __future__ import annotations

import difflib
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from thalweg.engine.spark import further_session
from thalweg.errors import SqlError, analysis_failed, bad_columns, unknown_column, unknown_stream
from thalweg.model.analysis import Columns, Learned
from thalweg.model.stream import Schema, Stream

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # A text may not reach into the environment through ${...}, nor read a file as a table.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
}
MOST_LEARNED = 10_000
"""Of answers; queries that come and go bring ever new ones."""
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+)?\s*(;\s*line \d+ pos \d+.*)?$", re.DOTALL)

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""By which PySpark prints every complaint of the analyser, with the whole Java trace."""


class _Silence(logging.Filter):
    """Keeps back what the threads log that are inside it. Other threads' records pass."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._inside: dict[int, int] = {}
        """Thread -> how often it has entered."""

    def filter(self, record: logging.LogRecord) -> bool:
        return threading.get_ident() not in self._inside

    @contextmanager
    def kept(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            self._inside[thread] = self._inside.get(thread, 0) + 1
            for name in _LOGGERS:
                PySparkLogger.getLogger(name).addFilter(self)
        try:
            yield
        finally:
            with self._lock:
                self._inside[thread] -= 1
                if not self._inside[thread]:
                    del self._inside[thread]
                for name in _LOGGERS if not self._inside else ():
                    PySparkLogger.getLogger(name).removeFilter(self)


_SILENCE = _Silence()


class SparkAnalyzer:
    """Streams and tables are temporary views in a session of its own: analysis touches no data and no other user."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = further_session(spark, _SETTINGS)
        self._names: set[str] = set()
        self._views: dict[str, tuple[str, Schema]] = {}
        """Name in small letters, as Spark takes it -> what the view was made for."""
        self._learned: Learned = {}

    @property
    def learned(self) -> Learned:
        """What others have learned from answers since a name was last given another meaning."""
        if len(self._learned) >= MOST_LEARNED:
            self._learned = {}
        return self._learned

    def register(self, stream: Stream) -> None:
        """Make the stream known by its name; a second time replaces it. Refused columns leave all as it was."""
        self._register("stream", stream.name, stream.schema)

    def register_table(self, name: str, schema: Schema) -> None:
        """The same for a static table."""
        self._register("table", name, schema)

    def check_table(self, name: str, schema: Schema) -> None:
        """Refuses columns of a type that is none."""
        self._run("table", name, _select(schema))

    def _register(self, kind: str, name: str, schema: Schema) -> None:
        if name in self._names and self._views.get(name.lower()) == (kind, schema):
            return  # what was analysed with it still holds
        self._run(kind, name, f"CREATE OR REPLACE TEMPORARY VIEW {_quote(name)} AS {_select(schema)}")
        self._names.add(name)
        self._views[name.lower()] = kind, schema
        self._learned = {}

    def _run(self, kind: str, name: str, sql: str) -> None:
        try:
            with _SILENCE.kept():
                self._spark.sql(sql)
        except PySparkException as error:
            raise bad_columns(kind, name, _primary(str(error))) from None

    def unregister(self, name: str) -> None:
        if name in self._names:
            self._names.remove(name)
            self._views.pop(name.lower(), None)
            self._spark.catalog.dropTempView(name)
            self._learned = {}

    def analyze(self, sql: str) -> Columns:
        """(name, type) of each result column. Nothing is run."""
        try:
            with _SILENCE.kept():
                schema = self._spark.sql(sql).schema
        except PySparkException as error:
            raise self._explain(error, sql) from None
        return [(field.name, field.dataType.simpleString()) for field in schema.fields]

    def _explain(self, error: Any, sql: str) -> SqlError:
        parameters: dict[str, str] = error.getMessageParameters() or {}
        condition = error.getCondition() or ""
        span = _span(error, sql) or _find(parameters, sql)
        if condition.startswith("UNRESOLVED_COLUMN") and span is not None:
            name = parameters.get("objectName", "").replace("`", "")
            return unknown_column(name, self._near_columns(name, parameters), sql, span)
        if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
            name = parameters.get("relationName", "").replace("`", "")
            return unknown_stream(name, difflib.get_close_matches(name, sorted(self._names)), sql, span)
        return analysis_failed(_primary(str(error)), sql, span)

    def _near_columns(self, name: str, parameters: dict[str, str]) -> list[str]:
        proposed = [part.strip(" `") for part in parameters.get("proposal", "").split(",")]
        columns = [column.split(".")[-1].strip("`") for column in proposed if column]
        return difflib.get_close_matches(name.split(".")[-1], columns, 3, 0.5) or columns[:3]


def _span(error: Any, sql: str) -> tuple[int, int] | None:
    """Where Spark says the fault is; None where it does not say."""
    for context in error.getQueryContext() or ():
        start, stop = context.startIndex(), context.stopIndex()
        if 0 <= start <= stop < len(sql):
            return (start, stop + 1)
    place = re.search(r"line (\d+), pos (\d+)", str(error))
    if place is None:
        return None
    lines = sql.split("\n")
    start = sum(len(line) + 1 for line in lines[: int(place[1]) - 1]) + int(place[2])
    return (min(start, max(0, len(sql) - 1)), min(start + 1, len(sql)))


def _find(parameters: dict[str, str], sql: str) -> tuple[int, int] | None:
    """The first place where the text holds the expression that the error is about."""
    name = (parameters.get("expression") or parameters.get("expressionAnyValue") or "").strip('"`')
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) if name else None
    return match.span() if match else None


def _primary(message: str) -> str:
    """The sentence itself: without the error class, the SQL state, the plan and the Java trace."""
    first = message.split("\n== SQL", 1)[0].split("\nJVM stacktrace", 1)[0].split(";\n", 1)[0]
    line = " ".join(first.split())
    return _TAIL.sub("", _CLASS.sub("", line)).strip()


def _select(schema: Schema) -> str:
    """A row without values, of the columns' names and types."""
    return "SELECT " + ", ".join(f"CAST(NULL AS {field.type}) AS {_quote(field.name)}" for field in schema.fields)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
