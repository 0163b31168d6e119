"""Before anything is shared, because only what is taken apart can be: each query by itself becomes partials, filters
and computed columns, and a member that puts them together again. A query without a window becomes a selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from thalweg.aggregates.contract import ComputedColumns, presence
from thalweg.aggregates.families import take_apart
from thalweg.model.canonical import named
from thalweg.model.expr import Expr
from thalweg.model.partitioning import AUTO
from thalweg.model.plan import Computed, Contribution, Partial, Quantile, Selection, WindowedQuery, route_key
from thalweg.model.plan_input import RunningQuery
from thalweg.model.query import Query
from thalweg.model.types import to_duck
from thalweg.model.window import Window
from thalweg.optimize.derive_streams import over_joined
from thalweg.optimize.draft import AskedGrouping, Draft, Part, QueryParts, StreamUses, again, read_through


def split_aggregates(draft: Draft, last: Draft) -> Draft:
    begun = draft.begun(last)
    parts = dict(begun.parts)
    for running in draft.gone:
        del parts[running.id]
    for running in draft.new:
        time = draft.streams[running.query.stream].time
        parts[running.id] = again(last.parts.get(running.id), _split, running, time)
    new = {running.id: parts[running.id].value.member for running in draft.new}
    members = draft.of_queries(begun.members, {id_: member for id_, member in new.items() if member is not None})
    return replace(draft, parts=parts, members=members, pins=_pins(draft, last, parts))


def _pins(draft: Draft, last: Draft, parts: Mapping[str, Part[QueryParts]]) -> Mapping[str, str]:
    touched = [*(last.parts[running.id] for running in draft.gone), *(parts[running.id] for running in draft.new)]
    if draft.continues and all(part.value.pin is None for part in touched):
        return last.pins
    pins: dict[str, str] = {}
    for running in draft.given.queries:
        pin = parts[running.id].value.pin
        if pin is not None:
            pins.setdefault(*pin)
    return pins


def _split(running: RunningQuery, time: str) -> QueryParts:
    """`time`: the event time of the query's stream."""
    splitter = _AggregateSplitter(running.id, over_joined(running.query), running.fence, time)
    return splitter.selection() if running.query.window is None else splitter.member()


class _AggregateSplitter:
    def __init__(self, id_: str, query: Query, fence: tuple[int, int] | None, time: str) -> None:
        self.id, self.query, self.fence, self.time = id_, query, fence, time
        self.computed: dict[str, Computed] = {}
        self.uses: dict[str, None] = {}
        self.columns = ComputedColumns(self.computed, lambda name: self.uses.setdefault(name))
        self.groupings: dict[str, _Grouping] = {}

    def asked(self) -> tuple[StreamUses, ...]:
        """Of its own stream; a join reads others besides."""
        own = StreamUses(self.query.stream, tuple(self.computed.values()), tuple(self.uses))
        return (own, *(StreamUses(name) for name in self.query.streams if name != self.query.stream))

    def selection(self) -> QueryParts:
        query = self.query
        where = None if query.where is None else self.columns.of(query.where)
        names = tuple(self.columns.of(output.expr, query.where) for output in query.outputs)
        selection = Selection(
            self.id,
            query.stream,
            where,
            names,
            tuple(output.name for output in query.outputs),
            tuple(output.expr.type for output in query.outputs),
        )
        return QueryParts(self.asked(), selection=selection)

    def member(self) -> QueryParts:
        query = self.query
        assert query.window is not None
        keys = tuple(self.columns.of(_without_negative_zero(key), query.where) for key in query.keys)
        present = presence(None if query.where is None else self.columns.of(query.where))
        route = tuple(sorted(set(keys)))
        main, further = self._contributions(query.window, route, present)
        member = WindowedQuery(
            query=self.id,
            window=query.window,
            main=main,
            further=further,
            keys=tuple(zip(keys, (key.type for key in query.keys), strict=True)),
            present=present.name,
            outputs=tuple(output.expr for output in query.outputs),
            names=tuple(output.name for output in query.outputs),
            types=tuple(output.expr.type for output in query.outputs),
            having=query.having,
            order=tuple((o.expr, o.descending, o.nulls_first) for o in query.order),
            limit=query.limit,
            updates=query.emit == "updates",
            fence=self.fence,
        )
        pinned = dict(query.options).get("partitioner", AUTO)
        pin = None if pinned == AUTO else (route_key(query.stream, route), pinned)
        groupings = tuple(grouping.asked(self.computed) for grouping in self.groupings.values())
        return QueryParts(self.asked(), groupings, member, pin=pin)

    def _contributions(
        self, window: Window, route: tuple[str, ...], present: Partial
    ) -> tuple[Contribution, tuple[Contribution, ...]]:
        """What the grouping by the query's keys gives, and what groupings by values besides."""
        main = self._grouping(window, route, ())
        self._extend(main, (present,))
        contributed: dict[str, list[tuple[str, str]]] = {main.id: []}
        missing: dict[str, str] = {}
        quantiles: dict[str, list[Quantile]] = {}
        for i, aggregate in enumerate(self.query.aggregates):
            parts = take_apart(aggregate, self.query.where, self.time, self.columns)
            grouping = main if parts.shape == "main" else self._grouping(window, route, parts.values)
            self._extend(grouping, parts.partials)
            contributed.setdefault(grouping.id, []).append((f"a{i}", parts.finish))
            if parts.shape != "main":
                missing[f"a{i}"] = parts.missing
            if parts.quantile is not None:
                quantiles.setdefault(grouping.id, []).append(parts.quantile)
        first = Contribution(main.id, tuple(contributed.pop(main.id)))
        return first, tuple(
            Contribution(
                id_,
                tuple(aggregates),
                tuple((a, missing[a]) for a, _ in aggregates),
                tuple(found) if len(found := quantiles.get(id_, [])) == len(aggregates) else (),
            )
            for id_, aggregates in contributed.items()
        )

    def _grouping(self, window: Window, keys: tuple[str, ...], values: tuple[str, ...]) -> _Grouping:
        id_ = named("g", self.query.stream, "combine", keys, values)
        return self.groupings.setdefault(id_, _Grouping(id_, self.query.stream, keys, values, window))

    def _extend(self, grouping: _Grouping, partials: Iterable[Partial]) -> None:
        for partial in partials:
            grouping.partials.setdefault(partial.name, partial)
            self.uses.setdefault(partial.name)


@dataclass
class _Grouping:
    """A grouping while aggregates are being added to it."""

    id: str
    stream: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    window: Window
    partials: dict[str, Partial] = field(default_factory=dict)

    def asked(self, computed: Mapping[str, Computed]) -> AskedGrouping:
        partials = tuple(self.partials.values())
        names = frozenset[str]().union(*(p.reads for p in partials))
        arguments = (p.argument for p in partials if p.argument is not None)
        columns = read_through({*self.keys, *self.values, *arguments, *names}, computed)
        return AskedGrouping(self.id, self.stream, self.keys, self.values, self.window, partials, names, columns)


def _without_negative_zero(key: Expr) -> Expr:
    """0.0 and -0.0 are one group, and Spark calls it 0.0."""
    if key.type not in ("float", "double"):
        return key
    return replace(key, sql=f"({key.sql} + 0::{to_duck(key.type)})")
