"""What is true after a batch: a function of the manifest before, what was decided and what the tasks reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thalweg.adapt.combining import next_loads
from thalweg.adapt.hot_join_keys import next_spread
from thalweg.adapt.partitioners import next_dealing
from thalweg.adapt.probe_orders.loop import next_ordering
from thalweg.adapt.probe_orders.measure import next_join_load
from thalweg.adapt.slot_assignment import next_moves
from thalweg.batch.decisions import Decisions
from thalweg.batch.totals import BatchTotals
from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest, StreamProgress
from thalweg.model.measurements import (
    Combining,
    HotJoinKeys,
    Measurements,
    Partitioners,
    ProbeOrders,
    SlotAssignment,
)
from thalweg.model.plan import Plan
from thalweg.model.times import BatchTimes, StreamTimes
from thalweg.state.expire import is_live
from thalweg.state.history import next_choices, next_lanes, next_stores


@dataclass(frozen=True)
class Ran:
    """A batch whose tasks have run."""

    decisions: Decisions
    plan: Plan
    moment: StreamTimes
    clock: BatchTimes
    totals: BatchTotals
    clock_us: int
    """The wall clock when it began."""


def settle(before: Manifest, ran: Ran, entries: Mapping[str, Entry], streams: frozenset[str], epoch: int) -> Manifest:
    """The manifest of the batch, but for the results that are prepared and for who commits it. `streams`: those that
    users made. `epoch`: batches after which orders of joins are looked at again."""
    plan, clock, totals = ran.plan, ran.clock, ran.totals
    failed = {m.query for m in plan.members if entries[m.query].state == "failed"}
    progress = _progress(before.streams, totals)
    seen = {name: p.max_time_us for name, p in progress.items() if p.max_time_us is not None}
    stores, held_from = next_stores(
        before, plan, clock, totals.stores, totals.replaced, ran.moment, seen, totals.failures
    )
    return Manifest(
        batch=clock.batch,
        groups=before.groups,
        hash=before.hash,
        clock_us=ran.clock_us,
        reached=ran.decisions.reached,
        through=ran.decisions.through,
        # How far streams had closed; joined ones count only while they are joined.
        closed={**{name: us for name, us in before.closed.items() if name in streams}, **clock.closing_us},
        streams=progress,
        buckets=_live_slices(before, ran),
        stores=stores,
        queries=entries,
        lanes=next_lanes(before.lanes, plan, ran.moment, failed),
        held_from=held_from,
        choices=next_choices(before.choices or {}, plan, seen, held_from),
        measured=_measured(before, ran, stores, epoch),
    )


def _live_slices(before: Manifest, ran: Ran) -> tuple[SliceBucket, ...]:
    old = [b for b in before.buckets if b.name not in ran.totals.replaced]
    return tuple(b for b in (*old, *ran.totals.kept) if is_live(b, ran.plan, ran.clock))


def _progress(streams: Mapping[str, StreamProgress], totals: BatchTotals) -> dict[str, StreamProgress]:
    after = dict(streams)
    for name in {*totals.rows, *totals.rejected}:
        p = after.get(name, StreamProgress())
        times = [t for t in (p.max_time_us, totals.max_time_us.get(name)) if t is not None]
        after[name] = StreamProgress(
            max(times, default=None),
            p.rows + totals.rows.get(name, 0),
            p.late + totals.late.get(name, 0),
            p.rejected + totals.rejected.get(name, 0),
        )
    return after


def _measured(before: Manifest, ran: Ran, stores: tuple[RowBucket, ...], epoch: int) -> Measurements:
    plan, totals, known = ran.plan, ran.totals, before.measured
    loads = next_loads(known.combining.loads, plan, totals.groups, totals.passed, totals.routing)
    joins = next_join_load(
        known.probe_orders.joins, plan, ran.clock.batch, totals.probes, totals.samples, stores, epoch
    )
    return Measurements(
        combining=Combining(
            loads=loads, shipped=tuple(sorted(id_ for stream in plan.streams.values() for id_ in stream.shipped))
        ),
        hot_join_keys=HotJoinKeys(spread=next_spread(known.hot_join_keys.spread, plan, totals.routing)),
        partitioners=Partitioners(dealing=next_dealing(known.partitioners.dealing, plan, totals.routing)),
        probe_orders=ProbeOrders(joins=joins, ordering=next_ordering(ran.decisions.ordering, plan)),
        slot_assignment=SlotAssignment(
            assignment={route_key: list(slots) for route_key, slots in plan.assignment.items()},
            follows=dict(plan.follows),
            slots=plan.slots,
            moves=next_moves(before, plan),
        ),
    )
