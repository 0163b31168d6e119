"""The work of one slot in one batch: finish the windows that close, keep what later windows need.

Nothing here is a function of how rows were split into tasks: buckets are bags of partials, and merging them
does not depend on their order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.model.address import Address
from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.failure import Failures
from thalweg.model.plan import Plan
from thalweg.model.report import GroupedRows
from thalweg.model.times import BatchTimes
from thalweg.model.window import Stretch
from thalweg.operate.close_windows import close_rows, close_slices
from thalweg.operate.closings import closings
from thalweg.operate.finish import Closing
from thalweg.operate.grouping_state import StoredBucket, grouping_state
from thalweg.operate.keep_slices import keep_slices
from thalweg.operate.kept_rows import open_kept_rows
from thalweg.operate.shipping import unship


@dataclass
class SlotResult:
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    kept: list[NewSlices] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names of stored buckets that a kept one now stands for."""
    failures: Failures = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """query -> the rows of its result, where nobody takes them."""
    served: dict[str, GroupedRows] = field(default_factory=dict)
    """grouping -> the rows that were shipped whole for it."""


def run_slot(
    plan: Plan,
    clock: BatchTimes,
    arrived: Mapping[Address, Sequence[pa.Table]],
    held: Mapping[str, Sequence[StoredBucket]],
    merging: Mapping[str, Sequence[Sequence[SliceBucket]]],
    nodes: Mapping[str, frozenset[Stretch]],
    slot: int = 0,
    uncollected: Collection[str] = (),
    now: Callable[[], float] = time.perf_counter,
) -> SlotResult:
    """One slot's batch, for the groupings and members of the plan. `held`, `nodes` and `merging`, the runs of held
    buckets that are to become one, are by grouping, or by the relation of a stream's kept rows. `uncollected`: the
    queries whose results nobody takes. `now`: seconds since some moment."""
    result = SlotResult()
    came, result.served = unship(plan, arrived, result.failures, now)
    states = {
        id_: grouping_state(g, clock.batch, came.get(id_, ()), held.get(id_, ()), nodes.get(id_, frozenset()))
        for id_, g in plan.groupings.items()
    }
    rows = open_kept_rows(plan, clock, held, slot)
    found = closings(plan, clock, states, rows, uncollected)
    for closing, batch_from in found:
        if closing.cover_of_rows:
            rows[_stream(plan, closing)].want(closing.stretches_of_rows, batch_from)
    for closing, batch_from in found:
        slices = {
            id_: states[id_].tables(((start, span) for start, span, _ in parts), batch_from)
            for id_, parts in closing.cover.items()
        }
        if closing.cover_of_rows:
            closed = close_rows(plan, closing, slices, rows[_stream(plan, closing)], batch_from, uncollected)
        else:
            closed = close_slices(plan, closing, slices, uncollected)
        result.results += closed.results
        result.counted.update(closed.counted)
        result.failures.update(closed.failures)
    for state in (*states.values(), *(of_stream.state for of_stream in rows.values())):
        kept = keep_slices(state, clock, merging.get(state.grouping.id, ()))
        result.kept += kept.new
        result.replaced += kept.replaced
    return result


def _stream(plan: Plan, closing: Closing) -> str:
    return plan.groupings[closing.members[0].main.grouping].stream
