"""What it costs to run join queries together, and apart: AJoin's Eq. 1 and 2, counted on sampled rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thalweg.model.join_statistics import PredicateSample
from thalweg.model.probe import COHORT_SIZE

UNMEASURED_RATE = 1000.0

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]
Ids = NDArray[np.intp]


@dataclass(frozen=True)
class Demand:
    """What one query asks: its relations, its edges, the predicate it has on each relation."""

    query: str
    relations: tuple[str, ...]
    """Sorted."""
    edges: frozenset[str]
    """Its two-way sub-joins: a pair of relations and a key. Queries that have none in common never share a cohort."""
    predicates: Mapping[str, str]
    """Relation -> predicate; a relation of which every row is wanted is missing."""


Sides = tuple[tuple[str, str], tuple[str, str]]
"""The two ends of an edge: (relation, key), as `PredicateSample.distinct` names the key."""


class _CohortRows:
    """The sampled rows of one relation: a row of bits for each predicate, and a last one for no predicate."""

    def __init__(self, sample: PredicateSample | None) -> None:
        self.rate = max(sample.rate, 1.0) if sample else UNMEASURED_RATE
        self.distinct = sample.distinct if sample else {}
        # Without sampled rows there is one that satisfies nothing, and no predicate is measured.
        rows, predicates = (sample.rows, sample.predicates) if sample and sample.rows else ((0,), ())
        self.bit = {predicate: i for i, predicate in enumerate(predicates)}
        self.scale = self.rate / len(rows)
        self._rows = rows

    @cached_property
    def bits(self) -> Bits:
        rows, predicates = self._rows, len(self.bit)
        width = predicates // 8 + 1
        packed = np.frombuffer(b"".join(row.to_bytes(width, "little") for row in rows), np.uint8)
        satisfied = np.ones((predicates + 1, -(-len(rows) // 64) * 64), bool)
        satisfied[:, len(rows) :] = False
        satisfied[:-1, : len(rows)] = np.unpackbits(
            packed.reshape(-1, width), axis=1, count=predicates, bitorder="little"
        ).T
        return np.packbits(satisfied, axis=1).view(np.uint64)

    def knows(self, predicate: str | None) -> bool:
        return predicate is None or predicate in self.bit

    def asked(self, predicate: str | None) -> int:
        return self.bit[predicate] if predicate is not None else len(self.bit)

    def cardinality(self, counts: Floats) -> Floats:
        """Rows per batch. Of a predicate that no sampled row satisfies, half a sampled row is expected."""
        return np.maximum(counts, 0.5) * self.scale


def _counts(bits: Bits) -> Floats:
    counts: Floats = np.bitwise_count(bits).sum(axis=-1, dtype=np.float64)
    return counts


class _Edge:
    """A two-way join with the measured queries that ask for it."""

    def __init__(
        self,
        sides: Sides,
        rows: Mapping[str, _CohortRows],
        held: Mapping[str, float],
        fixed: float,
        members: list[tuple[int, Demand]],
    ) -> None:
        self.fixed = fixed
        self.queries: Ids = np.array([query for query, _ in members], np.intp)
        self.place = {query: i for i, (query, _) in enumerate(members)}
        self.rows = [rows[relation] for relation, _ in sides]
        self.asked = [
            np.array([rows[relation].asked(demand.predicates.get(relation)) for _, demand in members], np.intp)
            for relation, _ in sides
        ]
        self.keys = [max(rows[r].distinct.get(key, rows[r].rate), 1.0) for r, key in sides]
        # The new rows of either side meet the rows that were there on the other, and each other.
        self.meetings = held.get(sides[0][0], 1.0) + held.get(sides[1][0], 1.0) - 1.0
        self.alone = self.cost(*self.wanted(slice(None)))

    def among(self, queries: Sequence[int] | Ids) -> tuple[Ids, Ids]:
        """Which of the queries ask for it, and their places here."""
        found = [(i, place) for i, query in enumerate(queries) if (place := self.place.get(int(query))) is not None]
        here, places = zip(*found, strict=True) if found else ((), ())
        return np.array(here, np.intp), np.array(places, np.intp)

    def union(self, queries: Iterable[int]) -> list[Bits]:
        """The sampled rows of either side that some of the queries want."""
        at = [self.place[query] for query in queries]
        return [np.bitwise_or.reduce(bits, axis=0) for bits in self.wanted(at)]

    def wanted(self, at: Ids | list[int] | slice) -> list[Bits]:
        """The sampled rows of either side, for each of the queries at these places."""
        return [rows.bits[asked[at]] for rows, asked in zip(self.rows, self.asked, strict=True)]

    def cost(self, left: Bits, right: Bits) -> Floats:
        """Of joins whose sides are given as sampled rows."""
        return self.price(*(r.cardinality(_counts(b)) for r, b in zip(self.rows, (left, right), strict=True)))

    def price(self, left: Floats, right: Floats) -> Floats:
        """AJoin Eq. 2: index both sides, intersect the keys, find the pairs."""
        keys = np.minimum(np.minimum(left, self.keys[0]), np.minimum(right, self.keys[1]))
        return self.fixed + left + right + keys + left * right * self.meetings / max(self.keys)

    def shared(self, at: Ids, others: Ids) -> Floats:
        """The cost of each of the queries at these places together with each of the others."""
        unions = []
        for rows, asked in zip(self.rows, self.asked, strict=True):
            distinct, back = np.unique(asked[at], return_inverse=True)
            distinct_others, back_others = np.unique(asked[others], return_inverse=True)
            bits = rows.bits[distinct_others]
            # AJoin Eq. 1, counted on the rows. A product of matrices would do; its threads fight over busy cores.
            counts = np.stack([_counts(bits | one) for one in rows.bits[distinct]])
            unions.append(rows.cardinality(counts)[np.ix_(back, back_others)])
        return self.price(*unions)


class CohortCosts:
    """The costs of all queries. A query is its place among the demands."""

    def __init__(
        self,
        demands: Sequence[Demand],
        samples: Mapping[str, PredicateSample],
        sides: Mapping[str, Sides],
        held: Mapping[str, float],
        fixed: float,
    ) -> None:
        self.count = len(demands)
        self.edges_of = [demand.edges for demand in demands]
        self._given = sides, held, fixed
        self._rows = {r: _CohortRows(samples.get(r)) for r in {r for ends in sides.values() for r, _ in ends}}
        self.measured = np.array([self._is_measured(demand) for demand in demands], bool)
        column = {edge: i for i, edge in enumerate(sorted(frozenset().union(*self.edges_of)))}
        self._members: dict[str, list[tuple[int, Demand]]] = {}
        self._asks = np.zeros((self.count, len(column)), np.float32)
        asked = [(query, column[edge]) for query, edges in enumerate(self.edges_of) for edge in edges]
        if asked:
            self._asks[tuple(zip(*asked, strict=True))] = 1
        for query in np.flatnonzero(self.measured).tolist():
            for edge in demands[query].edges:
                self._members.setdefault(edge, []).append((query, demands[query]))
        self._edges: dict[str, _Edge] = {}

    def _is_measured(self, demand: Demand) -> bool:
        sides, asked = self._given[0], demand.predicates
        if not demand.edges <= sides.keys():
            return False
        return all(self._rows[r].knows(asked.get(r)) for edge in demand.edges for r, _ in sides[edge])

    def edge(self, name: str) -> _Edge:
        if name not in self._edges:
            sides, held, fixed = self._given
            self._edges[name] = _Edge(sides[name], self._rows, held, fixed, self._members[name])
        return self._edges[name]

    def common(self, queries: Sequence[int] | Ids, others: Sequence[int] | Ids) -> NDArray[np.bool_]:
        """Which of the queries have an edge in common with which of the others."""
        both: NDArray[np.bool_] = self._asks[queries] @ self._asks[others].T > 0
        return both

    def pairs(self, queries: Sequence[int] | Ids, others: Sequence[int] | Ids) -> tuple[Floats, Floats]:
        """The cost of each of the queries with each of the others together, and apart, over their common edges; 0
        where nothing is known."""
        shared, apart = np.zeros((2, len(queries), len(others)))
        for name in sorted(self._edges_among(queries) & self._edges_among(others)):
            edge = self.edge(name)
            here, at = edge.among(queries)
            there, at_others = edge.among(others)
            shared[np.ix_(here, there)] += edge.shared(at, at_others)
            apart[np.ix_(here, there)] += edge.alone[at][:, None] + edge.alone[at_others]
        return shared, apart

    def _edges_among(self, queries: Iterable[int]) -> set[str]:
        return {name for query in queries if self.measured[query] for name in self.edges_of[query]}

    def gains(self, queries: Ids) -> Floats:
        """What each two of these queries gain by running together."""
        shared, apart = self.pairs(queries, queries)
        gains: Floats = apart - shared
        np.fill_diagonal(gains, 0.0)
        return gains

    def ratios(self, queries: Sequence[int], others: Sequence[int]) -> Floats:
        """The cost of each of the queries with each of others together against apart; infinite where nothing is
        known."""
        shared, apart = self.pairs(queries, others)
        return np.divide(shared, apart, out=np.full_like(shared, np.inf), where=apart > 0.0)

    def of_cohort(self, members: Iterable[int]) -> float:
        """Of the measured ones among the members, run together."""
        return sum(float(self.edge(name).cost(*union)) for name, union in self.unions(members).items())

    def unions(self, members: Iterable[int]) -> dict[str, list[Bits]]:
        """Edge -> the sampled rows of either side that some measured member wants."""
        asking: dict[str, list[int]] = {}
        for query in members:
            for name in self.edges_of[query] if self.measured[query] else ():
                asking.setdefault(name, []).append(query)
        return {name: self.edge(name).union(queries) for name, queries in sorted(asking.items())}

    def compatible(self, queries: list[int]) -> list[int]:
        """As many of the queries, first come, as may be one cohort."""
        common = self.common(queries, queries)
        if common.all():
            return queries[:COHORT_SIZE]
        taken: list[int] = []
        for at in range(len(queries)):
            if len(taken) < COHORT_SIZE and common[at, taken].all():
                taken.append(at)
        return [queries[at] for at in taken]
