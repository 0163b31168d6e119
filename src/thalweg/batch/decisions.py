"""What a batch runs with: decided anew before every batch, from the manifest before and what the loops propose."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.adapt.combining import loads_of
from thalweg.adapt.probe_orders.measure import join_load
from thalweg.model.join_statistics import JoinMeasurements
from thalweg.model.measurements import Combining
from thalweg.model.offsets import Offsets
from thalweg.model.ordering import Ordering
from thalweg.model.plan_input import Placement, PlanMeasurements
from thalweg.state.catalog import Table, Tables
from thalweg.state.migrate import OldIntent


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

    def measurements(self) -> PlanMeasurements:
        """As plans take them."""
        return PlanMeasurements(loads_of(self.combining), join_load(self.joins, self.ordering))


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
