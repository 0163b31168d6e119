"""From a forest to a plan in the words of its queries."""

from __future__ import annotations

from collections.abc import Collection

from thalweg.optimize.probe_orders.forest import ProbeForest, Target
from thalweg.optimize.probe_orders.model import PlannedOrders, Predicate, Step, Store
from thalweg.optimize.probe_orders.space import Move, Space


class Wording:
    """Says in names what a forest has in numbers; every step once."""

    def __init__(self, forest: ProbeForest) -> None:
        self.forest = forest
        self.space = forest.space
        self._steps: dict[tuple[int, Move], Step] = {}
        self._orders: dict[Target, tuple[Step, ...]] = {}

    def probe_orders(self) -> dict[tuple[str, str], tuple[Step, ...]]:
        """(query, start relation) -> the steps."""
        space = self.space
        starts = {space.named(space.relations[start])[0]: start for g in space.graphs.values() for start in g.starts}
        return {
            (query.name, relation): self.order((number, starts[relation]))
            for query, number in zip(space.queries, space.graph_of, strict=True)
            for relation in query.relations
        }

    def orders_of(self, number: int) -> PlannedOrders:
        space = self.space
        return {
            space.named(space.relations[start])[0]: self.order((number, start))
            for start in space.graph(number).starts
        }

    def order(self, target: Target) -> tuple[Step, ...]:
        if target not in self._orders:
            steps, head = [], target[1]
            for move in self.forest.leaves[target].path:
                steps.append(self.step(head, move))
                head = move[1]
            self._orders[target] = tuple(steps)
        return self._orders[target]

    def step(self, head: int, move: Move) -> Step:
        key = head, move
        if key not in self._steps:
            space, (store, found) = self.space, move
            between = space.conditions[found] & ~space.conditions[head] & ~space.conditions[store]
            self._steps[key] = Step(
                space.named(space.relations[store]),
                self.partition(store),
                space.equalities(between),
                space.equalities(space.conditions[store]),
                space.sent[head],
                space.copies(head, move, self.forest.partition.get(store)),
            )
        return self._steps[key]

    def partition(self, store: int) -> str | None:
        attribute = self.forest.partition.get(store)
        return None if attribute is None else self.space.attributes[attribute]

    def stores(self) -> tuple[Store, ...]:
        """Base relations first, then intermediate results, small before large."""
        space, users = self.space, store_users(self.forest)
        named: dict[int, list[tuple[int, str]]] = {}
        for i, (query, number) in enumerate(zip(space.queries, space.graph_of, strict=True)):
            named.setdefault(number, []).append((i, query.name))
        made = []
        for store in users:
            needed_by = sorted(query for number in users[store] for query in named[number])
            made.append(
                Store(
                    space.named(space.relations[store]),
                    space.equalities(space.conditions[store]),
                    self.partition(store),
                    tuple(name for _, name in needed_by),
                    space.rows[store],
                    {} if space.base[store] else self.orders_of(store),
                )
            )
        return tuple(sorted(made, key=by_size))


def by_size(store: Store) -> tuple[int, tuple[str, ...], tuple[Predicate, ...]]:
    """The order in which stores are listed."""
    return len(store.relations), store.relations, store.predicates


def store_users(forest: ProbeForest) -> dict[int, set[int]]:
    """Store -> the joins asked for that probe it, or that probe a store which is filled by probing it."""
    space = forest.space
    probed: dict[int, set[int]] = {}
    for (number, _), leaf in forest.leaves.items():
        probed.setdefault(number, set()).update(store for store, _ in leaf.path)
    users: dict[int, set[int]] = {}
    for number, graph in space.graphs.items():
        need = {*graph.starts}
        new = list(probed.get(number, ()))
        while new:
            store = new.pop()
            need.add(store)
            if store in forest.kept:
                new += probed[store] - need
        for store in need:
            users.setdefault(store, set()).add(number)
    return users


def label_partitions(space: Space, forest: ProbeForest, stores: Collection[int] | None = None) -> None:
    """Where copies cost nothing, stores still get the attribute that most of the rows sent to them know."""
    gains: dict[int, dict[int, float]] = {}
    for node in (node for nodes in forest.probes.values() for node in nodes):
        store = node.move[0]
        known, gain = space.known(node.head, node.move), gains.setdefault(store, {})
        for attribute in space.partitions[store]:
            gain[attribute] = gain.get(attribute, 0.0) + (node.price if known >> attribute & 1 else 0.0)
    for store, gain in gains.items():
        if store not in forest.partition and gain and (stores is None or store in stores):
            forest.partition[store] = max(gain, key=lambda attribute: (gain[attribute], -attribute))
