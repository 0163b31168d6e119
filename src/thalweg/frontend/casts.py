"""CAST as Spark's ANSI mode does it, in DuckDB text. A pair of types that cannot be exact is refused."""

from __future__ import annotations

from decimal import Decimal

from thalweg.frontend.code import Code, emit, error, literal
from thalweg.frontend.literals import read_stamp
from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, to_duck

_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_BLANKS = "e' \\t\\n\\r\\x0b\\x0c'"
_FLOAT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_DATE = "[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2}([ T](?s:.*))?)?)?"
_EXACT_DOUBLE_DIGITS = 15


_WAYS_OUT = {
    (
        "string",
        "timestamp",
    ): "declare the column as timestamp in the stream's columns: text of ISO-8601 is read as that",
    ("string", "timestamp_ntz"): "declare the column as timestamp_ntz in the stream's columns: text is read as that",
    ("double", "string"): "cast to a decimal first: CAST(CAST(x AS decimal(18, 3)) AS string)",
    ("float", "string"): "cast to a decimal first: CAST(CAST(x AS decimal(18, 3)) AS string)",
}
"""(from, to) -> what can be done instead."""


class CastError(Exception):
    """Spark may do this cast, Thalweg does not."""

    hint: str | None = None


def cast(code: Code, to: str, tried: bool = False) -> Code:
    """The value as type `to`; `tried` gives NULL where the cast would raise."""
    try:
        return _as_type(code, to, tried)
    except CastError as reason:
        reason.hint = _WAYS_OUT.get((code.type, to))
        raise


def _as_type(code: Code, to: str, tried: bool) -> Code:
    if code.type == to:
        return code
    if code.type == "void":
        return Code(f"CAST(NULL AS {to_duck(to)})", to)
    folded = _fold(code, to)
    if folded is not None:
        return folded
    if tried:
        return _tried(code, to)
    return _cast(code, to)


def _fold(code: Code, to: str) -> Code | None:
    """A literal of the new type, where nothing can be lost or raise."""
    value = code.literal
    if isinstance(value, bool) or value is None:
        return None
    if code.type in INTEGRAL and isinstance(value, int):
        if to in _BITS and -(2 ** _BITS[to]) <= value < 2 ** _BITS[to]:
            return literal(value, to)
        if to == "double":
            return literal(float(value), to)
        parts = decimal_parts(to)
        if parts and abs(value) < 10 ** (parts[0] - parts[1]):
            return literal(Decimal(value), to)
    if isinstance(value, Decimal):
        parts, had = decimal_parts(to), decimal_parts(code.type)
        if to == "double":
            return literal(float(value), to)
        if parts and had and parts[1] >= had[1] and abs(value) < 10 ** (parts[0] - parts[1]):
            return literal(value, to)
    if code.type == "string" and (to == "date" or to in TIMES):
        stamp = read_stamp(str(value))
        if stamp is None:
            raise CastError(f"'{value}' is not a {to}")
        return literal(stamp.date().isoformat() if to == "date" else stamp.isoformat(sep=" "), to)
    return None


def _tried(code: Code, to: str) -> Code:
    inner = _cast(Code(code.sql, code.type, code.columns), to)
    sql = f"TRY({inner.sql.replace(_invalid(to), 'NULL')})" if inner.fails else inner.sql
    if code.fails and inner.fails:
        raise CastError("try_cast of an expression that can itself fail")
    return emit(sql, to, code)


def _cast(code: Code, to: str) -> Code:
    source, x, duck = code.type, code.sql, to_duck(to)
    plain = f"CAST({x} AS {duck})"
    if source in INTEGRAL:
        return _from_integral(code, to, plain)
    if source in FLOATING:
        return _from_floating(code, to, plain)
    if parts := decimal_parts(source):
        return _from_decimal(code, to, plain, parts)
    if source == "string":
        return _from_string(code, to)
    if source == "boolean" and (to in INTEGRAL or to in FLOATING or to == "string"):
        return emit(plain, to, code)
    if source == "date" and to in TIMES:
        return emit(plain, to, code)
    if source == "date" and to == "string":
        return emit(plain, to, code)
    if source in TIMES and (to in TIMES or to in ("date", "string")):
        return emit(x if to in TIMES else plain, to, code)
    if source == "timestamp" and to == "bigint":
        return emit(f"(epoch_us(date_trunc('second', {x})) // 1000000)", to, code)
    raise CastError(f"a cast from {source} to {to}")


def _from_integral(code: Code, to: str, plain: str) -> Code:
    if to in INTEGRAL:
        return emit(plain, to, code, fails=INTEGRAL.index(to) < INTEGRAL.index(code.type))
    if to in FLOATING or to == "string":
        return emit(plain, to, code)
    if parts := decimal_parts(to):
        digits = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}[code.type]
        return emit(plain, to, code, fails=parts[0] - parts[1] < digits)
    if to == "boolean":
        return emit(f"({code.sql} <> 0)", to, code)
    if to == "timestamp":
        return emit(f"make_timestamp(CAST({code.sql} AS BIGINT) * 1000000)", to, code, fails=True)
    raise CastError(f"a cast from {code.type} to {to}")


def _from_floating(code: Code, to: str, plain: str) -> Code:
    x = code.sql
    if to == "double":
        return emit(plain, to, code)
    if to == "float":
        # Java narrows to an infinity where DuckDB raises.
        sql = (
            f"CASE WHEN {x} >= 3.4028235677973366e38 AND NOT isnan({x}) THEN CAST('inf' AS FLOAT) "
            f"WHEN {x} <= -3.4028235677973366e38 THEN CAST('-inf' AS FLOAT) ELSE {plain} END"
        )
        return emit(sql, to, code)
    if to in ("int", "bigint"):
        return emit(_truncated(x, to), to, code, fails=True)
    if to in INTEGRAL:
        return emit(f"CAST({_truncated(x, 'int')} AS {to_duck(to)})", to, code, fails=True)
    if decimal_parts(to):
        exact = f"CAST({shortest(code)} AS {to_duck(to)})"
        return emit(f"CASE WHEN isfinite({x}) THEN {exact} END", to, code, fails=True)
    if to == "boolean":
        return emit(f"({x} <> 0)", to, code)
    raise CastError(f"a cast from {code.type} to {to}")


def shortest(code: Code) -> str:
    """The decimal text that Spark rounds in the place of the binary value: that of the double, also for a float."""
    wide = f"CAST({code.sql} AS DOUBLE)" if code.type == "float" else code.sql
    return f"CAST({wide} AS VARCHAR)"


def _truncated(x: str, to: str) -> str:
    """Toward zero. Spark lets the one double that is 2^63 pass as the greatest bigint."""
    plain = f"CAST(trunc({x}) AS {to_duck(to)})"
    if to == "bigint":
        return f"CASE WHEN {x} = 9223372036854775808e0 THEN 9223372036854775807 ELSE {plain} END"
    return plain


def _from_decimal(code: Code, to: str, plain: str, parts: tuple[int, int]) -> Code:
    precision, scale = parts
    if target := decimal_parts(to):
        return emit(plain, to, code, fails=target[0] - target[1] < precision - scale + (target[1] < scale))
    if to in INTEGRAL:
        sql = f"CAST(trunc({code.sql}) AS {to_duck(to)})" if scale else plain
        return emit(sql, to, code, fails=True)
    if to in FLOATING:
        # Beyond 15 digits only the way through text rounds once, as Java does.
        exact = plain if precision <= _EXACT_DOUBLE_DIGITS and to == "double" else None
        return emit(exact or f"CAST(CAST({code.sql} AS VARCHAR) AS {to_duck(to)})", to, code)
    if to == "string":
        return emit(plain, to, code)
    if to == "boolean":
        return emit(f"({code.sql} <> 0)", to, code)
    raise CastError(f"a cast from {code.type} to {to}")


def _from_string(code: Code, to: str) -> Code:
    if to in INTEGRAL:
        return _guarded(code, to, "[+-]?[0-9]+")
    if decimal_parts(to):
        return _guarded(code, to, _FLOAT)
    if to in FLOATING:
        return _guarded(code, to, _FLOAT + "|[+-]?(?i:inf|infinity)|(?i:nan)")
    if to == "boolean":
        bare = f"lower(trim({code.sql}, {_BLANKS}))"
        sql = (
            f"CASE WHEN {code.sql} IS NULL THEN NULL "
            f"WHEN {bare} IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
            f"WHEN {bare} IN ('f', 'false', 'n', 'no', '0') THEN FALSE ELSE {_invalid(to)} END"
        )
        return emit(sql, to, code, fails=True)
    if to == "date":
        # Whatever follows the day after a blank or a T is ignored, as in Spark.
        bare = f"trim({code.sql}, {_BLANKS})"
        # A month or a day that is not there is the first: what is there comes before it in the text.
        day = f"regexp_extract({bare} || '-1-1', '^{_DAY}')"
        sql = (
            f"CASE WHEN {code.sql} IS NULL THEN NULL WHEN regexp_full_match({bare}, '{_DATE}') "
            f"THEN CAST({day} AS DATE) ELSE {_invalid(to)} END"
        )
        return emit(sql, to, code, fails=True)
    raise CastError(f"a cast from {code.type} to {to}")


def _guarded(code: Code, to: str, pattern: str) -> Code:
    """DuckDB reads more forms of numbers than Spark does, so the form is checked first."""
    bare = f"trim({code.sql}, {_BLANKS})"
    sql = (
        f"CASE WHEN {code.sql} IS NULL THEN NULL WHEN regexp_full_match({bare}, '{pattern}') "
        f"THEN CAST({bare} AS {to_duck(to)}) ELSE {_invalid(to)} END"
    )
    return emit(sql, to, code, fails=True)


def _invalid(to: str) -> str:
    return error("CAST_INVALID_INPUT", f"The value cannot be cast to {to.upper()}: it is malformed.", to)
