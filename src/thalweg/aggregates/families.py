"""The aggregates that SQL can name, by name and by function."""

from __future__ import annotations

from functools import lru_cache

from thalweg.aggregates import KINDS
from thalweg.aggregates.contract import (
    AggregateCall,
    AggregateFamily,
    Arity,
    ComputedColumns,
    DuckFunction,
    Parts,
    conjunction,
)
from thalweg.errors import ThalwegError, aggregate_not_installed
from thalweg.kinds.registry import Registry
from thalweg.model.expr import Expr
from thalweg.model.query import Aggregate


def _unknown(name: str, known: tuple[str, ...], near: list[str]) -> ThalwegError:
    return aggregate_not_installed(name)


FAMILIES: Registry[AggregateFamily] = Registry("aggregate", AggregateFamily, KINDS, _unknown)


def family_named(name: str) -> AggregateFamily | None:
    """Of the aggregate that SQL calls so."""
    return _by_name(_all()).get(name)


def arities() -> dict[str, Arity]:
    """All names of aggregates -> how many arguments they take."""
    return {name: arity for family in _all() for name, arity in family.names.items()}


def duck_functions() -> list[DuckFunction]:
    return [function for family in _all() for function in family.duck_functions]


def take_apart(aggregate: Aggregate, where: Expr | None, time: str, columns: ComputedColumns) -> Parts:
    """The parts of one aggregate call of a query with this WHERE over a stream with this event time."""
    family = _by_function(_all()).get(aggregate.function)
    if family is None:
        raise aggregate_not_installed(aggregate.function)
    admitted = conjunction(where, aggregate.filter)
    filter_column = None if admitted is None else columns.of(admitted)
    return family.parts(AggregateCall(aggregate, admitted, filter_column, time, columns))


def _all() -> tuple[AggregateFamily, ...]:
    return tuple(FAMILIES.get(name) for name in FAMILIES.names())


@lru_cache(maxsize=4)
def _by_name(families: tuple[AggregateFamily, ...]) -> dict[str, AggregateFamily]:
    return {name: family for family in families for name in family.names}


@lru_cache(maxsize=4)
def _by_function(families: tuple[AggregateFamily, ...]) -> dict[str, AggregateFamily]:
    return {function: family for family in families for function in family.functions}
