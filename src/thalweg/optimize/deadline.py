"""How long an optimiser may take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy


class Clock:
    """What a budget is counted in: seconds. A test may count something else, which is the same on every machine."""

    def now(self) -> float:
        return time.monotonic()

    def limit(self, solver: highspy.Highs, end: float) -> None:
        """Ends the solver's next run at a moment of this clock."""
        solver.setOptionValue("time_limit", max(end - self.now(), 0.01))

    def fork(self) -> Clock:
        """A clock for a thread of its own, which shows the same moment."""
        return self


SECONDS = Clock()


@dataclass(frozen=True)
class Deadline:
    """When to stop, on a clock."""

    end: float
    clock: Clock = SECONDS

    @classmethod
    def after(cls, budget: float, clock: Clock = SECONDS) -> Deadline:
        return cls(clock.now() + budget, clock)

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
