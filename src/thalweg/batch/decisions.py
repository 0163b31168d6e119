"""What a batch runs with: decided anew before every batch, from the manifest before and what the loops propose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thalweg.adapt.combining import loads_of
from thalweg.adapt.probe_orders.measure import join_load
from thalweg.model.join_statistics import JoinMeasurements
from thalweg.model.measurements import Combining
from thalweg.model.offsets import Offsets
from thalweg.model.ordering import Ordering
from thalweg.optimize.joining import JoinLoad
from thalweg.optimize.shipping import GroupingLoad
from thalweg.state.catalog import Table, Tables
from thalweg.state.migrate import OldIntent


@dataclass(frozen=True)
class Placement:
    """Where rows go. All by route key."""

    assignment: Mapping[str, list[int]] = field(default_factory=dict)
    """The slot of each key group."""
    follows: Mapping[str, str] = field(default_factory=dict)
    """Whose rows go where those of another do."""
    partitioners: Mapping[str, str] = field(default_factory=dict)
    """What deals rows out."""
    spread: Mapping[str, list[int]] = field(default_factory=dict)
    """Key groups that several slots share."""


@dataclass(frozen=True)
class Decisions:
    through: int
    """The last request that takes part."""
    reached: Offsets
    """How far the batch goes."""
    slots: int
    combining: Combining = field(default_factory=Combining)
    joins: JoinMeasurements = field(default_factory=JoinMeasurements)
    ordering: Ordering = field(default_factory=Ordering)
    placement: Placement = field(default_factory=Placement)
    tables: Tables = field(default_factory=dict)
    """The versions of the static tables."""

    def loads(self) -> dict[str, GroupingLoad]:
        return loads_of(self.combining)

    def join_load(self) -> JoinLoad:
        return join_load(self.joins, self.ordering)


def from_intent(intent: OldIntent) -> Decisions:
    """As a batch of format 4 or before had written them down before its sinks saw anything."""
    measured = intent.measured
    assigned = measured.slot_assignment
    return Decisions(
        through=intent.through,
        reached=intent.reached,
        slots=intent.slots,
        combining=measured.combining,
        joins=measured.probe_orders.joins,
        ordering=measured.probe_orders.ordering,
        placement=Placement(
            assigned.assignment, assigned.follows, intent.partitioners, measured.hot_join_keys.spread
        ),
        tables={name: Table(name, schema, version) for name, (schema, version) in intent.tables.items()},
    )
