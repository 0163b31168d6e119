"""count, count_if, count(DISTINCT ...)."""

from __future__ import annotations

from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, count_of, presence
from thalweg.model.expr import quote
from thalweg.model.query import Aggregate


class Counts(AggregateFamily):
    name = "counts"
    names: ClassVar = {"count": Arity(1, 99), "count_if": Arity(1, 1)}
    functions = ("count_all", "count", "count_distinct")
    takes_distinct = True
    takes_star = True

    def signature(self, call: Calling) -> Aggregate:
        if call.name == "count_if":
            if call.distinct:
                raise call.refuse("count_if(DISTINCT ...)", hint="only count takes DISTINCT")
            if not call.many:
                raise call.refuse("count_if(*)")
            condition = call.cast(call.arg(0), "boolean")
            return Aggregate("count_all", (), "bigint", filter=condition.to_expr())
        args = [call.arg(i) for i in range(call.many)]
        if call.distinct:
            if not args:
                raise call.refuse("count(DISTINCT *)", hint="name the columns")
            return Aggregate("count_distinct", tuple(arg.to_expr() for arg in args), "bigint")
        if all(arg.literal is not None for arg in args):
            return Aggregate("count_all", (), "bigint")
        if len(args) == 1:
            return Aggregate("count", (args[0].to_expr(),), "bigint")
        nulls = " OR ".join(f"({arg.sql} IS NULL)" for arg in args)
        present = call.emit(f"CASE WHEN {nulls} THEN NULL ELSE TRUE END", "boolean", args)
        return Aggregate("count", (present.to_expr(),), "bigint")

    def parts(self, asked: AggregateCall) -> Parts:
        match asked.aggregate.function:
            case "count_all":
                count = presence(asked.filter_column)
            case "count":
                count = count_of(asked.column(0), asked.filter_column)
            case _:
                return _distinct(asked)
        return Parts((count,), f"coalesce({quote(count.name)}, 0)")


def _distinct(asked: AggregateCall) -> Parts:
    """Grouped by the values themselves; a tuple with a NULL in it is not counted, as in Spark."""
    values = tuple(asked.column_of(arg) for arg in asked.aggregate.args)
    seen = presence(asked.filter_column)
    whole = " AND ".join(f"{quote(value)} IS NOT NULL" for value in values)
    finish = f"count(*) FILTER (WHERE {quote(seen.name)} > 0 AND {whole})"
    return Parts((seen,), finish, "values", values, missing="0")


COUNTS = Counts()
