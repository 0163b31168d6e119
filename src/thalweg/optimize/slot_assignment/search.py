"""Local search on the graph: many starts, descent, annealing; on merged nodes first where it is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment.correlation import count_rows
from thalweg.optimize.slot_assignment.graph import SLACK, TINY, AssignmentGraph, Ids, Places
from thalweg.optimize.slot_assignment.kernels import (
    agglomerate,
    anneal,
    descend,
    match,
    place,
    relieve,
    return_home,
    tie,
)

CELLS = 16_000_000
"""Annealing keeps a number for every node and slot, up to this many; larger graphs are annealed merged."""
COARSE = 1500
"""Nodes that are few enough to be searched at once, without merging."""
STEPS = ((1000, 100_000), (400, 1_500_000), (20, 1 << 62))
"""Random steps in one round of annealing: (for each node, at most). The more nodes, the fewer for each."""
WARMTHS, COLD = (0.03, 0.1, 0.3, 1.0), 0.01
"""Where rounds of annealing start, as a share of what a node ships, and where they end, as a share of that."""
NEAR = 1.1
"""A start that costs more than this times the best is left as it is, where the graph is large."""
PROMISING = 4
"""Of the starts on a graph that has been merged, this many are followed."""
ENOUGH = 1e-4
"""The share of the cost that a pass must save to be repeated, on the way up from merged nodes."""
SPREAD = 0.03
"""Every other round slots may get as full as the fullest of the best assignment; else that varies so much."""
PATIENCE = 60
"""Rounds without success after which the search ends."""
WORTH = 1e-9
"""A move must save this share of the cost, so that rounding moves nothing."""


def search(
    graph: AssignmentGraph,
    starts: Sequence[Places],
    deadline: Deadline,
    seed: int,
    floor: float = -np.inf,
    patience: int = PATIENCE,
) -> Places:
    """The best assignment found until the deadline, until it costs no more than `floor`, or until rounds are idle."""
    found = _Best(graph, floor)
    starts = [within_cap(graph, start) for start in starts]
    for start in starts:
        found.offer(start)
    levels = coarsen(graph, np.zeros(graph.nodes, np.int64), seed)
    smallest = _Best(levels[-1][0] if levels else graph, floor)
    made = sorted(first_places(smallest.graph, deadline), key=smallest.graph.cost)
    for start in made[:PROMISING] if levels else made:
        smallest.offer(settle(smallest.graph, start, deadline, seed))
    found.offer(lift(levels, smallest.places, graph, deadline, seed))
    for start in starts:
        if not levels or graph.cost(start) < NEAR * found.cost:
            found.offer(settle(graph, start, deadline, seed))
    if levels:
        _cycle(found, deadline, seed)
    _explore(found, deadline, seed, patience)
    return found.places


class _Best:
    """The cheapest assignment offered so far."""

    def __init__(self, graph: AssignmentGraph, floor: float) -> None:
        self.graph, self.floor = graph, floor
        self.places: Places = np.zeros(graph.nodes, np.int64)
        self.cost = np.inf

    def offer(self, places: Places) -> bool:
        cost = self.graph.cost(places)
        if not cost < self.cost - WORTH * abs(cost):
            return False
        self.places, self.cost = places, cost
        return True

    @property
    def perfect(self) -> bool:
        return self.cost <= self.floor + WORTH * abs(self.floor)


def quick_places(graph: AssignmentGraph) -> dict[str, Places]:
    """Assignments that take no time: by load alone, over all classes and for each by itself, and greedy by cost."""
    heaviest, everywhere = np.argsort(-graph.weights, kind="stable"), np.arange(graph.slots)
    apart = graph._replace(
        streams=int(graph.layer.max(initial=-1)) + 1,
        most=np.full(int(graph.layer.max(initial=-1)) + 1, np.inf),
        load_start=np.arange(graph.nodes + 1),
        load_stream=graph.layer,
        load_rows=graph.weights,
    )
    return {
        "list scheduling": placed(graph, heaviest, everywhere, sharing=0.0),
        "list scheduling by route key": within_cap(graph, placed(apart, heaviest, everywhere, sharing=0.0)),
        "greedy": within_cap(graph, placed(graph, heaviest, everywhere, sharing=1.0)),
    }


def with_attainable_cap(graph: AssignmentGraph) -> AssignmentGraph:
    """The graph with a load cap that list scheduling keeps: few heavy nodes cannot be spread evenly."""
    listed = placed(graph, np.argsort(-graph.weights, kind="stable"), np.arange(graph.slots), sharing=0.0)
    return graph._replace(most=np.maximum(graph.most, graph.load_of(listed).max(axis=1, initial=0.0)))


def within_cap(graph: AssignmentGraph, places: Places) -> Places:
    """The assignment itself, or if a slot is above the load cap one near it where none is."""
    if not graph.over(places):
        return places
    places, heaviest = places.copy(), np.argsort(-graph.weights, kind="stable")
    while relieve(graph, places, heaviest):
        pass
    return placed(graph, heaviest, np.arange(graph.slots), sharing=0.0) if graph.over(places) else places


def first_places(graph: AssignmentGraph, deadline: Deadline) -> Iterator[Places]:
    """Starts that are made, not found: quick ones, and co-clusters in few and many slots."""
    yield from quick_places(graph).values()
    cheapest = np.argsort(graph.latency, kind="stable")
    edges = _heavy_edges(graph)
    for count in slot_counts(graph.slots, _fewest_slots(graph)):
        if deadline.left <= 0.0:
            return
        yield within_cap(graph, _clustered(graph, edges, cheapest[:count]))


def _fewest_slots(graph: AssignmentGraph) -> int:
    """As many as the load cap asks for."""
    rows = count_rows(graph.load_stream, graph.load_rows, graph.streams)
    return int(np.ceil((rows / np.maximum(graph.most, TINY)).max(initial=1.0) * (1.0 - SLACK)))


def slot_counts(slots: int, fewest: int = 1) -> list[int]:
    """How many slots to try to do with: few may be best, where work is cheap and copies are not."""
    counts, count = {slots}, float(max(fewest, 1))
    while count < slots:
        counts.add(int(count))
        count = count + 1 if count < 4 else count * 1.5
    return sorted(counts)


def placed(graph: AssignmentGraph, order: Ids, opened: Ids, sharing: float) -> Places:
    places = np.full(graph.nodes, -1, np.int64)
    place(graph, places, order, opened, sharing)
    return places


def _heavy_edges(graph: AssignmentGraph) -> tuple[Ids, Ids]:
    """The edges, those first whose ends have most of their rows in common."""
    heads = np.repeat(np.arange(graph.nodes), np.diff(graph.edge_start))
    once = heads < graph.edge_node
    heads, tails, rows = heads[once], graph.edge_node[once], graph.edge_rows[once]
    weights = graph.weights + np.finfo(float).tiny
    order = np.argsort(-(rows / weights[heads]) * (rows / weights[tails]), kind="stable")
    return heads[order], tails[order]


def _clustered(graph: AssignmentGraph, edges: tuple[Ids, Ids], opened: Ids) -> Places:
    """Clusters of nodes that share much, none too large for a slot, packed into the slots, the heaviest first."""
    weights = graph.weights
    owner = agglomerate(*edges, weights, weights.sum() / len(opened))
    clusters = graph.merged(owner)
    order = np.argsort(-clusters.weights, kind="stable")
    return placed(clusters, order, opened, sharing=0.0)[owner]


def coarsen(graph: AssignmentGraph, places: Places, seed: int) -> list[tuple[AssignmentGraph, Ids]]:
    """Smaller and smaller graphs, each with the map from the nodes before to its own. Slots are not mixed."""
    levels: list[tuple[AssignmentGraph, Ids]] = []
    enough = max(COARSE, 4 * graph.slots)
    rng = np.random.default_rng(seed)
    while graph.nodes > enough:
        weights = graph.weights
        owner = match(graph, rng.permutation(graph.nodes), weights, weights.sum() / (2 * graph.slots), places)
        if owner.max() + 1 > 0.9 * graph.nodes:
            break
        graph, places = graph.merged(owner), merged_places(places, owner)
        levels.append((graph, owner))
    return levels


def merged_places(places: Places, owner: Ids) -> Places:
    """The slots of merged nodes, all of whose nodes are in one."""
    merged = np.zeros(owner.max(initial=-1) + 1, np.int64)
    merged[owner] = places
    return merged


def lift(
    levels: list[tuple[AssignmentGraph, Ids]], places: Places, graph: AssignmentGraph, deadline: Deadline, seed: int
) -> Places:
    """From the smallest graph up to the whole one, with a descent on each."""
    for i in range(len(levels) - 1, -1, -1):
        finer = levels[i - 1][0] if i else graph
        places = settle(finer, within_cap(finer, places[levels[i][1]]), deadline, seed, ENOUGH)
    return places


def settle(graph: AssignmentGraph, places: Places, deadline: Deadline, seed: int, enough: float = 0.0) -> Places:
    """Descends until no single move saves anything, or a pass over all saves less than a share `enough`."""
    places = places.copy()
    rng = np.random.default_rng(seed)
    cost = max(graph.cost(places), 0.0)
    least = WORTH * cost / max(graph.nodes, 1)
    saved = np.inf
    while saved > enough * cost:
        # What sleeps may still find room that others have left: each time around, all are woken once.
        saved, pass_saved, awake = 0.0, np.inf, np.ones(graph.nodes, np.bool_)
        while pass_saved > enough * cost:
            if deadline.left <= 0.0:
                return places
            pass_saved = descend(graph, places, rng.permutation(graph.nodes), awake, least)
            saved += pass_saved
    return places


def _annealed(graph: AssignmentGraph, places: Places, seed: int, warmth: float, cap: float = 1.0) -> Places:
    """A round of annealing from a share `warmth` of what a node ships, with slots `cap` times as full as now."""
    places = places.copy()
    typical = float(np.mean(graph.freight)) * float(graph.latency.mean())
    if not typical > 0.0:
        return places
    steps = max(min(each * graph.nodes, most) for each, most in STEPS)
    load = graph.load_of(places)
    caps = np.maximum(cap * load.max(axis=1), load.mean(axis=1))
    anneal(graph, places, tie(graph, places), caps, seed, steps, warmth * typical, COLD * warmth * typical)
    return places


def _cycle(found: _Best, deadline: Deadline, seed: int) -> None:
    """Merges what is together in a slot, moves it as one, and so up again, as long as that saves something."""
    graph, better = found.graph, True
    while better and deadline.left > 0.0 and not found.perfect:
        seed += 1
        levels, places = coarsen(graph, found.places, seed), found.places
        for _, owner in levels:
            places = merged_places(places, owner)
        if levels:
            places = settle(levels[-1][0], places, deadline, seed)
        better = found.offer(lift(levels, places, graph, deadline, seed))


def _explore(found: _Best, deadline: Deadline, seed: int, patience: int) -> None:
    """Rounds of annealing from the best known, cooler and warmer, with emptier and fuller slots."""
    graph = found.graph
    if graph.nodes * graph.slots > CELLS or graph.nodes < 2 or graph.slots < 2:
        return
    rng = np.random.default_rng(seed)
    # From the greatest warmth a large graph would not cool down in so few steps.
    warmths = WARMTHS if graph.nodes <= COARSE else WARMTHS[:-1]
    idle = rounds = 0
    while idle < patience and deadline.left > 0.0 and not found.perfect:
        cap = 1.0 + SPREAD * float(rng.standard_normal()) * (rounds % 2)
        places = _annealed(graph, found.places, int(rng.integers(1 << 31)), float(rng.choice(warmths)), cap)
        idle = 0 if found.offer(settle(graph, places, deadline, seed)) else idle + 1
        rounds += 1


def bring_home(graph: AssignmentGraph, places: Places, home: Places) -> Places:
    """The same cost with fewer nodes away from home."""
    places = places.copy()
    most = WORTH * abs(graph.cost(places)) / max(graph.nodes, 1)
    while return_home(graph, places, home, most):
        pass
    return places
