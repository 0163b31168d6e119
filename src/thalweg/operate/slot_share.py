"""Which rows of a store a slot sets out with: those of its key groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.model.plan import Plan, route_key
from thalweg.model.probe import Index
from thalweg.operate.index import KeyIndex
from thalweg.operate.probe import starting
from thalweg.route.table import RoutingTable, routing_table

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SlotShare:
    plan: Plan
    slot: int

    def spread(self, stream: str, index: Index) -> tuple[int, ...]:
        """The key groups that are too much for one slot."""
        return self.plan.spread.get(route_key(stream, index.keys), ())

    def mine(self, stream: str, index: Index, of: KeyIndex) -> Array:
        """The slot's rows of a bucket. Of key groups that are too much for one slot, every slot has its turn: stores
        are there for all of them, and joins distribute over union."""
        spread = self.spread(stream, index)
        if not spread:
            return starting(of, self.ranges(stream, index), self.plan.groups)
        owned = [g for first, last in self.ranges(stream, index) for g in range(first, last) if g not in spread]
        mine = starting(of, [(g, g + 1) for g in owned], self.plan.groups)
        shared = starting(of, [(g, g + 1) for g in spread], self.plan.groups)
        return np.concatenate([mine, shared[shared % self.plan.slots == self.slot]])

    def routing(self, stream: str, index: Index) -> RoutingTable:
        return routing_table(self.plan, route_key(stream, index.keys))

    def ranges(self, stream: str, index: Index) -> list[tuple[int, int]]:
        return self.routing(stream, index).slot_ranges(self.slot)

    def mine_or_without_key(self, stream: str, index: Index, of: KeyIndex, count: int) -> Array:
        """The slot's rows of a bucket of so many; those without a key are the first slot's."""
        rows = starting(of, self.ranges(stream, index), self.plan.groups)
        if self.slot == 0 and len(of.order) < count:
            has_key = np.zeros(count, dtype=bool)
            has_key[of.order] = True
            rows = np.concatenate([rows, np.flatnonzero(~has_key).astype(np.uint32)])
        return rows
