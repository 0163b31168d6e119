"""What a batch runs with: decided anew before every batch, from the manifest before and what the loops propose."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.adapt.combining import loads_of
from thalweg.adapt.contract import Decided
from thalweg.adapt.probe_orders.measure import join_load
from thalweg.model.offsets import Offsets
from thalweg.model.plan_input import Placement, PlanMeasurements
from thalweg.state.catalog import Table, Tables
from thalweg.state.migrate import OldIntent


@dataclass(frozen=True)
class Decisions:
    through: int
    """The last request that takes part."""
    reached: Offsets
    """How far the batch goes."""
    decided: Decided
    """What the feedback loops say."""
    tables: Tables = field(default_factory=dict)
    """The versions of the static tables."""


def from_intent(intent: OldIntent, batch: int) -> Decisions:
    """As a batch of format 4 or before had written them down before its sinks saw anything."""
    measured = intent.measured
    assigned, orders = measured.slot_assignment, measured.probe_orders
    return Decisions(
        through=intent.through,
        reached=intent.reached,
        decided=Decided(
            batch,
            intent.slots,
            PlanMeasurements(loads_of(measured.combining), join_load(orders.joins, orders.ordering)),
            orders.ordering,
            Placement(
                assigned.assignment, assigned.co_located_with, intent.partitioners, measured.hot_join_keys.spread
            ),
        ),
        tables={name: Table(name, schema, version) for name, (schema, version) in intent.tables.items()},
    )
