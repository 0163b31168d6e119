"""Literals and type names, read as Spark reads them."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from thalweg.errors import SqlError, bad_syntax, bad_type, interval_too_long
from thalweg.frontend.cursor import Cursor
from thalweg.frontend.intervals import CALENDAR_UNITS, LONGEST_US, UNITS, unit_of
from thalweg.frontend.lex import Token
from thalweg.frontend.tree import Interval, Literal, Span

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_SUFFIXES = {"l": "bigint", "s": "smallint", "y": "tinyint", "d": "double", "f": "float"}
_BOUNDS = {"bigint": _LONG_MAX, "smallint": 2**15 - 1, "tinyint": 127}
_TYPES = {
    "boolean": "boolean", "tinyint": "tinyint", "byte": "tinyint", "smallint": "smallint",
    "short": "smallint",
    "int": "int", "integer": "int", "bigint": "bigint", "long": "bigint", "float": "float", "real": "float",
    "double": "double", "string": "string", "binary": "binary", "date": "date", "timestamp": "timestamp",
    "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz", "decimal": "decimal(10,0)",
    "dec": "decimal(10,0)", "numeric": "decimal(10,0)",
}  # fmt: skip
_STAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6})\d*)?)?)?"
    r"(Z|UTC|[+-]00:00)?)?)?)?"
)


def number_literal(token: Token, text: str, negative: bool = False) -> Literal:
    """`1` is int, `1L` bigint, `1.5` decimal(2,1), `1.5D` and `1e3` double."""
    body, span = token.text, token.span
    sign = "-" if negative else ""
    if body[-2:].upper() == "BD":
        return _decimal(Decimal(sign + body[:-2]), text, span)
    kind = _SUFFIXES.get(body[-1].lower())
    if kind in ("double", "float"):
        return Literal(span, float(sign + body[:-1]), kind)
    if kind is not None:
        if not body[:-1].isdigit() or int(body[:-1]) > _BOUNDS[kind] + negative:
            raise bad_syntax(f"{body} does not fit in {kind}", text, span)
        return Literal(span, int(sign + body[:-1]), kind)
    if "e" in body.lower():
        return Literal(span, float(sign + body), "double")
    if "." in body:
        return _decimal(Decimal(sign + body), text, span)
    value = int(body)
    for name, bound in (("int", _INT_MAX), ("bigint", _LONG_MAX)):
        if value <= bound + negative:
            return Literal(span, int(sign + body), name)
    return _decimal(Decimal(sign + body), text, span)


def _decimal(value: Decimal, text: str, span: Span) -> Literal:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    # Counted, not written out: 1e999999999BD would be a number of as many digits.
    precision = max(len(value.as_tuple().digits) + max(0, exponent), scale)
    if precision > 38:
        raise bad_syntax("a decimal has at most 38 digits", text, span)
    return Literal(span, value, f"decimal({precision},{scale})")


def read_stamp(text: str) -> datetime.datetime | None:
    """A date or timestamp text in the forms that are the same in every engine, None for any other."""
    match = _STAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = (match[i] for i in range(1, 8))
    micros = int((fraction or "0").ljust(6, "0"))
    try:
        return datetime.datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
            micros,
        )  # fmt: skip
    except ValueError:
        return None


def typed_literal(kind: str, value: str, text: str, span: Span) -> Literal:
    """DATE '...', TIMESTAMP '...': kept as canonical text so that equal instants compile alike."""
    stamp = read_stamp(value)
    if stamp is None:
        raise bad_syntax(f"not a {kind}: '{value}'", text, span, hint=f"such as {kind.upper()} '2024-01-31'")
    if kind == "date":
        return Literal(span, stamp.date().isoformat(), "date")
    type_ = "timestamp_ntz" if kind == "timestamp_ntz" else "timestamp"
    return Literal(span, stamp.isoformat(sep=" "), type_)


def read_type(cursor: Cursor) -> str:
    """A type name at the cursor, given back as Spark's simpleString."""
    token = cursor.name("a type")
    name = token.value.lower()
    numbers: tuple[int, ...] = ()
    if cursor.take_op("("):
        numbers = cursor.listed(lambda: _whole(cursor))
        cursor.expect_op(")")
    span = cursor.since(token.start)
    if name in ("varchar", "char", "character"):
        if len(numbers) != 1 or numbers[0] < 1:
            raise _bad_type(cursor, span)
        return "string"
    if numbers and _TYPES.get(name) == "decimal(10,0)" and len(numbers) <= 2:
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if not (1 <= precision <= 38 and scale <= precision):
            raise bad_syntax("a decimal has 1 to 38 digits, not fewer than its scale", cursor.text, span)
        return f"decimal({precision},{scale})"
    if numbers or name not in _TYPES or token.kind == "quoted":
        raise _bad_type(cursor, span)
    return _TYPES[name]


def parse_result_type(text: str) -> str:
    """The type that a result column may have, given back as Spark's simpleString."""
    name = text.strip()
    if name[:6].lower() == "array<" and name.endswith(">"):
        return f"array<{parse_result_type(name[6:-1])}>"
    cursor = Cursor(name)
    found = read_type(cursor)
    if cursor.token.kind != "end":
        raise cursor.expected("the end of the type")
    return found


def _bad_type(cursor: Cursor, span: Span) -> SqlError:
    return bad_type(cursor.text[span[0] : span[1]], cursor.text, span)


def _whole(cursor: Cursor) -> int:
    if cursor.token.kind != "number" or not cursor.token.text.isdigit():
        raise cursor.expected("a whole number")
    return int(cursor.next().text)


def interval_literal(cursor: Cursor, start: int) -> Interval:
    """What follows INTERVAL: `5 MINUTES`, `'5' MINUTE`, `'1 minute 30 seconds'`, `1 DAY 2 HOURS`."""
    parts: list[tuple[str, str]] = []
    while True:
        sign = "-" if cursor.is_op("-") and cursor.peek().kind in ("number", "string") else ""
        if sign:
            cursor.next()
        if cursor.token.kind == "number" and unit_of(cursor.peek().word):
            parts.append((sign + cursor.next().text, cursor.next().word))
        elif cursor.token.kind == "string" and unit_of(cursor.peek().word):
            parts.append((sign + cursor.next().value, cursor.next().word))
        elif cursor.token.kind == "string" and not parts and not sign:
            words = cursor.next().value.split()
            parts = list(zip(words[::2], [*words[1::2], ""], strict=False))
        else:
            break
    span = cursor.since(start)
    if not parts or cursor.is_word("to"):
        raise bad_syntax(
            "expected a number and a unit of time after INTERVAL", cursor.text,
            (start, max(span[1], start + 8)), hint="such as INTERVAL 10 SECONDS",
        )  # fmt: skip
    return _sum_parts(parts, cursor.text, span)


def _sum_parts(parts: list[tuple[str, str]], text: str, span: Span) -> Interval:
    months, us, days_only = Decimal(0), Decimal(0), True
    for amount, word in parts:
        unit = unit_of(word)
        if unit is None or not re.fullmatch(r"[+-]?\d+(\.\d*)?", amount.strip()):
            raise bad_syntax(f"cannot read '{amount} {word}' in this interval", text, span)
        if unit in CALENDAR_UNITS:
            if "." in amount:
                raise bad_syntax(f"'{amount} {word}' is not a whole number of {unit}s", text, span)
            months += Decimal(amount) * CALENDAR_UNITS[unit]
        else:
            us += Decimal(amount) * UNITS[unit]
            days_only = days_only and unit in ("day", "week")
        if abs(us) > LONGEST_US or abs(months) > _INT_MAX:
            raise interval_too_long(text, span)
    if us != us.to_integral_value():
        raise bad_syntax("this interval is finer than a microsecond", text, span)
    if months and us:
        raise bad_syntax("an interval of months and of days cannot be mixed", text, span)
    return Interval(span, int(months), int(us), days_only)
