"""percentile and median."""

from __future__ import annotations

from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, DuckFunction, Parts, presence
from thalweg.aggregates.quantile import quantile_of_counts
from thalweg.aggregates.sums import numeric
from thalweg.model.plan import QUANTILE, Quantile
from thalweg.model.query import Aggregate
from thalweg.model.types import FLOATING, INTEGRAL, decimal_parts


class Percentiles(AggregateFamily):
    name = "percentiles"
    names: ClassVar = {"median": Arity(1, 1), "percentile": Arity(2, 2)}
    functions = ("percentile",)
    duck_functions = (DuckFunction(QUANTILE, quantile_of_counts, ["DOUBLE[]", "BIGINT[]", "DOUBLE"], "DOUBLE"),)

    def signature(self, call: Calling) -> Aggregate:
        arg = numeric(call, 0)
        portion = 0.5 if call.name == "median" else _fraction(call)
        if not 0 <= portion <= 1:
            raise call.refuse("a percentage outside 0 to 1", 1)
        return Aggregate("percentile", (arg.to_expr(),), "double", parameters=(portion,))

    def parts(self, asked: AggregateCall) -> Parts:
        """Of the values and how often each was seen: whole rows need not travel where values come again."""
        column = asked.column(0)
        seen = presence(asked.filter_column)
        quantile = Quantile(column, seen.name, float(asked.aggregate.parameters[0]))
        return Parts((seen,), quantile.sql, "values", (column,), quantile=quantile)


def _fraction(call: Calling) -> float:
    given = call.arg(1)
    if given.literal is None or not (given.type in INTEGRAL or given.type in FLOATING or decimal_parts(given.type)):
        raise call.refuse("anything but a number as the second argument", 1)
    return float(given.literal)


PERCENTILES = Percentiles()
