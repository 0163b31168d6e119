"""Writes buckets: all that a task keeps of a batch goes into one container."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thalweg.model.bucket import NewBucket, NewRows, NewSlices, RowBucket, SliceBucket, StoredIndex
from thalweg.model.columns import GROUP
from thalweg.route.bucket import encode_offsets, order_by_group
from thalweg.state.collect import bucket_name
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage


class StateWriter:
    """A bucket is durable once the writer is closed, and part of the state once a manifest names it."""

    def __init__(self, storage: Storage, batch: int, groups: int, place: int, unique: Callable[[], str]) -> None:
        """`groups`: how many key groups there are. `place`: which task or slot writes."""
        self._storage = storage
        self._batch = batch
        self._groups = groups
        self._place = place
        self._unique = unique
        self._writer: ContainerWriter | None = None
        self._slices: list[SliceBucket] = []
        self._rows: list[RowBucket] = []

    def add(self, new: NewBucket) -> None:
        writer = self._writer
        if writer is None:
            writer = self._writer = ContainerWriter(
                self._storage, bucket_name(self._batch, self._place, self._unique)
            )
        if isinstance(new, NewSlices):
            self._slices.append(self._add_slices(writer, new))
        else:
            self._rows.append(_add_rows(writer, new))

    def close(self) -> tuple[list[SliceBucket], list[RowBucket]]:
        """What was written, in order."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return self._slices, self._rows

    def abandon(self) -> None:
        """What was not closed leaves nothing behind."""
        if self._writer is not None:
            self._writer.abandon()

    def _add_slices(self, writer: ContainerWriter, new: NewSlices) -> SliceBucket:
        """Ordered by key group: a slot reads the ranges that are its own."""
        groups = new.table.column(GROUP).to_numpy().astype(np.uint16, copy=False)
        table, offsets = order_by_group(new.table, groups, self._groups)
        return SliceBucket(
            section=writer.add(new.relation, table),
            relation=new.relation,
            level=new.level,
            batch_from=new.batch_from,
            batch_to=self._batch,
            place=self._place,
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
