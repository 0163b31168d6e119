"""How many slots there are, by how much there is to do. State is read by ranges of key groups, so a batch may have
another number of slots than the one before and nothing is moved.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct, structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch
from thalweg.adapt.settings import EPOCH, AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Measurements

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


class Slots(Struct, frozen=True):
    """How many there are, and what was measured since that was last looked at."""

    slots: int = 0
    """0: not known yet."""
    busy: tuple[float, ...] = ()
    """Seconds that all slots together worked, of each batch of the epoch."""


class CountSlots(Adaptation[Slots, None]):
    """Adds up an epoch and says how many slots the next one has, unless the session has said how many."""

    name = "slot_count"
    empty = Slots()
    lost = "how busy the slots were in the running epoch"

    def __init__(self, settings: AdaptSettings) -> None:
        self.given, self.most = settings.slots, settings.tasks

    def restore(self, memory: Slots, measured: Measurements) -> Slots:
        """The manifest says how many the last batch had; in one life the memory knows better."""
        if memory.slots:
            return memory
        return Slots(self.given or min(self.most, measured.slot_assignment.slots or self.most))

    def observe(self, memory: Slots, seen: SeenBatch) -> Slots:
        if self.given is not None or not seen.rows:
            return memory
        return after_batch(memory, seen.plan.slots, seen.busy_seconds, self.most)

    def propose(self, memory: Slots, decided: Decided) -> Decided:
        return replace(decided, slots=memory.slots)

    def explain(self, memory: Slots) -> AdaptationReport:
        return AdaptationReport(answer=f"{memory.slots} slots")


def after_batch(known: Slots, now: int, busy_seconds: float, most: int) -> Slots:
    """`now`: the slots that the batch ran with."""
    busy = (*known.busy, busy_seconds)
    if len(busy) < EPOCH:
        return structs.replace(known, busy=busy)
    return Slots(next_slots(now, sum(busy) / len(busy), most))
