"""Beside the aggregates, before anything is shared: each join query by itself becomes edges between its relations,
predicates on them, and the indexes by which rows of one find those of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.aggregates.contract import ComputedColumns, conjunction
from thalweg.model.canonical import named, write
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Relation
from thalweg.model.plan import Computed
from thalweg.model.plan_input import RunningQuery
from thalweg.model.probe import Index, Predicate
from thalweg.model.probe_order import Edge
from thalweg.optimize.derive_streams import columns_of, flag, join_of, needs_flag, reads_of
from thalweg.optimize.draft import Draft, JoinParts, Keys, StoreShare, StreamUses, again
from thalweg.optimize.probe_trees import index_id

_WORDS = ("int", "bigint", "date", "timestamp", "timestamp_ntz")
"""Keys of these types are compared as they lie."""
_EXACT = (*_WORDS, "tinyint", "smallint", "boolean")
"""The hash of one of these is one to one."""


def split_joins(draft: Draft, last: Draft) -> Draft:
    joins = dict(draft.begun(last).joins)
    for running in draft.gone:
        joins.pop(running.id, None)
    for running in draft.new:
        if running.query.join is not None:
            joins[running.id] = again(last.joins.get(running.id), _split, running)
    return replace(draft, joins=joins)


def _split(running: RunningQuery) -> JoinParts:
    return _JoinSplitter(running).parts()


class _JoinSplitter:
    def __init__(self, running: RunningQuery) -> None:
        self.running = running
        self.join = join_of(running.query)
        self.computed: dict[str, dict[str, Computed]] = {}
        self.uses: dict[str, dict[str, None]] = {}
        """Stream -> what it asks of its rows."""
        self.indexes: list[tuple[str, Index]] = []

    def parts(self) -> JoinParts:
        predicates = {relation.name: self._predicate(relation) for relation in self.join.relations}
        edges, types = self._edges() if len(self.join.relations) > 1 else ({}, {})
        columns = {r.name: frozenset(columns_of(self.running.query, r.name)) for r in self.join.relations}
        return JoinParts(
            self.running.id,
            self.running.query,
            self.join,
            self.running.complete_from,
            self.join.farthest(),
            edges,
            types,
            predicates,
            self._stores(predicates, columns) if len(self.join.relations) > 1 else {},
            tuple(
                StreamUses(stream, tuple(self.computed[stream].values()), tuple(uses))
                for stream, uses in self.uses.items()
            ),
            frozenset(reads_of(self.running.query)),
            columns,
            flag(self.running.query).columns[0] if needs_flag(self.running.query) else None,
        )

    def _column_of(self, stream: str, expr: Expr, guard: Expr | None) -> str:
        uses = self.uses.setdefault(stream, {})
        return ComputedColumns(self.computed.setdefault(stream, {}), lambda name: uses.setdefault(name)).of(
            expr, guard
        )

    def _predicate(self, relation: Relation) -> Predicate | None:
        if not relation.atoms and relation.where is None:
            return None
        computed = () if relation.where is None else (self._column_of(relation.stream, relation.where, None),)
        atoms = tuple(sorted(relation.atoms, key=write))
        return Predicate(named("p", relation.stream, atoms, computed), atoms, computed)

    def _stores(
        self, predicates: Mapping[str, Predicate | None], columns: Mapping[str, frozenset[str]]
    ) -> dict[str, StoreShare]:
        join, far = self.join, self.join.farthest()
        streams = tuple(sorted(join.streams))
        found = {}
        for name in join.streams:
            relations = [r.name for r in join.relations if r.stream == name]
            asked = [predicates[relation] for relation in relations]
            found[name] = StoreShare(
                {streams: max(join.reach_us(relation, far) for relation in relations)},
                frozenset[str]().union(*(columns[relation] for relation in relations)),
                {predicate.id: predicate for predicate in asked if predicate is not None},
                {index.id: index for stream, index in self.indexes if stream == name},
                None in asked,
            )
        return found

    def _edges(self) -> tuple[dict[Edge, Keys], dict[Edge, tuple[str, ...]]]:
        join = self.join
        pairs: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for e in join.equalities:
            left, right = (
                self._column_of(relation.stream, part.expr, _selection(relation))
                for part in (e.left, e.right)
                for relation in (join.relation(part.relation),)
            )
            pairs.setdefault((e.left.relation, e.right.relation), []).append((left, right, e.left.expr.type))
        edges: dict[Edge, Keys] = {}
        types: dict[Edge, tuple[str, ...]] = {}
        for (a, b), found in pairs.items():
            keys = sorted(set(found))
            lefts, rights = tuple(k[0] for k in keys), tuple(k[1] for k in keys)
            kinds = tuple(k[2] for k in keys)
            for relation, of in ((a, lefts), (b, rights)):
                stream = join.relation(relation).stream
                self.indexes.append((stream, index_by(stream, of, kinds)))
            edge = (a, b, named("e", lefts, rights))
            edges[edge], types[edge] = (lefts, rights), kinds
        return edges, types


def index_by(store: str, keys: tuple[str, ...], types: tuple[str, ...]) -> Index:
    id_ = index_id(store, keys)
    plain = len(keys) == 1 and types[0] in _WORDS
    return Index(id_, keys, keys[0] if plain else f".h_{id_}", len(keys) == 1 and types[0] in _EXACT)


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
