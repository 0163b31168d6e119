"""What the tasks of a batch are given beside its plan. A function of the batch as it is planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from thalweg.batch.planning import PlannedBatch
from thalweg.batch.work import Work
from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.budget import Budget
from thalweg.model.entry import Entry
from thalweg.model.plan import Plan, relation_of, slot_stages, updated_groupings
from thalweg.model.window import Stretch
from thalweg.route.bucket import decode_offsets
from thalweg.route.table import routing_table
from thalweg.sink.contract import TaskSink
from thalweg.sink.kinds import SINKS
from thalweg.source.kinds import from_outside
from thalweg.state.storage import Storage


def make_work(
    planned: PlannedBatch,
    storage: Storage,
    tasks: int,
    refused: Collection[str],
    budget: Budget,
) -> Work:
    """`tasks`: how many run at the same time. `refused`: the queries whose sinks tasks cannot write to."""
    plan, entries, decided = planned.plan, planned.entries, planned.decisions.decided
    stores: dict[str, list[RowBucket]] = {}
    for bucket in planned.before.stores:
        stores.setdefault(bucket.relation, []).append(bucket)
    return Work(
        storage,
        planned.clock,
        _buckets_by_slot(plan, planned.before.buckets),
        _nodes(planned.before.buckets),
        min(tasks, plan.slots),
        stores,
        {name: table.version for name, table in planned.decisions.tables.items()},
        {key: policy for key, policy in decided.policies.items() if key in plan.partitioners},
        _uncollected(entries.values()),
        _sinks_in_tasks(e for e in entries.values() if e.id not in refused),
        sources=from_outside(stream.stream for stream in plan.streams.values()),
        stages=slot_stages(plan),
        budget=budget,
    )


def _buckets_by_slot(plan: Plan, buckets: Iterable[SliceBucket]) -> dict[int, list[SliceBucket]]:
    by_slot: dict[int, list[SliceBucket]] = {}
    for bucket in buckets:
        grouping = relation_of(plan, bucket.relation)
        if grouping is None:
            continue
        if bucket.relation not in plan.groupings:  # kept rows: every slot's
            for slot in range(plan.slots):
                by_slot.setdefault(slot, []).append(bucket)
            continue
        held = np.diff(decode_offsets(bucket.offsets)) > 0
        owners = routing_table(plan, grouping.route_key).owners
        slots = {*np.unique(owners[held]).tolist()}
        if len(slots) > 1:
            slots.add(bucket.place % plan.slots)  # which may merge it with others
        for slot in sorted(slots):
            by_slot.setdefault(slot, []).append(bucket)
    return by_slot


def _nodes(buckets: Iterable[SliceBucket]) -> dict[str, frozenset[Stretch]]:
    nodes: dict[str, set[Stretch]] = {}
    for bucket in buckets:
        nodes.setdefault(bucket.relation, set()).update(s for s in bucket.spans if s[1] < 0)
    return {grouping: frozenset(found) for grouping, found in nodes.items()}


def _sinks_in_tasks(entries: Iterable[Entry]) -> dict[str, TaskSink]:
    """Of the queries whose sinks can write where rows are made. What has an order only the driver can put into it."""
    found: dict[str, TaskSink] = {}
    for e in entries:
        kind = SINKS.find(e.query.sink.kind) if e.runs and not e.query.order and e.query.limit is None else None
        if kind is not None and (sink := kind.in_tasks(e.query)) is not None:
            found[e.id] = sink
    return found


def _uncollected(entries: Iterable[Entry]) -> frozenset[str]:
    """Queries whose results nobody takes. What is left by a LIMIT only the driver can tell."""
    kinds = {e.id: SINKS.find(e.query.sink.kind) for e in entries if e.query.limit is None}
    return frozenset(id_ for id_, kind in kinds.items() if kind is not None and not kind.wants_rows)


def state_read(planned: PlannedBatch) -> int:
    """Bytes of the state that the batch may read: of buckets whose windows close or are shown, and of stores."""
    plan, clock = planned.plan, planned.clock
    shown, total = updated_groupings(plan), sum(b.nbytes for b in planned.before.stores)
    for bucket in planned.before.buckets:
        grouping = relation_of(plan, bucket.relation)
        if grouping is None:
            continue
        closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
        if grouping.id in shown or (closing > closed and min(start for start, _ in bucket.spans) < closing):
            total += bucket.nbytes
    return total
