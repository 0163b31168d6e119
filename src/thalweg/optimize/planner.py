"""Queries -> plan: which queries share which grouping pass, slices and finishing.

Queries over one stream with equal keys share one grouping; their predicates become filters of its partials;
their windows share slices; a coarser grouping rides on the partials of a finer one where that is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from thalweg.aggregates.contract import Columns, presence
from thalweg.aggregates.families import take_apart
from thalweg.model.canonical import named
from thalweg.model.expr import Expr
from thalweg.model.partitioning import AUTO, COMBINE, HASH, LOCAL
from thalweg.model.plan import (
    Computed,
    Grouping,
    Member,
    Partial,
    Piece,
    Plan,
    Quantile,
    Selection,
    StreamPlan,
    route_key,
    route_keys,
    shipped_keys,
)
from thalweg.model.plan_input import GroupingLoad, PlanInput, RunningQuery
from thalweg.model.probe import JoinPlan
from thalweg.model.query import Query
from thalweg.model.stream import Stream
from thalweg.model.types import to_duck
from thalweg.model.window import Window, slice_grid
from thalweg.optimize.joining import joined_streams, over_joined, plan_joins, read_by_joins
from thalweg.optimize.shipping import choose_shipped, type_width


@dataclass
class _Draft:
    """A grouping while queries are being added to it."""

    stream: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    partials: dict[str, Partial] = field(default_factory=dict)
    windows: dict[Window, None] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        return named("g", self.stream, "combine", self.keys, self.values)


def make_plan(given: PlanInput) -> Plan:
    """One plan for all queries. The same input always gives the same plan."""
    streams, slots, decisions = given.streams, given.settings.slots, given.decisions
    loads, joins = given.measurements.groupings, given.measurements.joins
    queries = {running.id: running.query for running in given.queries}
    builder = _Builder({**streams, **joined_streams(queries.values(), streams, given.tables)}, slots)
    for running in given.queries:
        builder.add(replace(running, query=over_joined(running.query)))
    complete_from = {running.id: running.complete_from for running in given.queries}
    join_plan = plan_joins(queries, streams, builder.column_of, joins, complete_from)
    groupings = share_slices(builder.drafts.values())
    groupings, notes = choose_rollups(groupings, loads, builder.pins)
    stream_plans = {name: builder.stream_plan(name, groupings, join_plan, loads) for name in builder.used_streams()}
    shipped = {id_ for stream in stream_plans.values() for id_ in stream.shipped}
    groupings = {id_: replace(g, loose=id_ in shipped and _counts_values(g)) for id_, g in groupings.items()}
    members = tuple(builder.members)
    plan = Plan("", slots, given.settings.key_groups, stream_plans, groupings, members, joins=join_plan, notes=notes)
    used = {key: tuple(groups) for key, groups in sorted(decisions.spread.items()) if key in route_keys(plan)}
    plan = replace(plan, assignment=_usable(decisions.assignment, plan), spread=used if slots > 1 else {})
    chosen = _partitioners(decisions.partitioners, builder.pins, plan)
    plan = replace(plan, partitioners=chosen, pinned=dict(sorted(builder.pins.items())))
    plan = replace(plan, follows=_followers(decisions.follows, plan))
    return replace(plan, id=named("plan", plan))


def _counts_values(grouping: Grouping) -> bool:
    """Whether a row alone is as good a partial as any: a value that was seen once."""
    return bool(grouping.values) and all(p.op == "count" for p in grouping.partials)


def _usable(assignment: Mapping[str, Sequence[int]], plan: Plan) -> dict[str, tuple[int, ...]]:
    """What still fits: route keys that are in use, assigned for this number of slots and key groups."""
    used = route_keys(plan)
    return {
        route_key: tuple(assigned)
        for route_key, assigned in sorted(assignment.items())
        if route_key in used and len(assigned) == plan.groups and max(assigned) < plan.slots
    }


def _followers(follows: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """Who may follow whom: both shipped from one stream."""
    bound = bound_to_slots(plan) | {*plan.partitioners}
    found = {}
    for stream in plan.streams.values():
        keys = shipped_keys(plan, stream)
        for key in keys:
            leader = follows.get(key)
            if leader in keys and leader not in {*follows, *plan.partitioners} and key not in bound:
                found[key] = leader
    return dict(sorted(found.items()))


def _partitioners(chosen: Mapping[str, str], pins: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """What deals out rows other than by the routing table, of the route keys for which that is possible."""
    shipped = {key: found for stream in plan.streams.values() for key, found in shipped_keys(plan, stream).items()}
    wanted = {**{key: LOCAL for key, found in shipped.items() if all(g.loose for g in found)}, **chosen, **pins}
    # Joined rows come in any order. A partitioner would deal them out in another way when a task is run again, and
    # those that have seen the first attempt would miss some rows and have others twice.
    unordered = {name for name, joined in plan.joins.joined.items() if not joined.alone}
    fixed = {key for key, found in shipped.items() if found[0].stream in unordered or plan.slots == 1}
    return {
        key: name
        for key, name in sorted(wanted.items())
        if key in shipped.keys() - bound_to_slots(plan) and name != HASH and (name == LOCAL or key not in fixed)
    }


def bound_to_slots(plan: Plan) -> set[str]:
    """Route keys whose rows are needed where their windows are, at once."""
    return {plan.groupings[m.main.grouping].route_key for m in plan.members if m.updates}


class _Builder:
    def __init__(self, streams: Mapping[str, Stream], slots: int) -> None:
        self.streams = streams
        self.slots = slots
        self.drafts: dict[str, _Draft] = {}
        self.columns: dict[str, Columns] = {}
        self.users: dict[str, dict[str, dict[str, None]]] = {}
        self.selections: dict[str, list[Selection]] = {}
        self.members: list[Member] = []
        self.pins: dict[str, str] = {}
        """route key -> the partitioner that a query asks for; of several, the oldest query's."""

    def add(self, entry: RunningQuery) -> None:
        shared = self.columns.setdefault(entry.query.stream, Columns({}))
        self.users.setdefault(entry.query.stream, {})
        columns = Columns(shared.computed, lambda name: self._use(entry, (name,)))
        for stream in entry.query.streams:
            self.columns.setdefault(stream, Columns({}))
            self.users.setdefault(stream, {})
        if entry.query.window is None:
            self._add_selection(entry, columns)
        else:
            self._add_member(entry, columns)

    def column_of(self, id_: str, stream: str, expr: Expr, guard: Expr | None) -> str:
        """The column of a stream that holds an expression which a join query needs."""
        shared = self.columns.setdefault(stream, Columns({}))
        users = self.users.setdefault(stream, {})
        return Columns(shared.computed, lambda name: users.setdefault(name, {}).update({id_: None})).of(expr, guard)

    def _add_selection(self, entry: RunningQuery, columns: Columns) -> None:
        query = entry.query
        where = None if query.where is None else columns.of(query.where)
        names = tuple(columns.of(output.expr, query.where) for output in query.outputs)
        selection = Selection(
            entry.id,
            query.stream,
            where,
            names,
            tuple(output.name for output in query.outputs),
            tuple(output.expr.type for output in query.outputs),
        )
        self.selections.setdefault(query.stream, []).append(selection)

    def _add_member(self, entry: RunningQuery, columns: Columns) -> None:
        query = entry.query
        assert query.window is not None
        time = self.streams[query.stream].time
        keys = tuple(columns.of(_without_negative_zero(key), query.where) for key in query.keys)
        where = None if query.where is None else columns.of(query.where)
        present = presence(where)
        route = tuple(sorted(set(keys)))
        pinned = dict(query.options).get("partitioner", AUTO)
        if pinned != AUTO:
            self.pins.setdefault(route_key(query.stream, route), pinned)
        main = self._draft(query, route, ())
        self._extend(entry, main, (present,))
        pieces: dict[str, list[tuple[str, str]]] = {main.id: []}
        missing: dict[str, str] = {}
        quantiles: dict[str, list[Quantile]] = {}
        for i, aggregate in enumerate(query.aggregates):
            parts = take_apart(aggregate, query.where, time, columns)
            draft = main if parts.shape == "main" else self._draft(query, route, parts.values)
            self._extend(entry, draft, parts.partials)
            pieces.setdefault(draft.id, []).append((f"a{i}", parts.finish))
            if parts.shape != "main":
                missing[f"a{i}"] = parts.missing
            if parts.quantile is not None:
                quantiles.setdefault(draft.id, []).append(parts.quantile)
        self.members.append(
            Member(
                query=entry.id,
                window=query.window,
                main=Piece(main.id, tuple(pieces.pop(main.id))),
                further=tuple(
                    Piece(
                        id_,
                        tuple(aggregates),
                        tuple((a, missing[a]) for a, _ in aggregates),
                        tuple(found) if len(found := quantiles.get(id_, [])) == len(aggregates) else (),
                    )
                    for id_, aggregates in pieces.items()
                ),
                keys=tuple(zip(keys, (key.type for key in query.keys), strict=True)),
                present=present.name,
                outputs=tuple(output.expr for output in query.outputs),
                names=tuple(output.name for output in query.outputs),
                types=tuple(output.expr.type for output in query.outputs),
                having=query.having,
                order=tuple((o.expr, o.descending, o.nulls_first) for o in query.order),
                limit=query.limit,
                updates=query.emit == "updates",
                fence=entry.fence,
            )
        )

    def _draft(self, query: Query, keys: tuple[str, ...], values: tuple[str, ...]) -> _Draft:
        assert query.window is not None
        draft = _Draft(query.stream, keys, values)
        draft = self.drafts.setdefault(draft.id, draft)
        draft.windows[query.window] = None
        return draft

    def _extend(self, entry: RunningQuery, draft: _Draft, partials: Iterable[Partial]) -> None:
        for partial in partials:
            draft.partials.setdefault(partial.name, partial)
            self._use(entry, (partial.name,))

    def _use(self, entry: RunningQuery, names: Iterable[str]) -> None:
        users = self.users[entry.query.stream]
        for name in names:
            users.setdefault(name, {})[entry.id] = None

    def used_streams(self) -> list[str]:
        return list(self.columns)

    def stream_plan(
        self,
        name: str,
        groupings: Mapping[str, Grouping],
        joins: JoinPlan,
        loads: Mapping[str, GroupingLoad],
    ) -> StreamPlan:
        stream = self.streams[name]
        computed = tuple(self.columns[name].computed.values())
        mine = [g for g in groupings.values() if g.stream == name]
        made = {c.name for c in computed}
        read = {stream.time}
        for c in computed:
            read.update(column for column in c.expr.columns if column not in made)
        for grouping in mine:
            read.update(c for c in (*grouping.keys, *grouping.values) if c not in made)
            read.update(_read_columns(grouping, stream.schema.names))
        for selection in self.selections.get(name, []):
            read.update(column for column in selection.columns if column not in made)
            if selection.where is not None and selection.where not in made:
                read.add(selection.where)
        read.update(column for column in read_by_joins(name, joins, self.streams) if column not in made)
        types = {f.name: f.type for f in stream.schema.fields} | {c.name: c.expr.type for c in computed}
        columns = {g.id: _shipped_columns(g, types) for g in mine}
        shipped = choose_shipped(
            mine,
            loads,
            lambda g: columns[g.id],
            lambda column: type_width(types.get(column, "boolean")),  # flags of joins are of no schema
            self.slots,
            self.pins,
        )
        wanted = {stream.time}.union(*(columns[id_] for id_ in shipped))
        ordered = sorted(mine, key=lambda g: (g.finer is not None, -len(g.keys) - len(g.values), g.id))
        return StreamPlan(
            stream,
            tuple(column for column in stream.schema.names if column in read),
            _in_order(computed),
            tuple(g.id for g in _after_finer(ordered)),
            tuple(self.selections.get(name, ())),
            tuple(shipped),
            tuple(sorted(wanted)) if shipped else (),
            {thing: tuple(ids) for thing, ids in self.users[name].items()},
        )


def _without_negative_zero(key: Expr) -> Expr:
    """0.0 and -0.0 are one group, and Spark calls it 0.0."""
    if key.type not in ("float", "double"):
        return key
    return replace(key, sql=f"({key.sql} + 0::{to_duck(key.type)})")


def _shipped_columns(grouping: Grouping, known: Iterable[str]) -> set[str]:
    """What a slot needs of a row to make the grouping from it."""
    named = {name for p in grouping.partials for name in (p.filter, p.argument) if name is not None}
    return {*grouping.keys, *grouping.values, *named, *_read_columns(grouping, known)}


def _read_columns(grouping: Grouping, known: Iterable[str]) -> Iterable[str]:
    """Columns that partials read directly, found in their texts by their quoted names."""
    texts = "\0".join(p.combine for p in (*grouping.partials, *grouping.extra))  # one search, not one for each
    filters = {p.filter for p in (*grouping.partials, *grouping.extra)}
    for column in known:
        quoted = '"' + column.replace('"', '""') + '"'
        if column in filters or quoted in texts:
            yield column


def _in_order(computed: tuple[Computed, ...]) -> tuple[Computed, ...]:
    """Those that read other computed columns (registers and ranks) after the ones they read."""
    return tuple(sorted(computed, key=lambda c: c.kind != "sql"))


def _after_finer(groupings: list[Grouping]) -> list[Grouping]:
    """Every grouping after the one it is rolled up from."""
    done: dict[str, Grouping] = {}
    waiting = list(groupings)
    while waiting:
        ready = [g for g in waiting if g.finer is None or g.finer in done]
        done.update((g.id, g) for g in ready)
        waiting = [g for g in waiting if g.id not in done]
    return list(done.values())


def share_slices(drafts: Iterable[_Draft]) -> dict[str, Grouping]:
    """Groupings whose slices no window of any of their queries cuts."""
    groupings: dict[str, Grouping] = {}
    for draft in drafts:
        width, start = slice_grid(tuple(draft.windows))
        groupings[draft.id] = Grouping(
            id=draft.id,
            stream=draft.stream,
            keys=draft.keys,
            values=draft.values,
            partials=tuple(draft.partials.values()),
            windows=tuple(draft.windows),
            slice_us=width,
            slice_start_us=start,
        )
    return groupings


def choose_rollups(
    groupings: dict[str, Grouping], loads: Mapping[str, GroupingLoad], pins: Mapping[str, str]
) -> tuple[dict[str, Grouping], tuple[str, ...]]:
    """Coarser groupings are made from a finer one's partials where those are fewer than the rows by half.

    From facts: rolling 245,000 partials of (a, b) up to (a) takes 6 ms where a million rows take 29 ms. A
    roll-up costs per partial what a pass costs per row, so it pays while groups per row stay under one half;
    without a measurement a finer grouping is taken to be worth it.
    """
    result = dict(groupings)
    notes: list[str] = []
    apart = {key for key, name in pins.items() if name != COMBINE}
    by_coarseness = sorted(groupings.values(), key=lambda g: (len(g.keys), g.id))
    for coarse in (g for g in by_coarseness if g.route_key not in apart):
        options = [fine for fine in result.values() if _can_serve(fine, coarse) and fine.route_key not in apart]
        options = [o for o in options if _ratio(o, loads) <= 0.5]
        if not options:
            continue
        fine = min(options, key=lambda o: (_ratio(o, loads), len(o.keys), o.id))
        names = {p.name for p in (*fine.partials, *fine.extra)}
        needed = (*coarse.partials, *result[coarse.id].extra)
        extra = tuple(p for p in needed if p.name not in names)
        result[fine.id] = replace(result[fine.id], extra=(*result[fine.id].extra, *extra))
        result[coarse.id] = replace(result[coarse.id], finer=fine.id)
        notes.append(f"{coarse.id} by {_keys(coarse)} is rolled up from {fine.id} by {_keys(fine)}")
    return result, tuple(notes)


def _can_serve(fine: Grouping, coarse: Grouping) -> bool:
    return (
        fine.id != coarse.id
        and fine.finer is None
        and fine.stream == coarse.stream
        and not fine.values
        and not coarse.values
        # Groups are many more in the finer one, and users' code is called for each.
        and all(p.own is None for p in coarse.partials)
        and set(coarse.keys) < set(fine.keys)
        and coarse.slice_us % fine.slice_us == 0
        and (coarse.slice_start_us - fine.slice_start_us) % fine.slice_us == 0
    )


def _ratio(grouping: Grouping, loads: Mapping[str, GroupingLoad]) -> float:
    load = loads.get(grouping.id)
    return 0.25 if load is None else load.groups_per_row


def _keys(grouping: Grouping) -> str:
    return "(" + ", ".join(grouping.keys) + ")"
