"""The routing table of one route key: which slot keeps each key group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.plan import Plan
from thalweg.route.bucket import order_by_group


@dataclass(frozen=True)
class RoutingTable:
    groups: int
    slots: int
    assignment: tuple[int, ...]
    """The slot of each key group. Any assignment works; a slot may have none."""

    def __post_init__(self) -> None:
        if len(self.assignment) != self.groups:
            raise ValueError(f"{len(self.assignment)} key groups assigned, {self.groups} exist")
        if any(not 0 <= slot < self.slots for slot in self.assignment):
            raise ValueError(f"a key group is assigned to a slot outside 0 to {self.slots - 1}")

    @classmethod
    def hashed(cls, groups: int, slots: int) -> RoutingTable:
        """Equal contiguous ranges: right when keys are many and none is hot."""
        return cls(groups, slots, tuple(g * slots // groups for g in range(groups)))

    def slot_ranges(self, slot: int) -> list[tuple[int, int]]:
        """The key groups of `slot` as maximal ranges `(first, last exclusive)`, in order."""
        return self._ranges[slot]

    @cached_property
    def _ranges(self) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.slots)]
        for group, owner in enumerate(self.assignment):
            ranges = found[owner]
            if ranges and ranges[-1][1] == group:
                ranges[-1] = (ranges[-1][0], group + 1)
            else:
                ranges.append((group, group + 1))
        return found

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """The assignment as an array."""
        return np.array(self.assignment, dtype=np.int64)

    @cached_property
    def by_slot(self) -> npt.NDArray[np.uint16]:
        """The place of each key group where those of a slot stand together, slot after slot."""
        places = np.empty(self.groups, dtype=np.uint16)
        places[np.argsort(self.owners, kind="stable")] = np.arange(self.groups)
        return places

    @cached_property
    def slot_starts(self) -> list[int]:
        """Where, in the order of `by_slot`, the key groups of each slot start; one more than there are slots."""
        counts = np.bincount(self.owners, minlength=self.slots)
        return [0, *np.cumsum(counts).tolist()]


def deal(table: pa.Table, groups: npt.NDArray[np.uint16], routing: RoutingTable) -> Iterator[tuple[int, pa.Table]]:
    """The rows for each slot that has any, given their key groups; inside a slot ordered by key group."""
    ordered, offsets = order_by_group(table, routing.by_slot[groups], routing.groups)
    starts = offsets[routing.slot_starts].tolist()
    for slot, (start, end) in enumerate(pairwise(starts)):
        if start < end:
            yield slot, ordered.slice(start, end - start)


@lru_cache(maxsize=256)
def _table(groups: int, slots: int, assignment: tuple[int, ...] | None) -> RoutingTable:
    return RoutingTable.hashed(groups, slots) if assignment is None else RoutingTable(groups, slots, assignment)


@lru_cache(maxsize=256)
def with_slots(routing: RoutingTable) -> RoutingTable:
    """The table with a key group more for each slot, behind the others: a row that has its number goes there."""
    slots = tuple(range(routing.slots))
    return RoutingTable(routing.groups + routing.slots, routing.slots, routing.assignment + slots)


def routing_table(plan: Plan, route_key: str) -> RoutingTable:
    """The plan's table of a route key: as it was assigned, or hashed."""
    return _table(plan.groups, plan.slots, plan.assignment.get(route_key))
