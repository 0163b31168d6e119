"""Spark 4's ANSI rules for the type that operands of different types are brought to."""

from __future__ import annotations

from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, is_numeric

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6


def decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def decimal_of(type_: str) -> str | None:
    """The decimal that holds every value of an integral type; a decimal itself; None for any other."""
    if type_ in _DIGITS:
        return decimal(_DIGITS[type_], 0)
    return type_ if decimal_parts(type_) else None


def adjusted(precision: int, scale: int) -> str:
    """Spark's cut to 38 digits: whole digits are kept, the scale gives way down to 6."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_ADJUSTED_SCALE)))


def common_type(first: str, second: str) -> str | None:
    """The least type that holds values of both, None where Spark refuses to mix them."""
    if first == second or second == "void":
        return first
    if first == "void":
        return second
    if "string" in (first, second):
        return _with_string(second if first == "string" else first)
    if is_numeric(first) and is_numeric(second):
        return _common_number(first, second)
    if {first, second} <= {"date", *TIMES}:
        return "timestamp" if "timestamp" in (first, second) else "timestamp_ntz"
    return None


def common_type_of(types: list[str]) -> str | None:
    """Left to right, as Spark folds the arguments of COALESCE, CASE and IN."""
    result: str | None = types[0]
    for type_ in types[1:]:
        result = None if result is None else common_type(result, type_)
    return result


def _with_string(other: str) -> str | None:
    if other in INTEGRAL:
        return "bigint"
    if is_numeric(other):
        return "double"
    return other if other in ("boolean", "date", "binary", *TIMES) else None


def _common_number(first: str, second: str) -> str:
    if first in INTEGRAL and second in INTEGRAL:
        return max(first, second, key=INTEGRAL.index)
    if first in FLOATING or second in FLOATING:
        return "double"
    left, right = decimal_parts(decimal_of(first) or ""), decimal_parts(decimal_of(second) or "")
    assert left is not None
    assert right is not None
    scale = max(left[1], right[1])
    whole = max(left[0] - left[1], right[0] - right[1])
    return decimal(min(MAX_PRECISION, whole + scale), max(0, min(scale, MAX_PRECISION - whole)))


def arithmetic_type(op: str, left: str, right: str) -> str | None:
    """The decimal that `left op right` of two decimals has."""
    (p1, s1), (p2, s2) = decimal_parts(left) or (0, 0), decimal_parts(right) or (0, 0)
    if op in ("+", "-"):
        scale = max(s1, s2)
        return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return adjusted(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(_MIN_ADJUSTED_SCALE, s1 + p2 + 1)
        return adjusted(p1 - s1 + s2 + scale, scale)
    if op == "%":
        scale = max(s1, s2)
        return adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    return None
