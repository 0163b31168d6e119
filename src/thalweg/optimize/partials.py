"""Every aggregate as partials: what is combined at the source, how partials merge, how they are finished.

An aggregate becomes three texts: `combine` over rows, `merge` over partials, `finish` over merged partials.
Those that have no partials of bounded size group by the value as well (shape `values`): count distinct and
percentiles, which need to know how often each value came; or by the value's HyperLogLog register.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from thalweg.model.canonical import named
from thalweg.model.expr import Expr, quote
from thalweg.model.own import OWN, OwnPartial
from thalweg.model.plan import FILTER, LARGER, SMALLER, Computed, Partial, Quantile, weighted_mean
from thalweg.model.query import Aggregate
from thalweg.model.types import decimal_parts, to_duck


@dataclass(frozen=True)
class Parts:
    """An aggregate taken apart."""

    partials: tuple[Partial, ...]
    finish: str
    """Over merged partials (shape `main`), or an aggregate over them (shape `values`)."""
    shape: str = "main"
    values: tuple[str, ...] = ()
    missing: str = "NULL"
    """What the aggregate is where a `values` grouping has nothing for a key."""
    quantile: Quantile | None = None
    """The same as `finish` says, for those who can do it faster."""


@dataclass(frozen=True)
class Columns:
    """Collects the computed columns that partials read; `of` gives the column that holds an expression."""

    computed: dict[str, Computed]
    used: Callable[[str], None] = lambda name: None
    """Told of every column that is handed out: whoever asked cannot do without it."""

    def of(self, expr: Expr, guard: Expr | None = None) -> str:
        """The column with the expression's value. One that can fail is evaluated only where `guard` holds."""
        if expr.is_column:
            self.used(expr.columns[0])
            return expr.columns[0]
        if expr.fails and guard is not None:
            columns = tuple(sorted({*expr.columns, *guard.columns}))
            expr = Expr(f"CASE WHEN {guard.sql} THEN {expr.sql} END", expr.type, columns, True)
        return self._add("sql", expr, 0)

    def register(self, expr: Expr, guard: Expr | None, precision: int) -> tuple[str, str]:
        """The two columns of a HyperLogLog observation: register number and rank."""
        column = self.of(expr, guard)
        source = Expr(quote(column), expr.type, (column,))
        return self._add("register", source, precision), self._add("rank", source, precision)

    def _add(self, kind: str, expr: Expr, precision: int) -> str:
        name = named("c", kind, expr.sql, expr.type, precision)
        self.used(name)
        self.computed.setdefault(name, Computed(name, expr, kind, precision))
        return name


def conjunction(left: Expr | None, right: Expr | None) -> Expr | None:
    """`left AND right`, where `right` is not evaluated for rows that `left` turns away."""
    if left is None or right is None:
        return left or right
    columns = tuple(sorted({*left.columns, *right.columns}))
    fails = left.fails or right.fails
    text = (
        f"CASE WHEN {left.sql} THEN {right.sql} ELSE FALSE END" if right.fails else f"({left.sql}) AND ({right.sql})"
    )
    return Expr(text, "boolean", columns, fails)


def partial(
    combine: str,
    filter_column: str | None,
    merge: str,
    duck_type: str,
    op: str = "",
    argument: str | None = None,
) -> Partial:
    """`merge` has `{}` where the partial's own column goes, `combine` FILTER where its filter goes."""
    name = named("p", combine, filter_column, duck_type)
    merged = merge.format(quote(name))
    return Partial(name, combine, filter_column, merged, duck_type, op=op, argument=argument)


def presence(filter_column: str | None) -> Partial:
    """The count of admitted rows: a group belongs to a query's result where it is not zero."""
    return partial("count(*)", filter_column, "sum({})::BIGINT", "BIGINT", "count")


def take_apart(aggregate: Aggregate, where: Expr | None, time: str, columns: Columns) -> Parts:
    """The parts of one aggregate call of a query with this WHERE over a stream with this event time."""
    admitted = conjunction(where, aggregate.filter)
    filter_column = None if admitted is None else columns.of(admitted)
    build = _BUILDERS.get(aggregate.function, _central_moments)
    return build(aggregate, admitted, filter_column, time, columns)


def _count_all(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    count = presence(filter_column)
    return Parts((count,), f"coalesce({quote(count.name)}, 0)")


def _count(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    count = _count_of(columns.of(aggregate.args[0], admitted), filter_column)
    return Parts((count,), f"coalesce({quote(count.name)}, 0)")


def _count_of(column: str, filter_column: str | None) -> Partial:
    text = f"count({quote(column)})"
    return partial(text, filter_column, "sum({})::BIGINT", "BIGINT", "count", column)


def _sum(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    column = columns.of(aggregate.args[0], admitted)
    total = _total(column, filter_column, to_duck(aggregate.type))
    return Parts((total,), quote(total.name))


def _total(column: str, filter_column: str | None, duck: str) -> Partial:
    text = f"CAST(sum({quote(column)}){FILTER} AS {duck})"
    op = "sum" if duck in ("BIGINT", "DOUBLE") else ""
    return partial(text, filter_column, f"CAST(sum({{}}) AS {duck})", duck, op, column)


def _extreme(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """min, max, bool_and and bool_or: merging is the function itself."""
    column, function = columns.of(aggregate.args[0], admitted), aggregate.function
    extreme = partial(
        f"{function}({quote(column)})",
        filter_column,
        f"{function}({{}})",
        to_duck(aggregate.type),
        function if function in ("min", "max") else "",
        column,
    )
    return Parts((extreme,), quote(extreme.name))


def _avg(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    arg = aggregate.args[0]
    column = columns.of(arg, admitted)
    count = _count_of(column, filter_column)
    parts = decimal_parts(arg.type)
    if parts is None:
        text = f"sum({quote(column)}::DOUBLE)"
        total = partial(text, filter_column, "sum({})", "DOUBLE", "sum", column)
        return Parts((total, count), f"{quote(total.name)} / nullif({quote(count.name)}, 0)")
    total = _total(column, filter_column, f"DECIMAL({min(parts[0] + 10, 38)},{parts[1]})")
    return Parts((total, count), _decimal_mean(total, count, parts[1], aggregate.type))


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


def _central_moments(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """Variance and deviation: count, mean and squared deviations merge without cancellation."""
    column = columns.of(aggregate.args[0], admitted)
    value = f"{quote(column)}::DOUBLE"
    count = _count_of(column, filter_column)
    mean = partial(f"avg({value})", filter_column, "", "DOUBLE")
    # Scaled by powers of two, which changes no digit: a sum of the greatest doubles has no place among doubles.
    scaled = weighted_mean(quote(count.name), quote(mean.name))
    mean = replace(mean, combine=f"(avg({value} * {SMALLER}){FILTER} * {LARGER})", merge=scaled)
    combine = f"(var_pop({value}){FILTER} * count({quote(column)}){FILTER})"
    name = named("p", combine, filter_column, "DOUBLE")
    combine = f"abs{combine}"  # beyond all doubles DuckDB's may have the wrong sign
    group_mean = quote(f"{name}_mean")
    merge = f"sum({quote(name)} + {quote(count.name)} * ({quote(mean.name)} - {group_mean}) ** 2)"
    squares = Partial(name, combine, filter_column, merge, "DOUBLE", (count.name, mean.name))
    n, m2 = quote(count.name), quote(name)
    finish = {
        "var_pop": f"CASE WHEN {n} > 0 THEN {m2} / {n} END",
        "var_samp": f"CASE WHEN {n} > 1 THEN {m2} / ({n} - 1) END",
        "stddev_pop": f"CASE WHEN {n} > 0 THEN sqrt({m2} / {n}) END",
        "stddev_samp": f"CASE WHEN {n} > 1 THEN sqrt({m2} / ({n} - 1)) END",
    }[aggregate.function]
    return Parts((count, mean, squares), finish)


def _of_row(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """min_row, max_row: the least or greatest row, compared by its order and then by all that is taken of it, NULL
    before everything, as Spark sorts. One partial for all who take something of the same row."""
    value, order, *row = aggregate.args
    value_column, order_column = columns.of(value, admitted), columns.of(order, admitted)
    fields, types = [f"'o': {quote(order_column)}"], [f"o {to_duck(order.type)}"]
    for i, taken in enumerate(row):
        column, duck = quote(columns.of(taken, admitted)), to_duck(taken.type)
        fields += [f"'n{i}': {column} IS NOT NULL", f"'v{i}': {column}"]
        types += [f"n{i} BOOLEAN", f"v{i} {duck}"]
        if _has_signed_zero(taken):  # which is lost where DuckDB compares values that it keeps
            fields.append(f"'s{i}': {column} = 0 AND signbit({column})")
            types.append(f"s{i} BOOLEAN")
    # A NULL order takes no part; as a NULL struct the row is skipped by min and max.
    counted = quote(value_column if aggregate.ignore_nulls else order_column)
    extreme = "min" if aggregate.function == "min_row" else "max"
    struct = f"CASE WHEN {counted} IS NOT NULL THEN {{{', '.join(fields)}}} END"
    best = partial(f"{extreme}({struct})", filter_column, f"{extreme}({{}})", f"STRUCT({', '.join(types)})")
    at, name = [taken.sql for taken in row].index(value.sql), quote(best.name)
    found = f"{name}.v{at}"
    if _has_signed_zero(value):
        found = f"CASE WHEN {name}.s{at} THEN CAST('-0.0' AS {to_duck(value.type)}) ELSE {found} END"
    return Parts((best,), found)


def _has_signed_zero(expr: Expr) -> bool:
    return expr.type in ("float", "double")


def _by_order(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """min_by, max_by, first, last of queries that an earlier release has bound: the extreme of (order, value). Their
    state is of this kind."""
    value = aggregate.args[0]
    order = Expr(quote(time), "timestamp", (time,)) if aggregate.function in ("first", "last") else aggregate.args[1]
    value_column, order_column = quote(columns.of(value, admitted)), quote(columns.of(order, admitted))
    counted = value_column if aggregate.ignore_nulls else order_column
    extreme = "min" if aggregate.function in ("min_by", "first") else "max"
    # A NULL order takes no part; as a NULL struct the row is skipped by min and max.
    pair = f"CASE WHEN {counted} IS NOT NULL THEN {{'o': {order_column}, 'v': {value_column}}} END"
    duck = f"STRUCT(o {to_duck(order.type)}, v {to_duck(value.type)})"
    best = partial(f"{extreme}({pair})", filter_column, f"{extreme}({{}})", duck)
    return Parts((best,), f"{quote(best.name)}.v")


def _count_distinct(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """Grouped by the values themselves; a tuple with a NULL in it is not counted, as in Spark."""
    values = tuple(columns.of(arg, admitted) for arg in aggregate.args)
    seen = presence(filter_column)
    whole = " AND ".join(f"{quote(value)} IS NOT NULL" for value in values)
    finish = f"count(*) FILTER (WHERE {quote(seen.name)} > 0 AND {whole})"
    return Parts((seen,), finish, "values", values, missing="0")


def _approx_count_distinct(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """HyperLogLog as a grouping by register: sparse by nature, merged by max like any other partial."""
    deviation = aggregate.parameters[0] if aggregate.parameters else 0.05
    # 2^12 registers are few enough to keep, so no result is worse than theirs; 2^16 are the most.
    precision = min(16, max(12, math.ceil(2 * math.log2(1.04 / deviation))))
    register, rank = columns.register(aggregate.args[0], admitted, precision)
    best = partial(f"max({quote(rank)})", filter_column, "max({})", "TINYINT")
    m = 1 << precision
    alpha = 0.7213 / (1 + 1.079 / m)
    # A NULL value has a NULL rank: it leaves its register unseen.
    used = f"count({quote(best.name)})"
    harmonic = f"(coalesce(sum(pow(2.0, -{quote(best.name)})), 0) + {m} - {used})"
    raw = f"({alpha * m * m!r} / {harmonic})"
    linear = f"({m} * ln({m}::DOUBLE / ({m} - {used})))"
    finish = f"CAST(round(CASE WHEN {raw} <= {2.5 * m} AND {used} < {m} THEN {linear} ELSE {raw} END) AS BIGINT)"
    return Parts((best,), finish, "values", (register,), missing="0")


def _percentile(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """Of the values and how often each was seen: whole rows need not travel where values come again."""
    column = columns.of(aggregate.args[0], admitted)
    seen = presence(filter_column)
    quantile = Quantile(column, seen.name, float(aggregate.parameters[0]))
    return Parts((seen,), quantile.sql, "values", (column,), quantile=quantile)


def _own(
    aggregate: Aggregate, admitted: Expr | None, filter_column: str | None, time: str, columns: Columns
) -> Parts:
    """One that the user has defined. The state of rows is the user's; here it is a value that can be merged."""
    call = aggregate.own
    assert call is not None
    names = [columns.of(arg, admitted) for arg in aggregate.args]
    types = tuple(arg.type for arg in aggregate.args)
    id_ = named("f", call.version, call.columns, types, aggregate.type)
    own = OwnPartial(id_, call.name, call.version, call.columns, types, aggregate.type)
    fields = ", ".join(f"a{i} := {quote(name)}" for i, name in enumerate(names))
    combine = f"{own.update}(list(struct_pack({fields})){FILTER})"
    states = replace(partial(combine, filter_column, f"{own.merge}(list({{}}))", "BLOB"), own=own)
    return Parts((states,), f"{own.finish}({quote(states.name)})")


_BUILDERS = {
    "count_all": _count_all,
    "count": _count,
    "sum": _sum,
    "min": _extreme,
    "max": _extreme,
    "bool_and": _extreme,
    "bool_or": _extreme,
    "avg": _avg,
    "min_row": _of_row,
    "max_row": _of_row,
    "min_by": _by_order,
    "max_by": _by_order,
    "first": _by_order,
    "last": _by_order,
    "count_distinct": _count_distinct,
    "approx_count_distinct": _approx_count_distinct,
    "percentile": _percentile,
    OWN: _own,
}
