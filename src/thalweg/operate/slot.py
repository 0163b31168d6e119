"""The work of one slot in one batch: finish the windows that close, keep what later windows need.

Nothing here is a function of how rows were split into tasks: buckets are bags of partials, and merging them
does not depend on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import pyarrow as pa

from thalweg.model.address import Address
from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Member, Plan
from thalweg.model.report import GroupedRows
from thalweg.model.times import BatchTimes
from thalweg.model.trouble import finishing
from thalweg.model.window import BEGINNING, Stretch, Window
from thalweg.operate import duck
from thalweg.operate.finish import Closing, finish, order_rows
from thalweg.operate.finish_rows import Finished, finish_rows
from thalweg.operate.grouping_state import GroupingState, StoredBucket, grouping_state
from thalweg.operate.keep_slices import keep_slices
from thalweg.operate.kept_rows import OF_ROWS, KeptRows
from thalweg.operate.merge_slices import SliceTable
from thalweg.operate.shipping import unship

END = -BEGINNING


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
    rows = kept_rows(plan, clock, held, slot, failures)
    for closing, batch_from in closings(plan, clock, states, rows):
        slices = {
            id_: states[id_].tables(((start, span) for start, span, _ in parts), batch_from)
            for id_, parts in closing.cover.items()
        }
        if closing.cover_of_rows:
            main = plan.groupings[closing.members[0].main.grouping]
            if not slices[main.id]:
                with finishing(member.query for member in closing.members):
                    done = finish_rows(closing, main, rows[main.stream], batch_from, uncollected, result.failures)
                closing = _after(done, closing, result)
                if not closing.members:
                    continue
            closing = _of_rows(plan, closing, rows[main.stream], batch_from, slices)
        if not slices[closing.members[0].main.grouping]:
            continue
        with finishing(member.query for member in closing.members):
            finished = finish(closing, plan.groupings, slices, result.failures)
        for member in closing.members:
            table = finished.get(member.query)
            if table is not None and table.num_rows:
                _give(table, member, result)
    for state in (*states.values(), *(of_stream.state for of_stream in rows.values())):
        kept = keep_slices(state, clock, merging.get(state.grouping.id, ()))
        result.kept += kept.new
        result.replaced += kept.replaced
    result.failures.update(failures)
    return result


def kept_rows(
    plan: Plan, clock: BatchTimes, held: Mapping[str, Sequence[StoredBucket]], slot: int, failures: Failures
) -> dict[str, KeptRows]:
    """By stream, where the state holds any."""
    found = {}
    for name, stream in plan.streams.items():
        if stream.rows is not None and stream.rows.id in held:
            state = grouping_state(stream.rows, clock.batch, (), held[stream.rows.id], frozenset())
            found[name] = KeptRows(plan, stream, state, slot, failures)
    return found


def _after(done: Finished, closing: Closing, result: SlotResult) -> Closing:
    """What is left to do."""
    for member, table in done.results:
        if table.num_rows:
            _give(table, member, result)
    result.counted.update(done.counted)
    return replace(closing, members=done.left)


def _of_rows(
    plan: Plan, closing: Closing, rows: KeptRows, batch_from: int, slices: dict[str, list[SliceTable]]
) -> Closing:
    """Makes partials of the rows that the closing's windows hold, and says of which windows they are."""
    stretches = {(start, span) for start, span, _ in closing.cover_of_rows}
    made = tuple(dict.fromkeys((start, OF_ROWS, window) for start, _, window in closing.cover_of_rows))
    cover = dict(closing.cover)
    for id_ in closing.cover:
        slices[id_].append(rows.partials(plan.groupings[id_], stretches, batch_from))
        cover[id_] = (*cover[id_], *made)
    return replace(closing, cover=cover)


def _give(table: pa.Table, member: Member, result: SlotResult) -> None:
    """The rows of a member's windows; of a LIMIT, only those that may be among the first."""
    try:
        result.results.append((member.query, order_rows(table, member) if member.limit else table))
    except duck.Error as error:
        result.failures[OfQuery(member.query)] = duck.reason(error)


def _groupings_of(members: Sequence[Member]) -> set[str]:
    return {members[0].main.grouping, *(p.grouping for m in members for p in m.further)}


# -- closing windows


def closings(
    plan: Plan, clock: BatchTimes, states: Mapping[str, GroupingState], rows: Mapping[str, KeptRows]
) -> list[tuple[Closing, int]]:
    """What is to be finished: (closing, first batch that counts), queries that see the same rows together."""
    found = []
    for (_, window, updates, sight), members in _shares(plan).items():
        stream = plan.groupings[members[0].main.grouping].stream
        limits = (clock.closed_us[stream], clock.closing_us[stream])
        batch_from, first, before = sight
        held = {id_: states[id_].stretches(batch_from) for id_ in _groupings_of(members)}
        of_rows = rows[stream].stretches(batch_from) if stream in rows else set[Stretch]()
        if updates:
            main = states[members[0].main.grouping]
            touched = {(s, main.grouping.slice_us) for s in main.arrived_starts}
            chosen = {w for s in touched for w in window.starts_of(s, limits[0], END)}
        else:
            stretches = of_rows.union(*held.values())
            chosen = {w for s in stretches for w in window.starts_of(s, *limits)}
        chosen = {w for w in chosen if first <= w < before}
        if chosen:
            parts = {id_: _cover(window, chosen, stretches) for id_, stretches in held.items()}
            found.append((Closing(window, members, parts, updates, _cover(window, chosen, of_rows)), batch_from))
    return found


def _cover(window: Window, starts: Set[int], stretches: Set[Stretch]) -> tuple[tuple[int, int, int], ...]:
    return tuple((start, span, w) for w, (start, span) in window.covers(starts, stretches))


_Sight = tuple[int, int, int]
"""(first batch that counts, windows from, windows before)"""


def _shares(plan: Plan) -> dict[tuple[str, Window, bool, _Sight], tuple[Member, ...]]:
    """Members that are finished in one statement: same grouping, same window, same sight of the past."""
    shares: dict[tuple[str, Window, bool, _Sight], list[Member]] = {}
    for member in plan.members:
        sights: list[_Sight] = [(BEGINNING, BEGINNING, END)]
        if member.fence is not None:
            batch, time = member.fence
            sights = [(batch, BEGINNING, time), (BEGINNING, time, END)]
        for sight in sights:
            share = (member.main.grouping, member.window, member.updates, sight)
            shares.setdefault(share, []).append(member)
    return {share: tuple(members) for share, members in shares.items()}
