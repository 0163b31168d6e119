"""Problems made small enough for the solver: the heuristics (4) to (7) of SASPAR Section IV.

Each step makes smaller graphs of a graph, has them solved by the steps after it, and puts the answers together.
The last step is the solver itself. Nothing here looks at the whole again: the search does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment.correlation import count_rows
from thalweg.optimize.slot_assignment.graph import AssignmentGraph, Floats, Ids, Places
from thalweg.optimize.slot_assignment.kernels import agglomerate, match
from thalweg.optimize.slot_assignment.model import linear_model, size_of, solve
from thalweg.optimize.slot_assignment.search import placed

HOPELESS = 4_500
"""A model with more binaries than this is not worth starting."""
SIMILAR = 4
"""Classes of route keys in one group of hybrid execution, at most."""


@dataclass(frozen=True)
class Effort:
    """How hard to try."""

    gap: float
    deadline: Deadline
    seed: int
    halvings: int = 1
    """How often key groups and slots are merged two by two."""

    def divided(self, parts: int) -> Effort:
        """For the next of some parts that are still to be solved."""
        return replace(self, deadline=self.deadline.share(1.0 / parts))


@dataclass(frozen=True)
class Reduced:
    places: Places
    proven: bool
    """Whether every model on the way was solved to the gap."""


def solve_by(steps: Sequence[str], graph: AssignmentGraph, effort: Effort) -> Reduced | None:
    """The graph solved by the steps, outermost first. None where a model would be hopeless."""
    if steps:
        return _STEPS[steps[0]](steps[1:], graph, effort)
    if graph.nodes == 0:
        return Reduced(np.zeros(0, np.int64), True)
    if size_of(graph) > HOPELESS or effort.deadline.left <= 0.0:
        return None
    heaviest = np.argsort(-graph.weights, kind="stable")
    known = placed(graph, heaviest, np.arange(graph.slots), sharing=1.0)
    solved = solve(linear_model(graph), known, deadline=effort.deadline, gap=effort.gap, seed=effort.seed)
    return Reduced(known if solved.places is None else solved.places, solved.proven)


def halved(graph: AssignmentGraph, seed: int) -> Ids:
    """Node -> merged node: half as many, never fewer than slots, those together that share most."""
    order = np.random.default_rng(seed).permutation(graph.nodes)
    weights = graph.weights
    owner = match(graph, order, weights, np.inf, np.zeros(graph.nodes, np.int64))
    wanted = max((graph.nodes + 1) // 2, graph.slots)
    count = int(owner.max(initial=-1)) + 1
    if count < wanted:
        return _parted(owner, wanted - count)
    # What shares nothing with a free node is merged all the same, with what weighs about as much.
    alone = np.flatnonzero(np.bincount(owner, minlength=count)[owner] == 1)
    alone = alone[np.argsort(weights[alone], kind="stable")][: 2 * (count - wanted)]
    owner[alone[1::2]] = owner[alone[: len(alone) // 2 * 2 : 2]]
    return np.unique(owner, return_inverse=True)[1].astype(np.int64)


def _parted(owner: Ids, wanted: int) -> Ids:
    """Takes `wanted` pairs apart again."""
    _, first = np.unique(owner, return_index=True)
    second = np.setdiff1d(np.arange(len(owner)), first)[:wanted]
    owner[second] = owner.max() + 1 + np.arange(len(second))
    return owner


def _merge_groups(steps: Sequence[str], graph: AssignmentGraph, effort: Effort) -> Reduced | None:
    """Heuristic (4): key groups merged two by two, statistics added."""
    owner, merged = np.arange(graph.nodes), graph
    for i in range(effort.halvings):
        if merged.nodes > merged.slots:
            step = halved(merged, effort.seed + i)
            owner, merged = step[owner], merged.merged(step)
    solved = solve_by(steps, merged, effort)
    return solved and replace(solved, places=solved.places[owner])


def _merge_slots(steps: Sequence[str], graph: AssignmentGraph, effort: Effort) -> Reduced | None:
    """Heuristic (7): first over logical slots, each of several, then inside each."""
    count = max(graph.slots >> effort.halvings, 2)
    if count >= graph.slots:
        return solve_by(steps, graph, effort)
    logical = np.array_split(np.argsort(graph.latency, kind="stable"), count)
    latency = np.array([graph.latency[slots].mean() for slots in logical])
    # The rows of a logical slot will be spread over its slots.
    room = graph.most * graph.slots / count
    outer = graph.part(np.arange(graph.nodes), latency, room)._replace(price=graph.price * count / graph.slots)
    first = solve_by(steps, outer, effort.divided(count + 1))
    if first is None:
        return None
    places, proven = np.zeros(graph.nodes, np.int64), first.proven
    for i, slots in enumerate(logical):
        members = np.flatnonzero(first.places == i)
        inner = solve_by(steps, graph.part(members, graph.latency[slots], graph.most), effort.divided(count - i))
        if inner is None:
            return None
        places[members] = slots[inner.places]
        proven &= inner.proven
    return Reduced(places, proven)


def _tree(steps: Sequence[str], graph: AssignmentGraph, effort: Effort) -> Reduced | None:
    """Heuristic (5): classes two by two; what is together in a slot stays together, as one class, further up."""
    owner, small, proven = np.arange(graph.nodes), graph, True
    while True:
        pairs = _pair_layers(small)
        contracted, count = np.zeros(small.nodes, np.int64), 0
        for i, layers in enumerate(pairs):
            members = np.flatnonzero(np.isin(small.layer, layers))
            solved = solve_by(steps, small.part(members), effort.divided(len(pairs) - i + 1))
            if solved is None:
                return None
            proven &= solved.proven
            if len(pairs) == 1:
                return Reduced(solved.places[owner], proven)
            used, contracted[members] = np.unique(solved.places, return_inverse=True)
            contracted[members] += count
            count += len(used)
        layer = np.zeros(small.nodes, np.int64)
        for i, layers in enumerate(pairs):
            layer[np.isin(small.layer, layers)] = i
        owner, small = contracted[owner], small._replace(layer=layer).merged(contracted)


def _pair_layers(graph: AssignmentGraph) -> list[list[int]]:
    """The classes two by two, those first that share most."""
    shared = _shared_rows(graph)
    free, pairs = list(range(len(shared))), []
    while len(free) > 1:
        block = shared[np.ix_(free, free)]
        first, second = sorted(divmod(int(block.argmax()), len(free)))
        second = second if second != first else first + 1 if first + 1 < len(free) else first - 1
        pair = sorted((free[first], free[second]))
        pairs.append(pair)
        free = [layer for layer in free if layer not in pair]
    names = np.unique(graph.layer)
    return [[int(names[layer]) for layer in layers] for layers in (*pairs, *([free] if free else []))]


def _shared_rows(graph: AssignmentGraph) -> Floats:
    """The rows that each two classes have in common."""
    names, layer = np.unique(graph.layer, return_inverse=True)
    heads = np.repeat(layer, np.diff(graph.edge_start))
    count = len(names)
    flat = count_rows(heads * count + layer[graph.edge_node], graph.edge_rows, count * count)
    shared = flat.reshape(count, count)
    np.fill_diagonal(shared, 0.0)
    return shared


def _hybrid(steps: Sequence[str], graph: AssignmentGraph, effort: Effort) -> Reduced | None:
    """Heuristic (6): groups of similar classes, solved apart; between groups nothing is shared on purpose."""
    shared = np.triu(_shared_rows(graph))
    heads, tails = np.nonzero(shared)
    order = np.argsort(-shared[heads, tails], kind="stable")
    group_of = agglomerate(heads[order], tails[order], np.ones(len(shared)), float(SIMILAR))
    group = group_of[np.unique(graph.layer, return_inverse=True)[1]]
    parts, proven = np.zeros(graph.nodes, np.int64), True
    groups = int(group.max(initial=-1)) + 1
    for i in range(groups):
        members = np.flatnonzero(group == i)
        solved = solve_by(steps, graph.part(members), effort.divided(groups - i))
        if solved is None:
            return None
        parts[members] = i * graph.slots + solved.places
        proven &= solved.proven
    if not graph.uniform:
        return Reduced(parts % graph.slots, proven)
    # Which part of one group meets which of another is open; they are laid where they add least.
    _, owner = np.unique(parts, return_inverse=True)
    merged = graph.merged(owner)
    heaviest = np.argsort(-merged.weights, kind="stable")
    return Reduced(placed(merged, heaviest, np.arange(graph.slots), sharing=1.0)[owner], proven)


_STEPS: dict[str, Callable[[Sequence[str], AssignmentGraph, Effort], Reduced | None]] = {
    "merged key groups": _merge_groups,
    "merged slots": _merge_slots,
    "tree": _tree,
    "hybrid": _hybrid,
}
