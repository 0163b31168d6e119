"""Makes the problem smaller without losing an optimum: parts that share nothing, and stores that cannot pay."""

from __future__ import annotations

from collections.abc import Collection

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.space import JoinGraph, Space

BATCH = 600
"""Moves of joins that share nothing and are still planned in one go: each run of the solver takes its time."""


def batches(space: Space) -> list[tuple[int, list[int]]]:
    """The joins that are asked for, in parts of which no two have a step, a store or a partition in common.

    With their sizes, small ones first: what time they leave is for the others.
    """
    part: dict[int, int] = {}

    def find(thing: int) -> int:
        while part.setdefault(thing, thing) != thing:
            part[thing] = part[part[thing]]
            thing = part[thing]
        return thing

    for number, graph in space.graphs.items():
        # What has a larger sub-join in common has one of two relations in common. Partitions are of relations.
        size = 1 if space.chi != 1.0 else 2
        for other in graph.moves:
            if space.relations[other].bit_count() == size:
                part[find(other)] = find(number)
    parts: dict[int, list[int]] = {}
    for number in space.graphs:
        parts.setdefault(find(number), []).append(number)
    sized = sorted((sum(_size(space.graphs[number]) for number in part), part) for part in parts.values())
    made: list[tuple[int, list[int]]] = []
    for size, numbers in sized:
        if made and made[-1][0] + size <= BATCH:
            made[-1] = made[-1][0] + size, made[-1][1] + numbers
        else:
            made.append((size, numbers))
    return made


def _size(graph: JoinGraph) -> int:
    return 1 + sum(len(moves) for moves in graph.moves.values())


def paying_stores(space: Space, numbers: Collection[int], deadline: Deadline) -> list[int]:
    """The intermediate stores of these joins, without those that cost more than they can ever save.

    Any probe of a store can be replaced by probes of its relations one after the other. What these cost more, at
    worst, for each target that could probe it, is the most that the store saves.
    """
    stores = {move[0] for number in numbers for moves in space.graphs[number].moves.values() for move in moves}
    live = sorted(store for store in stores if not space.base[store])
    saved = _Savings(space)
    while not deadline.over:
        joins = [space.graph(number) for number in dict.fromkeys((*numbers, *live))]
        most = saved.most(joins, deadline)
        if most is None:
            break
        paying = [store for store in live if most.get(store, 0.0) > space.charge(store)]
        if len(paying) == len(live):
            break
        live = paying
    return live


class _Savings:
    def __init__(self, space: Space) -> None:
        self.space = space
        self._apart: dict[tuple[int, int], float] = {}
        self._of: dict[int, dict[int, float]] = {}

    def most(self, joins: Collection[JoinGraph], deadline: Deadline) -> dict[int, float] | None:
        """Store -> what all targets of these joins together save by it, at most. None if there is no time."""
        total: dict[int, float] = {}
        for graph in joins:
            if deadline.over:
                return None
            if graph.number not in self._of:
                self._of[graph.number] = self._by(graph)
            for store, saved in self._of[graph.number].items():
                total[store] = total.get(store, 0.0) + saved
        return total

    def _by(self, graph: JoinGraph) -> dict[int, float]:
        space = self.space
        best: dict[tuple[int, int], float] = {}
        for head, moves in graph.moves.items():
            starts = [start for start in graph.starts if space.relations[start] & space.relations[head]]
            for store, found in moves:
                if not space.base[store]:
                    saved = self.apart(graph, head, found) - space.sent[head]
                    for start in starts:
                        key = store, start
                        if saved > best.get(key, 0.0):
                            best[key] = saved
        total: dict[int, float] = {}
        for (store, _), saved in best.items():
            total[store] = total.get(store, 0.0) + saved
        return total

    def apart(self, graph: JoinGraph, head: int, found: int) -> float:
        """The cost from one partial result to another by base relations only, if no partition attribute is known."""
        if head == found:
            return 0.0
        key = head, found
        if key not in self._apart:
            space, outside = self.space, ~self.space.relations[found]
            self._apart[key] = space.sent[head] * space.chi + min(
                self.apart(graph, between, found)
                for store, between in graph.moves[head]
                if space.base[store] and not space.relations[between] & outside
            )
        return self._apart[key]
