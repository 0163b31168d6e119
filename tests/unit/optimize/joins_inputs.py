"""Small join workloads for tests: drawn from a seed, as plain values, for the optimiser and for the reference."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

import joins_reference as reference

from thalweg.optimize.probe_orders import JoinQuery, Statistics

Pair = tuple[str, str]


@dataclass(frozen=True)
class Workload:
    """Queries by name, as their predicates."""

    queries: dict[str, tuple[Pair, ...]]
    rates: dict[str, float]
    selectivity: dict[Pair, float]
    parallelism: int = 1
    storing: float = 1.0

    @property
    def join_queries(self) -> list[JoinQuery]:
        return [JoinQuery(name, relations_of(pairs), pairs) for name, pairs in self.queries.items()]

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.rates, self.selectivity, self.parallelism, self.storing)

    @property
    def reference(self) -> reference.Input:
        goals = {
            name: reference.Store(frozenset(relations_of(pairs)), frozenset(map(frozenset, pairs)))
            for name, pairs in self.queries.items()
        }
        selectivity = {frozenset(pair): value for pair, value in self.selectivity.items()}
        return reference.Input(goals, self.rates, selectivity, self.parallelism, self.storing)

    @property
    def candidates(self) -> int:
        """Intermediate stores that could be kept: the reference looks at every set of them."""
        return len({store for goal in self.reference.goals for store in reference.sub_joins(goal)})


def relations_of(pairs: Iterable[Pair]) -> tuple[str, ...]:
    return tuple(sorted({reference.relation_of(a) for pair in pairs for a in pair}))


def paper(parallelism: int = 1) -> Workload:
    """CLASH, Section V.2."""
    first, common, last = ("R.a", "S.a"), ("S.b", "T.b"), ("T.c", "U.c")
    queries: dict[str, tuple[Pair, ...]] = {"q1": (first, common), "q2": (common, last)}
    selectivity = {first: 0.01, common: 0.015, last: 0.01}
    return Workload(queries, dict.fromkeys("RSTU", 100.0), selectivity, parallelism)


def drawn(
    seed: int,
    *,
    queries: int = 2,
    sizes: tuple[int, ...] = (3,),
    relations: int = 5,
    attributes: int = 2,
    parallelism: int = 1,
    density: float = 0.5,
    doubled: float = 0.2,
) -> Workload:
    """Queries over parts of one graph of joins, so that they overlap.

    `density`: how many of the pairs of relations can be joined, beside a path through all of them; `doubled`: how
    many of those have a second predicate, which a query may have or not.
    """
    rng = random.Random(seed)
    names = "RSTUVWXY"[:relations]
    links = {pair for pair in combinations(names, 2) if rng.random() < density} | set(pairwise(names))
    predicates = {}
    for link in sorted(links):
        found = {_pair(rng, link, attributes) for _ in range(2 if rng.random() < doubled else 1)}
        predicates[link] = sorted(found)
    rates = {name: float(rng.choice((10, 50, 100, 100, 300, 1000))) for name in names}
    selectivity = {
        pair: rng.choice((0.2, 0.5, 1.0, 1.5, 3.0)) / max(rates[link[0]], rates[link[1]])
        for link, pairs in predicates.items()
        for pair in pairs
    }
    made = {f"q{i}": _query(rng, names, predicates, rng.choice(sizes)) for i in range(queries)}
    return Workload(made, rates, selectivity, parallelism)


def _pair(rng: random.Random, link: Pair, attributes: int) -> Pair:
    return f"{link[0]}.{rng.choice('abc'[:attributes])}", f"{link[1]}.{rng.choice('abc'[:attributes])}"


def _query(rng: random.Random, names: str, predicates: dict[Pair, list[Pair]], size: int) -> tuple[Pair, ...]:
    """Grown link by link; of the links between what it has in the end, some more: cycles, second predicates."""
    inside = {rng.choice(names)}
    chosen: set[Pair] = set()
    while len(inside) < size:
        link = rng.choice([link for link in predicates if len(inside & set(link)) == 1])
        inside |= set(link)
        chosen.add(rng.choice(predicates[link]))
    for link, pairs in predicates.items():
        if set(link) <= inside:
            chosen |= {pair for pair in pairs if rng.random() < 0.5}
    return tuple(sorted(chosen))
