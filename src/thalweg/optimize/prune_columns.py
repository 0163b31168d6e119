"""After all that reads columns has been decided: what is read of each stream at all, and what a row carries that is
sent whole. From here on a stream's share of the plan is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.model.plan import ROWS, Computed, Grouping, StreamPlan
from thalweg.model.stream import Stream
from thalweg.model.window import slice_grid
from thalweg.optimize.draft import Draft, PlannedStream, RolledUp, StreamShare, again
from thalweg.optimize.keep_rows import read_by_groupings
from thalweg.optimize.lay_out_stores import read_by_joins
from thalweg.optimize.send_rows_whole import columns_sent, types_of


def prune_columns(draft: Draft, last: Draft) -> Draft:
    of_joins = read_by_joins(draft)
    planned = dict(draft.begun(last).planned)
    for name in draft.touched:
        whole, read = draft.sent_whole[name].value, of_joins.get(name, frozenset())
        keeps = draft.kept_rows[name].value
        held = keeps or name in draft.given.held_rows
        given = draft.streams[name], draft.shares[name].value, draft.rolled_up[name], whole, read, held, keeps
        planned[name] = again(last.planned.get(name), _plan_stream, *given)
    return replace(draft, planned={name: planned[name] for name in draft.shares})


def _plan_stream(
    stream: Stream,
    share: StreamShare,
    rolled_up: RolledUp,
    whole: tuple[str, ...],
    of_joins: frozenset[str],
    held: bool,
    keeps: bool,
) -> PlannedStream:
    """`held`: whether the state holds rows as they are; `keeps`: whether it does of those that come."""
    groupings = {id_: rolled.grouping for id_, rolled in rolled_up.made.items()}
    names = frozenset(stream.schema.names)
    read = {stream.time} | of_joins | names & share.read
    for rolled in rolled_up.made.values():
        read.update((*rolled.grouping.keys, *rolled.grouping.values))
        read |= names & rolled.reads
    ordered = sorted(
        groupings.values(), key=lambda g: (g.rolled_up_from is not None, -len(g.keys) - len(g.values), g.id)
    )
    types = types_of(stream, share) if whole else {}
    sent = {stream.time}.union(*(columns_sent(rolled_up.made[id_], types) for id_ in whole))
    plan = StreamPlan(
        stream,
        tuple(column for column in stream.schema.names if column in read),
        _in_order(share.computed),
        tuple(_after_finer(ordered)),
        share.selections,
        whole,
        tuple(sorted(sent)) if whole else (),
        share.users,
        kept_rows(stream, share, rolled_up) if held and groupings else None,
        keeps,
        _later(share, of_joins),
    )
    name = _name(plan, rolled_up)
    of_rows = {id_ for id_ in whole if _counts_values(groupings[id_])}
    finished = {id_: replace(g, rows_are_partials=True) if id_ in of_rows else g for id_, g in groupings.items()}
    return PlannedStream(plan, finished, frozenset(g.route_key for g in groupings.values()), name)


def _name(plan: StreamPlan, rolled_up: RolledUp) -> str:
    """By the names of parts. Who uses a column or a partial follows from the queries, so it is not in it."""
    computed = tuple([c.name for c in plan.computed])
    made = tuple([rolled.name for rolled in rolled_up.made.values()])
    rows = () if plan.rows is None else (plan.rows, plan.keeps_rows)
    shipped = plan.shipped, plan.shipped_columns
    return named("", plan.stream, plan.columns, computed, plan.groupings, made, *shipped, *rows)


def kept_rows(stream: Stream, share: StreamShare, rolled_up: RolledUp) -> Grouping:
    """The rows of the stream as a grouping by nothing, along slices that no window cuts."""
    windows = tuple(dict.fromkeys(w for rolled in rolled_up.made.values() for w in rolled.grouping.windows))
    width, start = slice_grid(windows)
    columns = tuple(sorted(read_by_groupings(stream, share, rolled_up)))
    name = ROWS + stream.name
    return Grouping(name, stream.name, (), columns, (), windows, width, start, rows_are_partials=True)


def _later(share: StreamShare, of_joins: frozenset[str]) -> tuple[str, ...]:
    """The computed columns that neither joins nor queries without a window read."""
    waiting = set(of_joins)
    for selection in share.selections:
        waiting.update((*selection.columns, *([selection.where] if selection.where is not None else ())))
    needed: set[str] = set()
    while waiting:
        needed |= waiting
        waiting = {
            c for name in waiting if name in share.computed for c in share.computed[name].expr.columns
        } - needed
    return tuple(name for name in share.computed if name not in needed)


def _counts_values(grouping: Grouping) -> bool:
    """Whether a row alone is as good a partial as any: a value that was seen once."""
    return bool(grouping.values) and all(p.op == "count" for p in grouping.partials)


def _in_order(computed: Mapping[str, Computed]) -> tuple[Computed, ...]:
    """Those that read other computed columns (registers and ranks) after the ones they read."""
    later = [c for c in computed.values() if c.kind != "sql"]
    return (*([c for c in computed.values() if c.kind == "sql"] if later else computed.values()), *later)


def _after_finer(groupings: Iterable[Grouping]) -> dict[str, None]:
    """Every grouping after the one it is rolled up from."""
    done: dict[str, None] = {}
    waiting = list(groupings)
    while waiting:
        ready = [g.id for g in waiting if g.rolled_up_from is None or g.rolled_up_from in done]
        done.update(dict.fromkeys(ready))
        waiting = [g for g in waiting if g.id not in done]
    return done
