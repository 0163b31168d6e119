"""A clock that counts looks: what an optimiser finds within a budget is then the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import highspy
from highspy.highs import HighsCallbackEvent

from thalweg.optimize.deadline import BudgetClock

Found = TypeVar("Found")
INTEGER = 0.03
"""Seconds that count for a look of the solver at an integer program."""
ITERATIONS = 5000
"""Of the simplex method in a second that counts."""


class CountingClock(BudgetClock):
    """A look takes 1/`pace` of a second. What happens between two looks takes no time."""

    def __init__(self, pace: float = 1000.0) -> None:
        self.pace = pace
        self.looks = 0
        self.passed = 0.0

    def now(self) -> float:
        self.looks += 1
        self.passed += 1.0 / self.pace
        return self.passed

    def limit(self, solver: highspy.Highs, end: float) -> None:
        """An integer program looks at this clock itself. A linear one gets the steps that are left."""

        def look(event: HighsCallbackEvent) -> None:
            self.looks += 1
            self.passed += INTEGER
            if self.passed >= end:
                event.interrupt()

        solver.cbMipInterrupt += look
        solver.setOptionValue("simplex_iteration_limit", int(ITERATIONS * max(end - self.passed, 0.0)))

    def fork(self) -> CountingClock:
        """Each thread counts looks of its own: which thread is faster must not show."""
        other = CountingClock(self.pace)
        other.passed = self.passed
        return other


def counted(optimize: Callable[..., Found]) -> Callable[..., Found]:
    """The same optimiser with a counting clock of its own for every call: a second is a thousand looks."""

    @wraps(optimize)
    def count(*arguments: Any, **options: Any) -> Found:
        return optimize(*arguments, **{"clock": CountingClock()} | options)

    return count
