"""From the types that a file has to the types that a stream declares, whole columns at a time.

Arrow's own cast is tried first; only if it fails does DuckDB's TRY_CAST look at the rows one by one. Both
give a row that they accept the same value, so a result never depends on its neighbours in a block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from thalweg.model.expr import quote
from thalweg.model.stream import Schema
from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, is_string, to_duck, to_inner_arrow

REJECTED_SCHEMA = pa.schema(
    [("kind", pa.string()), ("reason", pa.string()), ("line", pa.int64()), ("row", pa.string())]
)
"""What was set aside: the kind of fault in a word, the reason, where in the file (a line of text, a row of the other
formats, from 1 on; null: unknown), and the text of it."""
MISFIT, NOT_UTF8, YEARS, AHEAD = "misfit", "not UTF-8", "years", "ahead"
_LOCAL = threading.local()
_SAMPLE = 16
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_YEAR_2, _YEAR_9999 = -62_104_060_800_000_000, 253_370_764_800_000_000
_DAY_US = 86_400_000_000
_EXACT = {"float": 2**24, "double": 2**53}
"""Whole numbers up to there are held exactly."""
_INTEGER_TEXT = "[+-]?[0-9]+|0[xX][0-9a-fA-F]+"


@dataclass(frozen=True)
class Conformed:
    table: pa.Table
    """The rows that could be read, in the data path's types."""
    rejected: pa.Table | None
    """Those that could not, as `REJECTED_SCHEMA` has it."""


@dataclass(frozen=True)
class Admission:
    """Which event times are let in. Those of years 1 and 9999 are not: their windows might reach beyond."""

    time: str
    """The event-time column."""
    latest_us: int | None = None
    """None: no row is too far ahead."""

    def refused(self, times: pa.ChunkedArray) -> list[Fault]:
        """Where an event time is not let in, and why."""
        number = times.cast(pa.int64())
        least, greatest = _ends(number)
        found = []
        if least is not None and (least < _YEAR_2 or greatest >= _YEAR_9999):
            out = pc.or_(pc.less(number, _YEAR_2), pc.greater_equal(number, _YEAR_9999))
            found.append(Fault(_flags(out), YEARS, f"column {self.time}: an event time is of the years 2 to 9998"))
        if greatest is not None and self.latest_us is not None and greatest > self.latest_us:
            reason = f"column {self.time}: later than {_moment(self.latest_us)}, which is max_ahead beyond the clock"
            found.append(Fault(_flags(pc.greater(number, self.latest_us)), AHEAD, reason))
        return found


@dataclass(frozen=True)
class Fault:
    rows: np.ndarray
    """Whether it is one, row by row."""
    kind: str
    reason: str


def conform(
    table: pa.Table,
    schema: Schema,
    columns: Sequence[str],
    admission: Admission | None = None,
    *,
    first: int | None = 0,
    show: Callable[[np.ndarray], pa.Table] | None = None,
    trusted: bool = False,
) -> Conformed:
    """Restrict to `columns`, in the types of `schema`; a column that is not there is null.

    A row with a value that is not of its column's type, or whose time is not let in, is set aside. `show`: line and
    text of the rows with these numbers; without it they are numbered after `first` and shown as JSON. `trusted`: the
    values have been checked before.
    """
    wanted = [pa.field(name, to_inner_arrow(schema.type_of(name))) for name in columns]
    names = match_names(table.column_names, columns)
    arrays: list[pa.ChunkedArray] = []
    faults: list[Fault] = []
    for field in wanted:
        if field.name not in names:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        spark_type = schema.type_of(field.name)
        try:
            array, bad = convert(table.column(names[field.name]), spark_type, trusted)
        except duckdb.Error as failure:
            forget_connection(failure)
            raise
        arrays.append(array)
        if bad is not None:
            faults.append(_misfit(field.name, spark_type, table.column(names[field.name]).type, bad))
        if admission is not None and field.name == admission.time:
            faults += admission.refused(array)
    # A table without columns has no length of its own; the caller counts rows itself.
    result = pa.Table.from_arrays(arrays, schema=pa.schema(wanted))
    if not faults:
        return Conformed(result, None)
    number, kinds, reasons = sort_out(faults)
    given = _numbered(table.select([*names.values()]), number, first) if show is None else show(number)
    columns_of = {"kind": kinds, "reason": reasons, "line": given["line"], "row": given["row"]}
    kept = np.ones(table.num_rows, bool)
    kept[number] = False
    return Conformed(result.filter(pa.array(kept)), pa.table(columns_of, schema=REJECTED_SCHEMA))


def sort_out(faults: Sequence[Fault]) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """The numbers of the rows with a fault, and of each the kind and the reason of its first one."""
    which = np.full(len(faults[0].rows), -1)
    for at in reversed(range(len(faults))):
        which[faults[at].rows] = at
    number = np.flatnonzero(which >= 0)
    at = pa.array(which[number])
    kinds, reasons = (pa.array([getattr(f, part) for f in faults], pa.string()) for part in ("kind", "reason"))
    return number, kinds.take(at), reasons.take(at)


def _misfit(name: str, spark_type: str, found: pa.DataType, bad: pa.Array) -> Fault:
    if _is_text(found) and is_string(spark_type):
        return Fault(_flags(bad), NOT_UTF8, f"column {name}: not UTF-8")
    if pt.is_temporal(found) and spark_type in (*TIMES, "date"):
        return Fault(_flags(bad), YEARS, f"column {name}: not of the years 1 to 9999")
    return Fault(_flags(bad), MISFIT, f"column {name}: not a {spark_type}")


def _flags(bad: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(bad, False).to_numpy(zero_copy_only=False), dtype=bool)


def _numbered(table: pa.Table, number: np.ndarray, first: int | None) -> pa.Table:
    lines = pa.nulls(len(number), pa.int64()) if first is None else pa.array(number + first + 1, pa.int64())
    # Arrow cannot pick rows of a view.
    columns = [_as_bytes(c) if c.type == pa.string_view() else c for c in table.columns]
    rows = pa.Table.from_arrays(columns, names=table.column_names).take(number)
    return pa.table({"line": lines, "row": rows_as_json(rows)})


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z" if abs(us) < _YEAR_9999 else f"{us} us"


def match_names(present: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """wanted -> present, ignoring case where the exact name is not there, as Spark does."""
    exact = set(present)
    folded = {name.lower(): name for name in reversed(present)}
    pairs = ((name, name if name in exact else folded.get(name.lower())) for name in wanted)
    return {name: found for name, found in pairs if found is not None}


def convert(
    column: pa.ChunkedArray, spark_type: str, trusted: bool = False
) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """The column in the inner type of `spark_type`, and where a value was lost on the way (None: nowhere)."""
    target = to_inner_arrow(spark_type)
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not trusted and _is_text(column.type) and not _is_utf8(column):
        column = _as_bytes(column)  # row by row, then
    if column.type == target:
        return (column, None) if trusted else _within_years(column, spark_type)
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), target)]), None
    if pt.is_floating(column.type) and spark_type in FLOATING:
        return _narrowed(column, spark_type, target)
    try:
        fast = _cast(column, spark_type, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        fast = None
    if fast is not None:
        return _within_years(fast, spark_type)
    slow = _try_cast(column, spark_type, target)
    bad = pc.and_(pc.is_valid(column), pc.is_null(slow)).combine_chunks()
    return slow, bad if pc.any(bad, min_count=0).as_py() else None


def _is_utf8(column: pa.ChunkedArray) -> bool:
    try:
        for chunk in column.chunks:
            if not _is_ascii(chunk):
                chunk.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_ascii(text: pa.Array) -> bool:
    """Whether no byte of its buffer is part of another character: a tenth of what validation costs."""
    if text.type == pa.string_view():
        return False
    data = text.buffers()[2]
    return data is None or data.size == 0 or bool(np.frombuffer(data, np.int8).min() >= 0)


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = pa.large_binary() if pt.is_large_string(column.type) else pa.binary()
    if column.type == pa.string_view():
        return pa.chunked_array([chunk.view(pa.binary_view()).cast(kind) for chunk in column.chunks], kind)
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _ends(number: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest; None where there are only NULLs."""
    least, greatest = pc.min_max(number).as_py().values()
    return least, greatest


def _within_years(column: pa.ChunkedArray, spark_type: str) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """The column, and where its times are not of the years 1 to 9999."""
    if spark_type not in (*TIMES, "date"):
        return column, None
    number = column.cast(pa.int64() if spark_type in TIMES else pa.int32())
    unit = 1 if spark_type in TIMES else _DAY_US
    first, after = _YEAR_1 // unit, _YEAR_10000 // unit
    least, greatest = _ends(number)
    if least is None or (least >= first and greatest < after):
        return column, None
    out = pc.or_(pc.less(number, first), pc.greater_equal(number, after))
    return pc.if_else(out, pa.scalar(None, column.type), column), pc.fill_null(out, False).combine_chunks()


def _narrowed(
    column: pa.ChunkedArray, spark_type: str, target: pa.DataType
) -> tuple[pa.ChunkedArray, pa.Array | None]:
    """Numbers with a fraction in a type that may hold fewer digits: they are rounded, as those of a text are. What
    becomes infinite is lost, and so is a whole number that becomes another one. Beyond 2**53 all are rounded ones."""
    made = column.cast(target, safe=False)
    if column.type == pa.float16() or target == pa.float64():
        return made, None
    was, is_ = (np.asarray(c.to_numpy(), dtype=np.float64) for c in (column, made))
    whole = (was == np.trunc(was)) & (np.abs(was) <= _EXACT["double"])
    bad = (np.isinf(is_) & ~np.isinf(was)) | ((was != is_) & whole)
    return made, pa.array(bad) if bad.any() else None


def rows_as_json(table: pa.Table) -> pa.Array:
    """Every row as a JSON object, for people to look at."""
    if table.num_columns == 0 or table.num_rows == 0:
        return pa.nulls(table.num_rows, pa.string())
    shown = pa.table({name: _showable(table.column(name)) for name in table.column_names})
    items = ", ".join(f"{quote(name)} := {quote(name)}::VARCHAR" for name in table.column_names)
    result = connection().from_arrow(shown).project(f"to_json(struct_pack({items}))::VARCHAR AS j")
    return result.to_arrow_table().column(0).combine_chunks().cast(pa.string())


def _showable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As DuckDB can show it: bytes that are no text are escaped, times of other years are numbers."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type) and not _is_utf8(column):
        return _as_bytes(column)
    if pt.is_timestamp(column.type):
        return column if _clipped(column).null_count == column.null_count else column.cast(pa.int64())
    return column


def connection() -> duckdb.DuckDBPyConnection:
    """One DuckDB per thread, single-threaded: the worker is the unit of parallelism."""
    if not hasattr(_LOCAL, "connection"):
        _LOCAL.connection = duckdb.connect(config={"threads": 1})
        _LOCAL.connection.execute("SET TimeZone = 'UTC'")
    opened: duckdb.DuckDBPyConnection = _LOCAL.connection
    return opened


def forget_connection(failure: BaseException) -> None:
    """After an internal error DuckDB gives up a database: the next rows have another one."""
    if isinstance(failure, duckdb.InternalException | duckdb.FatalException):
        _LOCAL.__dict__.clear()


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
    if spark_type in FLOATING and pt.is_decimal(source):
        made = column.cast(target)
        greatest = pc.max(pc.abs(made)).as_py()
        return made if greatest is None or greatest < _EXACT[spark_type] else None
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


def _clipped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The times that are of the years 1 to 9999, in their unit."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    limits = (max(us * per_second // 10**6, -(2**63)) for us in (_YEAR_1, _YEAR_10000))
    first, after = (min(limit, 2**63 - 1) for limit in limits)
    number = column.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(number, first), pc.less(number, after))
    return pc.if_else(inside, column, pa.scalar(None, column.type))


def _try_cast(column: pa.ChunkedArray, spark_type: str, target: pa.DataType) -> pa.ChunkedArray:
    if pt.is_timestamp(column.type) and spark_type in TIMES:
        return _to_microseconds(_clipped(column))
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
    if spark_type in FLOATING and not pt.is_floating(source):
        # A fraction is rounded; a whole number must come through as it is.
        is_held = f"x <> trunc(x) OR TRY_CAST(TRY_CAST(x AS {duck}) AS HUGEINT) = x"
        return f"CASE WHEN {is_held} THEN TRY_CAST(x AS {duck}) END"
    return f"TRY_CAST(x AS {duck})"


def _try_text(spark_type: str, duck: str) -> str | None:
    if spark_type in INTEGRAL:
        return f"CASE WHEN regexp_full_match(trim(x), '{_INTEGER_TEXT}') THEN TRY_CAST(trim(x) AS {duck}) END"
    if spark_type in FLOATING:
        # Digits beyond the type are rounded, but no number becomes infinite.
        fits = f"NOT isinf(TRY_CAST(trim(x) AS {duck})) OR contains(lower(x), 'inf')"
        return f"CASE WHEN NOT contains(x, '_') AND ({fits}) THEN TRY_CAST(trim(x) AS {duck}) END"
    if decimal_parts(spark_type):
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
