"""The routing table of one route key: which slot keeps each key group."""

from __future__ import annotations

from dataclasses import dataclass


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
        ranges: list[tuple[int, int]] = []
        for group, owner in enumerate(self.assignment):
            if owner != slot:
                continue
            if ranges and ranges[-1][1] == group:
                ranges[-1] = (ranges[-1][0], group + 1)
            else:
                ranges.append((group, group + 1))
        return ranges
