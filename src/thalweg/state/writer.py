"""Writes buckets: all that a task keeps of a batch goes into one container."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.model.bucket import NewBucket, NewRows, NewSlices, RowBucket, SliceBucket, StoredIndex
from thalweg.model.columns import GROUP
from thalweg.route.bucket import encode_offsets, order_by_group
from thalweg.state.collect import bucket_name
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage

Kept = tuple[list[SliceBucket], list[RowBucket]]


def write_buckets(
    storage: Storage, new: Sequence[NewBucket], batch: int, place: int, unique: str, groups: int
) -> Kept:
    """Durable when it returns; part of the state once a manifest names them. `place`: which task or slot writes;
    `unique`: tells its attempts apart; `groups`: how many key groups there are."""
    slices: list[SliceBucket] = []
    rows: list[RowBucket] = []
    if new:
        with ContainerWriter(storage, bucket_name(batch, place, unique)) as writer:
            for bucket in new:
                if isinstance(bucket, NewSlices):
                    slices.append(_add_slices(writer, bucket, batch, place, groups))
                else:
                    rows.append(_add_rows(writer, bucket))
            writer.close()
    return slices, rows


def _add_slices(writer: ContainerWriter, new: NewSlices, batch: int, place: int, groups: int) -> SliceBucket:
    """Ordered by key group: a slot reads the ranges that are its own."""
    group = new.table.column(GROUP).to_numpy().astype(np.uint16, copy=False)
    table, offsets = order_by_group(new.table, group, groups)
    return SliceBucket(
        section=writer.add(new.relation, table),
        relation=new.relation,
        level=new.level,
        batch_from=new.batch_from,
        batch_to=batch,
        place=place,
        spans=tuple((start, new.span) for start in new.starts),
        offsets=encode_offsets(offsets),
    )


def _add_rows(writer: ContainerWriter, new: NewRows) -> RowBucket:
    indexes = {id_: StoredIndex(writer.add(id_, table), bits) for id_, (table, bits) in new.indexes.items()}
    return RowBucket(
        section=writer.add(new.relation, new.table),
        relation=new.relation,
        level=new.level,
        batch_from=new.batches[0],
        batch_to=new.batches[1],
        place=new.place,
        indexes=indexes,
        layout=new.layout,
        columns=tuple(new.table.column_names),
        distinct=new.distinct,
    )
