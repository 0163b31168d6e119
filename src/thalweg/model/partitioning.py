"""Where rows go that are shipped whole, how often, and what the optimiser last said of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Partitioning:
    """Where rows go that are shipped whole."""

    assignment: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """route key -> the slot of each key group; a route key that is not in it is hashed."""
    co_located_with: Mapping[str, str] = field(default_factory=dict)
    """route key -> the one whose slots its rows go to instead of its own."""
    slots: int = 0
    """That it was made for."""

    def changed_by(self, other: Partitioning) -> Partitioning:
        """As `other` says of the route keys that it knows of; the rest as it is."""
        told = {*other.assignment, *other.co_located_with}
        co_located_with = {
            key: leader
            for key, leader in self.co_located_with.items()
            if key not in told and leader not in other.co_located_with
        }
        return Partitioning(
            {**self.assignment, **other.assignment}, {**co_located_with, **other.co_located_with}, other.slots
        )

    def hashed(self, route_keys: Collection[str]) -> Partitioning:
        """With these hashed, and followed by nobody."""
        return Partitioning(
            {key: slots for key, slots in self.assignment.items() if key not in route_keys},
            {k: a for k, a in self.co_located_with.items() if k not in route_keys and a not in route_keys},
            self.slots,
        )

    def assignment_lists(self) -> dict[str, list[int]]:
        """The assignment as JSON has it."""
        return {route_key: [int(slot) for slot in slots] for route_key, slots in self.assignment.items()}


AUTO, COMBINE, LOCAL, HASH = "auto", "combine", "local", "hash"
"""What a query may ask for besides the partitioners: what is measured to be best; partials made at the source, and
sent to slots; rows that the task which read them puts into the state, to stay there until their windows close; and
rows that are sent whole to the slot of their key."""


@dataclass(frozen=True)
class Skew:
    """How the rows of a route key lie over keys and slots, an average over recent batches."""

    rows: float
    """Of a batch."""
    groups: float
    """Different keys among them, about."""
    top: float
    """The share of the most frequent key."""
    busiest: float
    """The share of the rows whose keys belong to the busiest slot."""


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
class AggregationReport:
    """How the rows of one grouping were dealt out in the last batch that had any, and what that cost."""

    partitioner: str
    """`combine` where INGEST tasks make partials; then they are the workers. Else slots are."""
    reason: str
    pinned: bool
    """Whether a query asked for it."""
    loads: tuple[int, ...]
    """Rows of each worker."""
    imbalance: float
    """The rows of the busiest worker above the mean (Holistic Eq. 1)."""
    key_imbalance: float
    """The same of different keys (Holistic Eq. 6)."""
    hybrid_imbalance: float
    """Of both together (Holistic Eq. 10)."""
    aggregation: int
    """Partial results to merge when windows close (Holistic Eq. 4)."""
    reducer: int
    """Those of the busiest slot (Dalton Eq. 2)."""

    @property
    def above_even(self) -> float:
        """The busiest worker's rows above an even share, as a part of it."""
        mean = sum(self.loads) / max(1, len(self.loads))
        return self.imbalance / mean if mean else 0.0


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
    aggregations: Mapping[str, AggregationReport] = field(default_factory=dict)
    """By grouping."""
