"""Functions of dates and times."""

from __future__ import annotations

from thalweg.frontend import operators
from thalweg.frontend.casts import cast
from thalweg.frontend.code import Code, emit
from thalweg.frontend.scalars.contract import Context, Emit, Function, entries
from thalweg.frontend.tree import Call
from thalweg.model.types import INTEGRAL

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
    arg, months = _date(c, node, args[0]), c.cast(args[1], "int", node)
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
    parts = [c.cast(arg, "int", node) for arg in args]
    sql = f"make_date({', '.join(f'CAST({part.sql} AS BIGINT)' for part in parts)})"
    return emit(sql, "date", *parts, fails=True)


TIMES = (
    *(Function(name, 1, 1, _field(name)) for name in (*_FIELDS, *_CLOCK)),
    *entries("extract date_part datepart", 2, 2, _extract),
    *entries("date_trunc", 2, 2, _date_trunc),
    *entries("trunc", 2, 2, _trunc),
    *entries("to_date", 1, 1, _to_date),
    *entries("date_add dateadd", 2, 2, _date_shift("+")),
    *entries("date_sub", 2, 2, _date_shift("-")),
    *entries("datediff date_diff", 2, 2, _datediff),
    *entries("last_day", 1, 1, _last_day),
    *entries("add_months", 2, 2, _add_months),
    *entries("make_date", 3, 3, _make_date),
    *entries("unix_seconds", 1, 1, _unix("(epoch_us(date_trunc('second', {0})) // 1000000)")),
    *entries("unix_millis", 1, 1, _unix("(epoch_us(date_trunc('millisecond', {0})) // 1000)")),
    *entries("unix_micros", 1, 1, _unix("epoch_us({0})")),
    *entries("timestamp_seconds", 1, 1, _from_unix(1_000_000)),
    *entries("timestamp_millis", 1, 1, _from_unix(1_000)),
    *entries("timestamp_micros", 1, 1, _from_unix(1)),
)
