"""AJoin's iterative dynamic programming with shared costs (Section 4), over probe orders.

First every join gets the orders that are best if each step's cost is divided by the joins that could share it. Then
each target in turn takes the order that adds least to what the others have installed, until none gains by another.
Intermediate stores and partitions are tried one at a time, and kept if that makes the whole cheaper.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.forest import WORTH, Path, ProbeForest, Target
from thalweg.optimize.probe_orders.space import JoinGraph, Move, Space

Rest = dict[int, tuple[float, Move | None]]
"""Partial result -> the least cost of the steps still to come, and the next of them."""
Price = Callable[[int, Move], float]
PATIENCE = 20
"""Disturbances without success after which the search ends."""


def cheapest_rest(space: Space, graph: JoinGraph, kept: set[int] | None, price: Price) -> Rest:
    """Dynamic programming over sub-joins, from the whole join down. `kept` None: every store may be probed."""
    rest: Rest = {graph.number: (0.0, None)}
    base = space.base
    for head, moves in graph.moves.items():
        least, best = float("inf"), None
        for move in moves:
            store = move[0]
            if base[store] or kept is None or store in kept:
                cost = price(head, move) + rest[move[1]][0]
                if cost < least:
                    least, best = cost, move
        rest[head] = least, best
    return rest


def follow(rest: Rest, head: int) -> Path:
    path: list[Move] = []
    move = rest[head][1]
    while move is not None:
        path.append(move)
        move = rest[move[1]][1]
    return tuple(path)


def shared_bound(space: Space, numbers: Iterable[int]) -> float:
    """No plan costs less: even if all joins that could share a step did, each would have to pay its part of it.

    Stores are free here, and partitioned as every step would like them.
    """
    sent, asked = space.sent, space.asked
    total = 0.0
    graphs = [space.graphs[number] for number in numbers]
    for graph in graphs:
        if graph.whole:
            rest = cheapest_rest(space, graph, None, lambda head, move: sent[head] / asked[move[1]])
            total += sum(rest[start][0] for start in graph.starts)
    arriving = {start for graph in graphs if len(graph.starts) > 1 for start in graph.starts}
    return max(total, sum(sent[start] for start in arriving))


class Search:
    """A forest, and what is known of the rest of each join for the stores and partitions of now."""

    def __init__(self, space: Space, deadline: Deadline, forest: ProbeForest | None = None) -> None:
        self.space = space
        self.deadline = deadline
        self.forest = forest or ProbeForest(space)
        self._rest: dict[tuple[int, int], Rest] = {}
        """By join, and by start where it depends on that which stores can be probed."""
        if space.chi != 1.0:
            for store, attribute in space.likely_partitions.items():
                self.forest.partition.setdefault(store, attribute)

    def rest(self, number: int, start: int) -> Rest:
        key = number, start if self.space.restricted else -1
        if key not in self._rest:
            self._rest[key] = self._rest_with(number, start, self.forest.kept)
        return self._rest[key]

    def _rest_with(self, number: int, start: int, kept: set[int]) -> Rest:
        """As it is for rows of the start if these stores are kept."""
        if self.space.restricted:
            kept = {store for store in kept if self.space.finds(start, store)}
        return cheapest_rest(self.space, self.space.graph(number), kept, self.forest.price)

    def begin(self, numbers: Iterable[int]) -> None:
        """Orders for these joins, as if each step were shared by all that could: AJoin's MaxShared."""
        forest, asked = self.forest, self.space.asked
        for graph in (self.space.graphs[number] for number in numbers):
            rest = cheapest_rest(
                self.space, graph, forest.kept, lambda head, move: forest.price(head, move) / asked[move[1]]
            )
            for start in graph.starts:
                forest.put((graph.number, start), follow(rest, start))

    def improve(self, stores: Collection[int]) -> None:
        """Changes orders, partitions, and which of the stores are kept, as long as it saves and there is time."""
        self.settle(self.forest.leaves)
        better = True
        while better and not self.deadline.over:
            before = self.forest.cost
            for store in self.promising(stores):
                if store not in self.forest.kept and not self.deadline.over:
                    self.attempt_store(store)
            for store in sorted(self.forest.kept):
                if not self.deadline.over:
                    self.attempt_without(store)
            self.attempt_partitions()
            self.settle(self.forest.leaves)
            better = self._cheaper(before)

    def explore(self, stores: Collection[int]) -> None:
        """Disturbs the best solution and improves it again, as long as that finds better ones now and then."""
        rng = random.Random(0)
        best, idle = self.forest, 0
        while idle < PATIENCE and not self.deadline.over:
            self.forest = best.copy()
            self._rest.clear()
            self._disturb(rng, stores)
            self.improve(stores)
            idle = 0 if self._cheaper(best.cost) else idle + 1
            best = self.forest if not idle else best
        self.forest = best

    def _disturb(self, rng: random.Random, stores: Collection[int]) -> None:
        """Partitions a few stores at random, keeps or gives up some, and makes orders anew in another sequence."""
        forest, space = self.forest, self.space
        loose = [store for store in sorted(forest.probes) if len(space.partitions[store]) > 1]
        if space.chi != 1.0:
            for store in rng.sample(loose, min(len(loose), rng.randint(0, 3))):
                forest.partition_by(store, rng.choice(space.partitions[store]))
                self._forget(store)
        for store in rng.sample(sorted(stores), min(len(stores), rng.randint(0, 3))):
            if store in forest.kept:
                self.attempt_without(store, force=True)
            else:
                self._keep(store)
        targets = [target for target in forest.leaves if rng.random() < 0.5]
        rng.shuffle(targets)
        self.recreate(targets)

    def _cheaper(self, before: float) -> bool:
        return self.forest.cost < before - WORTH * abs(before)

    def settle(self, targets: Iterable[Target]) -> None:
        """Lets each target take its best order until none of them gains."""
        targets = list(targets)
        better = True
        while better:
            before = self.forest.cost
            for target in targets:
                if self.deadline.over:
                    return
                self.respond(target)
            better = self._cheaper(before)

    def respond(self, target: Target) -> None:
        """Lets a target take the order that adds least to the cost."""
        forest = self.forest
        with_it = forest.cost
        old = forest.take(target)
        added, path = self.best(target)
        gain = with_it - forest.cost - added
        forest.put(target, path if gain > WORTH * abs(with_it) else old)

    def best(self, target: Target) -> tuple[float, Path]:
        """The order that adds least to what is installed, and what it adds."""
        number, start = target
        rest = self.rest(number, start)
        root = self.forest.root(start)
        least, leave = rest[start][0], root
        stack = [root]
        while stack and least > 0.0:
            for child in stack.pop().children.values():
                # What it results in is a sub-join of this one: then so is the store that it probes.
                after = rest.get(child.move[1])
                if after is not None:
                    stack.append(child)
                    if after[0] < least:
                        least, leave = after[0], child
        return least, (*leave.path, *follow(rest, leave.result))

    # -- stores

    def promising(self, stores: Collection[int]) -> list[int]:
        """Intermediate stores, those first that save most if every query is looked at by itself."""
        space, forest = self.space, self.forest
        gains: list[tuple[float, int]] = []
        for store in stores:
            if self.deadline.over:
                break
            if store in forest.kept:
                continue
            gain = -space.charge(store)
            for number in space.within[store]:
                gain += self._gain(store, number)
            if gain > 0.0:
                gains.append((-gain, store))
        return [store for _, store in sorted(gains)]

    def _gain(self, store: int, number: int) -> float:
        """What a join would send less by itself if the store were there, from the relations outside of it."""
        space, kept = self.space, {*self.forest.kept, store}
        starts = [s for s in space.graph(number).starts if not space.relations[s] & space.relations[store]]
        then = None if space.restricted or not starts else self._rest_with(number, starts[0], kept)
        return sum(self.rest(number, s)[s][0] - (then or self._rest_with(number, s, kept))[s][0] for s in starts)

    def attempt_store(self, store: int, targets: Collection[Target] | None = None) -> bool:
        """Keeps an intermediate store if that saves more than it costs. Only `targets` may change their orders."""
        before = self.forest.cost
        affected = self.affected(store) if targets is None else targets
        old = {target: self.forest.leaves[target].path for target in affected}
        self._keep(store)
        self.recreate(affected)
        if self._cheaper(before):
            return True
        self._restore(old)
        self._drop(store)
        return False

    def affected(self, store: int) -> list[Target]:
        """The targets that could probe a store: of joins asked for and of stores that are kept."""
        space, inside = self.space, self.space.relations[store]
        larger = [other for other in self.forest.kept if other not in space.graphs]
        joins = [*space.within[store], *(other for other in sorted(larger) if store in space.graph(other).moves)]
        starts = ((number, start) for number in joins for start in space.graph(number).starts)
        return [target for target in starts if not space.relations[target[1]] & inside]

    def recreate(self, targets: Collection[Target]) -> None:
        """Takes all these orders out, so that none holds the others where they are, and makes them anew."""
        for target in targets:
            self.forest.take(target)
        for target in targets:
            self.forest.put(target, self.best(target)[1])
        for target in targets:
            self.respond(target)

    def _restore(self, orders: dict[Target, Path]) -> None:
        for target, path in orders.items():
            self.forest.take(target)
            self.forest.put(target, path)

    def attempt_without(self, store: int, force: bool = False) -> bool:
        """Gives up an intermediate store if that saves something, or in any case."""
        forest = self.forest
        before = forest.cost
        users = [target for target, leaf in forest.leaves.items() if any(s == store for s, _ in leaf.path)]
        old = {target: forest.take(target) for target in users}
        filled = {
            start: forest.leaves[store, start].path
            for start in self.space.graph(store).starts
            if store not in self.space.graphs
        }
        self._drop(store)
        for target in users:
            forest.put(target, self.best(target)[1])
        if force or self._cheaper(before):
            return True
        for target in users:
            forest.take(target)
        self._keep(store, filled)
        for target, path in old.items():
            forest.put(target, path)
        return False

    def _keep(self, store: int, orders: dict[int, Path] | None = None) -> None:
        self.forest.keep(store)
        self._forget(store)
        if store not in self.space.graphs:
            for start in self.space.graph(store).starts:
                target = store, start
                self.forest.put(target, orders[start] if orders else self.best(target)[1])

    def _drop(self, store: int) -> None:
        if store not in self.space.graphs:
            for start in self.space.graph(store).starts:
                self.forest.take((store, start))
        self.forest.drop(store)
        self._forget(store)

    def _forget(self, store: int) -> None:
        """What is known of joins that could probe the store does not hold any more."""
        for key in [key for key in self._rest if store in self.space.graph(key[0]).moves]:
            del self._rest[key]

    # -- partitions

    def attempt_partitions(
        self, among: Collection[int] | None = None, moving: Collection[Target] | None = None
    ) -> None:
        """Tries every attribute for each of the stores that are probed; only `moving` targets may change orders."""
        if self.space.chi == 1.0:
            return
        for store in sorted(self.forest.probes if among is None else among):
            for attribute in self.space.partitions[store]:
                if self.forest.probes.get(store) and not self.deadline.over:
                    self.attempt_partition(store, attribute, moving)

    def attempt_partition(self, store: int, attribute: int, moving: Collection[Target] | None) -> bool:
        """Partitions a store by an attribute if that saves something."""
        forest = self.forest
        before, now = forest.cost, forest.partition[store]
        if attribute == now:
            return False
        affected = [target for target in self.affected(store) if moving is None or target in moving]
        old = {target: forest.leaves[target].path for target in affected}
        forest.partition_by(store, attribute)
        self._forget(store)
        self.recreate(affected)
        if self._cheaper(before):
            return True
        self._restore(old)
        forest.partition_by(store, now)
        self._forget(store)
        return False
