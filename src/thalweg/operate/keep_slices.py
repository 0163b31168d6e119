"""What a slot keeps of a grouping for later batches: new slices, slices that are merged into nodes, and small buckets
that become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.columns import GROUP, SPAN, START
from thalweg.model.expr import quote
from thalweg.model.plan import Grouping
from thalweg.model.times import BatchTimes
from thalweg.model.window import BEGINNING, Stretch, needed_until, node_spans, tumbling
from thalweg.operate import duck
from thalweg.operate.combine import group_columns, merge_text
from thalweg.operate.grouping_state import GroupingState, StoredBucket, of_starts
from thalweg.operate.lanes import concat, packed, unpacked
from thalweg.operate.merge_slices import SliceTable, merge_stretches, whole


@dataclass
class KeptSlices:
    new: list[NewSlices] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names of stored buckets that a new one now stands for."""


def keep_slices(state: GroupingState, clock: BatchTimes, merging: Sequence[Sequence[SliceBucket]]) -> KeptSlices:
    """New rows that later windows need become a bucket; complete runs become nodes; runs of `merging` become one."""
    grouping, found = state.grouping, KeptSlices()
    closing = clock.closing_us[grouping.stream]
    live = tuple(s for s in state.arrived_starts if needed_until(s, grouping.windows) > closing)
    if state.arrived is not None and live:
        table = of_starts(state.arrived, live) if len(live) < len(state.arrived_starts) else state.arrived
        found.new.append(NewSlices(grouping.id, 0, grouping.slice_us, live, clock.batch, table))
        found.new += state.late
    if not grouping.rows_are_partials:
        found.new += _build_nodes(state, clock)
    held = {h.bucket.name: h for h in state.held}
    for run in merging:
        _compact(grouping, [held[bucket.name] for bucket in run], closing, found)
    return found


def _build_nodes(state: GroupingState, clock: BatchTimes) -> list[NewSlices]:
    """Merges runs of slices that the watermark has passed in this batch, level by level."""
    grouping = state.grouping
    closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
    spans = node_spans(grouping.slice_us, grouping.windows)
    built: list[NewSlices] = []
    if not spans or closing <= closed:
        return built
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
        merged = merge_stretches(grouping, slices, [(start, width, n) for (start, width), n in parts])
        if merged is None:
            merged = packed(_merge_columns(grouping, whole(grouping, slices), parts), grouping.partials)
        built.append(NewSlices(grouping.id, 0, -span, tuple(nodes), oldest, merged))
    return built


def _complete_nodes(
    grouping: Grouping, stretches: Iterable[Stretch], span: int, closed: int, closing: int
) -> list[int]:
    """Where nodes of this span have become complete and will still be used, by start."""
    origin = grouping.slice_start_us
    starts = {s - (s - origin) % span for s, width in stretches if 0 < width < span}
    return sorted(n for n in starts if closed < n + span <= closing and needed_until(n, grouping.windows) > closing)


def _merge_columns(grouping: Grouping, held: pa.Table, parts: Sequence[tuple[Stretch, int]]) -> pa.Table:
    try:
        return _merge_into(grouping, held, parts)
    except duck.Error:
        # A sum that overflows: the window's own finish will say whose it is. The node must be there all the same,
        # or this slot's rows would be missing in windows that use it because other slots have it.
        return _gather_into(grouping, held, parts)


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


def _compact(grouping: Grouping, group: Sequence[StoredBucket], closing_us: int, found: KeptSlices) -> None:
    starts = sorted({s for h in group for s in h.starts if needed_until(s, grouping.windows) > closing_us})
    slices = [SliceTable(h.load_whole(), h.span, h.starts, False) for h in group]
    try:
        table = _one_of(grouping, slices, starts) if starts else None
    except duck.Error:
        return  # a sum that overflows: the window's own finish will say whose it is
    found.replaced.extend(h.bucket.name for h in group)
    if table is not None:
        level, first = group[0].bucket.level + 1, min(h.bucket.batch_from for h in group)
        found.new.append(NewSlices(grouping.id, level, group[0].span, tuple(starts), first, table))


def _one_of(grouping: Grouping, slices: Sequence[SliceTable], starts: Sequence[int]) -> pa.Table:
    """The rows of slices that begin at `starts`, and have one span, merged."""
    if not grouping.rows_are_partials:
        merged = merge_stretches(grouping, slices, [(start, slices[0].span, start) for start in starts])
        if merged is not None:
            return merged
    table = of_starts(concat([part.table for part in slices], grouping.partials), starts)
    if grouping.rows_are_partials:
        return table
    table = unpacked(table)
    names, known = [quote(c) for c in (START, *group_columns(grouping), GROUP)], set(table.column_names)
    partials = [p for p in grouping.partials if p.name in known]
    return packed(duck.run(merge_text("held", names, names, partials), held=table), partials)
