"""The true cost of "saspar" where a pivot has several partners: the most that any of them needs, not the sum.

X[cell, p] is what one route key needs in slot p of one key group of its stream's pivot (SASPAR Eq. 4), and
M[row, p] the most over the stream's route keys (Eq. 5). A node is taken out of its slot and put where it adds least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.kernel import inlined, kernel
from thalweg.optimize.slot_assignment.correlation import Pair, RouteKey, count_rows
from thalweg.optimize.slot_assignment.graph import AssignmentGraph, Floats, Ids, Places, classes_of
from thalweg.optimize.slot_assignment.kernels import beyond
from thalweg.optimize.slot_assignment.problem import Problem

CELLS = 40_000_000
"""X holds a number for every route key, key group and slot, up to this many."""


class Pivots(NamedTuple):
    """Of node u, the entries [start[u], start[u + 1]): which cell of X it adds to, in which row of M, how much."""

    loose: Floats
    """Node -> rows of route keys that have nothing in common with their pivot."""
    start: Ids
    row: Ids
    """Ascending within a node."""
    cell: Ids
    rows: Floats
    first: Ids
    """Row of M -> its first cell of X; the others follow at a distance of `stride`."""
    width: Ids
    """Row of M -> how many cells it is the greatest of."""
    stride: int

    @property
    def cells(self) -> int:
        return int(self.width.sum())


def compile_pivots(problem: Problem) -> Pivots | None:
    """None where the graph of the stars has the same cost: a pivot and one partner overlap in one way only."""
    linked = {stream: _partners(problem, stream) for stream in problem.streams}
    if all(len(partners) < 2 for partners in linked.values()):
        return None
    classes, groups = classes_of(problem), problem.groups
    count = groups * len(set(classes.values()))
    loose = np.zeros(count)
    entries: list[tuple[Ids, Ids, Ids, Floats]] = []
    first, width, cells = [], [], 0
    for number, (stream, keys) in enumerate(problem.streams.items()):
        pivot, partners = problem.pivot(stream), linked[stream]
        each = np.arange(groups)
        first.append(cells + each)
        width.append(np.full(groups, len(partners) + 1))
        entries.append((classes[pivot] * groups + each, number * groups + each, cells + each, problem.rows[pivot]))
        for key in keys:
            if key in partners:
                cells += groups
                at, other, rows = partners[key]
                entries.append((classes[key] * groups + other, number * groups + at, cells + at, rows))
            elif key != pivot:
                loose[classes[key] * groups + each] += problem.rows[key]
        cells += groups
    node, row, cell, rows = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    order = np.lexsort((cell, row, node))
    start = np.searchsorted(node[order], np.arange(count + 1))
    return Pivots(
        loose, start, row[order], cell[order], rows[order], np.concatenate(first), np.concatenate(width), groups
    )


def _partners(problem: Problem, stream: str) -> dict[RouteKey, tuple[Ids, Ids, Floats]]:
    """Of each route key that shares rows with the pivot: key group of the pivot, its own, rows."""
    pivot = problem.pivot(stream)
    partners = {}
    for pair in problem.sharing("saspar"):
        if pivot in pair:
            first, second, rows = problem.cells(pair)
            partners[_other(pair, pivot)] = (first, second, rows) if pair[0] == pivot else (second, first, rows)
    return partners


def _other(pair: Pair, key: RouteKey) -> RouteKey:
    return pair[0] if pair[1] == key else pair[1]


def pivot_cost(graph: AssignmentGraph, pivots: Pivots, places: Places) -> float:
    """SASPAR Eq. 9, summed over the streams."""
    slots = graph.slots
    owner = np.repeat(np.arange(graph.nodes), np.diff(pivots.start))
    needed = count_rows(pivots.cell * slots + places[owner], pivots.rows, pivots.cells * slots)
    by_row = np.repeat(np.arange(len(pivots.first)), pivots.width)
    cell = np.concatenate([np.arange(w) for w in pivots.width]) * pivots.stride + pivots.first[by_row]
    starts = np.concatenate([[0], np.cumsum(pivots.width)[:-1]])
    most = np.maximum.reduceat(needed.reshape(-1, slots)[cell], starts, axis=0)
    shipped = most.sum(axis=0) + count_rows(places, pivots.loose, slots)
    return float(shipped @ graph.latency) + graph.price * float(graph.load_of(places).max(axis=1).sum())


@inlined
def greatest(pivots: Pivots, needed: Floats, row: int, p: int) -> float:
    most = 0.0
    for k in range(pivots.width[row]):
        most = max(most, needed[pivots.first[row] + k * pivots.stride, p])
    return most


@inlined
def put(pivots: Pivots, needed: Floats, most: Floats, u: int, p: int, sign: float) -> None:
    """Adds what u needs to slot p, or takes it away."""
    start, end = pivots.start[u], pivots.start[u + 1]
    for e in range(start, end):
        needed[pivots.cell[e], p] += sign * pivots.rows[e]
    for e in range(start, end):
        if e == start or pivots.row[e] != pivots.row[e - 1]:
            most[pivots.row[e], p] = greatest(pivots, needed, pivots.row[e], p)


@inlined
def lift(graph: AssignmentGraph, load: Floats, u: int, p: int, sign: float) -> None:
    """Adds the rows of u to the load of slot p, or takes them away. The last column is the fullest slot's."""
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        rows = load[graph.load_stream[i]]
        rows[p] += sign * graph.load_rows[i]
        rows[-1] = rows[:-1].max()


@inlined
def crowd(graph: AssignmentGraph, load: Floats, caps: Floats, u: int, p: int) -> float:
    """What u, which is in no slot, adds in p to the rows above the caps, or without them to the fullest slot."""
    over = 0.0
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        rows, cap = load[graph.load_stream[i]], caps[graph.load_stream[i]]
        cap = rows[-1] if cap < 0.0 else cap
        over += max(rows[p] + graph.load_rows[i] - cap, 0.0) - max(rows[p] - cap, 0.0)
    return over * graph.price


@inlined
def added(graph: AssignmentGraph, pivots: Pivots, needed: Floats, most: Floats, u: int, p: int) -> float:
    """What u, which is in no slot, adds to the copies if it is put in p."""
    rows: float = pivots.loose[u]
    e, end = pivots.start[u], pivots.start[u + 1]
    while e < end:
        row = pivots.row[e]
        high = most[row, p]
        while e < end and pivots.row[e] == row:
            high = max(high, needed[pivots.cell[e], p] + pivots.rows[e])
            e += 1
        rows += high - most[row, p]
    copies: float = rows * graph.latency[p]
    return copies


@kernel
def sweep(
    graph: AssignmentGraph,
    pivots: Pivots,
    places: Places,
    home: Places,
    order: Ids,
    caps: Floats,
    least: float,
    warmth: float,
    seed: int,
) -> None:
    """Takes each node out and puts it where it adds least; at home, unless elsewhere it adds `least` less.

    With `warmth` the choice is a random one, the likelier the less it adds (heat bath). With caps of 0 or more, every
    row above a stream's cap costs, as in annealing; with caps below 0, the fullest slot.
    """
    np.random.seed(seed)
    slots = graph.latency.shape[0]
    load = np.zeros((graph.streams, slots + 1))
    needed = np.zeros((pivots.width.sum(), slots))
    most = np.zeros((pivots.first.shape[0], slots))
    for u in range(places.shape[0]):
        lift(graph, load, u, places[u], 1.0)
        for e in range(pivots.start[u], pivots.start[u + 1]):
            needed[pivots.cell[e], places[u]] += pivots.rows[e]
    for row in range(most.shape[0]):
        for p in range(slots):
            most[row, p] = greatest(pivots, needed, row, p)
    for u in order:
        old = places[u]
        put(pivots, needed, most, u, old, -1.0)
        lift(graph, load, u, old, -1.0)
        best, chosen = np.inf, old
        for p in range(slots):
            # Where it was, it fits as well as it did.
            if p != old and beyond(graph, load, u, p) > 0.0:
                continue
            cost = added(graph, pivots, needed, most, u, p) + crowd(graph, load, caps, u, p)
            if warmth > 0.0:
                cost += warmth * np.log(1e-300 - np.log(1.0 - np.random.random()))
            elif p == home[u]:
                cost -= least
            if cost < best:
                best, chosen = cost, p
        places[u] = chosen
        put(pivots, needed, most, u, chosen, 1.0)
        lift(graph, load, u, chosen, 1.0)
