"""What is known of the data after a batch: the adaptations' part of the manifest, from that of the one before."""

from __future__ import annotations

from thalweg.adapt.combining import next_loads
from thalweg.adapt.hot_join_keys import next_spread
from thalweg.adapt.partitioners import next_dealing
from thalweg.adapt.probe_orders.loop import next_ordering
from thalweg.adapt.probe_orders.measure import next_join_load
from thalweg.adapt.slot_assignment.loop import next_moves
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.totals import BatchTotals
from thalweg.model.bucket import RowBucket
from thalweg.model.measurements import (
    Combining,
    HotJoinKeys,
    Measurements,
    Partitioners,
    ProbeOrders,
    SlotAssignment,
)


def next_measurements(
    planned: PlannedBatch, totals: BatchTotals, stores: tuple[RowBucket, ...], epoch: int
) -> Measurements:
    """`stores`: what the batch leaves of the rows that joins need. `epoch`: batches after which orders of joins are
    looked at again."""
    plan, known = planned.plan, planned.before.measured
    loads = next_loads(known.combining.loads, plan, totals.groups, totals.passed, totals.routing)
    joins = next_join_load(
        known.probe_orders.joins, plan, planned.batch, totals.probes, totals.samples, stores, epoch
    )
    return Measurements(
        combining=Combining(
            loads=loads, shipped=tuple(sorted(id_ for stream in plan.streams.values() for id_ in stream.shipped))
        ),
        hot_join_keys=HotJoinKeys(spread=next_spread(known.hot_join_keys.spread, plan, totals.routing)),
        partitioners=Partitioners(dealing=next_dealing(known.partitioners.dealing, plan, totals.routing)),
        probe_orders=ProbeOrders(joins=joins, ordering=next_ordering(planned.decisions.ordering, plan)),
        slot_assignment=SlotAssignment(
            assignment={route_key: list(slots) for route_key, slots in plan.assignment.items()},
            follows=dict(plan.follows),
            slots=plan.slots,
            moves=next_moves(planned.before, plan),
        ),
    )
