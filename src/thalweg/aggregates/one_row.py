"""min_by, max_by, first, last, any_value: one row of a group decides for all of them with the same order and filter.

Rows of one order value are told apart by what these aggregates take of them, all of it, in a fixed order. So the row
depends neither on how rows came, nor on what other queries run, and what is taken of it has stood in one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thalweg.model.expr import Expr
from thalweg.model.query import Aggregate

_OF_ROW = {"min_by": "min_row", "first": "min_row", "max_by": "max_row", "last": "max_row"}
_Row = tuple[str, str, Expr | None]
"""What says which row it is: the least or the greatest, of which order, among which rows."""


def of_one_row(aggregates: Sequence[Aggregate], time: Expr) -> tuple[Aggregate, ...]:
    """The aggregates of a query over a stream with this event time; those that take from a row say from which."""
    taken: dict[_Row, dict[str, Expr]] = {}
    for aggregate in aggregates:
        if aggregate.function in _OF_ROW:
            value = aggregate.args[0]
            taken.setdefault(_row(aggregate, time), {})[value.sql] = value
    return tuple(_taking(a, time, taken[_row(a, time)]) if a.function in _OF_ROW else a for a in aggregates)


def _row(aggregate: Aggregate, time: Expr) -> _Row:
    return _OF_ROW[aggregate.function], _order(aggregate, time).sql, aggregate.filter


def _order(aggregate: Aggregate, time: Expr) -> Expr:
    return aggregate.args[1] if len(aggregate.args) > 1 else time


def _taking(aggregate: Aggregate, time: Expr, row: dict[str, Expr]) -> Aggregate:
    values = tuple(row[sql] for sql in sorted(row))
    args = (aggregate.args[0], _order(aggregate, time), *values)
    return replace(aggregate, function=_OF_ROW[aggregate.function], args=args)
