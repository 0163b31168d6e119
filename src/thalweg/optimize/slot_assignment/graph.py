"""The linear problem as a graph to be cut: what the search and the solver work on.

A node is a key group of a class of route keys that must have one assignment. It weighs the rows it brings to each
stream. An edge joins two nodes with common rows. Nodes in one slot ship their common rows once; the fullest slot of
each stream costs. That is balanced graph partitioning, and so is what remains after nodes have been merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse  # type: ignore[import-untyped]
from numpy.typing import NDArray

from thalweg.kernel import kernel
from thalweg.optimize.slot_assignment.correlation import RouteKey, count_rows
from thalweg.optimize.slot_assignment.problem import Objective, Problem

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Places = NDArray[np.int64]
"""Node -> slot."""
SLACK = 1e-9
"""The share by which a slot may be above the load cap: rounding."""
TINY = 1e-300


class AssignmentGraph(NamedTuple):
    """A tuple, because that is what Numba takes. Adjacency is kept by rows: of node u, [start[u], start[u + 1])."""

    latency: Floats
    """Lat_p of each slot."""
    price: float
    """Of a row in the fullest slot of its stream."""
    most: Floats
    """Stream -> rows that no slot may exceed: the load cap."""
    streams: int
    layer: Ids
    """Node -> its class of route keys."""
    freight: Floats
    """Node -> the copies it ships when it is alone in its slot."""
    load_start: Ids
    load_stream: Ids
    load_rows: Floats
    edge_start: Ids
    edge_node: Ids
    edge_rows: Floats

    @property
    def nodes(self) -> int:
        return len(self.freight)

    @property
    def slots(self) -> int:
        return len(self.latency)

    @property
    def uniform(self) -> bool:
        """Whether slots are interchangeable."""
        return bool((self.latency == self.latency[0]).all())

    @property
    def weights(self) -> Floats:
        """Rows of each node over all streams."""
        return count_rows(np.repeat(np.arange(self.nodes), np.diff(self.load_start)), self.load_rows, self.nodes)

    def cost(self, places: Places) -> float:
        """What the problem's cost is, under the objective that the graph was made for."""
        shared = common_rows(self.edge_start, self.edge_node, self.edge_rows, places, self.slots)
        shipped = count_rows(places, self.freight, self.slots) - shared
        return float(shipped @ self.latency) + self.price * float(self.load_of(places).max(axis=1).sum())

    def load_of(self, places: Places) -> Floats:
        """Rows by stream and slot."""
        owners = np.repeat(np.arange(self.nodes), np.diff(self.load_start))
        cells = self.load_stream * self.slots + places[owners]
        flat = count_rows(cells, self.load_rows, self.streams * self.slots)
        return flat.reshape(self.streams, self.slots)

    def merged(self, owner: Ids) -> AssignmentGraph:
        """The graph whose nodes are the values of `owner`, 0 to its greatest. Statistics are added."""
        count = int(owner.max(initial=-1)) + 1
        heads = np.repeat(np.arange(self.nodes), np.diff(self.edge_start))
        once = heads < self.edge_node
        first, second, shared = owner[heads[once]], owner[self.edge_node[once]], self.edge_rows[once]
        inside = first == second
        # Rows in common inside a node are never shipped twice.
        freight = count_rows(owner, self.freight, count) - count_rows(first[inside], shared[inside], count)
        owners = owner[np.repeat(np.arange(self.nodes), np.diff(self.load_start))]
        layer = np.zeros(count, np.int64)
        layer[owner] = self.layer
        return _build(
            self.latency, self.price, self.most, self.streams, layer, freight,
            (owners, self.load_stream, self.load_rows),
            (first[~inside], second[~inside], shared[~inside]),
        )  # fmt: skip

    def part(self, members: Ids, latency: Floats | None = None, most: Floats | None = None) -> AssignmentGraph:
        """The graph of some nodes alone, perhaps of other slots. Their load cap is as large a share as their rows."""
        place = np.full(self.nodes, -1, np.int64)
        place[members] = np.arange(len(members))
        heads = place[np.repeat(np.arange(self.nodes), np.diff(self.edge_start))]
        tails = place[self.edge_node]
        kept = (heads >= 0) & (heads < tails)
        owners = place[np.repeat(np.arange(self.nodes), np.diff(self.load_start))]
        here = owners >= 0
        if most is None:
            rows = count_rows(self.load_stream[here], self.load_rows[here], self.streams)
            whole = np.maximum(count_rows(self.load_stream, self.load_rows, self.streams), TINY)
            most = np.multiply(self.most, rows, out=self.most.copy(), where=np.isfinite(self.most)) / whole
        return _build(
            self.latency if latency is None else latency, self.price, most, self.streams,
            self.layer[members], self.freight[members],
            (owners[here], self.load_stream[here], self.load_rows[here]),
            (heads[kept], tails[kept], self.edge_rows[kept]),
        ).with_room()  # fmt: skip

    def with_room(self) -> AssignmentGraph:
        """With a load cap that the heaviest nodes leave possible."""
        return self._replace(most=np.maximum(self.most, [self.fullest(stream) for stream in range(self.streams)]))

    def over(self, places: Places) -> bool:
        """Whether some slot is above the load cap."""
        return bool((self.load_of(places) > (self.most * (1.0 + SLACK))[:, None]).any())

    def bound(self) -> float:
        """Less than any assignment costs: no edge is cut, no slot has more than it must."""
        shipped = self.freight.sum() - self.edge_rows.sum() / 2.0
        return float(shipped * self.latency.min()) + self.price * sum(map(self.fullest, range(self.streams)))

    def fullest(self, stream: int) -> float:
        """The least that the fullest slot of a stream can have."""
        rows = np.sort(self.load_rows[self.load_stream == stream])[::-1]
        least = max(rows.sum() / self.slots, rows.max(initial=0.0))
        # Of the k*slots + 1 heaviest nodes, some k + 1 share a slot.
        k = np.arange(1, (len(rows) - 1) // self.slots + 1)
        upto = np.concatenate([[0.0], np.cumsum(rows)])
        sharing = upto[k * self.slots + 1] - upto[k * self.slots - k]
        return float(max(least, sharing.max(initial=0.0)))


def classes_of(problem: Problem) -> dict[RouteKey, int]:
    """The class of each route key: those that `equal` ties together have one (SASPAR Eq. 3)."""
    leader = {key: key for key in problem.route_keys}
    for first, second in problem.equal:
        old, new = leader[second], leader[first]
        leader = {key: new if lead == old else lead for key, lead in leader.items()}
    number = {lead: i for i, lead in enumerate(dict.fromkeys(leader.values()))}
    return {key: number[lead] for key, lead in leader.items()}


def compile_graph(problem: Problem, objective: Objective) -> AssignmentGraph:
    """The problem as a graph: exactly for "copies", from above for "saspar" where a pivot has several partners."""
    classes = classes_of(problem)
    groups = np.arange(problem.groups)
    node = {key: classes[key] * problem.groups + groups for key in classes}
    count = problem.groups * len(set(classes.values()))
    streams = {stream: i for i, stream in enumerate(problem.streams)}
    owners = np.concatenate([np.empty(0, np.int64), *(node[key] for key in classes)])
    rows = np.concatenate([np.empty(0), *(problem.rows[key] for key in classes)])
    stream_of = np.repeat(np.array([streams[key[0]] for key in classes], np.int64), problem.groups)
    edges = [
        (node[pair[0]][g], node[pair[1]][h], w)
        for pair in problem.sharing(objective)
        for g, h, w in [problem.cells(pair)]
    ]
    first = np.concatenate([np.empty(0, np.int64), *(edge[0] for edge in edges)])
    second = np.concatenate([np.empty(0, np.int64), *(edge[1] for edge in edges)])
    shared = np.concatenate([np.empty(0), *(edge[2] for edge in edges)])
    loop = first == second
    freight = count_rows(owners, rows, count) - count_rows(first[loop], shared[loop], count)
    even = count_rows(stream_of, rows, len(streams)) / problem.slots
    most = problem.most_load * even if math.isfinite(problem.most_load) else np.full(len(streams), np.inf)
    return _build(
        problem.latency, problem.price, most, len(streams), np.arange(count) // max(problem.groups, 1), freight,
        (owners, stream_of, rows),
        (first[~loop], second[~loop], shared[~loop]),
    ).with_room()  # fmt: skip


def to_places(problem: Problem, slots: Mapping[RouteKey, Ids]) -> Places:
    """An assignment of the problem as one of its graph's nodes; of route keys tied together, the first counts."""
    classes = classes_of(problem)
    places = np.zeros(problem.groups * len(set(classes.values())), np.int64)
    for key in reversed(problem.route_keys):
        places[classes[key] * problem.groups : (classes[key] + 1) * problem.groups] = slots[key]
    return places


def to_slots(problem: Problem, places: Places) -> dict[RouteKey, Ids]:
    groups = problem.groups
    return {key: places[at * groups : (at + 1) * groups].copy() for key, at in classes_of(problem).items()}


def _build(
    latency: Floats,
    price: float,
    most: Floats,
    streams: int,
    layer: Ids,
    freight: Floats,
    loads: tuple[Ids, Ids, Floats],
    edges: tuple[Ids, Ids, Floats],
) -> AssignmentGraph:
    """A graph of loads (node, stream, rows) and edges (node, node, rows), one way; what repeats is added."""
    count = len(freight)
    by_stream = sparse.csr_array((loads[2], (loads[0], loads[1])), shape=(count, max(streams, 1)))
    by_stream.sum_duplicates()
    by_stream.eliminate_zeros()
    return AssignmentGraph(
        np.array(latency, np.float64),
        float(price),
        np.array(most, np.float64),
        streams,
        np.array(layer, np.int64),
        np.array(freight, np.float64),
        by_stream.indptr.astype(np.int64),
        by_stream.indices.astype(np.int64),
        by_stream.data,
        *adjacency(*edges, count),
    )


@kernel
def common_rows(start: Ids, node: Ids, rows: Floats, places: Places, slots: int) -> Floats:
    """The rows that nodes in the same slot have in common, by slot."""
    common = np.zeros(slots)
    for u in range(places.shape[0]):
        inside = 0.0
        for e in range(start[u], start[u + 1]):
            if node[e] > u and places[node[e]] == places[u]:
                inside += rows[e]
        common[places[u]] += inside
    return common


@kernel
def adjacency(first: Ids, second: Ids, rows: Floats, count: int) -> tuple[Ids, Ids, Floats]:
    """Edges both ways, by node, neighbours in order: start, neighbour, rows. What repeats is added."""
    edges = first.shape[0]
    start = np.zeros(count + 1, np.int64)
    for e in range(edges):
        start[first[e] + 1] += 1
        start[second[e] + 1] += 1
    for u in range(count):
        start[u + 1] += start[u]
    at = start[:-1].copy()
    node, weight = np.empty(2 * edges, np.int64), np.empty(2 * edges)
    for e in range(edges):
        u, v = first[e], second[e]
        node[at[u]], weight[at[u]] = v, rows[e]
        node[at[v]], weight[at[v]] = u, rows[e]
        at[u] += 1
        at[v] += 1
    # A symmetric matrix is its own transpose, and transposing by rows puts the columns in order.
    at[:] = start[:-1]
    ordered, sums = np.empty(2 * edges, np.int64), np.empty(2 * edges)
    for u in range(count):
        for e in range(start[u], start[u + 1]):
            v = node[e]
            ordered[at[v]], sums[at[v]] = u, weight[e]
            at[v] += 1
    kept, begin = 0, 0
    for u in range(count):
        first_kept, end = kept, start[u + 1]
        for e in range(begin, end):
            if kept > first_kept and ordered[kept - 1] == ordered[e]:
                sums[kept - 1] += sums[e]
            else:
                ordered[kept], sums[kept] = ordered[e], sums[e]
                kept += 1
        begin = end
        start[u + 1] = kept
    return start, ordered[:kept].copy(), sums[:kept].copy()
