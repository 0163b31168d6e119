"""The partitioning problem of SASPAR (Section II): which slot for each key group of each route key.

A row travels once to every slot where some route key of its stream needs it. What two route keys need in one slot
they share, so it pays to put key groups with common rows together, as long as no slot gets too much work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thalweg.optimize.slot_assignment import validate
from thalweg.optimize.slot_assignment.correlation import (
    Pair,
    RouteKey,
    choose_pivot,
    count_rows,
    grow_forest,
    information,
)

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Slots = Mapping[RouteKey, Ids]
"""Route key -> the slot of each of its key groups."""
Objective = Literal["copies", "saspar"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is known of the route keys, and what a row costs. Checked and made immutable when it is built."""

    slots: int
    counts: Mapping[RouteKey, ArrayLike]
    """Rows per key group."""
    joint: Mapping[Pair, Any] = field(default_factory=dict)
    """Rows in each two key groups of two route keys of one stream, dense or sparse. Without it, nothing is shared."""
    equal: Sequence[Pair] = ()
    """Route keys that must have one assignment, such as the two sides of a join."""
    lat_net: float = 1.0
    lat_mem: float = 0.0
    lat_proc: float | None = None
    """What a slot's work on a row costs, in units of LatNet. None: a quarter for each slot, so that work counts as
    much as copies whatever the number of slots."""
    near: ArrayLike | None = None
    """Of each slot, the share of the sources on its node."""
    most_load: float = 1.25
    """No slot gets more of a stream's work than this many times an even share, unless a key group alone is more."""

    def __post_init__(self) -> None:
        validate.check_settings(self.slots, self.lat_net, self.lat_mem, self.lat_proc, self.most_load)
        counts = validate.check_counts(self.counts)
        frozen: dict[str, object] = {
            "slots": int(self.slots),
            "lat_proc": self.slots / 4 if self.lat_proc is None else self.lat_proc,
            "counts": MappingProxyType(counts),
            "joint": MappingProxyType(validate.check_joint(self.joint, counts)),
            "equal": validate.check_equal(self.equal, counts),
            "near": validate.check_near(self.near, self.slots),
        }
        for name, value in frozen.items():
            object.__setattr__(self, name, value)

    @property
    def route_keys(self) -> tuple[RouteKey, ...]:
        return tuple(self.counts)

    @cached_property
    def groups(self) -> int:
        """Key groups of every route key."""
        return max((len(counts) for counts in self.rows.values()), default=0)

    @property
    def rows(self) -> Mapping[RouteKey, Floats]:
        """The counts, as the arrays that they are once checked."""
        return self.counts  # type: ignore[return-value]

    @cached_property
    def streams(self) -> dict[str, tuple[RouteKey, ...]]:
        """The route keys of each stream, in the order of the counts."""
        names = dict.fromkeys(stream for stream, _ in self.counts)
        return {name: tuple(key for key in self.counts if key[0] == name) for name in names}

    @cached_property
    def latency(self) -> Floats:
        """Lat_p of each slot (SASPAR Table I), averaged over the sources."""
        near = np.zeros(self.slots) if self.near is None else np.asarray(self.near)
        return near * self.lat_mem + (1.0 - near) * self.lat_net

    @property
    def price(self) -> float:
        """What a row in the fullest slot costs (SASPAR Eq. 9, second term; its unbound Lat_p is taken as LatNet)."""
        assert self.lat_proc is not None, "it is set when the problem is built"
        return self.lat_net * self.lat_proc

    @cached_property
    def information(self) -> dict[Pair, float]:
        """The mutual information of each pair with joint counts."""
        return {pair: information(cells) for pair, cells in self.joint.items()}

    def sharing(self, objective: Objective) -> tuple[Pair, ...]:
        """The pairs whose common rows the objective counts: a forest for "copies", stars for "saspar"."""
        return self._forest if objective == "copies" else self._stars

    def pivot(self, stream: str) -> RouteKey:
        """The route key whose key groups "saspar" counts the stream's shared rows by."""
        return choose_pivot(self.streams[stream], self.information)

    @cached_property
    def _forest(self) -> tuple[Pair, ...]:
        return tuple(pair for keys in self.streams.values() for pair in grow_forest(keys, self.information))

    @cached_property
    def _stars(self) -> tuple[Pair, ...]:
        pivots = {self.pivot(stream) for stream in self.streams}
        return tuple(pair for pair in self.joint if pivots & set(pair))

    def part(self, streams: Sequence[str]) -> Problem:
        """The problem of some streams alone. What ties them to others is left out."""
        part: Problem = object.__new__(Problem)
        kept = {key for key in self.counts if key[0] in streams}
        for name, value in vars(self).items():
            if name in self.__dataclass_fields__:
                object.__setattr__(part, name, value)
        joint = {pair: cells for pair, cells in self.joint.items() if pair[0] in kept}
        object.__setattr__(part, "counts", {key: rows for key, rows in self.counts.items() if key in kept})
        object.__setattr__(part, "joint", joint)
        object.__setattr__(part, "equal", tuple(pair for pair in self.equal if kept.issuperset(pair)))
        part.__dict__["information"] = {pair: self.information[pair] for pair in joint}
        return part

    def hashed(self) -> dict[RouteKey, Ids]:
        """The engine's default: consecutive key groups share a slot."""
        slots = np.arange(self.groups, dtype=np.int64) * self.slots // max(self.groups, 1)
        return {key: slots.copy() for key in self.counts}

    def cost(self, slots: Mapping[RouteKey, ArrayLike], *, objective: Objective = "copies") -> float:
        """SASPAR Eq. 10: the sum of Eq. 9 over the streams."""
        checked = self.checked(slots, objective)
        shipped = sum(float(self._shipped(stream, checked, objective) @ self.latency) for stream in self.streams)
        work = sum(float(self._load(stream, checked).max()) for stream in self.streams)
        return shipped + self.price * work

    def shipped(self, slots: Mapping[RouteKey, ArrayLike], *, objective: Objective = "copies") -> dict[str, float]:
        """Of each stream, the rows that travel: every copy of a row counts."""
        checked = self.checked(slots, objective)
        return {stream: float(self._shipped(stream, checked, objective).sum()) for stream in self.streams}

    def loads(self, slots: Mapping[RouteKey, ArrayLike]) -> dict[str, Floats]:
        """Of each stream, the rows that each slot works on."""
        checked = self.checked(slots)
        return {stream: self._load(stream, checked) for stream in self.streams}

    def checked(self, slots: Mapping[RouteKey, ArrayLike], objective: str = "copies") -> dict[RouteKey, Ids]:
        """The assignment as arrays, if it is one of this problem."""
        validate.check_objective(objective)
        return validate.check_slots(slots, self.rows, self.slots)

    def _load(self, stream: str, slots: Slots) -> Floats:
        """SASPAR Eq. 6 and 8."""
        keys = self.streams[stream]
        return sum((self._per_slot(slots[key], self.rows[key]) for key in keys), np.zeros(self.slots))

    def _shipped(self, stream: str, slots: Slots, objective: Objective) -> Floats:
        if objective == "saspar":
            return self._shipped_by_pivot(stream, slots)
        # The Hunter-Worsley bound of a union: all rows, less those that neighbours in a tree have in common.
        shipped = self._load(stream, slots)
        for pair in self._forest:
            if pair[0][0] == stream:
                cells = self._cells[pair]
                first, second = slots[pair[0]][cells[0]], slots[pair[1]][cells[1]]
                together = first == second
                shipped -= self._per_slot(first[together], cells[2][together])
        return shipped

    def _shipped_by_pivot(self, stream: str, slots: Slots) -> Floats:
        """SASPAR Eq. 4, 5 and 7."""
        pivot = self.pivot(stream)
        linked = {pair[0] if pair[1] == pivot else pair[1]: pair for pair in self._stars if pivot in pair}
        most = np.zeros((self.groups, self.slots))
        most[np.arange(self.groups), slots[pivot]] = self.rows[pivot]
        shipped = np.zeros(self.slots)
        for key in self.streams[stream]:
            if key in linked:
                first, second, rows = self._cells[linked[key]]
                groups, others = (first, second) if linked[key][0] == pivot else (second, first)
                needed = count_rows(groups * self.slots + slots[key][others], rows, most.size)
                np.maximum(most, needed.reshape(most.shape), out=most)
            elif key != pivot:
                shipped += self._per_slot(slots[key], self.rows[key])
        shipped += most.sum(axis=0)
        return shipped

    def _per_slot(self, slots: Ids, rows: Floats) -> Floats:
        return count_rows(slots, rows, self.slots)

    @cached_property
    def _cells(self) -> dict[Pair, tuple[Ids, Ids, Floats]]:
        """The joint counts that some objective needs: key group of the first, of the second, rows."""
        return {pair: validate.cells_of(self.joint[pair]) for pair in {*self._forest, *self._stars}}

    def cells(self, pair: Pair) -> tuple[Ids, Ids, Floats]:
        """The joint counts of a pair that is in `sharing`."""
        return self._cells[pair]
