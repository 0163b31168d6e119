"""A bound of a program that is too large for a solver: by cases, which attribute a base relation is partitioned by.

Most of what the relaxation misses comes from base relations that it partitions half by one attribute and half by
another. There are few of them, and with their partitions fixed it is close to the optimum.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.joins.saddle import WEIGHT, Approached, Floats, Saddle, Wanted, approach, make_saddle

if TYPE_CHECKING:
    from thalweg.optimize.joins.program import Matrix, Program

ROOT_LOOKS, ROOT_IDLE = 60, 2
CASE_LOOKS, CASE_IDLE = 8, 8
DECIDED = 0.02
"""A partition this near to 0 or 1 counts as chosen."""


@dataclass(frozen=True)
class Relaxed:
    saddle: Saddle
    scale: float
    root: Approached


def relax_nearly(matrix: Matrix, cost: float, deadline: Deadline) -> Relaxed:
    """The program without cases; a solution of this cost is known."""
    scale = matrix.scale
    saddle = make_saddle(
        matrix.cost / scale, matrix.start, matrix.index, matrix.factor, matrix.upper, ~np.isinf(matrix.lower)
    )
    nothing, everything = np.zeros(len(matrix.cost)), np.ones(len(matrix.cost))
    wanted = Wanted(deadline, cost / scale, ROOT_LOOKS, ROOT_IDLE)
    free = np.zeros(len(matrix.lower))
    return Relaxed(saddle, scale, approach(saddle, nothing, everything, nothing, free, WEIGHT, wanted))


def bound_by_cases(program: Program, relaxed: Relaxed, cost: float, deadline: Deadline) -> float:
    """The least bound of all cases, the weakest of which are divided further until the deadline."""
    saddle, limit, choices = relaxed.saddle, cost / relaxed.scale, _choices(program)
    whole = np.zeros(len(saddle.cost)), np.ones(len(saddle.cost))
    cases: list[tuple[float, int, Approached, Floats, Floats]] = [(relaxed.root.bound, 0, relaxed.root, *whole)]
    wanted, made = Wanted(deadline, limit, CASE_LOOKS, CASE_IDLE), 0
    while cases and cases[0][0] < limit and not deadline.over:
        bound, _, point, lower, upper = cases[0]
        columns = _undecided(choices, point.x, saddle.column_weight, lower)
        if columns is None:
            break
        heapq.heappop(cases)
        for column in columns:
            made += 1
            low, high = lower.copy(), upper.copy()
            high[columns] = 0.0
            low[column] = high[column] = 1.0
            found = approach(saddle, low, high, point.x, point.prices, point.weight, wanted)
            heapq.heappush(cases, (max(found.bound, bound), made, found, low, high))
    return cases[0][0] * relaxed.scale if cases else cost


def _choices(program: Program) -> list[list[int]]:
    """Of each base relation, the columns of its partitions."""
    found: dict[int, list[int]] = {}
    for (store, _), column in program.partition_column.items():
        if program.space.base[store]:
            found.setdefault(store, []).append(column)
    return list(found.values())


def _undecided(choices: list[list[int]], x: Floats, weight: Floats, lower: Floats) -> list[int] | None:
    """The base relation that most rows are about of those whose partition is not chosen yet."""
    best, most = None, 0.0
    for columns in choices:
        if lower[columns].any():
            continue
        doubt = (1.0 - x[columns].max()) * weight[columns].sum()
        if doubt > most:
            best, most = columns, doubt
    return best
