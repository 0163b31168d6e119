"""What a slot has of one grouping in a batch: slices that came, and buckets of slices that earlier batches kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.bucket import NewSlices, SectionReader, SliceBucket
from thalweg.model.columns import START
from thalweg.model.plan import Grouping
from thalweg.model.window import BEGINNING, Stretch
from thalweg.operate.lanes import concat
from thalweg.operate.merge_slices import SliceTable
from thalweg.route.bucket import decode_offsets, slice_groups


@dataclass(frozen=True)
class StoredBucket:
    """A bucket that an earlier batch kept, as this slot sees it."""

    bucket: SliceBucket
    reader: SectionReader
    ranges: Sequence[tuple[int, int]]
    """The key groups that are the slot's."""
    whole: bool
    """Whether this slot alone may replace it: all its rows are the slot's, or were shipped to it."""

    @property
    def span(self) -> int:
        """Negative for nodes."""
        return self.bucket.spans[0][1]

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(start for start, _ in self.bucket.spans)

    def load(self) -> pa.Table:
        """The rows that are the slot's. Nothing else of the bucket is read."""
        offsets, stored = decode_offsets(self.bucket.offsets), self.reader.open(self.bucket.section)
        stored.need(
            stored.table.column_names, [(int(offsets[first]), int(offsets[last])) for first, last in self.ranges]
        )
        return slice_groups(stored.table, offsets, self.ranges)

    def load_whole(self) -> pa.Table:
        return self.reader.read(self.bucket.section)


@dataclass
class GroupingState:
    """All that a slot holds of one grouping."""

    grouping: Grouping
    arrived: pa.Table | None
    arrived_starts: tuple[int, ...]
    held: list[StoredBucket]
    nodes: frozenset[Stretch]
    """Nodes that exist in any slot. One without rows here is whole all the same, and must stay so: key groups
    move between slots, and then this slot's rows must not be missing in it."""
    late: list[NewSlices] = field(default_factory=list)
    """Arrived rows whose slices are in a node already, as additions to that node."""

    def stretches(self, batch_from: int) -> set[Stretch]:
        """What is there from this batch on. A node may hold older rows: it serves only those who see all."""
        slices_only = batch_from > BEGINNING
        found = {
            (s, h.span)
            for h in self.held
            if h.bucket.batch_from >= batch_from and not (slices_only and h.span < 0)
            for s in h.starts
        }
        found.update((s, self.grouping.slice_us) for s in self.arrived_starts)
        return found if slices_only else found | self.nodes

    def tables(self, wanted: Iterable[Stretch], batch_from: int = BEGINNING) -> list[SliceTable]:
        """The rows of (at least) the wanted stretches."""
        wanted = set(wanted)
        found = [
            SliceTable(h.load(), h.span, h.starts, False)
            for h in self.held
            if h.bucket.batch_from >= batch_from and any((s, h.span) in wanted for s in h.starts)
        ]
        width = self.grouping.slice_us
        if self.arrived is not None and any((s, width) in wanted for s in self.arrived_starts):
            found.append(SliceTable(self.arrived, width, self.arrived_starts, True))
        found += [SliceTable(k.table, k.span, k.starts, True) for k in self.late if (k.starts[0], k.span) in wanted]
        return found


def grouping_state(
    grouping: Grouping,
    batch: int,
    arrived: Sequence[pa.Table],
    held: Sequence[StoredBucket],
    nodes: frozenset[Stretch],
) -> GroupingState:
    if not arrived:
        return GroupingState(grouping, None, (), list(held), nodes)
    table = concat(arrived, grouping.partials)
    starts = tuple(pc.unique(table.column(START)).to_pylist())
    late = []
    for node, span in sorted(nodes):
        inside = [s for s in starts if node <= s and s + grouping.slice_us <= node - span]
        if inside:
            rows = of_starts(table, inside)
            moved = pa.repeat(pa.scalar(node, pa.int64()), rows.num_rows)
            rows = rows.set_column(rows.column_names.index(START), START, moved)
            late.append(NewSlices(grouping.id, 0, span, (node,), batch, rows))
    return GroupingState(grouping, table, starts, list(held), nodes, late)


def of_starts(table: pa.Table, starts: Iterable[int]) -> pa.Table:
    """The rows of slices that begin at `starts`."""
    return table.filter(pc.is_in(table.column(START), pa.array(list(starts), pa.int64())))
