"""After all that reads columns has been decided: what is read of each stream at all, and what a row carries that is
sent whole. From here on a stream's share of the plan is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import filterfalse

from thalweg.model.canonical import Written, named, write
from thalweg.model.plan import ROWS, Computed, Grouping, StreamPlan
from thalweg.model.stream import Stream
from thalweg.model.window import slice_grid
from thalweg.optimize.draft import ComputedInOrder, Draft, PlannedStream, RolledUp, StreamShare, again, read_through
from thalweg.optimize.keep_rows import columns_kept
from thalweg.optimize.lay_out_stores import read_by_joins
from thalweg.optimize.send_rows_whole import columns_sent


def prune_columns(draft: Draft, last: Draft) -> Draft:
    of_joins = read_by_joins(draft)
    planned = dict(draft.begun(last).planned)
    for name in draft.touched:
        whole, read = draft.sent_whole[name].value, of_joins.get(name, frozenset())
        keeps = draft.kept_rows[name].value
        held = keeps or name in draft.given.held_rows
        rows = columns_kept(draft, name) if held else None
        given = draft.streams[name], draft.shares[name].value, draft.rolled_up[name], whole, read, rows, keeps
        known = last.planned.get(name)
        computed = partial(_in_order, None if known is None else known.value.computed)
        planned[name] = again(known, partial(_plan_stream, computed), *given)
    return replace(draft, planned={name: planned[name] for name in draft.shares})


def _plan_stream(
    in_order: Callable[[Mapping[str, Computed]], ComputedInOrder],
    stream: Stream,
    share: StreamShare,
    rolled_up: RolledUp,
    whole: tuple[str, ...],
    of_joins: frozenset[str],
    rows: frozenset[str] | None,
    keeps: bool,
) -> PlannedStream:
    """`rows`: the columns of rows that the state holds as they are; `keeps`: whether it does of those that come."""
    groupings = {id_: rolled.grouping for id_, rolled in rolled_up.made.items()}
    names = frozenset(stream.schema.names)
    read = {stream.time} | of_joins | names & share.read
    for rolled in rolled_up.made.values():
        read.update((*rolled.grouping.keys, *rolled.grouping.values))
        read |= names & rolled.reads
    ordered = sorted(
        groupings.values(), key=lambda g: (g.rolled_up_from is not None, -len(g.keys) - len(g.values), g.id)
    )
    sent = {stream.time}.union(*(columns_sent(rolled_up.made[id_], stream, share) for id_ in whole))
    computed = in_order(share.computed)
    plan = StreamPlan(
        stream,
        tuple(column for column in stream.schema.names if column in read),
        computed.columns,
        tuple(_after_finer(ordered)),
        share.selections,
        whole,
        tuple(sorted(sent)) if whole else (),
        share.users,
        kept_rows(stream, rows, rolled_up) if rows is not None and groupings else None,
        keeps,
        _later(share, of_joins),
    )
    name = _name(plan, computed, rolled_up)
    of_rows = {id_ for id_ in whole if _counts_values(groupings[id_])}
    finished = {id_: replace(g, rows_are_partials=True) if id_ in of_rows else g for id_, g in groupings.items()}
    route_keys = frozenset(rolled.route_key for rolled in rolled_up.made.values())
    return PlannedStream(plan, computed, finished, route_keys, name)


def _name(plan: StreamPlan, computed: ComputedInOrder, rolled_up: RolledUp) -> str:
    """By the names of parts. Who uses a column or a partial follows from the queries, so it is not in it."""
    made = tuple([rolled.name for rolled in rolled_up.made.values()])
    rows = () if plan.rows is None else (plan.rows, plan.keeps_rows)
    shipped = plan.shipped, plan.shipped_columns
    return named("", plan.stream, plan.columns, computed.names, plan.groupings, made, *shipped, *rows)


def kept_rows(stream: Stream, columns: Collection[str], rolled_up: RolledUp) -> Grouping:
    """The rows of the stream as a grouping by nothing, along slices that no window cuts."""
    windows = tuple(dict.fromkeys(w for rolled in rolled_up.made.values() for w in rolled.grouping.windows))
    width, start = slice_grid(windows)
    name = ROWS + stream.name
    return Grouping(name, stream.name, (), tuple(sorted(columns)), (), windows, width, start, rows_are_partials=True)


def _later(share: StreamShare, of_joins: frozenset[str]) -> tuple[str, ...]:
    """The computed columns that neither joins nor queries without a window read."""
    read = set(of_joins)
    for selection in share.selections:
        read.update((*selection.columns, *([selection.where] if selection.where is not None else ())))
    needed = read_through(read, share.computed)
    return tuple(filterfalse(needed.__contains__, share.computed) if needed else share.computed)


def _counts_values(grouping: Grouping) -> bool:
    """Whether a row alone is as good a partial as any: a value that was seen once."""
    return bool(grouping.values) and all(p.op == "count" for p in grouping.partials)


def _in_order(before: ComputedInOrder | None, computed: Mapping[str, Computed]) -> ComputedInOrder:
    """Those that read other computed columns (registers and ranks) after the ones they read. Goes on from `before`
    where what is new comes at the end."""
    found, known = tuple(computed.values()), () if before is None else before.columns
    new = found[len(known) :]
    if before is not None and known == found[: len(known)] and not _reads_others((*known[-1:], *new)):
        more = "".join(f", {write(c.name)}" for c in new)
        if len(known) > 1:  # the text of a shorter tuple is not that of the beginning of a longer one
            return ComputedInOrder(found, Written(f"{before.names[:-1]}{more})"))
    later = _reads_others(found)
    columns = (*(c for c in found if c.kind == "sql"), *later) if later else found
    return ComputedInOrder(columns, Written(write(tuple([c.name for c in columns]))))


def _reads_others(computed: Iterable[Computed]) -> list[Computed]:
    return [c for c in computed if c.kind != "sql"]


def _after_finer(groupings: Iterable[Grouping]) -> dict[str, None]:
    """Every grouping after the one it is rolled up from."""
    done: dict[str, None] = {}
    waiting = list(groupings)
    while waiting:
        ready = [g.id for g in waiting if g.rolled_up_from is None or g.rolled_up_from in done]
        done.update(dict.fromkeys(ready))
        waiting = [g for g in waiting if g.id not in done]
    return done
