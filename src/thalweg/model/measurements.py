"""What the feedback loops remember from batch to batch: a section for each, with a version of its own.

A section of another version than this release knows begins anew: it is what was measured, not what is true.
"""

from __future__ import annotations

from msgspec import Struct, field

from thalweg.model.join_statistics import JoinMeasurements
from thalweg.model.probe_order import OrdersInForce


class MeasurementSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: int = 1


class MakingCost(Struct, frozen=True, forbid_unknown_fields=True):
    """What it takes to make the partials of a grouping that calls users' code: at the source, or shared by slots."""

    at_source: float = 0.0
    """Seconds of the busiest task of INGEST, per row that it read; 0 while unknown."""
    in_slots: float = 0.0
    """Seconds of the busiest task of SLOT, per row of the batch; 0 while unknown."""
    is_split: bool = False
    """Whether slots share in it."""
    held: int = 0
    """Batches since that was decided."""
    switches: int = 0
    why: str = ""
    """It was decided so."""


class Combining(MeasurementSection, frozen=True):
    """Combine at the source, or send rows whole."""

    loads: dict[str, float] = {}
    """grouping -> groups per row."""
    shipped: tuple[str, ...] = ()
    """Groupings whose rows were sent whole."""
    rows: tuple[str, ...] = ()
    """Streams whose rows were kept as they are."""
    costs: dict[str, MakingCost] = {}
    """By grouping that calls users' code."""


class HotJoinKeys(MeasurementSection, frozen=True):
    spread: dict[str, list[int]] = {}
    """route key -> key groups that several slots share."""


class Dealing(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of the keys of a route key (`model/partitioning.Skew`), and what deals its rows."""

    rows: float
    groups: float
    top: float
    busiest: float
    partitioner: str
    reason: str = ""


class LearnedSplits(Struct, frozen=True, forbid_unknown_fields=True):
    """Where Dalton has learned to split the hot keys of a route key (`partition/cooperative.Policy`)."""

    round: int
    rows: int
    slots: int
    """That it was learned for."""
    interval: int
    keys: bytes
    """Hashes of the hot keys, 64 bits each."""
    heavy: bytes
    """Key: the last round in which it was a heavy hitter; 64 bits each."""
    values: bytes
    """Key x slot: the Q-table, 16 bits each."""


class Partitioners(MeasurementSection, frozen=True):
    dealing: dict[str, Dealing] = {}
    """By route key."""
    learned: dict[str, LearnedSplits] = {}
    """By route key."""


class ProbeOrders(MeasurementSection, frozen=True):
    joins: JoinMeasurements = JoinMeasurements()
    ordering: OrdersInForce = OrdersInForce()
    """The orders in force."""


class KeyGroupMoves(Struct, frozen=True, forbid_unknown_fields=True):
    """The last switch of key groups: in which batch, how many it moved; and how many switches there have been."""

    batch: int | None = None
    groups: int = 0
    switches: int = 0


class SlotAssignment(MeasurementSection, frozen=True):
    assignment: dict[str, list[int]] = {}
    """route key -> slot of each key group."""
    co_located_with: dict[str, str] = field(default_factory=dict, name="follows")
    slots: int = 0
    """Of the last batch; 0 before the first."""
    moves: KeyGroupMoves = KeyGroupMoves()


class Measurements(Struct, frozen=True, kw_only=True):
    combining: Combining = Combining()
    hot_join_keys: HotJoinKeys = HotJoinKeys()
    partitioners: Partitioners = Partitioners()
    probe_orders: ProbeOrders = ProbeOrders()
    slot_assignment: SlotAssignment = SlotAssignment()
