"""How many slots there are, by how much there is to do. State is read by ranges of key groups, so a batch may have
another number of slots than the one before and nothing is moved.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.adapt.probe_orders.measure import EPOCH

BUSY = 0.25
"""Seconds that a slot works in a batch from which on there are more of them: then a task more is worth its start."""
IDLE = 0.03
"""Below, there are fewer: starting their tasks takes as long as their work."""


def next_slots(now: int, busy_seconds: float, most: int) -> int:
    """Twice or half as many, or as many. `busy_seconds`: of all slots in a batch, on average."""
    each = busy_seconds / now
    if each > BUSY:
        return min(most, 2 * now)
    return max(1, now // 2) if each < IDLE else min(now, most)


@dataclass
class Scaler:
    """Adds up an epoch and says how many slots the next one has."""

    most: int
    _busy: list[float] = field(default_factory=list)

    def after(self, now: int, busy_seconds: float) -> int:
        self._busy.append(busy_seconds)
        if len(self._busy) < EPOCH:
            return now
        mean = sum(self._busy) / len(self._busy)
        self._busy.clear()
        return next_slots(now, mean, self.most)
