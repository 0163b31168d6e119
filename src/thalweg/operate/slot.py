"""The work of one slot in one batch: finish the windows that close, keep what later windows need.

Nothing here is a function of how rows were split into tasks: buckets are bags of partials, and merging them
does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.plan import Grouping, Member, Plan
from thalweg.model.query import Window, quote
from thalweg.operate import duck
from thalweg.operate.columns import GROUP, NEW, SPAN, START
from thalweg.operate.combine import group_columns, merge_text
from thalweg.operate.compute import Failures
from thalweg.operate.finish import Closing, finish, order_rows
from thalweg.operate.windows import needed_until, windows_of

FANOUT = 8
"""Buckets of one level that are merged into one of the next."""


@dataclass(frozen=True)
class Held:
    """A bucket that an earlier batch kept, as this slot sees it."""

    name: str
    grouping: str
    level: int
    span_us: int
    starts: tuple[int, ...]
    batch_from: int
    whole: bool
    """Whether all its rows are this slot's: only then may the slot replace it."""
    load: Callable[[], pa.Table]


@dataclass(frozen=True)
class Kept:
    """A bucket to be written."""

    grouping: str
    level: int
    span_us: int
    starts: tuple[int, ...]
    batch_from: int
    table: pa.Table


@dataclass
class SlotResult:
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Held buckets that a kept one now stands for."""
    failures: Failures = field(default_factory=dict)


@dataclass(frozen=True)
class Clock:
    """Per stream: windows up to `closed_us` had closed before the batch, those up to `closing_us` close in it."""

    batch: int
    closed_us: Mapping[str, int]
    closing_us: Mapping[str, int]
    fences: tuple[int, ...] = ()
    """Batches at which some query began to see rows; buckets are not merged across them."""


@dataclass
class _Pile:
    """All that a slot holds of one grouping."""

    grouping: Grouping
    arrived: pa.Table | None
    arrived_starts: tuple[int, ...]
    held: list[Held]

    def stretches(self, batch_from: int) -> set[tuple[int, int]]:
        found = {(s, h.span_us) for h in self.held if h.batch_from >= batch_from for s in h.starts}
        found.update((s, self.grouping.slice_us) for s in self.arrived_starts)
        return found

    def source(self, wanted: set[tuple[int, int]], batch_from: int) -> pa.Table:
        """The rows of the wanted stretches, as one table with SPAN and NEW."""
        tables = []
        for h in self.held:
            if h.batch_from >= batch_from and any((s, h.span_us) in wanted for s in h.starts):
                tables.append(_marked(h.load(), h.span_us, False))
        if self.arrived is not None and any((s, self.grouping.slice_us) in wanted for s in self.arrived_starts):
            tables.append(_marked(self.arrived, self.grouping.slice_us, True))
        return _whole(self.grouping, tables)


def run_slot(
    plan: Plan, clock: Clock, arrived: Mapping[str, Sequence[pa.Table]], held: Mapping[str, Sequence[Held]]
) -> SlotResult:
    """One slot's batch. `arrived` and `held` are by grouping."""
    result = SlotResult()
    piles = {id_: _pile(g, arrived.get(id_, ()), held.get(id_, ())) for id_, g in plan.groupings.items()}
    for closing, batch_from in closings(plan, clock, piles):
        ids = {closing.members[0].main.grouping, *(p.grouping for m in closing.members for p in m.further)}
        wanted = {(start, span) for start, span, _ in closing.cover}
        sources = {id_: piles[id_].source(wanted, batch_from) for id_ in ids}
        finished = finish(closing, plan.groupings, sources, result.failures)
        for member in closing.members:
            table = finished.get(member.query)
            if table is not None and table.num_rows:
                result.results.append((member.query, order_rows(table, member) if member.limit else table))
    for pile in piles.values():
        _keep(pile, clock, result)
    return result


def _pile(grouping: Grouping, arrived: Sequence[pa.Table], held: Sequence[Held]) -> _Pile:
    if not arrived:
        return _Pile(grouping, None, (), list(held))
    table = pa.concat_tables(arrived, promote_options="default")
    return _Pile(grouping, table, tuple(pc.unique(table.column(START)).to_pylist()), list(held))


def _marked(table: pa.Table, span_us: int, new: bool) -> pa.Table:
    n = table.num_rows
    table = table.append_column(SPAN, pa.repeat(pa.scalar(span_us, pa.int64()), n))
    return table.append_column(NEW, pa.repeat(pa.scalar(new), n))


def _whole(grouping: Grouping, tables: Sequence[pa.Table]) -> pa.Table:
    """One table with every partial of the grouping: what older buckets lack is NULL, which merges as nothing."""
    if tables:
        table = pa.concat_tables(tables, promote_options="default")
    else:
        table = _empty(grouping)
    if grouping.kind == "combine":
        for p in grouping.partials:
            if p.name not in table.column_names:
                table = table.append_column(p.name, pa.nulls(table.num_rows, duck.arrow_type(p.type)))
    return table


def _empty(grouping: Grouping) -> pa.Table:
    names = [START, SPAN]
    columns: list[pa.Array] = [pa.array([], pa.int64()), pa.array([], pa.int64())]
    for name in (*group_columns(grouping), *grouping.carried):
        names.append(name)
        columns.append(pa.array([], pa.null()))
    names.append(NEW)
    columns.append(pa.array([], pa.bool_()))
    return pa.Table.from_arrays(columns, names=names)


def closings(plan: Plan, clock: Clock, piles: Mapping[str, _Pile]) -> list[tuple[Closing, int]]:
    """What is to be finished: (closing, first batch that counts), queries that see the same rows together."""
    shares: dict[tuple[str, Window, bool, int, int, int], list[Member]] = {}
    always = -(2**62)
    for member in plan.members:
        lower = [(always, always, -always)]
        if member.fence is not None:
            batch, time = member.fence
            lower = [(batch, always, time), (always, time, -always)]
        for batch_from, first, before in lower:
            share = (member.main.grouping, member.window, member.updates, batch_from, first, before)
            shares.setdefault(share, []).append(member)
    found = []
    for (id_, window, updates, batch_from, first, before), members in shares.items():
        grouping = plan.groupings[id_]
        closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
        ids = {id_, *(p.grouping for m in members for p in m.further)}
        stretches = {s for i in ids for s in piles[i].stretches(batch_from)}
        if updates:
            fresh = {
                w for s in piles[id_].arrived_starts for w in windows_of(s, grouping.slice_us, window)
            }
            chosen = {w for w in fresh if w + window.range_us > closed}
        else:
            chosen = {
                w for s, span in stretches for w in windows_of(s, span, window)
                if closed < w + window.range_us <= closing
            }
        chosen = {w for w in chosen if first <= w < before}
        if chosen:
            cover = cover_windows(chosen, window, stretches)
            found.append((Closing(window, tuple(members), cover, updates), batch_from))
    return found


def cover_windows(
    chosen: set[int], window: Window, stretches: set[tuple[int, int]]
) -> tuple[tuple[int, int, int], ...]:
    """(start, span, window) for every stretch inside every chosen window."""
    return tuple(
        sorted((s, span, w) for s, span in stretches for w in windows_of(s, span, window) if w in chosen)
    )


def _keep(pile: _Pile, clock: Clock, result: SlotResult) -> None:
    """New rows that later windows need become a bucket; many small buckets become one."""
    grouping = pile.grouping
    closing = clock.closing_us[grouping.stream]
    live = [s for s in pile.arrived_starts if needed_until(s, grouping.windows) > closing]
    if pile.arrived is not None and live:
        table = pile.arrived
        if len(live) < len(pile.arrived_starts):
            table = table.filter(pc.is_in(table.column(START), pa.array(live, pa.int64())))
        result.kept.append(Kept(grouping.id, 0, grouping.slice_us, tuple(live), clock.batch, table))
    for group in _to_compact(pile, clock):
        _compact(grouping, group, closing, result)


def _to_compact(pile: _Pile, clock: Clock) -> list[list[Held]]:
    """Runs of buckets of one level, one span and one side of every fence, long enough to be worth merging."""
    piles: dict[tuple[int, int, int], list[Held]] = {}
    for h in pile.held:
        if h.whole:
            fence = max((f for f in clock.fences if f <= h.batch_from), default=-1)
            piles.setdefault((h.level, h.span_us, fence), []).append(h)
    return [group for group in piles.values() if len(group) >= FANOUT]


def _compact(grouping: Grouping, group: Sequence[Held], closing_us: int, result: SlotResult) -> None:
    starts = sorted({s for h in group for s in h.starts if needed_until(s, grouping.windows) > closing_us})
    table = pa.concat_tables([h.load() for h in group], promote_options="default")
    table = table.filter(pc.is_in(table.column(START), pa.array(starts, pa.int64())))
    if grouping.kind == "combine":
        names = [quote(c) for c in (START, *group_columns(grouping), GROUP)]
        partials = [p for p in grouping.partials if p.name in table.column_names]
        try:
            table = duck.run(merge_text("held", names, names, partials), held=table)
        except duck.Error:
            return  # a sum that overflows: the window's own finish will say whose it is
    result.replaced.extend(h.name for h in group)
    if starts:
        level, first = group[0].level + 1, min(h.batch_from for h in group)
        result.kept.append(Kept(grouping.id, level, group[0].span_us, tuple(starts), first, table))
