"""sum and avg."""

from __future__ import annotations

from typing import ClassVar

from thalweg.aggregates.contract import (
    AggregateCall,
    AggregateFamily,
    Argument,
    Arity,
    Calling,
    Parts,
    count_of,
    partial,
)
from thalweg.model.expr import quote
from thalweg.model.plan import FILTER, Partial
from thalweg.model.query import Aggregate
from thalweg.model.types import INTEGRAL, decimal_parts, is_numeric, to_duck


class Sums(AggregateFamily):
    name = "sums"
    names: ClassVar = {"sum": Arity(1, 1), "avg": Arity(1, 1), "mean": Arity(1, 1)}
    functions = ("sum", "avg")

    def signature(self, call: Calling) -> Aggregate:
        arg = numeric(call, 0)
        parts = decimal_parts(arg.type)
        if call.name == "sum":
            type_ = "bigint" if arg.type in INTEGRAL else "double"
            if parts:
                type_ = f"decimal({min(38, parts[0] + 10)},{parts[1]})"
            return Aggregate("sum", (arg.to_expr(),), type_)
        type_ = f"decimal({min(38, parts[0] + 4)},{min(38, parts[1] + 4)})" if parts else "double"
        return Aggregate("avg", (arg.to_expr(),), type_)

    def parts(self, asked: AggregateCall) -> Parts:
        return _sum(asked) if asked.aggregate.function == "sum" else _avg(asked)


def numeric(call: Calling, i: int) -> Argument:
    """An argument that is a number, or is made one."""
    arg = call.arg(i)
    return arg if is_numeric(arg.type) else call.cast(arg, "double")


def _sum(asked: AggregateCall) -> Parts:
    column = asked.column(0)
    total = _total(column, asked.filter_column, to_duck(asked.aggregate.type))
    return Parts((total,), quote(total.name))


def _total(column: str, filter_column: str | None, duck: str) -> Partial:
    text = f"CAST(sum({quote(column)}){FILTER} AS {duck})"
    op = "sum" if duck in ("BIGINT", "DOUBLE") else ""
    return partial(text, filter_column, f"CAST(sum({{}}) AS {duck})", duck, op, column)


def _avg(asked: AggregateCall) -> Parts:
    arg, column = asked.aggregate.args[0], asked.column(0)
    count = count_of(column, asked.filter_column)
    parts = decimal_parts(arg.type)
    if parts is None:
        text = f"sum({quote(column)}::DOUBLE)"
        total = partial(text, asked.filter_column, "sum({})", "DOUBLE", "sum", column)
        return Parts((total, count), f"{quote(total.name)} / nullif({quote(count.name)}, 0)")
    total = _total(column, asked.filter_column, f"DECIMAL({min(parts[0] + 10, 38)},{parts[1]})")
    return Parts((total, count), _decimal_mean(total, count, parts[1], asked.aggregate.type))


def _decimal_mean(total: Partial, count: Partial, scale: int, result_type: str) -> str:
    """The quotient rounded half up at the result's scale, in integers: DuckDB would divide doubles."""
    result = decimal_parts(result_type)
    assert result is not None
    n, unit = quote(count.name), f"{10 ** result[1]}::HUGEINT"
    unscaled = f"CAST(replace(CAST(abs({quote(total.name)}) AS VARCHAR), '.', '') AS HUGEINT)"
    # Whole part and remainder apart: the sum itself, times the power of ten, may not fit where the mean does.
    power = f"{10 ** (result[1] - scale)}::HUGEINT"
    rest = f"((2 * ({unscaled} % {n}) * {power} + {n}) // (2 * {n}))"
    rounded = f"(({unscaled} // {n}) * {power} + {rest})"
    fraction = f" || '.' || lpad(CAST({rounded} % {unit} AS VARCHAR), {result[1]}, '0')" if result[1] else ""
    sign = f"CASE WHEN {quote(total.name)} < 0 THEN '-' ELSE '' END"
    text = f"{sign} || CAST({rounded} // {unit} AS VARCHAR){fraction}"
    return f"CASE WHEN {n} > 0 THEN CAST({text} AS {to_duck(result_type)}) END"


SUMS = Sums()
