"""Buckets of slices between the tasks and the state: how a slot sees them, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.batch.work import Work
from thalweg.model.bucket import SliceBucket
from thalweg.model.plan import Grouping, Plan
from thalweg.operate.columns import GROUP, START
from thalweg.operate.shipment import Shipment
from thalweg.operate.slot import NewBucket, StoredBucket
from thalweg.route.bucket import decode_offsets, encode_offsets, order_by_group
from thalweg.route.table import routing_table
from thalweg.state.collect import bucket_name
from thalweg.state.container import ContainerWriter
from thalweg.state.reader import StateReader


def stored_buckets(plan: Plan, work: Work, slot: int) -> dict[str, list[StoredBucket]]:
    """grouping -> what earlier batches have kept of it, as the slot sees it."""
    stored: dict[str, list[StoredBucket]] = {}
    for bucket in work.buckets.get(slot, ()):
        grouping = plan.groupings.get(bucket.relation)
        if grouping is not None:
            stored.setdefault(grouping.id, []).append(_seen(plan, work, slot, grouping, bucket))
    return stored


def _seen(plan: Plan, work: Work, slot: int, grouping: Grouping, bucket: SliceBucket) -> StoredBucket:
    routing = routing_table(plan, grouping.route_key)
    owners = np.unique(routing.owners[np.diff(decode_offsets(bucket.offsets)) > 0])
    # Rows of several slots: the one that wrote them may merge them, whoever finishes their windows.
    whole = slot == (owners[0] if len(owners) == 1 else bucket.place % plan.slots)
    return StoredBucket(bucket, StateReader(work.storage), routing.slot_ranges(slot), whole)


def staying(shipments: Mapping[str, Shipment]) -> list[Mapping[str, Sequence[pa.Table]]]:
    """What became of rows that were not shipped."""
    return [shipment.staying for shipment in shipments.values()]


def keep_local(plan: Plan, work: Work, stay: Sequence[Mapping[str, Sequence[pa.Table]]]) -> list[NewBucket]:
    """What stays with the task (grouping -> tables), as buckets."""
    found = []
    for of_groupings in stay:
        for id_, tables in of_groupings.items():
            grouping, table = plan.groupings[id_], pa.concat_tables(tables, promote_options="default")
            starts = tuple(pc.unique(table.column(START)).to_pylist())
            found.append(NewBucket(id_, 0, grouping.slice_us, starts, work.clock.batch, table))
    return found


def write_buckets(plan: Plan, work: Work, slot: int, kept: Sequence[NewBucket]) -> list[SliceBucket]:
    """All that a slot keeps of a batch goes into one file, each bucket ordered by key group."""
    if not kept:
        return []
    buckets = []
    with ContainerWriter(work.storage, bucket_name(work.clock.batch, slot, work.unique)) as writer:
        for k in kept:
            groups = k.table.column(GROUP).to_numpy().astype(np.uint16, copy=False)
            table, offsets = order_by_group(k.table, groups, plan.groups)
            buckets.append(
                SliceBucket(
                    section=writer.add(k.grouping, table),
                    relation=k.grouping,
                    level=k.level,
                    batch_from=k.batch_from,
                    batch_to=work.clock.batch,
                    place=slot,
                    spans=tuple((start, k.span) for start in k.starts),
                    offsets=encode_offsets(offsets),
                )
            )
        writer.close()
    return buckets
