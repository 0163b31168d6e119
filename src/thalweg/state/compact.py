"""Which buckets are merged: eight of a level make one of the next, so that their number grows with the logarithm of
time. What a merged bucket holds is up to its content: partials are combined, rows are put together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.probe import Store

FANOUT = 8
"""Buckets of one level that are merged into one of the next."""
WIDEST = 4
"""A merged bucket of rows spans at most this fraction of the time that they are kept: it goes with its last row."""


def slices_to_merge(buckets: Iterable[SliceBucket], fences: Sequence[int]) -> list[list[SliceBucket]]:
    """Of one grouping: buckets of one level, one span and one side of every fence, enough to be worth merging."""
    alike: dict[Hashable, list[SliceBucket]] = {}
    for bucket in buckets:
        fence = max((f for f in fences if f <= bucket.batch_from), default=-1)
        alike.setdefault((bucket.level, bucket.spans[0][1], fence), []).append(bucket)
    return [run for run in alike.values() if len(run) >= FANOUT]


def rows_to_merge(store: Store, buckets: Iterable[RowBucket]) -> list[list[RowBucket]]:
    """Of one store: runs of buckets alike in all but their rows, none of which was late for anyone."""
    reach = max(us for _, us in store.needs)
    alike: dict[Hashable, list[RowBucket]] = {}
    for bucket in buckets:
        layout = bucket.layout
        late = max(layout.threshold(streams) for streams, _ in store.needs)
        current = {index.id for index in store.indexes} == set(bucket.indexes)
        if layout.low_us > late and current:
            key = (bucket.level, layout.predicates, layout.keeps_all, layout.queries, layout.bits, bucket.columns)
            alike.setdefault(key, []).append(bucket)
    found = []
    for run in alike.values():
        run = sorted(run, key=lambda b: (b.batch_from, b.place))
        for at in range(0, len(run) - FANOUT + 1, FANOUT):
            layouts = [b.layout for b in run[at : at + FANOUT]]
            span = max(x.high_us for x in layouts) - min(x.low_us for x in layouts)
            if span * WIDEST <= reach:
                found.append(run[at : at + FANOUT])
    return found
