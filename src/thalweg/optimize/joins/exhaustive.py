"""Every plan there is, and the cheapest of them: what the other methods are measured against. Small inputs only.

It is written from CLASH's Algorithm 1 and Eq. 1 and shares nothing with the other methods but the values they take
and give. For each set of intermediate stores and each way to partition them, start relations are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import fsum, prod

from thalweg import errors
from thalweg.optimize.joins.model import JoinQuery, Plan, Predicate, Statistics, Step, Store, largest_store
from thalweg.optimize.joins.validate import relation_of

MOST = 500_000
"""Sets of stores, times partitions of base relations, at most."""
MOST_STEPS = 3_000_000
"""Steps that are looked at in all."""
ANY = "*"
"""In place of an attribute: one that everybody knows."""


@dataclass(frozen=True)
class Join:
    relations: frozenset[str]
    predicates: frozenset[Predicate]

    def part(self, relations: frozenset[str]) -> Join:
        """The sub-join of some relations, with all predicates among them."""
        inside = {p for p in self.predicates if self.owners(p) <= relations}
        return Join(relations, frozenset(inside))

    def owners(self, predicate: Predicate) -> frozenset[str]:
        return frozenset(relation_of(side, self.relations) or "" for side in predicate)

    def between(self, some: frozenset[str], others: frozenset[str]) -> frozenset[Predicate]:
        return frozenset(p for p in self.predicates if self.owners(p) & some and self.owners(p) & others)

    @property
    def connected(self) -> bool:
        known = frozenset(sorted(self.relations)[:1])
        while grown := [r for r in self.relations - known if self.between(known, frozenset((r,)))]:
            known |= frozenset(grown)
        return known == self.relations

    def parts(self) -> list[Join]:
        """Every connected sub-join, itself included."""
        names = sorted(self.relations)
        subsets = chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1))
        return [part for part in (self.part(frozenset(subset)) for subset in subsets) if part.connected]


Partition = Mapping[Join, str | None]
Order = tuple[int, ...]
"""Steps by number: equal steps have equal numbers."""


def enumerate_plans(queries: tuple[JoinQuery, ...], stats: Statistics, materialize: bool | int) -> Plan:
    """The cheapest plan. The queries and statistics have been checked."""
    best = _Enumeration(queries, stats, materialize).best()
    orders = {
        (query.name, start): best.orders[join, start] for query, join in _joins(queries) for start in query.relations
    }
    return Plan(
        orders, _stores(queries, best, stats), best.cost, best.cost, "exhaustive", queries, stats, materialize,
        cost_separately,
    )  # fmt: skip


def cost_separately(queries: tuple[JoinQuery, ...], stats: Statistics, materialize: bool | int) -> float:
    alone = {join: _Enumeration((query,), stats, materialize).best().cost for query, join in _joins(queries)}
    return fsum(alone[join] for _, join in _joins(queries))


def _joins(queries: Sequence[JoinQuery]) -> list[tuple[JoinQuery, Join]]:
    return [(query, Join(frozenset(query.relations), frozenset(query.predicates))) for query in queries]


@dataclass(frozen=True)
class _Choice:
    """One plan: its probe orders, by join and start relation, and how its stores are partitioned."""

    cost: float
    orders: Mapping[tuple[Join, str], tuple[Step, ...]]
    partition: Partition


class _Enumeration:
    def __init__(self, queries: Sequence[JoinQuery], stats: Statistics, materialize: bool | int) -> None:
        self.stats = stats
        self.asked = list(dict.fromkeys(join for _, join in _joins(queries)))
        self.count = len(queries)
        if sum(2 ** len(join.relations) for join in self.asked) > MOST:
            raise errors.too_many_join_plans(self.count, MOST)
        parts = {join: join.parts() for join in self.asked}
        every = list(dict.fromkeys(chain.from_iterable(parts.values())))
        proper = {part for join in self.asked for part in parts[join] if part != join}
        self.base = [part for part in every if len(part.relations) == 1]
        largest = largest_store(materialize)
        self.stores = [part for part in every if 1 < len(part.relations) <= largest and part in proper]
        if len(self.stores) > MOST.bit_length():
            raise errors.too_many_join_plans(self.count, MOST)
        self.parts = {join: set(found) for join, found in parts.items()}
        self.options = {store: self.attributes(store) for store in (*self.base, *self.stores)}
        self.steps = 0
        self._moves: dict[tuple[Join, frozenset[str]], list[tuple[Join, Join, frozenset[Predicate]]]] = {}
        self.made: list[Step] = []
        self._numbers: dict[tuple[Join, Join, frozenset[Predicate], str | None], int] = {}

    def best(self) -> _Choice:
        if 2 ** len(self.stores) * prod(len(self.options[store]) for store in self.base) > MOST:
            raise errors.too_many_join_plans(self.count, MOST)
        best: _Choice | None = None
        for size in range(len(self.stores) + 1):
            for kept in combinations(self.stores, size):
                best = self.best_with(kept, best)
        if best is None:
            raise AssertionError("with no intermediate store at all there is a plan")
        return best

    def best_with(self, kept: Sequence[Join], best: _Choice | None) -> _Choice | None:
        """The best plan with exactly these intermediate stores, if it is better than the best one before."""
        stores = (*self.base, *kept)
        below = best.cost if best else float("inf")
        # If they do not pay where every partition attribute is known, they do not pay at all.
        if best and not self.cheapest(kept, dict.fromkeys(stores, ANY), below):
            return best
        for attributes in product(*(self.options[store] for store in stores)):
            partition = dict(zip(stores, attributes, strict=True))
            best = self.cheapest(kept, partition, best.cost if best else below) or best
        return best

    def attributes(self, store: Join) -> list[str | None]:
        """What a store may be partitioned by: attributes that some join equates with a relation outside of it."""
        if self.stats.parallelism == 1:
            return [None]
        found: set[str] = set()
        for join in self.asked:
            if store in self.parts[join]:
                for predicate in join.between(store.relations, join.relations - store.relations):
                    found |= {side for side in predicate if relation_of(side, join.relations) in store.relations}
        return [*sorted(found)] or [None]

    def cheapest(self, kept: Sequence[Join], partition: Partition, below: float) -> _Choice | None:
        """The best orders for these stores, if they cost less than `below`."""
        targets: dict[str, list[Join]] = {}
        for join in dict.fromkeys((*self.asked, *kept)):
            for start in sorted(join.relations):
                targets.setdefault(start, []).append(join)
        cost = self.stats.storing * fsum(self.rows(store) for store in kept)
        orders: dict[tuple[Join, str], Order] = {}
        for start, joins in targets.items():
            if not cost < below:
                return None
            choices = [list(self.orders(join, start, partition)) for join in joins]
            spent, chosen = self.together(choices)
            cost += spent
            orders |= {(join, start): order for join, order in zip(joins, chosen, strict=True)}
        if not cost < below:
            return None
        return _Choice(cost, {at: tuple(self.made[i] for i in order) for at, order in orders.items()}, partition)

    def orders(self, join: Join, start: str, partition: Partition) -> Iterator[Order]:
        """CLASH Algorithm 1."""

        def construct(head: frozenset[str]) -> Iterator[Order]:
            if head == join.relations:
                yield ()
            for store, sender, equal in self.moves(join, head):
                if store in partition:
                    step = self.step(sender, store, equal, partition[store])
                    yield from ((step, *rest) for rest in construct(head | store.relations))

        return construct(frozenset((start,)))

    def moves(self, join: Join, head: frozenset[str]) -> list[tuple[Join, Join, frozenset[Predicate]]]:
        """The stores that a partial result of a join can probe, with the partial result and what must be equal."""
        key = join, head
        if key not in self._moves:
            inside = [
                s for s in (*self.base, *self.stores) if s.relations < join.relations and not s.relations & head
            ]
            self._moves[key] = [
                (store, join.part(head), equal)
                for store in inside
                if store == join.part(store.relations) and (equal := join.between(head, store.relations))
            ]
        return self._moves[key]

    def step(self, head: Join, store: Join, equal: frozenset[Predicate], attribute: str | None) -> int:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise errors.too_many_join_plans(self.count, MOST_STEPS)
        key = head, store, equal, attribute
        if key not in self._numbers:
            known = {side for predicate in equal for side in predicate}
            while more := [p for p in store.predicates if len(known & {*p}) == 1]:
                known.update(*more)
            copies = 1.0 if attribute in known or attribute == ANY else float(self.stats.parallelism)
            self._numbers[key] = len(self.made)
            self.made.append(
                Step(
                    tuple(sorted(store.relations)), attribute, tuple(sorted(equal)), tuple(sorted(store.predicates)),
                    self.rows(head) / len(head.relations), copies,
                )
            )  # fmt: skip
        return self._numbers[key]

    def rows(self, join: Join) -> float:
        rates = prod(self.stats.rates[name] for name in sorted(join.relations))
        return float(rates * prod(self.stats.selectivity[p] for p in sorted(join.predicates)))

    def together(self, choices: list[list[Order]]) -> tuple[float, list[Order]]:
        """One order of each list so that their different prefixes cost least. All combinations are tried.

        A combination is given up where it already costs as much as the best one.
        """
        least, best = float("inf"), [orders[0] for orders in choices]

        def choose(chosen: list[Order], paid: frozenset[Order], cost: float) -> None:
            nonlocal least, best
            if not cost < least:
                return
            if len(chosen) == len(choices):
                least, best = cost, chosen
                return
            for order in choices[len(chosen)]:
                self.steps += len(order)
                prefixes = [order[: i + 1] for i in range(len(order))]
                new = [prefix for prefix in prefixes if prefix not in paid]
                choose([*chosen, order], paid.union(new), cost + fsum(self.made[prefix[-1]].cost for prefix in new))
            if self.steps > MOST_STEPS:
                raise errors.too_many_join_plans(self.count, MOST_STEPS)

        choose([], frozenset(), 0.0)
        return least, best


def _stores(queries: Sequence[JoinQuery], choice: _Choice, stats: Statistics) -> tuple[Store, ...]:
    probed: dict[Join, set[Join]] = {}
    for (join, _), order in choice.orders.items():
        found = {Join(frozenset(step.relations), frozenset(step.within)) for step in order}
        probed.setdefault(join, set()).update(found)
    users: dict[Join, list[str]] = {store: [] for store in choice.partition}
    for query, join in _joins(queries):
        need = [join.part(frozenset((name,))) for name in query.relations]
        for store in chain(need, (new := sorted(probed[join], key=lambda j: sorted(j.relations)))):
            if query.name not in users[store]:
                users[store].append(query.name)
            new += [other for other in probed.get(store, ()) if other not in new] if len(store.relations) > 1 else []
    enumeration = _Enumeration(queries, stats, False)
    made = []
    for store, attribute in choice.partition.items():
        orders = {r: choice.orders[store, r] for r in sorted(store.relations)} if len(store.relations) > 1 else {}
        relations, predicates = tuple(sorted(store.relations)), tuple(sorted(store.predicates))
        made.append(Store(relations, predicates, attribute, tuple(users[store]), enumeration.rows(store), orders))
    return tuple(made)
