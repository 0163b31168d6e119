"""Join queries -> stores, query groups and probe trees.

What is joined is decided by three questions. Which queries run together: `groups`. In which order an arriving
row looks for partners: `orders`. What must be kept of each stream for that: here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from thalweg.aggregates.contract import conjunction
from thalweg.errors import ThalwegError
from thalweg.model.canonical import named, write
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Join, Relation, joined_column, joined_stream
from thalweg.model.ordering import Edge, Ordered, Orders
from thalweg.model.plan_input import JoinLoad
from thalweg.model.probe import (
    Decision,
    Group,
    Index,
    Intermediate,
    Joined,
    JoinPlan,
    Predicate,
    Role,
    Store,
    Want,
)
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.optimize.groups import Demand, Sides, form_groups
from thalweg.optimize.ordering import attached, partners, rows_of, statistics_of
from thalweg.optimize.orders import Shape, Sizes, choose_orders
from thalweg.optimize.trees import Bound, TreeBuilder, index_id, stages

JOIN_LIMIT = 20_000_000
"""Rows that one key may yield in one batch, unless the query says otherwise."""

KEEP_BELOW = 0.5
"""A sub-join of which a row finds at most so many partners is kept as an intermediate: it is smaller than both."""
PROBE_COST = 20_000.0
"""What the probes of one edge cost a group in every batch before they have found anything, in rows."""

MOST_ATTACHED = 8
"""Queries of a group that are attached in one batch: each takes some 5 to 40 ms in a group of 64. Others wait."""

_WORDS = ("int", "bigint", "date", "timestamp", "timestamp_ntz")
"""Keys of these types are compared as they lie."""
_EXACT = (*_WORDS, "tinyint", "smallint", "boolean")
"""The hash of one of these is one to one."""

T = TypeVar("T")
ColumnOf = Callable[[str, str, Expr, Expr | None], str]
"""(query id, stream, expression, guard) -> the column that holds its value, worked out where the guard holds."""


# -- a query as the rest of the planner sees it


def flag(query: Query) -> Expr:
    """The column of joined rows that says which are the query's. Named by what it asks, not by the query.

    What it reads is part of that: rows from before a column was wanted serve only those who do not want it. So is
    its limit: a key may be too frequent for one query and not for another.
    """
    assert query.join is not None
    asked = [(r.name, r.atoms, r.where, sorted(_columns_of(query, r.name))) for r in query.join.relations]
    name = named(".f", asked, query.join.bounds, _limit(query))
    return Expr(quote(name), "boolean", (name,))


def needs_flag(query: Query) -> bool:
    """Whether the query is more than some columns of its rows."""
    assert query.join is not None
    plain = query.window is None and query.where is None and query.join.kind == "inner" and not query.join.tables
    return not (plain and all(o.expr.is_column for o in query.outputs))


def over_joined(query: Query) -> Query:
    """The query over the stream of joined rows: its own rows there are those with its flag."""
    if query.join is None or not needs_flag(query):
        return query
    return replace(query, where=conjunction(flag(query), query.where))


def joined_streams(
    queries: Iterable[Query], streams: Mapping[str, Stream], tables: Mapping[str, Schema]
) -> dict[str, Stream]:
    found = {}
    for query in queries:
        if query.join is not None and query.stream not in found:
            first = query.join.relations[0]
            time = query.time or joined_column(first.name, streams[first.stream].time)
            found[query.stream] = joined_stream(query.stream, query.join, time, streams, tables)
    return found


# -- the plan


def plan_joins(
    queries: Mapping[str, Query],
    streams: Mapping[str, Stream],
    column_of: ColumnOf,
    load: JoinLoad,
    complete_from: Mapping[str, int | None],
) -> JoinPlan:
    """One plan for all join queries. The same arguments always give the same plan.

    `complete_from`: of queries that came while others ran, the event time after which all rows are there.
    """
    queries = {id_: q for id_, q in queries.items() if q.join is not None}
    return _Planner(queries, streams, column_of, load, complete_from).plan()


class _Planner:
    def __init__(
        self,
        queries: Mapping[str, Query],
        streams: Mapping[str, Stream],
        column_of: ColumnOf,
        load: JoinLoad,
        complete_from: Mapping[str, int | None],
    ) -> None:
        self.queries = queries
        self.complete_from = complete_from
        self.streams = streams
        self.column_of = column_of
        self.load = load
        self.joins = {id_: _join(q) for id_, q in queries.items()}
        self.indexes: dict[str, dict[str, Index]] = {}
        self.predicates: dict[str, dict[str, Predicate]] = {}
        self.asked: dict[tuple[str, str], str | None] = {}
        """(query, relation) -> the predicate it has there."""
        self.keeps_all: set[str] = set()
        self.edges: dict[str, dict[Edge, tuple[tuple[str, ...], tuple[str, ...]]]] = {}
        """query -> edge -> the key columns on either side."""
        self.types: dict[Edge, tuple[str, ...]] = {}
        self.intermediates: dict[str, Intermediate] = {}
        self.far = {id_: join.farthest() for id_, join in self.joins.items()}
        self.ordered: dict[str, Ordered] = {}

    def plan(self) -> JoinPlan:
        probing = [id_ for id_, join in self.joins.items() if len(join.relations) > 1]
        for id_ in probing:
            self._look_at(id_)
        demands = [self._demand(id_) for id_ in probing]
        sets, notes = form_groups(
            demands,
            self._by_relation(self.load.samples),
            self.load.groups,
            sides=self._sides(),
            held=self._by_relation(self.load.held),
            fixed=PROBE_COST,
        )
        groups = {}
        for ids in sets:
            group = self._group(ids)
            groups[group.id] = group
        roots = [node for group in groups.values() for tree in group.trees for node in tree.children]
        kept = {id_: self._store_intermediate(m) for id_, m in sorted(self.intermediates.items())}
        return JoinPlan(
            stores={**self._stores(probing), **kept},
            groups=groups,
            joined=self._joined(),
            decisions=tuple(d for g in groups.values() for d in self._decisions(g)),
            intermediates=self.intermediates,
            stages=max((int(node.moves) + stages(node) for node in roots), default=int(bool(groups))),
            limits={id_: _limit(q) for id_, q in self.queries.items()},
            notes=tuple(notes),
            ordered={id_: self.ordered[id_] for id_ in sorted(self.ordered)},
        )

    # -- what a query asks of its relations

    def _look_at(self, id_: str) -> None:
        join = self.joins[id_]
        for relation in join.relations:
            self.asked[id_, relation.name] = self._predicate(id_, relation)
            if self.asked[id_, relation.name] is None:
                self.keeps_all.add(relation.stream)
        pairs: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for e in join.equalities:
            sides = [
                self.column_of(id_, relation.stream, part.expr, _selection(relation))
                for part in (e.left, e.right)
                for relation in (join.relation(part.relation),)
            ]
            pair = (e.left.relation, e.right.relation)
            pairs.setdefault(pair, []).append((sides[0], sides[1], e.left.expr.type))
        edges: dict[Edge, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for (a, b), keys in pairs.items():
            keys = sorted(set(keys))
            left, right = tuple(k[0] for k in keys), tuple(k[1] for k in keys)
            types = tuple(k[2] for k in keys)
            self._index(join.relation(a).stream, left, types)
            self._index(join.relation(b).stream, right, types)
            edge = (a, b, named("e", left, right))
            edges[edge], self.types[edge] = (left, right), types
        self.edges[id_] = edges

    def _predicate(self, id_: str, relation: Relation) -> str | None:
        if not relation.atoms and relation.where is None:
            return None
        computed = () if relation.where is None else (self.column_of(id_, relation.stream, relation.where, None),)
        atoms = tuple(sorted(relation.atoms, key=write))
        predicate = Predicate(named("p", relation.stream, atoms, computed), atoms, computed)
        self.predicates.setdefault(relation.stream, {})[predicate.id] = predicate
        return predicate.id

    def _index(self, stream: str, keys: tuple[str, ...], types: tuple[str, ...]) -> None:
        id_ = index_id(stream, keys)
        plain = len(keys) == 1 and types[0] in _WORDS
        index = Index(id_, keys, keys[0] if plain else f".h_{id_}", len(keys) == 1 and types[0] in _EXACT)
        self.indexes.setdefault(stream, {})[id_] = index

    def _demand(self, id_: str) -> Demand:
        join = self.joins[id_]
        asked = {r.name: self.asked[id_, r.name] for r in join.relations}
        kind = "" if join.kind == "inner" else id_
        return Demand(
            id_,
            tuple(r.name for r in join.relations),
            frozenset("|".join((*edge, kind)) for edge in self.edges[id_]),
            {name: p for name, p in asked.items() if p is not None},
        )

    def _sides(self) -> dict[str, Sides]:
        """The two ends of each edge, by the name that demands give it."""
        found: dict[str, Sides] = {}
        for id_, edges in self.edges.items():
            kind = "" if self.joins[id_].kind == "inner" else id_
            for edge, (left, right) in edges.items():
                ends = [
                    (name, index_id(self._stream_of(id_, name), keys))
                    for name, keys in ((edge[0], left), (edge[1], right))
                ]
                found["|".join((*edge, kind))] = (ends[0], ends[1])
        return found

    def _by_relation(self, of_streams: Mapping[str, T]) -> dict[str, T]:
        """Relations of one stream have the stream's measurements."""
        names = {r.name: r.stream for join in self.joins.values() for r in join.relations}
        return {name: of_streams[stream] for name, stream in names.items() if stream in of_streams}

    # -- stores

    def _stores(self, probing: Sequence[str]) -> dict[str, Store]:
        needs: dict[str, dict[tuple[str, ...], int]] = {}
        columns: dict[str, set[str]] = {}
        for id_ in probing:
            join, query = self.joins[id_], self.queries[id_]
            for relation in join.relations:
                of = needs.setdefault(relation.stream, {})
                streams = tuple(sorted(join.streams))
                of[streams] = max(of.get(streams, 0), join.reach_us(relation.name))
                columns.setdefault(relation.stream, set()).update(_columns_of(query, relation.name))
        return {name: self._store(name, columns[name], needs[name]) for name in sorted(needs)}

    def _store(self, name: str, columns: set[str], needs: Mapping[tuple[str, ...], int]) -> Store:
        stream = self.streams[name]
        indexes = tuple(self.indexes[name][id_] for id_ in sorted(self.indexes[name]))
        kept = {stream.time, *columns, *(key for index in indexes for key in index.keys)}
        own = [c for c in stream.schema.names if c in kept]
        return Store(
            name,
            stream.time,
            (*own, *sorted(kept - set(own))),
            tuple(p for _, p in sorted(self.predicates.get(name, {}).items())),
            name in self.keeps_all,
            indexes,
            tuple(sorted(needs.items())),
        )

    # -- groups and trees

    def _group(self, ids: Sequence[str]) -> Group:
        joins = [self.joins[id_] for id_ in ids]
        names = sorted({(r.name, r.stream) for join in joins for r in join.relations})
        walked = [id_ for id_ in ids if self.joins[id_].kind in ("inner", "outer")]
        roles = {name: self._role(name, stream, ids) for name, stream in names}
        decided = self._decided(walked, roles)
        shapes = [
            Shape(id_, tuple(r.name for r in self.joins[id_].relations), frozenset(self.edges[id_]))
            for id_ in walked
            if id_ not in decided
        ]
        sizes = self._sizes(walked, roles)
        orders = choose_orders(shapes, sizes)
        for id_, join in decided.items():
            orders |= {(id_, start): join.flat(start, order) for start, order in join.orders.items()}
        kept = self._keep([id_ for id_ in walked if id_ not in decided], decided, sizes)
        builder = TreeBuilder(ids, self.bound(ids), orders, kept, self.load.ready, _uses(decided, kept))
        trees = builder.trees()
        self._note_orders(walked, decided, builder, kept)
        for m in kept:
            roles[m.id] = Role(m.id, m.id, ())
            self.intermediates[m.id] = m
            self._index_intermediate(m)
        streams = tuple(tuple(sorted(join.streams)) for join in joins)
        return Group(named("group", tuple(ids)), tuple(ids), streams, roles, trees)

    def _sizes(self, ids: Sequence[str], roles: Mapping[str, Role]) -> Sizes:
        """How many partners rows find, for the queries of a group: over epochs, until then over recent batches."""
        edges = {edge for id_ in ids for edge in self.edges[id_]}
        found = partners(sorted(edges), roles, self.load.estimates, self.load.samples)
        return Sizes({}, {**self.load.matches, **found})

    def _join_of(self, id_: str, orders: Orders, decided: bool) -> Ordered:
        relations = tuple(sorted(r.name for r in self.joins[id_].relations))
        return Ordered(relations, tuple(sorted(self.edges[id_])), orders, decided)

    def _decided(self, ids: Sequence[str], roles: Mapping[str, Role]) -> dict[str, Ordered]:
        """The queries of a group whose orders were decided, and new ones attached to them."""
        found = {}
        new = {}
        for id_ in ids:
            if self.joins[id_].kind == "inner":
                join = self._join_of(id_, self.load.orders.get(id_, {}), True)
                if set(join.orders) == set(join.relations) and all(join.admits(*o) for o in join.orders.items()):
                    found[id_] = join
                else:
                    new[id_] = replace(join, orders={})
        return found | self._attached(found, new, roles)

    def _attached(
        self, running: Mapping[str, Ordered], new: Mapping[str, Ordered], roles: Mapping[str, Role]
    ) -> dict[str, Ordered]:
        """New queries with orders beside those that run, as far as their streams have been measured."""
        rows = rows_of(roles.values(), self.load.estimates, self.load.samples)
        measured = [id_ for id_, join in new.items() if rows.keys() >= {*join.relations}]
        known = {id_: new[id_] for id_ in measured[:MOST_ATTACHED]}
        if not running or not known:
            return {}
        joins = [*running.values(), *known.values()]
        edges = sorted({edge for join in joins for edge in join.edges})
        stats = statistics_of(joins, rows, partners(edges, roles, self.load.estimates, self.load.samples))
        try:
            chosen = {} if stats is None else attached(running, known, stats)
        except ThalwegError:  # numbers that the optimiser refuses: the order is then what it is without a decision
            return {}
        return {id_: replace(known[id_], orders=orders) for id_, orders in chosen.items()}

    def _note_orders(
        self, ids: Sequence[str], decided: Mapping[str, Ordered], builder: TreeBuilder, kept: Sequence[Intermediate]
    ) -> None:
        """What was decided is noted as it was, the orders of others as they are walked in this batch."""
        pairs = {m.id: tuple(sorted(m.relations)) for m in kept}
        for id_ in ids:
            if self.joins[id_].kind == "inner":
                walked = {
                    r.name: tuple(pairs.get(token, (token,)) for token in builder.paths[id_, r.name][1:])
                    for r in self.joins[id_].relations
                }
                self.ordered[id_] = decided.get(id_) or self._join_of(id_, walked, False)

    def bound(self, ids: Sequence[str]) -> dict[str, Bound]:
        return {id_: Bound(self.joins[id_], self.queries[id_].stream, self.edges[id_], self.far[id_]) for id_ in ids}

    def _keep(self, ids: Sequence[str], decided: Mapping[str, Ordered], sizes: Sizes) -> list[Intermediate]:
        """The two-way sub-joins that were decided for; of other queries those that yield little: of each with three
        relations or more, the smallest."""
        wanted: dict[tuple[Edge, ...], list[str]] = {}
        for id_, join in decided.items():
            for pair in sorted({found for order in join.orders.values() for found in order if len(found) > 1}):
                wanted.setdefault(join.among(pair), []).append(id_)
        for id_ in ids:
            if len(self.joins[id_].relations) < 3 or self.joins[id_].kind != "inner":
                continue
            growth = {edge: _growth(edge, sizes) for edge in self.edges[id_]}
            small = [edge for edge, found in growth.items() if found is not None and found <= KEEP_BELOW]
            if small:
                smallest = min(small, key=lambda e: (growth[e], e))
                wanted.setdefault(self._join_of(id_, {}, False).among(smallest[:2]), []).append(id_)
        kept = []
        for (edge, *_), users in sorted(wanted.items()):
            # Its name is that of its oldest query, so that it is the same store when another one is decided for.
            queries = [id_ for id_ in self.queries if id_ in users]
            anchor = self._outward(edge, queries)
            id_ = "+" + named("m", edge, queries[0])
            kept.append(Intermediate(id_, (edge[0], edge[1]), anchor, tuple(queries)))
        return kept

    def _outward(self, edge: Edge, queries: Sequence[str]) -> str:
        """The side that other relations are joined with."""
        for id_ in queries:
            for a, b, _ in self.edges[id_]:
                for name in edge[:2]:
                    if (a == name) != (b == name) and {a, b} != set(edge[:2]):
                        return name
        return edge[0]

    def _index_intermediate(self, m: Intermediate) -> None:
        """As many indexes as there are edges from its relations to others."""
        for id_ in m.queries:
            for edge, (left, right) in self.edges[id_].items():
                for (name, keys), other in (((edge[0], left), edge[1]), ((edge[1], right), edge[0])):
                    if name in m.relations and other not in m.relations:
                        joined = tuple(joined_column(name, key) for key in keys)
                        self._index(m.id, joined, self.types[edge])

    def _store_intermediate(self, m: Intermediate) -> Store:
        needs: dict[tuple[str, ...], int] = {}
        columns: set[str] = set()
        for id_ in m.queries:
            join, query = self.joins[id_], self.queries[id_]
            streams = tuple(sorted(join.streams))
            others = [r.name for r in join.relations if r.name not in m.relations]
            reach = max([0, *(self.far[id_][m.anchor, other] for other in others)])
            needs[streams] = max(needs.get(streams, 0), reach)
            for name in m.relations:
                wanted = _columns_of(query, name) | self._keys_of(id_, name) | {self._time_of(id_, name)}
                columns.update(joined_column(name, column) for column in wanted)
        indexes = tuple(index for _, index in sorted(self.indexes[m.id].items()))
        time = joined_column(m.anchor, self._time_of(m.queries[0], m.anchor))
        return Store(m.id, time, tuple(sorted(columns)), (), True, indexes, tuple(sorted(needs.items())))

    def _time_of(self, id_: str, relation: str) -> str:
        return self.streams[self._stream_of(id_, relation)].time

    def _role(self, name: str, stream: str, ids: Sequence[str]) -> Role:
        wants: dict[tuple[str | None, tuple[str, ...]], int] = {}
        for bit, id_ in enumerate(ids):
            if (id_, name) in self.asked:
                columns = _columns_of(self.queries[id_], name) | self._keys_of(id_, name)
                want = (self.asked[id_, name], tuple(sorted(columns)))
                wants[want] = wants.get(want, 0) | 1 << bit
        known = self.predicates.get(stream, {})
        return Role(
            name,
            stream,
            tuple(Want(queries, known[p] if p else None, columns) for (p, columns), queries in wants.items()),
        )

    def _keys_of(self, id_: str, name: str) -> set[str]:
        found: set[str] = set()
        for edge, (left, right) in self.edges[id_].items():
            found.update(left if edge[0] == name else right if edge[1] == name else ())
        return found

    def _stream_of(self, id_: str, relation: str) -> str:
        return self.joins[id_].relation(relation).stream

    # -- what comes of it

    def _decisions(self, group: Group) -> list[Decision]:
        found = []
        for id_ in group.queries:
            join = self.joins[id_]
            for name in join.preserved:
                (other,) = (r.name for r in join.relations if r.name != name)
                node = TreeBuilder(group.queries, self.bound(group.queries), {}, (), {}).decision(id_, name, other)
                found.append(
                    Decision(
                        group.id,
                        id_,
                        self.queries[id_].stream,
                        node,
                        name,
                        self._stream_of(id_, name),
                        tuple(sorted(join.streams)),
                        self.far[id_][name, other],
                        self.far[id_][other, name],
                        self.complete_from.get(id_),
                    )
                )
        return found

    def _joined(self) -> dict[str, Joined]:
        joined: dict[str, Joined] = {}
        for id_, query in self.queries.items():
            join = self.joins[id_]
            flags = ((id_, flag(query).columns[0]),) if needs_flag(query) else ()
            known = joined.get(query.stream)
            joined[query.stream] = Joined(
                query.stream,
                tuple((r.name, r.stream) for r in join.relations),
                tuple(sorted(join.streams)),
                join.lag_us(query.time) if query.time else 0,
                max([known.span_us if known else 0, *self.far[id_].values()]),
                (*(known.flags if known else ()), *flags),
                join.kind,
                join.on,
                join.tables,
                (*(known.alone if known else ()), *self._alone(id_)),
                tuple(sorted({*(known.reads if known else ()), *_reads(query)})),
            )
        return joined

    def _alone(self, id_: str) -> tuple[tuple[str, Predicate | None], ...]:
        relations = self.joins[id_].relations
        if len(relations) > 1:
            return ()
        predicate = self._predicate(id_, relations[0])
        return ((id_, None if predicate is None else self.predicates[relations[0].stream][predicate]),)


def _growth(edge: Edge, sizes: Sizes) -> float | None:
    """The most that a row of either side finds; None where that was not measured."""
    a, b, key = edge
    found = [sizes.matches.get(side) for side in ((a, b, key), (b, a, key))]
    measured = [m for m in found if m is not None]
    return max(measured) if len(measured) == 2 else None


def _uses(decided: Mapping[str, Ordered], kept: Sequence[Intermediate]) -> dict[tuple[str, str], list[str]]:
    """(query, start) -> the intermediates in its order."""
    return {
        (id_, start): [m.id for m in kept if tuple(sorted(m.relations)) in order and id_ in m.queries]
        for id_, join in decided.items()
        for start, order in join.orders.items()
    }


def _limit(query: Query) -> int:
    return int(dict(query.options).get("join_limit", JOIN_LIMIT))


def _join(query: Query) -> Join:
    assert query.join is not None
    return query.join


def _selection(relation: Relation) -> Expr | None:
    """What a query asks of the relation's rows, as one expression. `where` guards itself."""
    if relation.where is not None and relation.where.fails:
        return relation.where
    found: Expr | None = relation.where
    for atom in relation.atoms:
        found = conjunction(Expr(_comparison(atom), "boolean", (atom.column,)), found)
    return found


def _comparison(atom: Atom) -> str:
    """As predicates compare: in doubles where the value is one. DuckDB would make a FLOAT of it for a FLOAT."""
    if isinstance(atom.value, float):
        return f"(CAST({quote(atom.column)} AS DOUBLE) {atom.op} CAST('{atom.value!r}' AS DOUBLE))"
    return f"({quote(atom.column)} {atom.op} {atom.value!r})"


def _columns_of(query: Query, relation: str) -> set[str]:
    """The relation's columns that joined rows of the query must have."""
    prefix = relation + "."
    return {name[len(prefix) :] for name in _reads(query) if name.startswith(prefix)}


def _reads(query: Query) -> set[str]:
    """The joined columns that the query reads."""
    join = _join(query)
    exprs = [o.expr for o in query.outputs] if query.window is None else []
    exprs += [e for e in (query.where, join.on) if e is not None]
    exprs += query.keys
    exprs += [a for aggregate in query.aggregates for a in aggregate.args]
    exprs += [a.filter for a in query.aggregates if a.filter is not None]
    for table in join.tables:
        exprs += [key for key, _ in table.keys]
        exprs += [table.on] if table.on is not None else []
    return {column for e in exprs for column in e.columns} | ({query.time} if query.time else set())


def read_by_joins(stream: str, joins: JoinPlan, streams: Mapping[str, Stream]) -> set[str]:
    """The columns of a stream that its store, its predicates and joins with tables read."""
    read: set[str] = set()
    predicates: list[Predicate] = []
    if stream in joins.stores:
        read.update(joins.stores[stream].columns)
        predicates += joins.stores[stream].predicates
    for joined in joins.joined.values():
        if joined.alone and joined.relations[0][1] == stream:
            predicates += [p for _, p in joined.alone if p is not None]
            prefix = joined.relations[0][0] + "."
            read.update(c[len(prefix) :] for c in joined.reads if c.startswith(prefix))
    for predicate in predicates:
        read.update(atom.column for atom in predicate.atoms)
        read.update(predicate.computed)
    return read
