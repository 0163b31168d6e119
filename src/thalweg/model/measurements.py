"""What the feedback loops remember from batch to batch: a section for each, with a version of its own.

A section of another version than this release knows begins anew: it is what was measured, not what is true.
"""

from __future__ import annotations

from msgspec import Struct, field

from thalweg.model.join_statistics import JoinMeasurements
from thalweg.model.probe_order import OrdersInForce


class MeasurementSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    version: int = 1


class Combining(MeasurementSection, frozen=True):
    """Combine at the source, or send rows whole."""

    loads: dict[str, float] = {}
    """grouping -> groups per row."""
    shipped: tuple[str, ...] = ()
    """Groupings whose rows were sent whole."""
    rows: tuple[str, ...] = ()
    """Streams whose rows were kept as they are."""


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


class Partitioners(MeasurementSection, frozen=True):
    dealing: dict[str, Dealing] = {}
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
