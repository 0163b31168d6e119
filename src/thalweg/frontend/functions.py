"""The scalar functions a continuous query may use: one registry, one entry each.

The second half of the allow-list. A function is here when its DuckDB text has been held against Spark's value
for random rows (tests/oracle/test_expressions.py); nothing that touches files, the JVM, the clock or a random
number ever is.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from thalweg.aggregates.families import arities, family_named
from thalweg.errors import SqlError, bad_arguments, unknown_function
from thalweg.frontend import operators
from thalweg.frontend.casts import cast, shortest
from thalweg.frontend.code import Code, emit, error, literal
from thalweg.frontend.coercion import common_type, decimal
from thalweg.frontend.elsewhere import function_hint
from thalweg.frontend.expressions import RESERVED
from thalweg.frontend.tree import Call, Node
from thalweg.model.types import INTEGRAL, decimal_parts, is_numeric, to_duck


class Context(Protocol):
    """What a function may ask of the compiler."""

    def refuse(self, what: str, node: Node, hint: str | None = None) -> SqlError: ...
    def cast(self, code: Code, to: str, node: Node) -> Code: ...
    def common(self, codes: list[Code], node: Node) -> list[Code]: ...
    def concat(self, parts: list[Code], node: Node) -> Code: ...
    def choose(self, conditions: list[Code], values: list[Code]) -> Code: ...


Emit = Callable[[Context, Call, list[Code]], Code]


@dataclass(frozen=True)
class Function:
    name: str
    least: int
    most: int
    emit: Emit


FUNCTIONS: dict[str, Function] = {}
WINDOW = "window"

_FORMS = frozenset(
    (  # noqa: SIM905 - a list would be formatted to one word a line
        "cast try_cast extract interval date timestamp timestamp_ntz timestamp_ltz case exists session_window struct "
        "true false null distinct filter over x"
    ).split()
)
"""Words that the grammar knows in the place of a function's name."""


def is_reserved(name: str) -> bool:
    """Whether a name in lower case means something already where a function can be called."""
    return name in FUNCTIONS or family_named(name) is not None or name == WINDOW or name in _FORMS or name in RESERVED


def find(node: Call, sql: str) -> Function:
    """The entry of a scalar function; anything else is refused by name, with near ones as a hint."""
    if node.name in FUNCTIONS:
        return FUNCTIONS[node.name]
    known = [*FUNCTIONS, *arities(), WINDOW]
    near = difflib.get_close_matches(node.name, known, 3, 0.7)
    raise unknown_function(node.name, near, sql, node.span, function_hint(node.name))


def check_arity(function: Function, node: Call, sql: str) -> None:
    least, most, given = function.least, function.most, len(node.args)
    if least <= given <= most:
        return
    many = f"{least}" if least == most else f"{least} or more" if most > 99 else f"{least} to {most}"
    expected = f"{many} argument{'' if many == '1' else 's'}, not {given}"
    raise bad_arguments(node.name, expected, sql, node.span)


def _add(names: str, least: int, most: int, emit_: Emit) -> None:
    for name in names.split():
        FUNCTIONS[name] = Function(name, least, most, emit_)


# -- conditions


def _coalesce(c: Context, node: Call, args: list[Code]) -> Code:
    args = c.common(args, node)
    if len(args) == 1:
        return args[0]
    return emit(f"COALESCE({', '.join(arg.sql for arg in args)})", args[0].type, *args)


def _if(c: Context, node: Call, args: list[Code]) -> Code:
    return c.choose([c.cast(args[0], "boolean", node)], c.common(args[1:], node))


def _nvl2(c: Context, node: Call, args: list[Code]) -> Code:
    present = emit(f"({args[0].sql} IS NOT NULL)", "boolean", args[0])
    return c.choose([present], c.common(args[1:], node))


def _nullif(_: Context, __: Call, args: list[Code]) -> Code:
    same = operators.comparison("=", args[0], args[1])
    first = args[0]
    return emit(f"CASE WHEN {same.sql} THEN NULL ELSE {first.sql} END", first.type, same, first)


def _extreme(word: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        args = c.common(args, node)
        return emit(f"{word}({', '.join(arg.sql for arg in args)})", args[0].type, *args)

    return emit_


def _null_test(word: str) -> Emit:
    return lambda _, __, args: emit(f"({args[0].sql} IS {word})", "boolean", args[0])


def _isnan(c: Context, node: Call, args: list[Code]) -> Code:
    arg = args[0] if args[0].type == "float" else c.cast(args[0], "double", node)
    return emit(f"COALESCE(isnan({arg.sql}), FALSE)", "boolean", arg)


_add("coalesce", 1, 999, _coalesce)
_add("nvl ifnull", 2, 2, _coalesce)
_add("if iff", 3, 3, _if)
_add("nvl2", 3, 3, _nvl2)
_add("nullif", 2, 2, _nullif)
_add("greatest", 2, 999, _extreme("greatest"))
_add("least", 2, 999, _extreme("least"))
_add("isnull", 1, 1, _null_test("NULL"))
_add("isnotnull", 1, 1, _null_test("NOT NULL"))
_add("isnan", 1, 1, _isnan)


# -- numbers


def _number(c: Context, node: Call, arg: Code) -> Code:
    if is_numeric(arg.type):
        return arg
    return c.cast(arg, "double", node)


def _abs(c: Context, node: Call, args: list[Code]) -> Code:
    arg = _number(c, node, args[0])
    sql = f"abs({arg.sql})"
    if arg.type in INTEGRAL:
        return emit(sql, arg.type, arg, fails=True)
    return emit(f"CAST({sql} AS {to_duck(arg.type)})", arg.type, arg)


def _real(template: str, fails: bool = False) -> Emit:
    """A function over doubles; `{0}` and `{1}` are the arguments."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        doubles = [c.cast(arg, "double", node) for arg in args]
        return emit(template.format(*(d.sql for d in doubles)), "double", *doubles, fails=fails)

    return emit_


def _whole(word: str) -> Emit:
    """ceil / floor: bigint of a double, decimal of a decimal."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        arg = _number(c, node, args[0])
        if arg.type in INTEGRAL:
            return cast(arg, "bigint")
        if parts := decimal_parts(arg.type):
            type_ = decimal(min(38, parts[0] - parts[1] + 1), 0)
            return emit(f"CAST({word}({arg.sql}) AS {to_duck(type_)})", type_, arg)
        x = cast(arg, "double")
        sql = f"CASE WHEN isnan({x.sql}) THEN 0 ELSE CAST({word}({x.sql}) AS BIGINT) END"
        return emit(sql, "bigint", x, fails=True)

    return emit_


def _round(c: Context, node: Call, args: list[Code]) -> Code:
    """Half up on the decimal text of a double, which is what Spark's BigDecimal sees."""
    arg = _number(c, node, args[0])
    digits = args[1].literal if len(args) == 2 else 0
    if not isinstance(digits, int) or not 0 <= digits <= 20:
        raise c.refuse("round with digits other than a literal from 0 to 20", node)
    if arg.type in INTEGRAL:
        return arg
    if parts := decimal_parts(arg.type):
        scale = min(digits, parts[1])
        type_ = decimal(min(38, parts[0] - parts[1] + 1 + scale), scale)
        return cast(arg, type_)
    exact = f"CAST({shortest(arg)} AS DECIMAL(38,{digits}))"
    through = f"CAST(CAST({exact} AS VARCHAR) AS {to_duck(arg.type)})"
    # From 2^53 on every double is whole.
    sql = f"CASE WHEN abs({arg.sql}) < 9007199254740992e0 THEN {through} ELSE {arg.sql} END"
    return emit(sql, arg.type, arg)


def _sign(c: Context, node: Call, args: list[Code]) -> Code:
    """In a form that names its argument once. DuckDB's own sign makes 0 of NaN and of -0.0."""
    x = c.cast(args[0], "double", node)
    # The factors make any number but a zero so large that its hyperbolic tangent is 1 or -1 exactly.
    return emit(f"tanh({x.sql} * 1e308 * 1e308)", "double", x)


def _mod(_: Context, __: Call, args: list[Code]) -> Code:
    return operators.arithmetic("%", args[0], args[1])


def _pmod(c: Context, node: Call, args: list[Code]) -> Code:
    """The remainder with the divisor's sign taken out: r < 0 ? (r + n) % n : r."""
    type_ = common_type(args[0].type, args[1].type)
    if type_ not in INTEGRAL:
        raise c.refuse(f"pmod of {args[0].type} and {args[1].type}", node)
    a, n = cast(args[0], type_), cast(args[1], type_)
    if not (isinstance(n.literal, int) and n.literal > 0):
        raise c.refuse("pmod by anything but a positive literal", node)
    r = f"({a.sql} % {n.sql})"
    return emit(f"CASE WHEN {r} < 0 THEN ({r} + {n.sql}) ELSE {r} END", type_, a, n)


def _operator(op: str) -> Emit:
    return lambda _, __, args: operators.arithmetic(op, args[0], args[1])


def _negative(_: Context, __: Call, args: list[Code]) -> Code:
    return operators.negate(args[0])


_add("abs", 1, 1, _abs)
_add("ceil ceiling", 1, 1, _whole("ceil"))
_add("floor", 1, 1, _whole("floor"))
_add("round", 1, 2, _round)
_add("sign signum", 1, 1, _sign)
_add("sqrt", 1, 1, _real("sqrt({0})"))
_add("exp", 1, 1, _real("exp({0})"))
_add("ln", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END"))
_add("log10", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE log10({0}) END"))
_add("log2", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE (ln({0}) / ln(CAST(2 AS DOUBLE))) END"))
_add("pow power", 2, 2, _real("pow({0}, {1})"))
_add("mod", 2, 2, _mod)
_add("pmod", 2, 2, _pmod)
_add("div", 2, 2, _operator("div"))
_add("negative", 1, 1, _negative)


# -- strings


def _string(c: Context, node: Call, arg: Code) -> Code:
    return c.cast(arg, "string", node)


def _over_strings(template: str, type_: str = "string") -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        strings = [_string(c, node, arg) for arg in args]
        return emit(template.format(*(s.sql for s in strings)), type_, *strings)

    return emit_


def _trim(word: str, chars_first: bool) -> Emit:
    """Blanks are spaces only; characters may be given, before the string or after it."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        strings = [_string(c, node, arg) for arg in args]
        if len(strings) == 1:
            return emit(f"{word}({strings[0].sql}, ' ')", "string", *strings)
        chars, arg = strings if chars_first else strings[::-1]
        return emit(f"{word}({arg.sql}, {chars.sql})", "string", arg, chars)

    return emit_


def _integer(c: Context, node: Call, code: Code) -> Code:
    return c.cast(code, "int", node)


_LEAST_INT = -(2**31)


def _substring(c: Context, node: Call, args: list[Code]) -> Code:
    """Position 0 counts as 1, a negative one from the end; what lies before the string is cut off."""
    s, at = _string(c, node, args[0]), _integer(c, node, args[1])
    length = _integer(c, node, args[2]) if len(args) == 3 else None
    if length is None and (at.literal is None or at.literal == _LEAST_INT):
        length = literal(-_LEAST_INT - 1, "int")  # as Spark has it: from the least position on it is one too few
    parts = [s, at] if length is None else [s, at, length]
    size = f"length({s.sql})"
    if isinstance(at.literal, int) and at.literal >= 0:
        start = str(max(0, at.literal - 1))
    elif isinstance(at.literal, int):
        start = f"({size} - {-at.literal})"
    else:
        p = f"CAST({at.sql} AS BIGINT)"
        start = f"CASE WHEN {p} > 0 THEN {p} - 1 WHEN {p} < 0 THEN {size} + {p} ELSE 0 END"
    first = f"greatest({start}, 0) + 1"
    if length is None:
        sql = f"substring({s.sql}, {first})"
    else:
        taken = f"greatest(CAST({length.sql} AS BIGINT) + least({start}, 0), 0)"
        sql = f"substring({s.sql}, {first}, {taken})"
    nulls = " OR ".join(f"{part.sql} IS NULL" for part in parts[1:] if part.literal is None)
    # greatest and least pass over NULL, the function must not.
    return emit(f"CASE WHEN {nulls} THEN NULL ELSE {sql} END" if nulls else sql, "string", *parts)


def _left(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    taken = f"CASE WHEN {n.sql} < 0 THEN 0 ELSE {n.sql} END" if n.literal is None else str(max(0, _int(n)))
    return emit(f"left({s.sql}, {taken})", "string", s, n)


def _right(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    taken = f"CASE WHEN {n.sql} < 0 THEN 0 ELSE {n.sql} END" if n.literal is None else str(max(0, _int(n)))
    return emit(f"right({s.sql}, {taken})", "string", s, n)


def _int(code: Code) -> int:
    return code.literal if isinstance(code.literal, int) else 0


MOST_MADE = 1_000_000
"""Characters, or bytes of them, that a function may make of a shorter string: the memory is everybody's."""
MOST_GROWTH = 8
"""How many times as long as its argument a string may always be."""


def _check_length(c: Context, node: Call, length: int) -> None:
    if length > MOST_MADE:
        raise c.refuse(f"{node.name} to {length:,}", node, f"{MOST_MADE:,} are the most")


def _unless(condition: str, name: str, sql: str) -> str:
    """`sql`, or an error by which its query is stopped."""
    said = error("RESULT_TOO_LONG", f"{name} would make a string of more than {MOST_MADE:,} bytes", "string")
    return f"CASE WHEN {condition} THEN {said} ELSE {sql} END"


def _size(text: str) -> int:
    return len(text.encode())


def _pad(word: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        s, n = _string(c, node, args[0]), _integer(c, node, args[1])
        pad = args[2] if len(args) == 3 else literal(" ", "string")
        if not isinstance(pad.literal, str) or not pad.literal or not isinstance(n.literal, int):
            raise c.refuse(f"{word} with a length or padding that is not a literal (or empty)", node)
        _check_length(c, node, n.literal)
        return emit(f"{word}({s.sql}, {max(0, n.literal)}, {pad.sql})", "string", s, growth=1)

    return emit_


def _concat(c: Context, node: Call, args: list[Code]) -> Code:
    return c.concat(args, node) if args else literal("", "string")


def _replace(c: Context, node: Call, args: list[Code]) -> Code:
    strings = [_string(c, node, arg) for arg in args]
    if len(strings) == 2:
        strings.append(literal("", "string"))
    sql = f"replace({', '.join(s.sql for s in strings)})"
    s, old, new = strings
    if isinstance(old.literal, str) and isinstance(new.literal, str):
        growth = s.growth * max(1, math.ceil(_size(new.literal) / max(1, _size(old.literal))))
        if growth <= MOST_GROWTH:
            return emit(sql, "string", *strings, growth=growth)
    size, found = f"strlen({s.sql})", f"strlen(replace({s.sql}, {old.sql}, ''))"
    # Without anything to look for, there is nothing to divide by, and NULL is not too many.
    times = f"(({size} - {found}) // nullif(strlen({old.sql}), 0))"
    made = f"({size} + {times} * (strlen({new.sql}) - strlen({old.sql})))"
    most = f"greatest({MOST_MADE}, {MOST_GROWTH} * {size})"
    return emit(_unless(f"{made} > {most}", "replace", sql), "string", *strings, fails=True, growth=1)


def _repeat(c: Context, node: Call, args: list[Code]) -> Code:
    s, n = _string(c, node, args[0]), _integer(c, node, args[1])
    sql = f"repeat({s.sql}, CAST({n.sql} AS BIGINT))"
    if isinstance(n.literal, int):
        _check_length(c, node, n.literal)
        if s.growth * max(1, n.literal) <= MOST_GROWTH:
            return emit(sql, "string", s, n, growth=s.growth * max(1, n.literal))
    too_long = f"strlen({s.sql}) * CAST({n.sql} AS BIGINT) > {MOST_MADE}"
    return emit(_unless(too_long, "repeat", sql), "string", s, n, fails=True, growth=1)


# DuckDB maps one character to one. Of the characters whose other case is several, ß and İ are put right here;
# still different from Java: the capitals of ligatures (ﬁ), of ŉ, ǰ, և and of Greek letters with an iota or
# several marks, and the final sigma of a lowered Greek word.
_add("upper ucase", 1, 1, _over_strings("upper(replace({0}, 'ß', 'SS'))"))
_add("lower lcase", 1, 1, _over_strings("lower(replace({0}, 'İ', 'i̇'))"))
_add("trim", 1, 1, _trim("trim", False))
_add("btrim", 1, 2, _trim("trim", False))
_add("ltrim", 1, 2, _trim("ltrim", True))
_add("rtrim", 1, 2, _trim("rtrim", True))
_add("length char_length character_length len", 1, 1, _over_strings("CAST(length({0}) AS INTEGER)", "int"))
_add("octet_length", 1, 1, _over_strings("CAST(strlen({0}) AS INTEGER)", "int"))
_add("substring substr", 2, 3, _substring)
_add("left", 2, 2, _left)
_add("right", 2, 2, _right)
_add("lpad", 2, 3, _pad("lpad"))
_add("rpad", 2, 3, _pad("rpad"))
_add("concat", 0, 999, _concat)
_add("replace", 2, 3, _replace)
_add("repeat", 2, 2, _repeat)
_add("reverse", 1, 1, _over_strings("array_to_string(list_reverse(regexp_extract_all({0}, '(?s).')), '')"))
_add("startswith", 2, 2, _over_strings("starts_with({0}, {1})", "boolean"))
_add("endswith", 2, 2, _over_strings("suffix({0}, {1})", "boolean"))
_add("contains", 2, 2, _over_strings("contains({0}, {1})", "boolean"))
_add("instr", 2, 2, _over_strings("CAST(instr({0}, {1}) AS INTEGER)", "int"))
_add("locate position", 2, 2, _over_strings("CAST(instr({1}, {0}) AS INTEGER)", "int"))

# -- dates and times

_FIELDS = {
    "year": "year({})", "quarter": "quarter({})", "month": "month({})", "day": "day({})",
    "dayofmonth": "day({})", "dayofyear": "dayofyear({})", "weekofyear": "weekofyear({})",
    "dayofweek": "(dayofweek({}) + 1)", "weekday": "(isodow({}) - 1)",
}  # fmt: skip
_CLOCK = {"hour": "hour({})", "minute": "minute({})", "second": "second({})"}
_EXTRACT = {
    "y": "year", "years": "year", "yr": "year", "yrs": "year", "qtr": "quarter", "mon": "month",
    "mons": "month", "months": "month", "d": "day", "days": "day", "doy": "dayofyear", "week": "weekofyear",
    "weeks": "weekofyear", "w": "weekofyear", "dow": "dayofweek", "h": "hour", "hours": "hour", "hr": "hour",
    "hrs": "hour", "m": "minute", "min": "minute", "mins": "minute", "minutes": "minute",
    "year": "year", "quarter": "quarter", "month": "month", "day": "day", "hour": "hour", "minute": "minute",
}  # fmt: skip
_TRUNCATIONS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month",
    "mm": "month", "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute",
    "second": "second", "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip


def _date(c: Context, node: Call, arg: Code) -> Code:
    return c.cast(arg, "date", node)


def _time(c: Context, node: Call, arg: Code) -> Code:
    if arg.type in ("timestamp", "timestamp_ntz"):
        return arg
    return c.cast(arg, "timestamp", node)


def _field(name: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        if name in _CLOCK:
            arg, template = _time(c, node, args[0]), _CLOCK[name]
        else:
            arg, template = _date(c, node, args[0]), _FIELDS[name]
        return emit(f"CAST({template.format(arg.sql)} AS INTEGER)", "int", arg)

    return emit_


def _extract(c: Context, node: Call, args: list[Code]) -> Code:
    unit = args[0].literal
    name = _EXTRACT.get(unit.lower()) if isinstance(unit, str) else None
    if name is None:
        raise c.refuse(f"the field {unit}", node, "one of " + ", ".join(sorted(set(_EXTRACT.values()))))
    return _field(name)(c, node, args[1:])


def _date_trunc(c: Context, node: Call, args: list[Code]) -> Code:
    unit = args[0].literal
    name = _TRUNCATIONS.get(unit.lower()) if isinstance(unit, str) else None
    if name is None:
        raise c.refuse(f"the unit {unit}", node, "one of " + ", ".join(sorted(set(_TRUNCATIONS.values()))))
    arg = c.cast(args[1], "timestamp", node)
    if name == "microsecond":
        return arg
    return emit(f"CAST(date_trunc('{name}', {arg.sql}) AS TIMESTAMP)", "timestamp", arg)


def _trunc(c: Context, node: Call, args: list[Code]) -> Code:
    unit = args[1].literal
    name = _TRUNCATIONS.get(unit.lower()) if isinstance(unit, str) else None
    if name not in ("year", "quarter", "month", "week"):
        raise c.refuse(f"the unit {unit}", node, "one of year, quarter, month, week")
    arg = _date(c, node, args[0])
    return emit(f"CAST(date_trunc('{name}', {arg.sql}) AS DATE)", "date", arg)


def _to_date(c: Context, node: Call, args: list[Code]) -> Code:
    return _date(c, node, args[0])


def _date_shift(sign: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        return operators.date_plus(_date(c, node, args[0]), args[1], sign)

    return emit_


def _datediff(c: Context, node: Call, args: list[Code]) -> Code:
    end, start = _date(c, node, args[0]), _date(c, node, args[1])
    return emit(f"CAST(({end.sql} - {start.sql}) AS INTEGER)", "int", end, start)


def _last_day(c: Context, node: Call, args: list[Code]) -> Code:
    arg = _date(c, node, args[0])
    return emit(f"CAST(last_day({arg.sql}) AS DATE)", "date", arg)


def _add_months(c: Context, node: Call, args: list[Code]) -> Code:
    arg, months = _date(c, node, args[0]), _integer(c, node, args[1])
    return emit(f"CAST(({arg.sql} + to_months({months.sql})) AS DATE)", "date", arg, months, fails=True)


def _unix(template: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        arg = c.cast(args[0], "timestamp", node)
        return emit(template.format(arg.sql), "bigint", arg)

    return emit_


def _from_unix(factor: int) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        if args[0].type not in INTEGRAL:
            raise c.refuse(f"{node.name} of {args[0].type}", node, "give it a whole number")
        arg = cast(args[0], "bigint")
        us = arg.sql if factor == 1 else f"({arg.sql} * {factor})"
        return emit(f"make_timestamp({us})", "timestamp", arg, fails=True)

    return emit_


def _make_date(c: Context, node: Call, args: list[Code]) -> Code:
    parts = [_integer(c, node, arg) for arg in args]
    sql = f"make_date({', '.join(f'CAST({part.sql} AS BIGINT)' for part in parts)})"
    return emit(sql, "date", *parts, fails=True)


for _name in (*_FIELDS, *_CLOCK):
    _add(_name, 1, 1, _field(_name))
_add("extract date_part datepart", 2, 2, _extract)
_add("date_trunc", 2, 2, _date_trunc)
_add("trunc", 2, 2, _trunc)
_add("to_date", 1, 1, _to_date)
_add("date_add dateadd", 2, 2, _date_shift("+"))
_add("date_sub", 2, 2, _date_shift("-"))
_add("datediff date_diff", 2, 2, _datediff)
_add("last_day", 1, 1, _last_day)
_add("add_months", 2, 2, _add_months)
_add("make_date", 3, 3, _make_date)
_add("unix_seconds", 1, 1, _unix("(epoch_us(date_trunc('second', {0})) // 1000000)"))
_add("unix_millis", 1, 1, _unix("(epoch_us(date_trunc('millisecond', {0})) // 1000)"))
_add("unix_micros", 1, 1, _unix("epoch_us({0})"))
_add("timestamp_seconds", 1, 1, _from_unix(1_000_000))
_add("timestamp_millis", 1, 1, _from_unix(1_000))
_add("timestamp_micros", 1, 1, _from_unix(1))


# -- types as functions


def _as_type(type_: str) -> Emit:
    return lambda c, node, args: c.cast(args[0], type_, node)


for _name in (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "date",
    "timestamp",
):
    _add(_name, 1, 1, _as_type(_name))
_add("decimal", 1, 1, _as_type("decimal(10,0)"))

__all__ = ["FUNCTIONS", "WINDOW", "Context", "Function", "check_arity", "find", "is_reserved"]
