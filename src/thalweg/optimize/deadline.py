"""How long an optimiser may take."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """When to stop, on the monotonic clock."""

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0.0

    def share(self, part: float) -> Deadline:
        """A part of the time that is left."""
        return Deadline(time.monotonic() + part * max(self.left, 0.0))
