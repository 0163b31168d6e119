"""Variance and standard deviation."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, count_of, partial
from thalweg.model.canonical import named
from thalweg.model.expr import quote
from thalweg.model.plan import FILTER, LARGER, SMALLER, Partial, weighted_mean
from thalweg.model.query import Aggregate

_FUNCTIONS = {
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "std": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}


class Deviations(AggregateFamily):
    name = "deviations"
    names: ClassVar = {name: Arity(1, 1) for name in _FUNCTIONS}
    functions = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")

    def signature(self, call: Calling) -> Aggregate:
        return Aggregate(_FUNCTIONS[call.name], (call.cast(call.arg(0), "double").to_expr(),), "double")

    def parts(self, asked: AggregateCall) -> Parts:
        return _central_moments(asked)


def _central_moments(asked: AggregateCall) -> Parts:
    """Variance and deviation: count, mean and squared deviations merge without cancellation."""
    column = asked.column(0)
    value = f"{quote(column)}::DOUBLE"
    count = count_of(column, asked.filter_column)
    mean = partial(f"avg({value})", asked.filter_column, "", "DOUBLE")
    # Scaled by powers of two, which changes no digit: a sum of the greatest doubles has no place among doubles.
    scaled = weighted_mean(quote(count.name), quote(mean.name))
    mean = replace(mean, combine=f"(avg({value} * {SMALLER}){FILTER} * {LARGER})", merge=scaled)
    combine = f"(var_pop({value}){FILTER} * count({quote(column)}){FILTER})"
    name = named("p", combine, asked.filter_column, "DOUBLE")
    combine = f"abs{combine}"  # beyond all doubles DuckDB's may have the wrong sign
    group_mean = quote(f"{name}_mean")
    merge = f"sum({quote(name)} + {quote(count.name)} * ({quote(mean.name)} - {group_mean}) ** 2)"
    squares = Partial(name, combine, asked.filter_column, merge, "DOUBLE", (count.name, mean.name))
    n, m2 = quote(count.name), quote(name)
    finish = {
        "var_pop": f"CASE WHEN {n} > 0 THEN {m2} / {n} END",
        "var_samp": f"CASE WHEN {n} > 1 THEN {m2} / ({n} - 1) END",
        "stddev_pop": f"CASE WHEN {n} > 0 THEN sqrt({m2} / {n}) END",
        "stddev_samp": f"CASE WHEN {n} > 1 THEN sqrt({m2} / ({n} - 1)) END",
    }[asked.aggregate.function]
    return Parts((count, mean, squares), finish)


DEVIATIONS = Deviations()
