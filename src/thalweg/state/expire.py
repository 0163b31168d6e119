"""When a bucket can go: slices by window, rows by reach."""

from __future__ import annotations

from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.plan import Plan, relation_of
from thalweg.model.times import BatchTimes, joint_time
from thalweg.model.window import needed_until


def is_live(bucket: SliceBucket | RowBucket, plan: Plan, clock: BatchTimes) -> bool:
    """Whether anything that runs may still need something of it, once the batch has closed what it closes."""
    if isinstance(bucket, SliceBucket):
        grouping = relation_of(plan, bucket.relation)
        if grouping is None:
            return False
        closing = clock.closing_us[grouping.stream]
        return any(needed_until(start, grouping.windows) > closing for start, _ in bucket.spans)
    store = plan.joins.stores.get(bucket.relation)
    if store is None:
        return False
    high = bucket.layout.high_us
    return any(high + reach > joint_time(clock.closing_us, streams) for streams, reach in store.needs)
