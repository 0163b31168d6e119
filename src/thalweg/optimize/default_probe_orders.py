"""In which order an arriving row probes: the default join order, with common sub-joins first.

For each start relation the queries descend together. A step is one relation probed by all of a query's edges
towards the relations already known; queries whose steps are equal are served by one probe. At every node the
step is taken that saves most tuples over all queries that gain by it; the queries left over branch off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

UNMEASURED_ROWS = 1000.0

Edge = tuple[str, str, str]
"""(relation, relation, key), relations sorted."""
Step = tuple[str, frozenset[Edge]]
"""The relation probed and the edges that must hold: what two queries must have in common to share a probe."""
DefaultOrders = dict[tuple[str, str], tuple[str, ...]]
"""(query, start relation) -> the other relations in the order in which they are probed."""


@dataclass(frozen=True)
class Shape:
    """A join query as the ordering sees it."""

    query: str
    relations: tuple[str, ...]
    edges: frozenset[Edge]


@dataclass(frozen=True)
class Sizes:
    rows: Mapping[str, float] = field(default_factory=dict)
    """Relation -> rows held in a window after predicates; missing: 1000."""
    matches: Mapping[Edge, float] = field(default_factory=dict)
    """Edge -> partners per probing row, towards its second relation; (second, first, key): towards its first.
    Missing: 1."""

    def held(self, relation: str) -> float:
        return self.rows.get(relation, UNMEASURED_ROWS)

    def growth(self, step: Step) -> float:
        """Tuples found per tuple sent. One edge finds the partners; every other one thins them out independently."""
        relation, edges = step
        towards = ((a, b, key) if b == relation else (b, a, key) for a, b, key in edges)
        partners = sorted(self.matches.get(edge, 1.0) for edge in towards)
        found = partners[0]
        for other in partners[1:]:
            found *= min(1.0, other / max(self.held(relation), 1.0))
        return found


def choose_orders(shapes: Sequence[Shape], sizes: Sizes) -> DefaultOrders:
    """The same shapes and sizes always give the same orders, whatever the order in which they come."""
    orders: DefaultOrders = {}
    alike: dict[_Graph, list[str]] = {}
    for shape in shapes:
        alike.setdefault(_Graph(frozenset(shape.relations), shape.edges), []).append(shape.query)
    chooser = _Chooser(sizes)
    for start in sorted({r for graph in alike for r in graph.relations}):
        graphs = [graph for graph in alike if start in graph.relations]
        for graph, order in chooser.descend(frozenset((start,)), graphs):
            orders.update({(query, start): order for query in alike[graph]})
    return orders


def cost(orders: Mapping[tuple[str, str], tuple[str, ...]], shapes: Sequence[Shape], sizes: Sizes) -> float:
    """Tuples sent, shared prefixes once: CLASH Eq. 1 with every chi = 1."""
    sent: dict[tuple[str, tuple[Step, ...]], float] = {}
    for shape in shapes:
        graph = _Graph(frozenset(shape.relations), shape.edges)
        for start in shape.relations:
            known = frozenset((start,))
            prefix: tuple[Step, ...] = ()
            tuples = sizes.held(start)
            for relation in orders[shape.query, start]:
                step = graph.step(known, relation)
                prefix += (step,)
                sent[start, prefix] = tuples / len(known)
                tuples *= sizes.growth(step)
                known |= {relation}
    return fsum(sent.values())


@dataclass(frozen=True)
class _Graph:
    """What is joined: queries with the same graph are one to the ordering."""

    relations: frozenset[str]
    edges: frozenset[Edge]

    def step(self, known: frozenset[str], relation: str) -> Step:
        used = frozenset(e for e in self.edges if relation in e[:2] and (e[0] in known or e[1] in known))
        if not used or relation in known:
            raise ValueError(f"{relation} cannot be probed from {', '.join(sorted(known))}")
        return relation, used

    def steps(self, known: frozenset[str]) -> list[Step]:
        """Every next step that is no cross product, by relation."""
        near = {b for a, b, _ in self.edges if a in known} | {a for a, b, _ in self.edges if b in known}
        return [self.step(known, relation) for relation in sorted((near & self.relations) - known)]


class _Chooser:
    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._growth: dict[Step, float] = {}
        self._rest: dict[tuple[_Graph, frozenset[str]], float] = {}

    def descend(self, known: frozenset[str], graphs: list[_Graph]) -> Iterator[tuple[_Graph, tuple[str, ...]]]:
        """The rest of each graph's order, given that `known` has been joined."""
        yield from ((graph, ()) for graph in graphs if graph.relations == known)
        left = [graph for graph in graphs if graph.relations != known]
        while left:
            relation, served = self.best_step(known, left)
            for graph, order in self.descend(known | {relation}, served):
                yield graph, (relation, *order)
            left = [graph for graph in left if graph not in served]

    def best_step(self, known: frozenset[str], graphs: list[_Graph]) -> tuple[str, list[_Graph]]:
        """The step that saves most against every graph going on by itself; and the graphs that gain by taking it.

        Its price is sending the tuples once. What a graph saves is what it would send from here by itself, less
        what it sends after the step: so growth and the number of graphs served are weighed in tuples.
        """
        takers: dict[Step, list[tuple[float, _Graph]]] = {}
        for graph in graphs:
            for step in graph.steps(known):
                saved = self.rest(graph, known) - self.growth(step) * self.rest(graph, known | {step[0]})
                if saved >= 0:
                    takers.setdefault(step, []).append((saved, graph))

        def rank(step: Step) -> tuple[float, int, str, list[Edge]]:
            served = takers[step]
            return -fsum(saved for saved, _ in served), -len(served), step[0], sorted(step[1])

        best = min(takers, key=rank)
        return best[0], [graph for _, graph in takers[best]]

    def rest(self, graph: _Graph, known: frozenset[str]) -> float:
        """Tuples that the graph alone still sends per tuple of `known`, at best."""
        if graph.relations == known:
            return 0.0
        at = (graph, known)
        if at not in self._rest:
            steps = graph.steps(known)
            if not steps:
                raise ValueError(f"nothing joins {', '.join(sorted(graph.relations - known))} to the other relations")
            self._rest[at] = 1 / len(known) + min(
                self.growth(step) * self.rest(graph, known | {step[0]}) for step in steps
            )
        return self._rest[at]

    def growth(self, step: Step) -> float:
        if step not in self._growth:
            self._growth[step] = self.sizes.growth(step)
        return self._growth[step]
