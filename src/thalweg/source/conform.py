"""From the types that a file has to the types that a stream declares, whole columns at a time.

Arrow's own cast is tried first; only if it fails does DuckDB's TRY_CAST look at the rows one by one. Both
give a row that they accept the same value, so a result never depends on its neighbours in a block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from thalweg.model.expr import quote
from thalweg.model.stream import Schema
from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, is_string, to_duck, to_inner_arrow

REJECTED_SCHEMA = pa.schema([("reason", pa.string()), ("row", pa.string())])
_LOCAL = threading.local()
_SAMPLE = 16
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_INTEGER_TEXT = "[+-]?[0-9]+|0[xX][0-9a-fA-F]+"


@dataclass(frozen=True)
class Conformed:
    table: pa.Table
    """The rows that could be read, in the data path's types."""
    rejected: pa.Table | None
    """reason, row: those that could not."""


def conform(
    table: pa.Table,
    schema: Schema,
    columns: Sequence[str],
    show: Callable[[pa.Table], pa.Array] | None = None,
) -> Conformed:
    """Restrict to `columns`, in the types of `schema`; a column that is not there is null.

    A row with a value that is not of its column's type is set aside. `show` gives such rows the text under
    which they are kept; without it that is JSON.
    """
    wanted = [pa.field(name, to_inner_arrow(schema.type_of(name))) for name in columns]
    names = match_names(table.column_names, columns)
    arrays: list[pa.ChunkedArray] = []
    reasons: pa.Array | None = None
    for field in wanted:
        if field.name not in names:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        spark_type = schema.type_of(field.name)
        array, bad = convert(table.column(names[field.name]), spark_type)
        arrays.append(array)
        if bad is not None:
            reason = pc.if_else(bad, f"column {field.name}: not a {spark_type}", pa.scalar(None, pa.string()))
            reasons = reason if reasons is None else pc.coalesce(reasons, reason)
    # A table without columns has no length of its own; the caller counts rows itself.
    result = pa.Table.from_arrays(arrays, schema=pa.schema(wanted))
    if reasons is None:
        return Conformed(result, None)
    bad = pc.is_valid(reasons)
    rows = (show or rows_as_json)(table.filter(bad))
    rejected = pa.Table.from_arrays([reasons.filter(bad), rows.cast(pa.string())], schema=REJECTED_SCHEMA)
    return Conformed(result.filter(pc.invert(bad)), rejected)


def match_names(present: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """wanted -> present, ignoring case where the exact name is not there, as Spark does."""
    exact = set(present)
    folded = {name.lower(): name for name in reversed(present)}
    pairs = ((name, name if name in exact else folded.get(name.lower())) for name in wanted)
    return {name: found for name, found in pairs if found is not None}


def convert(column: pa.ChunkedArray, spark_type: str) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """The column in the inner type of `spark_type`, and where a value was lost on the way (None: nowhere)."""
    target = to_inner_arrow(spark_type)
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == target:
        return column, None
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), target)]), None
    try:
        fast = _cast(column, spark_type, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        fast = None
    if fast is not None:
        return fast, None
    slow = _try_cast(column, spark_type, target)
    bad = pc.and_(pc.is_valid(column), pc.is_null(slow)).combine_chunks()
    return slow, bad if pc.any(bad, min_count=0).as_py() else None


def rows_as_json(table: pa.Table) -> pa.Array:
    """Every row as a JSON object, for people to look at."""
    if table.num_columns == 0:
        return pa.nulls(table.num_rows, pa.string())
    items = ", ".join(f"{quote(name)} := {quote(name)}::VARCHAR" for name in table.column_names)
    result = connection().from_arrow(table).project(f"to_json(struct_pack({items}))::VARCHAR AS j")
    return result.to_arrow_table().column(0).combine_chunks().cast(pa.string())


def connection() -> duckdb.DuckDBPyConnection:
    """One DuckDB per thread, single-threaded: the worker is the unit of parallelism."""
    if not hasattr(_LOCAL, "connection"):
        _LOCAL.connection = duckdb.connect(config={"threads": 1})
        _LOCAL.connection.execute("SET TimeZone = 'UTC'")
    opened: duckdb.DuckDBPyConnection = _LOCAL.connection
    return opened


def _cast(column: pa.ChunkedArray, spark_type: str, target: pa.DataType) -> pa.ChunkedArray | None:
    """Arrow's cast where it means what Spark means; None or an ArrowInvalid where rows must be looked at."""
    source = column.type
    if pt.is_timestamp(source) and spark_type in TIMES:
        return _to_microseconds(column)
    if _is_text(source):
        if spark_type in TIMES:
            return _parse_times(column)
        return column.cast(target) if is_string(spark_type) or spark_type == "binary" else None
    if spark_type in TIMES and not pt.is_date(source):
        return None
    if spark_type in FLOATING and pt.is_integer(source):
        return column.cast(target, safe=False)
    if pt.is_boolean(source) and not is_string(spark_type):
        return None
    return column.cast(target)


def _to_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Instants in UTC without saying so; no copy for the same unit. Nanoseconds are cut off as in Spark."""
    unit = column.type.unit
    naive = pa.chunked_array([chunk.view(pa.timestamp(unit)) for chunk in column.chunks], pa.timestamp(unit))
    if unit != "ns":
        return naive.cast(pa.timestamp("us"))
    return pa.chunked_array([_floor_nanoseconds(chunk) for chunk in naive.chunks], pa.timestamp("us"))


def _floor_nanoseconds(chunk: pa.Array) -> pa.Array:
    values = chunk.view(pa.int64())
    floored = np.floor_divide(values.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(floored, mask=mask).view(pa.timestamp("us"))


def _parse_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO-8601 text, all with a zone or all without."""
    zoned, naive = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
    try:
        # A cast that fails costs many times one that does not: ask a few rows which it will be.
        column.slice(0, _SAMPLE).cast(naive)
    except pa.ArrowInvalid:
        column.slice(0, _SAMPLE).cast(zoned)
        return _to_microseconds(column.cast(zoned))
    return column.cast(naive)


def _try_cast(column: pa.ChunkedArray, spark_type: str, target: pa.DataType) -> pa.ChunkedArray:
    expression = _try_expression(column.type, spark_type)
    if expression is None:
        return pa.chunked_array([pa.nulls(len(column), target)])
    relation = connection().from_arrow(pa.table({"x": column})).project(f"{expression} AS y")
    result = relation.to_arrow_table().column(0)
    if spark_type in TIMES:
        result = _to_microseconds(result)
        number = pc.cast(result, pa.int64())
        inside = pc.and_(pc.greater_equal(number, _YEAR_1), pc.less(number, _YEAR_10000))
        return pc.if_else(inside, result, pa.scalar(None, target))
    return result.cast(target)


def _try_expression(source: pa.DataType, spark_type: str) -> str | None:
    """DuckDB text over `x` that is null where x is no value of the type; None where no value ever is."""
    duck = to_duck(spark_type)
    if _is_text(source):
        return _try_text(spark_type, duck)
    if pt.is_binary(source) or pt.is_large_binary(source):
        return "TRY(decode(x))" if is_string(spark_type) else None
    is_number = pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source)
    if not is_number or not (spark_type in (*INTEGRAL, *FLOATING) or decimal_parts(spark_type)):
        return None
    if spark_type in INTEGRAL and not pt.is_integer(source):
        return f"CASE WHEN x = trunc(x) THEN TRY_CAST(x AS {duck}) END"
    return f"TRY_CAST(x AS {duck})"


def _try_text(spark_type: str, duck: str) -> str | None:
    if spark_type in INTEGRAL:
        return f"CASE WHEN regexp_full_match(trim(x), '{_INTEGER_TEXT}') THEN TRY_CAST(trim(x) AS {duck}) END"
    if spark_type in FLOATING or decimal_parts(spark_type):
        return f"CASE WHEN NOT contains(x, '_') THEN TRY_CAST(trim(x) AS {duck}) END"
    if spark_type == "boolean":
        return "CASE lower(trim(x)) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if spark_type == "date":
        return "CASE WHEN regexp_matches(x, '^\\s*[0-9]') THEN TRY_CAST(x AS DATE) END"
    if spark_type in TIMES:
        return "TRY_CAST(x AS TIMESTAMPTZ)"
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or kind == pa.string_view())
