"""How long an optimiser may take: a budget of work, so that a busy machine does not get worse plans."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy
    from highspy.highs import HighsCallbackEvent

WALL = 10.0
"""A budget ends at this many times its length by the wall clock, however little the thread has worked."""
MARGIN = 2.0
"""A solver gets this many times the wall time that its work takes at the pace so far."""
ENOUGH = 0.02
"""Seconds of work from which on that pace is known."""


class Clock:
    """Seconds of the wall clock. A test may count something else, which is the same on every machine."""

    def now(self) -> float:
        return time.monotonic()

    def fork(self) -> Clock:
        """A clock for a thread of its own, which shows the same moment."""
        return self

    def budget(self) -> BudgetClock:
        """The clock that a budget which begins now is counted on."""
        return WorkClock()


class BudgetClock(Clock):
    """A clock that ends solvers."""

    def limit(self, solver: highspy.Highs, end: float) -> None:
        """Ends the solver's next run at a moment of this clock."""
        raise NotImplementedError

    def fork(self) -> BudgetClock:
        return self

    def budget(self) -> BudgetClock:
        return self


class WorkClock(BudgetClock):
    """Processor time of the thread that looks first; but never less than a tenth of what passes on the wall."""

    def __init__(self, shown: float = 0.0) -> None:
        self._shown = shown
        self._since: tuple[float, float] | None = None
        """Processor time of the thread and wall time when this clock was first looked at."""

    def now(self) -> float:
        worked, wall = time.thread_time(), time.monotonic()
        if self._since is None:
            self._since = worked, wall
        return self._shown + max(worked - self._since[0], (wall - self._since[1]) / WALL)

    def limit(self, solver: highspy.Highs, end: float) -> None:
        """With one thread HiGHS runs in the thread that calls it, so its work is this thread's.

        It asks now and then whether to stop. Its own limit, of the wall clock, is for where it asks too seldom.
        """

        def look(event: HighsCallbackEvent) -> None:
            if self.now() >= end:
                event.interrupt()

        solver.cbMipInterrupt += look
        solver.cbSimplexInterrupt += look
        solver.setOptionValue("time_limit", max(self._pace() * (end - self.now()), 0.01))

    def _pace(self) -> float:
        """Wall seconds that a second of work may take."""
        if self._since is None or time.thread_time() - self._since[0] < ENOUGH:
            return WALL
        worked, passed = time.thread_time() - self._since[0], time.monotonic() - self._since[1]
        return min(MARGIN * max(passed / worked, 1.0), WALL)

    def fork(self) -> WorkClock:
        return WorkClock(self.now())


class StoppedClock(BudgetClock):
    """A clock that somebody may stop: then every moment has passed."""

    def __init__(self, clock: BudgetClock, is_stopped: Callable[[], bool]) -> None:
        self._clock, self._is_stopped = clock, is_stopped

    def now(self) -> float:
        return math.inf if self._is_stopped() else self._clock.now()

    def limit(self, solver: highspy.Highs, end: float) -> None:
        def look(event: HighsCallbackEvent) -> None:
            if self._is_stopped():
                event.interrupt()

        self._clock.limit(solver, end)
        solver.cbMipInterrupt += look
        solver.cbSimplexInterrupt += look

    def fork(self) -> StoppedClock:
        return StoppedClock(self._clock.fork(), self._is_stopped)

    def budget(self) -> StoppedClock:
        return StoppedClock(self._clock.budget(), self._is_stopped)


class StoppableClock(Clock):
    """Its budgets end when somebody says so."""

    def __init__(self, clock: Clock, is_stopped: Callable[[], bool]) -> None:
        self._clock, self._is_stopped = clock, is_stopped

    def now(self) -> float:
        return self._clock.now()

    def fork(self) -> StoppableClock:
        return StoppableClock(self._clock.fork(), self._is_stopped)

    def budget(self) -> BudgetClock:
        return StoppedClock(self._clock.budget(), self._is_stopped)


SECONDS = Clock()


@dataclass(frozen=True)
class Deadline:
    """When to stop, on a clock."""

    end: float
    clock: BudgetClock

    @classmethod
    def after(cls, budget: float, clock: Clock = SECONDS) -> Deadline:
        counted = clock.budget()
        return cls(counted.now() + budget, counted)

    @property
    def left(self) -> float:
        return self.end - self.clock.now()

    @property
    def over(self) -> bool:
        return self.left <= 0.0

    def share(self, part: float) -> Deadline:
        """A part of the time that is left."""
        now = self.clock.now()
        return Deadline(now + part * max(self.end - now, 0.0), self.clock)

    def limit(self, solver: highspy.Highs) -> None:
        """Ends the solver's next run at this moment."""
        self.clock.limit(solver, self.end)

    def fork(self) -> Deadline:
        """The same moment for a thread of its own."""
        return Deadline(self.end, self.clock.fork())
