"""The linear relaxation of a large program, nearly solved by a primal-dual method: its bound needs no exact solution.

Chambolle and Pock's iteration with steps that fit the rows and columns (their preconditioning, alpha = 1), reflected
and anchored as Halpern's, begun anew from where it is when it has come closer: what is known as restarted PDHG. The
simplex method takes fifty times as long where many orders, stores and partitions are equally good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thalweg.kernel import frozen_view, kernel
from thalweg.optimize.deadline import Deadline

Floats = NDArray[np.float64]
Places = NDArray[np.int32]
CHECKED = 40
"""Iterations between two looks at the bound."""
CLOSER, TURNED, LONG = 0.2, 0.8, 0.36
"""Begun anew at this share of the first residual, at that one if it grows again, or after this share of the whole."""
WEIGHT = 0.5
"""How much larger steps in prices are than steps in columns, at first."""
STALE = 2e-4
"""What a look at the bound must find of progress, as a share of it."""


class Saddle(NamedTuple):
    """Least cost of columns between bounds, with rows equal to their side or at most that; by columns and by rows."""

    column_first: Places
    column_split: Places
    """Where the factors -1 of a column begin; those before are 1."""
    column_rows: Places
    row_first: Places
    row_split: Places
    row_columns: Places
    cost: Floats
    side: Floats
    equal: NDArray[np.bool_]
    column_weight: Floats
    row_weight: Floats


class Point(NamedTuple):
    """Columns and prices; of each where the iteration is, where it began, and what its last step led to."""

    x: Floats
    y: Floats
    x_begun: Floats
    y_begun: Floats
    x_next: Floats
    y_next: Floats

    @classmethod
    def at(cls, x: Floats, y: Floats) -> Point:
        return cls(x.copy(), y.copy(), x.copy(), y.copy(), x.copy(), y.copy())


@dataclass(frozen=True)
class Approached:
    bound: float
    """Proven: no columns cost less."""
    prices: Floats
    """That prove it."""
    x: Floats
    y: Floats
    weight: float


def make_saddle(cost: Floats, first: NDArray[np.int64], columns: NDArray[np.int64], factors: Floats,
                side: Floats, equal: NDArray[np.bool_]) -> Saddle:  # fmt: skip
    """From a matrix of 1 and -1 by rows, in each of which the factors 1 come first."""
    rows = np.repeat(np.arange(len(side)), np.diff(first))
    order = np.lexsort((-factors, columns))
    column_first = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=len(cost)))])
    column_split = column_first[:-1] + np.bincount(columns, factors > 0.0, len(cost)).astype(np.int64)
    row_split = first[:-1] + np.bincount(rows, factors > 0.0, len(side)).astype(np.int64)
    weights = (
        np.maximum(np.diff(column_first), 1).astype(np.float64),
        np.maximum(np.diff(first), 1).astype(np.float64),
    )
    places = (column_first, column_split, rows[order], first, row_split, columns)
    arrays: tuple[NDArray[Any], ...] = (*(each.astype(np.int32) for each in places), cost, side, equal, *weights)
    return Saddle(*map(frozen_view, arrays))


@kernel
def iterate(
    saddle: Saddle, lower: Floats, upper: Floats, point: Point, ahead: Floats, weight: float, done: int, count: int
) -> float:
    """So many iterations, after `done` of them; how far the last one led. All in one: calls would take most time."""
    residual = 0.0
    x, y, x_begun, y_begun, x_next, y_next = point
    (column_first, column_split, column_rows, row_first, row_split, row_columns,
     cost, side, equal, column_weight, row_weight) = saddle  # fmt: skip
    for k in range(done, done + count):
        residual, share = 0.0, (k + 1.0) / (k + 2.0)
        for j in range(len(x)):
            slope = cost[j]
            for i in range(column_first[j], column_split[j]):
                slope -= y[column_rows[i]]
            for i in range(column_split[j], column_first[j + 1]):
                slope += y[column_rows[i]]
            pace = weight * column_weight[j]
            found = min(max(x[j] - slope / pace, lower[j]), upper[j])
            change = found - x[j]
            residual += change * change * pace
            ahead[j] = found + change
            x_next[j] = found
            x[j] = share * (found + change) + (1.0 - share) * x_begun[j]
        for i in range(len(y)):
            lack = side[i]
            for j in range(row_first[i], row_split[i]):
                lack -= ahead[row_columns[j]]
            for j in range(row_split[i], row_first[i + 1]):
                lack += ahead[row_columns[j]]
            pace = row_weight[i] / weight
            found = y[i] + lack / pace
            if found > 0.0 and not equal[i]:
                found = 0.0
            change = found - y[i]
            residual += change * change * pace
            y_next[i] = found
            y[i] = share * (found + change) + (1.0 - share) * y_begun[i]
    return float(np.sqrt(residual))


@kernel
def priced(saddle: Saddle, lower: Floats, upper: Floats, y: Floats) -> float:
    """The Lagrangian bound of some prices, which must not be above 0 for rows that are not equalities."""
    total = 0.0
    column_first, column_split, column_rows = saddle.column_first, saddle.column_split, saddle.column_rows
    cost, side = saddle.cost, saddle.side
    for i in range(len(y)):
        total += side[i] * y[i]
    for j in range(len(cost)):
        slope = cost[j]
        for i in range(column_first[j], column_split[j]):
            slope -= y[column_rows[i]]
        for i in range(column_split[j], column_first[j + 1]):
            slope += y[column_rows[i]]
        total += slope * (upper[j] if slope < 0.0 else lower[j])
    return float(total)


@dataclass(frozen=True)
class Wanted:
    """When to stop."""

    deadline: Deadline
    enough: float
    """A bound above which nothing more is asked."""
    looks: int
    """At the bound, at most."""
    idle: int
    """Looks without progress."""


def approach(
    saddle: Saddle, lower: Floats, upper: Floats, x: Floats, y: Floats, weight: float, wanted: Wanted
) -> Approached:
    point, ahead = Point.at(np.clip(x, lower, upper), y), np.empty_like(x)
    best, prices, idle = priced(saddle, lower, upper, y), y, 0
    done = since = 0
    first = last = np.inf
    while idle < wanted.idle and best < wanted.enough and done < wanted.looks * CHECKED and not wanted.deadline.over:
        if not since:
            first, last = iterate(saddle, lower, upper, point, ahead, weight, 0, 1), np.inf
            since, done = 1, done + 1
        residual = iterate(saddle, lower, upper, point, ahead, weight, since, CHECKED)
        since, done = since + CHECKED, done + CHECKED
        bound = priced(saddle, lower, upper, point.y_next)
        idle = 0 if bound > best + STALE * abs(best) else idle + 1
        if bound > best:
            best, prices = bound, point.y_next.copy()
        closer = residual < CLOSER * first or (residual < TURNED * first and residual > last)
        if closer or (since > LONG * done and done > 5 * CHECKED):
            weight = _weighed(saddle, point, weight)
            point, since = Point.at(point.x_next, point.y_next), 0
        last = residual
    return Approached(best, prices, point.x_next, point.y_next, weight)


def _weighed(saddle: Saddle, point: Point, weight: float) -> float:
    """Steps in prices and in columns as far as those that were needed were, halfway."""
    columns = float(np.sqrt((saddle.column_weight * (point.x_next - point.x_begun) ** 2).sum()))
    prices = float(np.sqrt((saddle.row_weight * (point.y_next - point.y_begun) ** 2).sum()))
    if columns < 1e-10 or prices < 1e-10:
        return weight
    return float(np.sqrt(weight * prices / columns))
