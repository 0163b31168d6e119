"""The work of one slot in one batch: finish the windows that close, keep what later windows need.

Nothing here is a function of how rows were split into tasks: buckets are bags of partials, and merging them
does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.address import Address
from thalweg.model.bucket import NewSlices, SectionReader, SliceBucket
from thalweg.model.columns import GROUP, SPAN, START
from thalweg.model.expr import quote
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Grouping, Member, Plan
from thalweg.model.report import GroupedRows
from thalweg.model.times import BatchTimes
from thalweg.model.trouble import finishing
from thalweg.model.window import (
    BEGINNING,
    Stretch,
    Window,
    needed_until,
    node_spans,
    tumbling,
)
from thalweg.operate import duck
from thalweg.operate.combine import group_columns, merge_text
from thalweg.operate.finish import Closing, finish, order_rows
from thalweg.operate.merge_slices import SliceTable, whole
from thalweg.operate.shipping import unship
from thalweg.route.bucket import decode_offsets, slice_groups

END = -BEGINNING


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
class SlotResult:
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    kept: list[NewSlices] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names of stored buckets that a kept one now stands for."""
    failures: Failures = field(default_factory=dict)
    served: dict[str, GroupedRows] = field(default_factory=dict)
    """grouping -> the rows that were shipped whole for it."""


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


def run_slot(
    plan: Plan,
    clock: BatchTimes,
    arrived: Mapping[Address, Sequence[pa.Table]],
    held: Mapping[str, Sequence[StoredBucket]],
    merging: Mapping[str, Sequence[Sequence[SliceBucket]]],
    nodes: Mapping[str, frozenset[Stretch]],
) -> SlotResult:
    """One slot's batch, for the groupings and members of the plan. `held`, `nodes` and `merging`, the runs of held
    buckets that are to become one, are by grouping."""
    result, failures = SlotResult(), Failures()
    came, result.served = unship(plan, arrived, failures)
    states = {
        id_: _state(g, clock.batch, came.get(id_, ()), held.get(id_, ()), nodes.get(id_, frozenset()))
        for id_, g in plan.groupings.items()
    }
    for closing, batch_from in closings(plan, clock, states):
        slices = {
            id_: states[id_].tables(((start, span) for start, span, _ in parts), batch_from)
            for id_, parts in closing.cover.items()
        }
        if not slices[closing.members[0].main.grouping]:
            continue
        with finishing(member.query for member in closing.members):
            finished = finish(closing, plan.groupings, slices, result.failures)
        for member in closing.members:
            table = finished.get(member.query)
            if table is not None and table.num_rows:
                _give(table, member, result)
    for state in states.values():
        _keep(state, clock, merging.get(state.grouping.id, ()), result)
    result.failures.update(failures)
    return result


def _give(table: pa.Table, member: Member, result: SlotResult) -> None:
    """The rows of a member's windows; of a LIMIT, only those that may be among the first."""
    try:
        result.results.append((member.query, order_rows(table, member) if member.limit else table))
    except duck.Error as error:
        result.failures[OfQuery(member.query)] = duck.reason(error)


def _groupings_of(members: Sequence[Member]) -> set[str]:
    return {members[0].main.grouping, *(p.grouping for m in members for p in m.further)}


def _state(
    grouping: Grouping,
    batch: int,
    arrived: Sequence[pa.Table],
    held: Sequence[StoredBucket],
    nodes: frozenset[Stretch],
) -> GroupingState:
    if not arrived:
        return GroupingState(grouping, None, (), list(held), nodes)
    table = pa.concat_tables(arrived, promote_options="default")
    starts = tuple(pc.unique(table.column(START)).to_pylist())
    late = []
    for node, span in sorted(nodes):
        inside = [s for s in starts if node <= s and s + grouping.slice_us <= node - span]
        if inside:
            rows = _of_starts(table, inside)
            moved = pa.repeat(pa.scalar(node, pa.int64()), rows.num_rows)
            rows = rows.set_column(rows.column_names.index(START), START, moved)
            late.append(NewSlices(grouping.id, 0, span, (node,), batch, rows))
    return GroupingState(grouping, table, starts, list(held), nodes, late)


# -- closing windows


def closings(plan: Plan, clock: BatchTimes, states: Mapping[str, GroupingState]) -> list[tuple[Closing, int]]:
    """What is to be finished: (closing, first batch that counts), queries that see the same rows together."""
    found = []
    for (_, window, updates, sight), members in _shares(plan).items():
        stream = plan.groupings[members[0].main.grouping].stream
        limits = (clock.closed_us[stream], clock.closing_us[stream])
        batch_from, first, before = sight
        held = {id_: states[id_].stretches(batch_from) for id_ in _groupings_of(members)}
        if updates:
            main = states[members[0].main.grouping]
            touched = {(s, main.grouping.slice_us) for s in main.arrived_starts}
            chosen = {w for s in touched for w in window.starts_of(s, limits[0], END)}
        else:
            chosen = {w for stretches in held.values() for s in stretches for w in window.starts_of(s, *limits)}
        chosen = {w for w in chosen if first <= w < before}
        if chosen:
            parts = {
                id_: tuple((s, span, w) for w, (s, span) in window.covers(chosen, stretches))
                for id_, stretches in held.items()
            }
            found.append((Closing(window, members, parts, updates), batch_from))
    return found


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


# -- keeping state


def _keep(
    state: GroupingState, clock: BatchTimes, merging: Sequence[Sequence[SliceBucket]], result: SlotResult
) -> None:
    """New rows that later windows need become a bucket; complete runs become nodes; small buckets merge."""
    grouping = state.grouping
    closing = clock.closing_us[grouping.stream]
    live = tuple(s for s in state.arrived_starts if needed_until(s, grouping.windows) > closing)
    if state.arrived is not None and live:
        table = _of_starts(state.arrived, live) if len(live) < len(state.arrived_starts) else state.arrived
        result.kept.append(NewSlices(grouping.id, 0, grouping.slice_us, live, clock.batch, table))
        result.kept += state.late
    if not grouping.loose:
        _build_nodes(state, clock, result)
    held = {h.bucket.name: h for h in state.held}
    for run in merging:
        _compact(grouping, [held[bucket.name] for bucket in run], closing, result)


def _of_starts(table: pa.Table, starts: Iterable[int]) -> pa.Table:
    return table.filter(pc.is_in(table.column(START), pa.array(list(starts), pa.int64())))


def _build_nodes(state: GroupingState, clock: BatchTimes, result: SlotResult) -> None:
    """Merges runs of slices that the watermark has passed in this batch, level by level."""
    grouping = state.grouping
    closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
    spans = node_spans(grouping.slice_us, grouping.windows)
    if not spans or closing <= closed:
        return
    built: list[NewSlices] = []
    for span in spans:
        stretches = state.stretches(BEGINNING) | {(n, k.span) for k in built for n in k.starts}
        # One that is there already has all that came since: a watermark that has begun anew passes it again.
        complete = _complete_nodes(grouping, stretches, span, closed, closing)
        nodes = [n for n in complete if (n, -span) not in state.nodes]
        if not nodes:
            continue
        parts = [(s, n) for n, s in tumbling(span).covers(nodes, stretches)]
        wanted = {s for s, _ in parts}
        below = [k for k in built if any((n, k.span) in wanted for n in k.starts)]
        slices = [*state.tables(wanted), *(SliceTable(k.table, k.span, k.starts, False) for k in below)]
        ages = [h.bucket.batch_from for h in state.held if any((s, h.span) in wanted for s in h.starts)]
        oldest = min([clock.batch, *ages, *(k.batch_from for k in below)])
        held = whole(grouping, slices)
        try:
            merged = _merge_into(grouping, held, parts)
        except duck.Error:
            # A sum that overflows: the window's own finish will say whose it is. The node must be there all the same,
            # or this slot's rows would be missing in windows that use it because other slots have it.
            merged = _gather_into(grouping, held, parts)
        built.append(NewSlices(grouping.id, 0, -span, tuple(nodes), oldest, merged))
    result.kept += built


def _complete_nodes(
    grouping: Grouping, stretches: Iterable[Stretch], span: int, closed: int, closing: int
) -> list[int]:
    """Where nodes of this span have become complete and will still be used, by start."""
    origin = grouping.slice_start_us
    starts = {s - (s - origin) % span for s, width in stretches if 0 < width < span}
    return sorted(n for n in starts if closed < n + span <= closing and needed_until(n, grouping.windows) > closing)


def _merge_into(grouping: Grouping, table: pa.Table, parts: Sequence[tuple[Stretch, int]]) -> pa.Table:
    """The rows of each part merged under the start of its node."""
    names = [quote(c) for c in (*group_columns(grouping), GROUP)]
    node = quote(".node")
    text = merge_text(_PARTS, [f"{node} AS {quote(START)}", *names], [node, *names], grouping.partials)
    return duck.run(text, held=table, part=_mapping(parts))


def _gather_into(grouping: Grouping, table: pa.Table, parts: Sequence[tuple[Stretch, int]]) -> pa.Table:
    """The same, not merged: a bucket is a bag of partials."""
    columns = (*group_columns(grouping), GROUP, *(p.name for p in grouping.partials))
    selected = ", ".join([f"{quote('.node')} AS {quote(START)}", *(quote(c) for c in columns)])
    return duck.run(f"SELECT {selected} FROM {_PARTS}", held=table, part=_mapping(parts))


_PARTS = f"(SELECT part.{quote('.node')}, held.* FROM held JOIN part USING ({quote(START)}, {quote(SPAN)}))"


def _mapping(parts: Sequence[tuple[Stretch, int]]) -> pa.Table:
    return pa.table(
        {
            START: pa.array([s[0] for s, _ in parts], pa.int64()),
            SPAN: pa.array([s[1] for s, _ in parts], pa.int64()),
            ".node": pa.array([n for _, n in parts], pa.int64()),
        }
    )


def _compact(grouping: Grouping, group: Sequence[StoredBucket], closing_us: int, result: SlotResult) -> None:
    starts = sorted({s for h in group for s in h.starts if needed_until(s, grouping.windows) > closing_us})
    table = _of_starts(pa.concat_tables([h.load_whole() for h in group], promote_options="default"), starts)
    if not grouping.loose:
        names = [quote(c) for c in (START, *group_columns(grouping), GROUP)]
        known = set(table.column_names)
        partials = [p for p in grouping.partials if p.name in known]
        try:
            table = duck.run(merge_text("held", names, names, partials), held=table)
        except duck.Error:
            return  # a sum that overflows: the window's own finish will say whose it is
    result.replaced.extend(h.bucket.name for h in group)
    if starts:
        level, first = group[0].bucket.level + 1, min(h.bucket.batch_from for h in group)
        result.kept.append(NewSlices(grouping.id, level, group[0].span, tuple(starts), first, table))
