"""What join planning is asked and what it answers: queries, statistics, and a plan of stores and probe orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Predicate = tuple[str, str]
"""Two attributes that must be equal, each as "relation.attribute"."""
PlannedOrders = Mapping[str, tuple["Step", ...]]
"""Start relation -> the stores that its rows probe, in order."""


def largest_store(materialize: bool | int) -> float:
    """The most relations that a store may have: any number, one, or as many as are given."""
    return math.inf if materialize is True else max(1, materialize)


@dataclass(frozen=True)
class JoinQuery:
    """An equi-join of relations. A stream that is joined with itself comes as relations of different names."""

    name: str
    relations: tuple[str, ...]
    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class Statistics:
    """How many rows there are, and how many of them find each other."""

    rates: Mapping[str, float]
    """Relation -> rows in a window."""
    selectivity: Mapping[Predicate, float]
    """Predicate, either way round -> the share of all pairs of rows that satisfies it."""
    parallelism: float = 1
    """Chi of CLASH Eq. 1: to how many places a row goes that does not know the store's partition attribute."""
    storing: float = 1.0
    """What a row costs that is sent into an intermediate store; a row sent to a probe costs 1. CLASH's Algorithm 2
    leaves it out, as if it were 0, and then every join of three relations would keep an intermediate store."""


@dataclass(frozen=True)
class Step:
    """One probe: a partial result is sent to a store and comes back joined with it."""

    relations: tuple[str, ...]
    """Of the store that is probed."""
    partition: str | None
    """The attribute by which the store is partitioned."""
    predicates: tuple[Predicate, ...]
    """What must be equal between the partial result and the store."""
    within: tuple[Predicate, ...]
    """What is equal inside the store: with `relations`, which store it is."""
    rows: float
    """Rows that are sent, in a window."""
    copies: float
    """To how many places each of them goes: chi of CLASH Eq. 1."""

    @property
    def cost(self) -> float:
        return self.rows * self.copies


@dataclass(frozen=True)
class Store:
    """The windowed rows of one relation, or of an intermediate result, under one partition attribute."""

    relations: tuple[str, ...]
    predicates: tuple[Predicate, ...]
    partition: str | None
    users: tuple[str, ...]
    """The queries that need it, to probe it or to fill a store that they probe."""
    rows: float
    """Rows held, in a window."""
    probe_orders: PlannedOrders = field(default_factory=dict)
    """How it is kept filled: by a probe order from each of its relations. None for a base relation."""

    @property
    def intermediate(self) -> bool:
        return len(self.relations) > 1


@dataclass(frozen=True)
class Plan:
    """Which stores are kept, and in which order arriving rows probe them."""

    probe_orders: Mapping[tuple[str, str], tuple[Step, ...]]
    """(query, start relation) -> the stores that its rows probe, in order."""
    stores: tuple[Store, ...]
    cost: float
    """Rows sent in a window, each shared step once (CLASH Eq. 1), those sent into intermediate stores included."""
    bound: float
    """Proven: no plan costs less."""
    method: str
    """What found the answer."""
    queries: tuple[JoinQuery, ...]
    statistics: Statistics
    materialize: bool | int
    separately: Callable[[tuple[JoinQuery, ...], Statistics, bool | int], float]
    """Plans each query by itself and adds up the costs."""
    changed: int = 0
    """Queries attached and detached since all of them were planned together."""

    @cached_property
    def separate_cost(self) -> float:
        """The sum of the costs of each query planned by itself. It is found out when it is first asked for.

        A store has one partition attribute for all queries, but one of its own where a query is alone: so with
        parallelism above 1, planning together can cost more than the sum of plans that share no state at all.
        """
        return self.separately(self.queries, self.statistics, self.materialize)

    @property
    def saving(self) -> float:
        """The share of the separate plans' cost that sharing saves."""
        return 1.0 - self.cost / self.separate_cost if self.separate_cost > 0.0 else 0.0

    @property
    def proven(self) -> bool:
        return self.cost - self.bound <= 1e-6 * abs(self.cost)
