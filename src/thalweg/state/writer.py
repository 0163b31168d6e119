"""Writes buckets: all that a task keeps of a batch goes into one container."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from thalweg.model.bucket import Bucket, NewBucket, NewRows, NewSlices, RowBucket, SliceBucket, StoredIndex
from thalweg.model.windows import GROUP
from thalweg.route.bucket import encode_offsets, order_by_group
from thalweg.state.collect import bucket_name, unique
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage


@dataclass(frozen=True)
class StateWriter:
    storage: Storage
    batch: int
    groups: int
    """How many key groups there are."""
    unique: Callable[[], str] = unique

    def keep(self, place: int, new: Iterable[NewBucket]) -> list[Bucket]:
        """Durable when it returns; part of the state once a manifest names them. `place`: who writes."""
        writer: ContainerWriter | None = None
        found: list[Bucket] = []
        try:
            for bucket in new:
                writer = writer or ContainerWriter(self.storage, bucket_name(self.batch, place, self.unique))
                if isinstance(bucket, NewSlices):
                    found.append(self._slices(writer, place, bucket))
                else:
                    found.append(self._rows(writer, bucket))
            if writer is not None:
                writer.close()
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        return found

    def _slices(self, writer: ContainerWriter, place: int, new: NewSlices) -> SliceBucket:
        """Ordered by key group: a slot reads the ranges that are its own."""
        groups = new.table.column(GROUP).to_numpy().astype(np.uint16, copy=False)
        table, offsets = order_by_group(new.table, groups, self.groups)
        return SliceBucket(
            section=writer.add(new.relation, table),
            relation=new.relation,
            level=new.level,
            batch_from=new.batch_from,
            batch_to=self.batch,
            place=place,
            spans=tuple((start, new.span) for start in new.starts),
            offsets=encode_offsets(offsets),
        )

    def _rows(self, writer: ContainerWriter, new: NewRows) -> RowBucket:
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
