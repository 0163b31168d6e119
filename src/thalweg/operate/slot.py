"""The work of one slot in one batch: finish the windows that close, keep what later windows need.

Nothing here is a function of how rows were split into tasks: buckets are bags of partials, and merging them
does not depend on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from thalweg.model.address import Address
from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Plan, WindowedQuery
from thalweg.model.report import GroupedRows
from thalweg.model.times import BatchTimes
from thalweg.model.trouble import finishing
from thalweg.model.window import Stretch
from thalweg.operate.closings import closings
from thalweg.operate.finish import Closing, finish, first_rows
from thalweg.operate.finish_rows import Finished, add_partials, finish_rows
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
) -> SlotResult:
    """One slot's batch, for the groupings and members of the plan. `held`, `nodes` and `merging`, the runs of held
    buckets that are to become one, are by grouping, or by the relation of a stream's kept rows. `uncollected`: the
    queries whose results nobody takes."""
    result, failures = SlotResult(), Failures()
    came, result.served = unship(plan, arrived, failures)
    states = {
        id_: grouping_state(g, clock.batch, came.get(id_, ()), held.get(id_, ()), nodes.get(id_, frozenset()))
        for id_, g in plan.groupings.items()
    }
    rows = open_kept_rows(plan, clock, held, slot, failures)
    found = closings(plan, clock, states, rows, uncollected)
    for closing, batch_from in found:
        if closing.cover_of_rows:
            stream = plan.groupings[closing.members[0].main.grouping].stream
            rows[stream].want(((start, span) for start, span, _ in closing.cover_of_rows), batch_from)
    for closing, batch_from in found:
        slices = {
            id_: states[id_].tables(((start, span) for start, span, _ in parts), batch_from)
            for id_, parts in closing.cover.items()
        }
        if closing.cover_of_rows:
            main = plan.groupings[closing.members[0].main.grouping]
            if not slices[main.id]:
                with finishing(closing.queries):
                    done = finish_rows(closing, main, rows[main.stream], batch_from, uncollected, result.failures)
                closing = _after(done, closing, result)
                if not closing.members:
                    continue
            closing = add_partials(plan, closing, rows[main.stream], batch_from, slices)
        if not slices[closing.members[0].main.grouping]:
            continue
        with finishing(closing.queries):
            finished = finish(closing, plan.groupings, slices, result.failures)
        for member in closing.members:
            table = finished.get(member.query)
            if table is not None and table.num_rows:
                _give(table, member, closing, result)
    for closing, _ in found:
        _fail_alike(closing, result.failures)
    for state in (*states.values(), *(of_stream.state for of_stream in rows.values())):
        kept = keep_slices(state, clock, merging.get(state.grouping.id, ()))
        result.kept += kept.new
        result.replaced += kept.replaced
    result.failures.update(failures)
    return result


def _after(done: Finished, closing: Closing, result: SlotResult) -> Closing:
    """What is left to do."""
    for member, table in done.results:
        if table.num_rows:
            _give(table, member, closing, result)
    for query, rows in done.counted.items():
        result.counted.update(dict.fromkeys((query, *(m.query for m in closing.alike.get(query, ()))), rows))
    return replace(closing, members=done.left)


def _give(table: pa.Table, member: WindowedQuery, closing: Closing, result: SlotResult) -> None:
    """The rows of a member's windows, to all with the same result; of a LIMIT, only those that may be among the
    first."""
    first = first_rows(table, member, result.failures) if member.limit else table
    if first is not None:
        result.results += ((m.query, first) for m in (member, *closing.alike.get(member.query, ())))


def _fail_alike(closing: Closing, failures: Failures) -> None:
    """What a member cannot do, those with the same result cannot do either."""
    for query, others in closing.alike.items():
        if (reason := failures.get(OfQuery(query))) is not None:
            failures.update({OfQuery(other.query): reason for other in others})
