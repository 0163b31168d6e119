"""Static tables, read by Spark."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from thalweg.engine.failure import root_cause
from thalweg.errors import ThalwegError, bad_table
from thalweg.model.stream import Schema
from thalweg.source.conform import match_names

TABLE_FORMATS = ("parquet", "csv", "json", "orc")


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
