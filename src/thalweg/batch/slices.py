"""Slices between the tasks and the state: the groupings of a slot with the buckets that it sees, and what becomes one
bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.batch.inbox import Inbox
from thalweg.batch.work import Work
from thalweg.model.address import Partials
from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.columns import START
from thalweg.model.plan import Grouping, Plan, relation_of
from thalweg.model.report import SlotReport
from thalweg.operate.grouping_state import StoredBucket
from thalweg.operate.lanes import concat
from thalweg.operate.shipment import Shipment
from thalweg.operate.slot import SlotResult, run_slot
from thalweg.route.bucket import decode_offsets
from thalweg.route.table import routing_table
from thalweg.state.compact import slices_to_merge
from thalweg.state.reader import StateReader

Clock = Callable[[], float]
Runs = dict[str, list[list[SliceBucket]]]


def aggregate(plan: Plan, work: Work, slot: int, inbox: Inbox, report: SlotReport, now: Clock) -> SlotResult:
    """The groupings of this stage: windows that close are finished, the rest is kept. `now`: seconds since
    some moment."""
    part = stage_plan(plan, work.stage, work.stages)
    if not part.groupings:
        return SlotResult()
    came = inbox.grouped.pop(slot, {})
    report.merged = {a.grouping: sum(t.num_rows for t in came[a]) for a in came if isinstance(a, Partials)}
    new = [bucket for bucket in inbox.stored if isinstance(bucket, SliceBucket)]
    held = stored_buckets(part, work, slot, new)
    result = run_slot(part, work.clock, came, *held, work.nodes, slot, work.uncollected, now)
    report.served = result.served
    return result


def stage_plan(plan: Plan, stage: int, stages: int) -> Plan:
    """The groupings that a stage serves: over streams in the first, over joined rows in the last."""
    late = {name for name, joined in plan.joins.joined.items() if not joined.alone}
    chosen = {id_: g for id_, g in plan.groupings.items() if (stage == stages if g.stream in late else stage == 1)}
    streams = plan.streams if stage == 1 else {n: replace(s, rows=None) for n, s in plan.streams.items()}
    return replace(
        plan, streams=streams, groupings=chosen, members=tuple(m for m in plan.members if m.main.grouping in chosen)
    )


def stored_buckets(
    plan: Plan, work: Work, slot: int, new: Sequence[SliceBucket] = ()
) -> tuple[dict[str, list[StoredBucket]], Runs]:
    """grouping -> what earlier batches have kept of it, as the slot sees it; and which of these it is to merge.
    `new`: what this batch has kept already."""
    stored: dict[str, list[StoredBucket]] = {}
    reader = StateReader(work.storage)
    for bucket in work.buckets.get(slot, ()):
        grouping = relation_of(plan, bucket.relation)
        if grouping is not None:
            stored.setdefault(grouping.id, []).append(_seen(plan, slot, grouping, bucket, reader))
    own = {id_: [s.bucket for s in found if s.whole] for id_, found in stored.items()}
    runs = {id_: slices_to_merge(buckets, work.clock.fences) for id_, buckets in own.items()}
    for bucket in sorted(new, key=lambda b: (b.relation, b.place)):
        stored.setdefault(bucket.relation, []).append(StoredBucket(bucket, reader, [(0, plan.groups)], False))
    return stored, runs


def _seen(plan: Plan, slot: int, grouping: Grouping, bucket: SliceBucket, reader: StateReader) -> StoredBucket:
    routing = routing_table(plan, grouping.route_key)
    owners = np.unique(routing.owners[np.diff(decode_offsets(bucket.offsets)) > 0])
    # Rows of several slots: the one that wrote them may merge them, whoever finishes their windows.
    whole = slot == (owners[0] if len(owners) == 1 else bucket.place % plan.slots)
    is_rows = bucket.relation not in plan.groupings  # every slot's
    return StoredBucket(bucket, reader, [(0, plan.groups)] if is_rows else routing.slot_ranges(slot), whole)


def staying(shipments: Mapping[str, Shipment]) -> list[Mapping[str, Sequence[pa.Table]]]:
    """What became of rows that were not shipped."""
    return [shipment.staying for shipment in shipments.values()]


def keep_local(plan: Plan, work: Work, stay: Sequence[Mapping[str, Sequence[pa.Table]]]) -> list[NewSlices]:
    """What stays with the task (grouping -> tables), as buckets."""
    found = []
    for of_groupings in stay:
        for id_, tables in of_groupings.items():
            grouping = relation_of(plan, id_)
            assert grouping is not None
            table = concat(tables, grouping.partials)
            starts = tuple(pc.unique(table.column(START)).to_pylist())
            found.append(NewSlices(id_, 0, grouping.slice_us, starts, work.clock.batch, table))
    return found
