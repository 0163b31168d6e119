"""min_by, max_by, first, last, any_value: a value of one row of the group."""

from __future__ import annotations

from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, partial
from thalweg.model.expr import Expr, quote
from thalweg.model.query import Aggregate
from thalweg.model.types import to_duck

_EDGES = {"first": "first", "first_value": "first", "any_value": "first", "last": "last", "last_value": "last"}


class OfRow(AggregateFamily):
    """`one_row.of_one_row` makes min_row and max_row of what `signature` gives."""

    name = "of_row"
    names: ClassVar = {"min_by": Arity(2, 2), "max_by": Arity(2, 2), **{name: Arity(1, 2) for name in _EDGES}}
    functions = ("min_row", "max_row", "min_by", "max_by", "first", "last")
    chooses_nulls = True

    def signature(self, call: Calling) -> Aggregate:
        value = call.arg(0)
        if call.name not in _EDGES:
            if call.ignore_nulls:
                raise call.refuse(f"IGNORE NULLS of {call.name}")
            return Aggregate(call.name, (value.to_expr(), call.arg(1).to_expr()), value.type)
        ignore = call.ignore_nulls
        if call.many == 2:  # the older way to say IGNORE NULLS
            given = call.arg(1).literal
            if not isinstance(given, bool):
                raise call.refuse(f"{call.name} with a second argument that is not true or false")
            ignore = given
        return Aggregate(_EDGES[call.name], (value.to_expr(),), value.type, ignore_nulls=ignore)

    def parts(self, asked: AggregateCall) -> Parts:
        return _of_row(asked) if asked.aggregate.function in ("min_row", "max_row") else _by_order(asked)


def _of_row(asked: AggregateCall) -> Parts:
    """min_row, max_row: the least or greatest row, compared by its order and then by all that is taken of it, NULL
    before everything, as Spark sorts. One partial for all who take something of the same row."""
    value, order, *row = asked.aggregate.args
    value_column, order_column = asked.column_of(value), asked.column_of(order)
    fields, types = [f"'o': {quote(order_column)}"], [f"o {to_duck(order.type)}"]
    for i, taken in enumerate(row):
        column, duck = quote(asked.column_of(taken)), to_duck(taken.type)
        fields += [f"'n{i}': {column} IS NOT NULL", f"'v{i}': {column}"]
        types += [f"n{i} BOOLEAN", f"v{i} {duck}"]
        if _has_signed_zero(taken):  # which is lost where DuckDB compares values that it keeps
            fields.append(f"'s{i}': {column} = 0 AND signbit({column})")
            types.append(f"s{i} BOOLEAN")
    # A NULL order takes no part; as a NULL struct the row is skipped by min and max.
    counted = quote(value_column if asked.aggregate.ignore_nulls else order_column)
    extreme = "min" if asked.aggregate.function == "min_row" else "max"
    struct = f"CASE WHEN {counted} IS NOT NULL THEN {{{', '.join(fields)}}} END"
    best = partial(f"{extreme}({struct})", asked.filter_column, f"{extreme}({{}})", f"STRUCT({', '.join(types)})")
    at, name = [taken.sql for taken in row].index(value.sql), quote(best.name)
    found = f"{name}.v{at}"
    if _has_signed_zero(value):
        found = f"CASE WHEN {name}.s{at} THEN CAST('-0.0' AS {to_duck(value.type)}) ELSE {found} END"
    return Parts((best,), found)


def _has_signed_zero(expr: Expr) -> bool:
    return expr.type in ("float", "double")


def _by_order(asked: AggregateCall) -> Parts:
    """min_by, max_by, first, last of queries that an earlier release has bound: the extreme of (order, value). Their
    state is of this kind."""
    value = asked.aggregate.args[0]
    of_time = asked.aggregate.function in ("first", "last")
    order = Expr(quote(asked.time), "timestamp", (asked.time,)) if of_time else asked.aggregate.args[1]
    value_column, order_column = quote(asked.column_of(value)), quote(asked.column_of(order))
    counted = value_column if asked.aggregate.ignore_nulls else order_column
    extreme = "min" if asked.aggregate.function in ("min_by", "first") else "max"
    # A NULL order takes no part; as a NULL struct the row is skipped by min and max.
    pair = f"CASE WHEN {counted} IS NOT NULL THEN {{'o': {order_column}, 'v': {value_column}}} END"
    duck = f"STRUCT(o {to_duck(order.type)}, v {to_duck(value.type)})"
    best = partial(f"{extreme}({pair})", asked.filter_column, f"{extreme}({{}})", duck)
    return Parts((best,), f"{quote(best.name)}.v")


OF_ROW = OfRow()
