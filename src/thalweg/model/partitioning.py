"""Where rows go that are shipped whole, how often, and what the optimiser last said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Partitioning:
    """Where rows go that are shipped whole."""

    assignment: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """route key -> the slot of each key group; a route key that is not in it is hashed."""
    follows: Mapping[str, str] = field(default_factory=dict)
    """route key -> the one whose slots its rows go to instead of its own."""
    slots: int = 0
    """That it was made for."""

    def changed_by(self, other: Partitioning) -> Partitioning:
        """As `other` says of the route keys that it knows of; the rest as it is."""
        told = {*other.assignment, *other.follows}
        follows = {
            key: leader for key, leader in self.follows.items() if key not in told and leader not in other.follows
        }
        return Partitioning({**self.assignment, **other.assignment}, {**follows, **other.follows}, other.slots)

    def assignment_lists(self) -> dict[str, list[int]]:
        """The assignment as JSON has it."""
        return {route_key: [int(slot) for slot in slots] for route_key, slots in self.assignment.items()}


@dataclass(frozen=True)
class Replication:
    """The copies of a stream's rows, per row."""

    rows: int
    """Of the last batch."""
    copies: float
    """Shipped in the last batch."""
    slots: tuple[float, ...]
    """Each slot's share of them."""
    hashed: float | None = None
    """With hashed routing tables; None while the optimiser has not looked at the stream."""
    bound: float | None = None
    """What the model's proven bound of the cost leaves of them, in proportion."""


@dataclass(frozen=True)
class PartitioningReport:
    streams: Mapping[str, Replication] = field(default_factory=dict)
    asked: str = ""
    """When and why the optimiser was asked the last time; empty where it was not."""
    answer: str = ""
    """What came of it."""
    switches: int = 0
    switched_in: int | None = None
    """The batch of the last switch."""
    moved: int = 0
    """Key groups that moved then."""
