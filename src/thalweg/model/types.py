"""Spark's flat types, written as Spark writes them (`decimal(10,2)`), and their Arrow and DuckDB forms.

Inside the data path a timestamp is a naive UTC instant in microseconds: no time zone database is consulted
there, and DuckDB compares and groups plain integers.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DUCK: dict[str, str] = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "void": "INTEGER",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_STRUCT = "struct<"
_ARRAY = re.compile(r"array<(.+)>")
INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")
WINDOW_STRUCT = "struct<start:timestamp,end:timestamp>"
WINDOW_STRUCT_NTZ = "struct<start:timestamp_ntz,end:timestamp_ntz>"


def decimal_parts(spark_type: str) -> tuple[int, int] | None:
    """(precision, scale) of a decimal type, None for every other."""
    match = _DECIMAL.fullmatch(spark_type)
    return (int(match[1]), int(match[2])) if match else None


def is_numeric(spark_type: str) -> bool:
    return spark_type in INTEGRAL or spark_type in FLOATING or decimal_parts(spark_type) is not None


def is_string(spark_type: str) -> bool:
    return spark_type == "string" or spark_type.startswith(("varchar(", "char("))


def element_type(spark_type: str) -> str | None:
    """Of an array, the type of its elements; None for every other. Only results can be arrays."""
    match = _ARRAY.fullmatch(spark_type)
    return match[1] if match else None


def check_flat(spark_type: str) -> None:
    """Whether a stream's column can be of the type; a ValueError where it cannot."""
    if element_type(spark_type) is not None:
        raise ValueError(f"not a flat Spark type: {spark_type}")
    to_arrow(spark_type)


def to_arrow(spark_type: str) -> pa.DataType:
    """The Arrow type in which results of this Spark type are given to users."""
    if spark_type in _ARROW:
        return _ARROW[spark_type]
    if is_string(spark_type):
        return pa.string()
    if parts := decimal_parts(spark_type):
        return pa.decimal128(*parts)
    if (element := element_type(spark_type)) is not None:
        return pa.list_(to_arrow(element))
    if spark_type in (WINDOW_STRUCT, WINDOW_STRUCT_NTZ):
        inner = to_arrow("timestamp" if spark_type == WINDOW_STRUCT else "timestamp_ntz")
        return pa.struct([pa.field("start", inner), pa.field("end", inner)])
    raise ValueError(f"not a flat Spark type: {spark_type}")


@lru_cache(maxsize=512)
def to_inner_arrow(spark_type: str) -> pa.DataType:
    """The Arrow type in which the data path carries this Spark type: timestamps without a zone."""
    if spark_type in TIMES:
        return pa.timestamp("us")
    if (element := element_type(spark_type)) is not None:
        return pa.list_(to_inner_arrow(element))
    return to_arrow(spark_type)


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column cast to a type; itself where it has it, for Arrow takes as long to find that out as to cast."""
    return column if column.type == kind else column.cast(kind)


def to_duck(spark_type: str) -> str:
    if spark_type in _DUCK:
        return _DUCK[spark_type]
    if is_string(spark_type):
        return "VARCHAR"
    if parts := decimal_parts(spark_type):
        return f"DECIMAL({parts[0]},{parts[1]})"
    if (element := element_type(spark_type)) is not None:
        return f"{to_duck(element)}[]"
    if spark_type.startswith(_STRUCT):
        return 'STRUCT("start" TIMESTAMP, "end" TIMESTAMP)'
    raise ValueError(f"not a flat Spark type: {spark_type}")


def from_arrow(arrow_type: pa.DataType) -> str:
    """The Spark type that an Arrow column of a source is read as. Raises ValueError for nested types."""
    if pa.types.is_dictionary(arrow_type):
        return from_arrow(arrow_type.value_type)
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz else "timestamp_ntz"
    widened = {
        pa.uint8(): "smallint",
        pa.uint16(): "int",
        pa.uint32(): "bigint",
        pa.float16(): "float",
        pa.large_string(): "string",
        pa.string_view(): "string",
        pa.large_binary(): "binary",
        pa.binary_view(): "binary",
    }
    if arrow_type in widened:
        return widened[arrow_type]
    for spark_type, candidate in _ARROW.items():
        if candidate == arrow_type:
            return spark_type
    raise ValueError(f"no flat Spark type for Arrow type {arrow_type}")
