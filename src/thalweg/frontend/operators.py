"""Arithmetic, comparison and logic of Spark's ANSI mode in DuckDB text; operands already have their types."""

from __future__ import annotations

from decimal import Decimal

from thalweg.frontend.casts import cast
from thalweg.frontend.code import Code, emit, error
from thalweg.frontend.coercion import MAX_PRECISION, arithmetic_type, common_type, decimal, decimal_of
from thalweg.frontend.tree import Interval
from thalweg.model.types import FLOATING, INTEGRAL, decimal_parts, to_duck

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}
_DIVIDE_BY_ZERO = "Division by zero. Use try_divide to tolerate divisor being 0 and return NULL instead."
_WIDE = 19
"""DuckDB multiplies decimals of up to 18 digits in 64 bits; one operand of 19 makes it take 128."""
_BIT_OPS = {"&": "({} & {})", "|": "({} | {})", "^": "xor({}, {})"}


class OperationError(Exception):
    """The operands' types do not go together, or not exactly."""


def narrow_literals(left: Code, right: Code) -> tuple[Code, Code]:
    """An integer literal beside a decimal is as wide as its digits (Spark's DecimalPrecision rule)."""

    def narrow(code: Code, other: Code) -> Code:
        if code.type in INTEGRAL and isinstance(code.literal, int) and decimal_parts(other.type):
            return cast(code, decimal(len(str(abs(code.literal))), 0))
        return code

    return narrow(left, right), narrow(right, left)


def arithmetic(op: str, left: Code, right: Code) -> Code:
    """`+ - * / % div` with Spark's coercion."""
    if op == "div":
        return _integral_divide(left, right)
    left, right = narrow_literals(left, right)
    decimals = decimal_of(left.type), decimal_of(right.type)
    if decimals[0] and decimals[1] and (decimal_parts(left.type) or decimal_parts(right.type)):
        return _decimal_arithmetic(op, cast(left, decimals[0]), cast(right, decimals[1]))
    type_ = common_type(left.type, right.type)
    if op == "/" and type_ in (*INTEGRAL, *FLOATING):
        if "string" in (left.type, right.type):
            # A string beside a whole number has to be one itself before both become doubles.
            left, right = cast(left, type_), cast(right, type_)
        type_ = "double"
    if type_ is None or not (type_ in INTEGRAL or type_ in FLOATING):
        raise OperationError(f"{left.type} {op} {right.type}")
    left, right = cast(left, type_), cast(right, type_)
    if op in ("/", "%"):
        return _divided(op, left, right, type_)
    plain = f"({left.sql} {op} {right.sql})"
    return emit(_left_first(plain, left, right), type_, left, right, fails=type_ in INTEGRAL)


def _left_first(plain: str, left: Code, right: Code) -> str:
    """Spark does not look at the right operand where the left one is NULL, so it cannot raise there."""
    if not right.fails or not left.columns:
        return plain
    return f"CASE WHEN {left.sql} IS NULL THEN NULL ELSE {plain} END"


def _divided(op: str, left: Code, right: Code, type_: str) -> Code:
    plain = f"({left.sql} {op} {right.sql})"
    if op == "%" and type_ in INTEGRAL and right.literal is None:
        # The least integer has no remainder by -1 in DuckDB; zero times the dividend keeps its NULL.
        plain = f"CASE WHEN {right.sql} = -1 THEN ({left.sql} * 0) ELSE {plain} END"
    return zero_checked(plain, left, right, type_)


def zero_checked(plain: str, left: Code, right: Code, type_: str) -> Code:
    """The division, raising on a zero divisor unless the dividend is NULL, as Spark does."""
    if right.literal is not None and right.literal != 0:
        return emit(plain, type_, left, right)
    raised = error("DIVIDE_BY_ZERO", _DIVIDE_BY_ZERO, type_)
    guard = f"CASE WHEN {left.sql} IS NULL THEN NULL ELSE {raised} END"
    # Division looks at the divisor first.
    skip = f"WHEN {right.sql} IS NULL THEN NULL " if left.fails else ""
    sql = f"CASE {skip}WHEN {right.sql} = 0 THEN {guard} ELSE {plain} END"
    return emit(sql, type_, left, right, fails=True)


def _integral_divide(left: Code, right: Code) -> Code:
    ok = (*INTEGRAL, "string", "void")
    if left.type not in ok or right.type not in ok:
        raise OperationError(f"{left.type} div {right.type}")
    left, right = cast(left, "bigint"), cast(right, "bigint")
    code = zero_checked(f"({left.sql} // {right.sql})", left, right, "bigint")
    return emit(code.sql, "bigint", code, fails=right.literal is None or code.fails)


def _decimal_arithmetic(op: str, left: Code, right: Code) -> Code:
    type_ = arithmetic_type(op, left.type, right.type)
    (p1, s1), (p2, s2) = _parts(left), _parts(right)
    if type_ is None:
        raise OperationError(f"{left.type} {op} {right.type}")
    if op == "/":
        return _decimal_divide(left, right, type_)
    if op == "*":
        if p1 + p2 + 1 > MAX_PRECISION:
            raise _too_wide(left, op, right)
        wide = cast(left, decimal(max(p1, _WIDE), s1)) if p1 + p2 > 18 else left
        sql = f"CAST(({wide.sql} * {right.sql}) AS {to_duck(type_)})"
        return emit(sql, type_, left, right)
    exact = max(p1 - s1, p2 - s2) + max(s1, s2)
    if exact + (op != "%") > MAX_PRECISION:
        raise _too_wide(left, op, right)
    both = decimal(exact, max(s1, s2))
    a, b = cast(left, both), cast(right, both)
    sql = f"CAST(({a.sql} {op} {b.sql}) AS {to_duck(type_)})"
    return zero_checked(sql, left, right, type_) if op == "%" else emit(sql, type_, left, right)


def _decimal_divide(left: Code, right: Code, type_: str) -> Code:
    """Exact, rounded half up: on the 128-bit integers that the decimals stand for."""
    (p1, s1), (_, s2), (_, scale) = _parts(left), _parts(right), decimal_parts(type_) or (0, 0)
    up = scale + s2 - s1
    if up < 0 or p1 + up > MAX_PRECISION or max(p1, _WIDE) + s1 > MAX_PRECISION:
        raise _too_wide(left, "/", right)
    a = f"({_unscaled(left)} * CAST('1{'0' * up}' AS HUGEINT))"
    b = _unscaled(right)
    carry = f"CASE WHEN 2 * abs({a} % {b}) >= abs({b}) THEN sign({a}) * sign({b}) ELSE 0 END"
    whole = f"CAST((({a} // {b}) + {carry}) AS DECIMAL(38,0))"
    unit = f"CAST('{Decimal(1).scaleb(-scale):f}' AS DECIMAL({scale + 1},{scale}))"
    return zero_checked(f"CAST(({whole} * {unit}) AS {to_duck(type_)})", left, right, type_)


def _unscaled(code: Code) -> str:
    """The integer behind a decimal: its value times 10^scale."""
    precision, scale = _parts(code)
    if scale == 0:
        return f"CAST({code.sql} AS HUGEINT)"
    wide = cast(code, decimal(max(precision, _WIDE), scale))
    return f"CAST(({wide.sql} * CAST(1{'0' * scale} AS DECIMAL({scale + 1},0))) AS HUGEINT)"


def _parts(code: Code) -> tuple[int, int]:
    return decimal_parts(code.type) or (0, 0)


def _too_wide(left: Code, op: str, right: Code) -> OperationError:
    return OperationError(f"{left.type} {op} {right.type}: the exact result has more than 38 digits, which")


def negate(code: Code) -> Code:
    if code.type in INTEGRAL:
        return emit(f"(CAST(0 AS {to_duck(code.type)}) - {code.sql})", code.type, code, fails=True)
    if code.type in FLOATING:
        return emit(f"(- {code.sql})", code.type, code)
    if decimal_parts(code.type):
        return emit(f"CAST((- {code.sql}) AS {to_duck(code.type)})", code.type, code)
    raise OperationError(f"- {code.type}")


def bits(op: str, left: Code, right: Code) -> Code:
    type_ = common_type(left.type, right.type)
    if type_ not in INTEGRAL:
        raise OperationError(f"{left.type} {op} {right.type}")
    left, right = cast(left, type_), cast(right, type_)
    return emit(_BIT_OPS[op].format(left.sql, right.sql), type_, left, right)


def comparison(op: str, left: Code, right: Code) -> Code:
    """A literal stands on the right, so that `5 < x` and `x > 5` are the same text."""
    left, right = narrow_literals(left, right)
    type_ = common_type(left.type, right.type)
    if type_ is None:
        raise OperationError(f"{left.type} {op} {right.type}")
    left, right = cast(left, type_), cast(right, type_)
    if left.literal is not None and right.literal is None:
        left, right, op = right, left, _FLIPPED[op]
    word = "IS NOT DISTINCT FROM" if op == "<=>" else op
    # DuckDB would move the constant of x + 1 > 0 to the other side and lose the overflow; greatest of one
    # value is that value, and stops it.
    movable = left.fails and type_ in INTEGRAL and right.literal is not None
    side = f"greatest({left.sql})" if movable else left.sql
    plain = f"({side} {word} {right.sql})"
    return emit(plain if op == "<=>" else _left_first(plain, left, right), "boolean", left, right)


def conjunction(word: str, parts: list[Code]) -> Code:
    """AND / OR of several operands. Spark goes from left to right and stops at the first that decides;
    DuckDB picks an order of its own, so where one can raise the order is spelled out."""
    plain = "(" + f" {word} ".join(part.sql for part in parts) + ")"
    if not any(part.fails for part in parts):
        return emit(plain, "boolean", *parts)
    stop, outcome = ("NOT {}", "FALSE") if word == "AND" else ("{}", "TRUE")
    whens = " ".join(f"WHEN {stop.format(part.sql)} THEN {outcome}" for part in parts[:-1])
    return emit(f"CASE {whens} ELSE {plain} END", "boolean", *parts)


def negation(code: Code) -> Code:
    return emit(f"(NOT {code.sql})", "boolean", code)


def add_interval(code: Code, interval: Interval, sign: int) -> Code:
    """A timestamp or date plus a literal interval; a date stays one under whole days and months."""
    type_ = code.type
    if type_ not in ("timestamp", "timestamp_ntz", "date"):
        raise OperationError(f"{type_} {'+' if sign > 0 else '-'} INTERVAL")
    if type_ == "date" and not interval.days_only:
        code, type_ = cast(code, "timestamp"), "timestamp"
    amount = f"to_months({sign * interval.months})"
    if not interval.months:
        amount = f"to_microseconds({sign * interval.us})"
    return emit(f"CAST(({code.sql} + {amount}) AS {to_duck(type_)})", type_, code, fails=True)


def date_plus(code: Code, days: Code, sign: str) -> Code:
    if days.type not in ("tinyint", "smallint", "int"):
        raise OperationError(f"{code.type} {sign} {days.type}")
    days = cast(days, "int")
    return emit(f"({code.sql} {sign} {days.sql})", "date", code, days, fails=True)
