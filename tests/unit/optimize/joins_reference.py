"""A second reading of CLASH: the cheapest plan by enumeration, and what a given plan costs.

Written from the paper and slow on purpose: every set of intermediate stores, every partition attribute of every
store and, for each starting relation, every choice of one probe order for each query and each store. It shares
nothing with `thalweg.optimize.probe_orders`.

- A store is its relations and the predicates among them; the store of one relation has no predicates.
- A row that starts in a relation and has been joined to k relations in all is the latest of them in one k-th of the
  cases: a step sends 1/k of the joined rows (Eq. 1), times the parallelism where the attribute by which the probed
  store is partitioned is not known to the row.
- A step is known by its starting relation, the stores before it and the predicates evaluated at each. Equal steps
  cost once, whoever asks.
- A store of several relations is kept up by a probe order from each of them, and gets the rows they find.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, product

Predicate = frozenset[str]
"""Two attributes, `Relation.attribute`, that are equal."""
Order = tuple["Store", ...]
"""What a starting row probes, in order."""
Step = tuple[tuple["Store", frozenset[Predicate]], ...]
"""The stores probed so far, each with the predicates evaluated there."""


@dataclass(frozen=True)
class Store:
    relations: frozenset[str]
    predicates: frozenset[Predicate] = frozenset()


@dataclass(frozen=True)
class Input:
    """Queries by name, as the stores of their results."""

    queries: Mapping[str, Store]
    rates: Mapping[str, float]
    selectivity: Mapping[Predicate, float]
    parallelism: float = 1
    storing: float = 1
    """What a row costs that is sent into a store of several relations."""

    @cached_property
    def goals(self) -> list[Store]:
        return list(dict.fromkeys(self.queries.values()))

    def rows(self, relations: frozenset[str], predicates: Iterable[Predicate]) -> float:
        return math.prod(self.rates[r] for r in relations) * math.prod(self.selectivity[p] for p in predicates)


def relation_of(attribute: str) -> str:
    return attribute.partition(".")[0]


def among(predicates: Iterable[Predicate], relations: frozenset[str]) -> frozenset[Predicate]:
    return frozenset(p for p in predicates if all(relation_of(a) in relations for a in p))


def is_connected(relations: frozenset[str], predicates: Iterable[Predicate]) -> bool:
    reached = {min(relations)}
    links = [{relation_of(a) for a in p} for p in among(predicates, relations)]
    for _ in relations:
        reached |= {r for link in links if link & reached for r in link}
    return reached == relations


def base(relation: str) -> Store:
    return Store(frozenset({relation}))


def sub_joins(goal: Store) -> Iterator[Store]:
    """Results of several relations that may be kept on the way to `goal`: its connected parts."""
    for size in range(2, len(goal.relations)):
        for part in map(frozenset, combinations(sorted(goal.relations), size)):
            if is_connected(part, goal.predicates):
                yield Store(part, among(goal.predicates, part))


def is_part(store: Store, goal: Store) -> bool:
    return store.relations < goal.relations and store.predicates == among(goal.predicates, store.relations)


def orders(goal: Store, start: str, kept: Iterable[Store]) -> list[Order]:
    """Algorithm 1: all probe orders from `start` to the whole of `goal` over base stores and those kept."""
    usable = [base(r) for r in sorted(goal.relations)]
    usable += [
        s for s in kept if s.relations < goal.relations and s.predicates == among(goal.predicates, s.relations)
    ]

    def extend(head: frozenset[str]) -> Iterator[Order]:
        if head == goal.relations:
            yield ()
        for store in usable:
            if not store.relations & head and between(goal, head, store):
                for rest in extend(head | store.relations):
                    yield (store, *rest)

    return list(extend(frozenset({start})))


def between(goal: Store, head: frozenset[str], store: Store) -> frozenset[Predicate]:
    both = head | store.relations
    inside = among(goal.predicates, head) | store.predicates
    return among(goal.predicates, both) - inside


def steps(goal: Store, start: str, order: Order) -> list[Step]:
    found: list[Step] = []
    head = frozenset({start})
    so_far: Step = ()
    for store in order:
        so_far = (*so_far, (store, between(goal, head, store)))
        found.append(so_far)
        head |= store.relations
    return found


def step_cost(given: Input, start: str, step: Step, partitions: Mapping[Store, str]) -> float:
    """Eq. 1 for one step: rows of the head whose start came last, times chi."""
    *before, (probed, evaluated) = step
    relations = frozenset({start}).union(*(s.relations for s, _ in before))
    satisfied: frozenset[Predicate] = frozenset().union(*(s.predicates | p for s, p in before))
    sent = given.rows(relations, satisfied) / len(relations)
    equal = satisfied | evaluated | probed.predicates
    return sent * (1 if is_known(partitions.get(probed), relations, equal) else given.parallelism)


def is_known(attribute: str | None, relations: frozenset[str], equal: frozenset[Predicate]) -> bool:
    """Whether a row of `relations` tells the value of `attribute`, through equal ones where need be."""
    if attribute is None:
        return False
    same = {attribute}
    for _ in equal:
        same |= {a for p in equal if p & same for a in p}
    return any(relation_of(a) in relations for a in same)


def attributes(given: Input, store: Store) -> list[str]:
    """Those by which the store may be partitioned: a query that contains it joins them to something outside."""
    return sorted(
        {
            a
            for goal in given.goals
            if is_part(store, goal)
            for p in goal.predicates - store.predicates
            for a in p
            if relation_of(a) in store.relations
        }
    )


@dataclass(frozen=True)
class Best:
    cost: float
    kept: frozenset[Store]
    partitions: Mapping[Store, str]


def cheapest(given: Input, *, materialize: bool | int) -> Best:
    """`materialize`: whether stores may be kept; a number: of so many relations at most."""
    largest = math.inf if materialize is True else materialize
    found = {s for goal in given.goals for s in sub_joins(goal) if len(s.relations) <= largest}
    candidates = sorted(found, key=_sorted)
    best = Best(math.inf, frozenset(), {})
    for kept in chain.from_iterable(combinations(candidates, n) for n in range(len(candidates) + 1)):
        if cost_with(given, kept, None, best.cost) >= best.cost:  # chi = 1: no partitioning could do better
            continue
        for partitions in partitionings(given, kept):
            cost = cost_with(given, kept, partitions, best.cost)
            if cost < best.cost:
                best = Best(cost, frozenset(kept), partitions)
    return best


def _sorted(store: Store) -> tuple[int, list[str], list[list[str]]]:
    return len(store.relations), sorted(store.relations), sorted(map(sorted, store.predicates))


def partitionings(given: Input, kept: Iterable[Store]) -> Iterator[dict[Store, str]]:
    if given.parallelism == 1:
        yield {}
        return
    stores = [base(r) for r in sorted(frozenset().union(*(g.relations for g in given.goals)))] + list(kept)
    choices = {store: attributes(given, store) for store in stores}
    choices = {store: found for store, found in choices.items() if found}
    for chosen in product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def cost_with(
    given: Input,
    kept: Iterable[Store],
    partitions: Mapping[Store, str] | None,
    enough: float = math.inf,
    chosen: Mapping[tuple[Store, str], list[Order]] | None = None,
) -> float:
    """The least cost when exactly these stores are kept; None: every attribute is known. Stops above `enough`.

    `chosen`: the orders of a goal and a start, where they are not open; several for equal queries that differ in it.
    """
    kept = list(kept)
    total = given.storing * sum(given.rows(s.relations, s.predicates) for s in kept)
    priced = given if partitions is not None else replace(given, parallelism=1)
    wanted = list(dict.fromkeys([*given.goals, *kept]))
    for start in sorted(frozenset().union(*(goal.relations for goal in wanted))):
        if total >= enough:
            break
        choices = []
        for goal in (goal for goal in wanted if start in goal.relations):
            fixed = (chosen or {}).get((goal, start))
            for options in [[order] for order in fixed] if fixed else [orders(goal, start, kept)]:
                ways = [steps(goal, start, order) for order in options]
                choices.append([{s: step_cost(priced, start, s, partitions or {}) for s in way} for way in ways])
        total += cheapest_union(choices)
    return total


def cheapest_union(choices: list[list[dict[Step, float]]]) -> float:
    """One of each list, so that what is in any of those chosen costs least; every combination is looked at."""
    best = math.inf
    choices = sorted(choices, key=len)

    def choose(i: int, paid: frozenset[Step], cost: float) -> None:
        nonlocal best
        if cost >= best:
            return
        if i == len(choices):
            best = cost
            return
        for way in choices[i]:
            choose(i + 1, paid | way.keys(), cost + sum(c for s, c in way.items() if s not in paid))

    choose(0, frozenset(), 0.0)
    return best


def separately(given: Input, *, materialize: bool) -> float:
    """The sum of the queries, each as if it were alone."""
    return sum(
        cheapest(replace(given, queries={name: goal}), materialize=materialize).cost
        for name, goal in given.queries.items()
    )
