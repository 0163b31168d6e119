"""The inner loops of the search: exact changes of cost for moving a node and for swapping two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thalweg.kernel import inlined, kernel
from thalweg.optimize.slot_assignment.graph import SLACK, AssignmentGraph, Floats, Ids, Places

Flags = NDArray[np.bool_]


@inlined
def rank(load: Floats, stream: int, top: Ids) -> None:
    """Notes the three fullest slots of a stream."""
    first, second, third = -1, -1, -1
    rows = load[stream]
    for p in range(rows.shape[0]):
        if first < 0 or rows[p] > rows[first]:
            first, second, third = p, first, second
        elif second < 0 or rows[p] > rows[second]:
            second, third = p, second
        elif third < 0 or rows[p] > rows[third]:
            third = p
    top[stream, 0], top[stream, 1], top[stream, 2] = first, second, third


@inlined
def fullest_but(load: Floats, top: Ids, stream: int, p: int, q: int) -> float:
    """The load of the fullest slot of a stream other than p and q."""
    for i in range(3):
        slot = top[stream, i]
        if slot >= 0 and slot != p and slot != q:
            return float(load[stream, slot])
    return 0.0


@inlined
def shift(load: Floats, top: Ids, stream: int, p: int, q: int, rows: float) -> float:
    """By how much the fullest slot of a stream gets fuller when p gives q these rows, which may be below 0."""
    most = max(load[stream, p] - rows, load[stream, q] + rows, fullest_but(load, top, stream, p, q))
    return float(most - load[stream, top[stream, 0]])


@inlined
def move_price(graph: AssignmentGraph, load: Floats, top: Ids, u: int, p: int, q: int) -> float:
    """What moving u from p to q changes of the loads' part of the cost."""
    change = 0.0
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        change += shift(load, top, graph.load_stream[i], p, q, graph.load_rows[i])
    return change * graph.price


@inlined
def most_relief(graph: AssignmentGraph, load: Floats, top: Ids, u: int, p: int) -> float:
    """The most that taking u out of p saves of the loads' part of the cost: most slots need no second look."""
    relief = 0.0
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        if top[graph.load_stream[i], 0] == p:
            relief += graph.load_rows[i]
    return relief * graph.price


@inlined
def carry(graph: AssignmentGraph, load: Floats, top: Ids, u: int, p: int, q: int) -> None:
    """Moves the load of u from p to q."""
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        stream = graph.load_stream[i]
        load[stream, p] -= graph.load_rows[i]
        load[stream, q] += graph.load_rows[i]
        rank(load, stream, top)


@inlined
def load_all(graph: AssignmentGraph, places: Places, load: Floats, top: Ids) -> None:
    load[:] = 0.0
    for u in range(places.shape[0]):
        if places[u] >= 0:
            for i in range(graph.load_start[u], graph.load_start[u + 1]):
                load[graph.load_stream[i], places[u]] += graph.load_rows[i]
    for stream in range(load.shape[0]):
        rank(load, stream, top)


@inlined
def beyond(graph: AssignmentGraph, load: Floats, u: int, q: int) -> float:
    """How far u, which is not in q, would bring it above the load cap, as a share of the cap; up to 0: it fits."""
    worst = 0.0
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        most = graph.most[graph.load_stream[i]]
        rows = load[graph.load_stream[i], q] + graph.load_rows[i]
        if rows > most * (1.0 + SLACK):
            worst = max(worst, (rows - most) / most)
    return worst


@inlined
def swap_fits(graph: AssignmentGraph, load: Floats, net: Floats, u: int, v: int, p: int, q: int) -> bool:
    """Whether p and q stay below the load cap when u goes from p to q, and v, unless it is -1, from q to p.

    `net` is all 0 before and after.
    """
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        net[graph.load_stream[i]] += graph.load_rows[i]
    if v >= 0:
        for i in range(graph.load_start[v], graph.load_start[v + 1]):
            net[graph.load_stream[i]] -= graph.load_rows[i]
    fits = True
    for node in (u, v):
        for i in range(graph.load_start[node], graph.load_start[node + 1] if node >= 0 else 0):
            stream = graph.load_stream[i]
            rows, most = net[stream], graph.most[stream] * (1.0 + SLACK)
            if (rows > 0.0 and load[stream, q] + rows > most) or (rows < 0.0 and load[stream, p] - rows > most):
                fits = False
            net[stream] = 0.0
    return fits


@kernel
def relieve(graph: AssignmentGraph, places: Places, order: Ids) -> int:
    """Moves nodes out of slots above the load cap, each to where it fits and adds fewest copies. Returns how many."""
    slots = graph.latency.shape[0]
    load = np.zeros((graph.streams, slots))
    top = np.zeros((graph.streams, 3), np.int64)
    load_all(graph, places, load, top)
    shared = np.zeros(slots)
    moved = 0
    for u in order:
        p = places[u]
        full = False
        for i in range(graph.load_start[u], graph.load_start[u + 1]):
            stream = graph.load_stream[i]
            full |= load[stream, p] > graph.most[stream] * (1.0 + SLACK)
        if not full:
            continue
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            shared[places[graph.edge_node[e]]] += graph.edge_rows[e]
        best, chosen = np.inf, p
        for q in range(slots):
            if q != p and beyond(graph, load, u, q) <= 0.0:
                cost = graph.latency[q] * (graph.freight[u] - shared[q])
                if cost < best:
                    best, chosen = cost, q
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            shared[places[graph.edge_node[e]]] = 0.0
        if chosen != p:
            places[u] = chosen
            carry(graph, load, top, u, p, chosen)
            moved += 1
    return moved


@kernel
def descend(graph: AssignmentGraph, places: Places, order: Ids, awake: Flags, least: float) -> float:
    """Visits the nodes that are awake and moves each to its best slot if that saves more than `least`.

    A node falls asleep when it has been visited, and wakes when a neighbour moves. Returns what was saved.
    """
    slots = graph.latency.shape[0]
    load = np.zeros((graph.streams, slots))
    top = np.zeros((graph.streams, 3), np.int64)
    load_all(graph, places, load, top)
    shared = np.zeros(slots)
    saved = 0.0
    for u in order:
        if not awake[u]:
            continue
        awake[u] = False
        start, end = graph.edge_start[u], graph.edge_start[u + 1]
        for e in range(start, end):
            shared[places[graph.edge_node[e]]] += graph.edge_rows[e]
        p = places[u]
        here = graph.latency[p] * (graph.freight[u] - shared[p])
        relief = most_relief(graph, load, top, u, p)
        best, chosen = -least, p
        for q in range(slots):
            if q != p:
                change = graph.latency[q] * (graph.freight[u] - shared[q]) - here
                if change - relief < best and beyond(graph, load, u, q) <= 0.0:
                    change += move_price(graph, load, top, u, p, q)
                    if change < best:
                        best, chosen = change, q
        for e in range(start, end):
            shared[places[graph.edge_node[e]]] = 0.0
            awake[graph.edge_node[e]] |= chosen != p
        if chosen != p:
            places[u] = chosen
            carry(graph, load, top, u, p, chosen)
            saved -= best
    return saved


@kernel
def place(graph: AssignmentGraph, places: Places, order: Ids, opened: Ids, sharing: float) -> None:
    """Puts unplaced nodes (-1), in order, where each adds least to the cost; of equals, where there is least load.

    Only slots below the load cap are looked at, as long as there are any.

    Common rows count `sharing` times: with 0 it is greedy list scheduling. Only the slots `opened` are used.
    """
    slots = graph.latency.shape[0]
    load = np.zeros((graph.streams, slots))
    top = np.zeros((graph.streams, 3), np.int64)
    load_all(graph, places, load, top)
    shared = np.zeros(slots)
    for u in order:
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            v = graph.edge_node[e]
            if places[v] >= 0:
                shared[places[v]] += graph.edge_rows[e]
        best, lowest, chosen, least = np.inf, np.inf, opened[0], np.inf
        for q in opened:
            above_cap = beyond(graph, load, u, q)
            if above_cap > least:
                continue
            if above_cap < least:
                least, best, lowest = above_cap, np.inf, np.inf
            cost = graph.latency[q] * (graph.freight[u] - shared[q]) * sharing
            level = 0.0
            for i in range(graph.load_start[u], graph.load_start[u + 1]):
                stream = graph.load_stream[i]
                level += load[stream, q]
                over = load[stream, q] + graph.load_rows[i] - load[stream, top[stream, 0]]
                if sharing > 0.0 and over > 0.0:
                    cost += over * graph.price
            if cost < best or (cost == best and level < lowest):
                best, lowest, chosen = cost, level, q
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            if places[graph.edge_node[e]] >= 0:
                shared[places[graph.edge_node[e]]] = 0.0
        places[u] = chosen
        for i in range(graph.load_start[u], graph.load_start[u + 1]):
            stream = graph.load_stream[i]
            load[stream, chosen] += graph.load_rows[i]
            if load[stream, chosen] > load[stream, top[stream, 0]]:
                top[stream, 0] = chosen


@inlined
def rows_between(graph: AssignmentGraph, u: int, v: int) -> float:
    """The rows that two nodes have in common; neighbours are in order."""
    low, high = graph.edge_start[u], graph.edge_start[u + 1]
    while low < high:
        middle = (low + high) // 2
        if graph.edge_node[middle] < v:
            low = middle + 1
        else:
            high = middle
    if low < graph.edge_start[u + 1] and graph.edge_node[low] == v:
        return float(graph.edge_rows[low])
    return 0.0


@inlined
def above(load: float, cap: float) -> float:
    return max(load - cap, 0.0)


@inlined
def overflow(
    graph: AssignmentGraph, load: Floats, caps: Floats, net: Floats, u: int, v: int, p: int, q: int
) -> float:
    """How many more rows are above the caps when u goes from p to q, and v, unless it is -1, from q to p.

    `net` is all 0 before and after.
    """
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        net[graph.load_stream[i]] += graph.load_rows[i]
    if v >= 0:
        for i in range(graph.load_start[v], graph.load_start[v + 1]):
            net[graph.load_stream[i]] -= graph.load_rows[i]
    change = 0.0
    for node in (u, v):
        for i in range(graph.load_start[node], graph.load_start[node + 1] if node >= 0 else 0):
            stream = graph.load_stream[i]
            rows, cap = net[stream], caps[stream]
            if rows != 0.0:
                change += above(load[stream, p] - rows, cap) - above(load[stream, p], cap)
                change += above(load[stream, q] + rows, cap) - above(load[stream, q], cap)
                net[stream] = 0.0
    return change


@inlined
def haul(graph: AssignmentGraph, load: Floats, u: int, p: int, q: int) -> None:
    """Moves the load of u from p to q."""
    for i in range(graph.load_start[u], graph.load_start[u + 1]):
        load[graph.load_stream[i], p] -= graph.load_rows[i]
        load[graph.load_stream[i], q] += graph.load_rows[i]


@inlined
def follow(graph: AssignmentGraph, affinity: Floats, u: int, p: int, q: int) -> None:
    """Tells the neighbours of u that it went from p to q."""
    for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
        affinity[graph.edge_node[e], p] -= graph.edge_rows[e]
        affinity[graph.edge_node[e], q] += graph.edge_rows[e]


@kernel
def tie(graph: AssignmentGraph, places: Places) -> Floats:
    """affinity[u, p]: the rows that u has in common with the nodes in p."""
    affinity = np.zeros((places.shape[0], graph.latency.shape[0]))
    for u in range(places.shape[0]):
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            affinity[u, places[graph.edge_node[e]]] += graph.edge_rows[e]
    return affinity


@kernel
def anneal(
    graph: AssignmentGraph,
    places: Places,
    affinity: Floats,
    caps: Floats,
    seed: int,
    steps: int,
    hot: float,
    cold: float,
) -> None:
    """Random moves and swaps that are taken if they save, or by luck that runs out from `hot` to `cold`.

    The fullest slot alone says too little to a random step, so that here every row costs that is above the stream's
    cap, in any slot. With the cap at the fullest slot of the best assignment, that one is still the best.
    What was cheapest by this measure is kept, if it is cheaper than the start.
    """
    np.random.seed(seed)
    nodes, slots = affinity.shape
    load = np.zeros((graph.streams, slots))
    load_all(graph, places, load, np.zeros((graph.streams, 3), np.int64))
    net = np.zeros(graph.streams)
    latency, freight = graph.latency, graph.freight
    warmth, cooling = hot, (cold / hot) ** (1.0 / max(steps // 64, 1))
    total, lowest, cheapest = 0.0, 0.0, places[:0].copy()
    for step in range(steps):
        if step % 64 == 63:
            warmth *= cooling
            if nodes <= 4096 and total < lowest:
                lowest, cheapest = total, places.copy()
        u, v = np.random.randint(nodes), -1
        p = places[u]
        degree = graph.edge_start[u + 1] - graph.edge_start[u]
        kind = np.random.random()
        if kind < 0.4:
            v = np.random.randint(nodes)
            q = places[v]
        elif kind < 0.8 and degree > 0:
            q = places[graph.edge_node[graph.edge_start[u] + np.random.randint(degree)]]
        else:
            q = np.random.randint(slots)
        if q == p or not swap_fits(graph, load, net, u, v, p, q):
            continue
        change = latency[q] * (freight[u] - affinity[u, q]) - latency[p] * (freight[u] - affinity[u, p])
        if v >= 0:
            change += latency[p] * (freight[v] - affinity[v, p]) - latency[q] * (freight[v] - affinity[v, q])
            change += (latency[p] + latency[q]) * rows_between(graph, u, v)
        change += graph.price * overflow(graph, load, caps, net, u, v, p, q)
        if change <= -warmth * np.log(1.0 - np.random.random()):
            total += change
            places[u] = q
            haul(graph, load, u, p, q)
            follow(graph, affinity, u, p, q)
            if v >= 0:
                places[v] = p
                haul(graph, load, v, q, p)
                follow(graph, affinity, v, q, p)
    if cheapest.shape[0] and total > lowest:
        places[:] = cheapest


@kernel
def return_home(graph: AssignmentGraph, places: Places, home: Places, most: float) -> int:
    """Moves nodes back to where they were, if that costs no more than `most` each. Returns how many."""
    slots = graph.latency.shape[0]
    load = np.zeros((graph.streams, slots))
    top = np.zeros((graph.streams, 3), np.int64)
    load_all(graph, places, load, top)
    moved = 0
    for u in range(places.shape[0]):
        p, q = places[u], home[u]
        if p == q:
            continue
        change = (graph.latency[q] - graph.latency[p]) * graph.freight[u]
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            slot = places[graph.edge_node[e]]
            if slot == p:
                change += graph.latency[p] * graph.edge_rows[e]
            elif slot == q:
                change -= graph.latency[q] * graph.edge_rows[e]
        fits = beyond(graph, load, u, q) <= 0.0
        if fits and change + move_price(graph, load, top, u, p, q) <= most:
            places[u] = q
            carry(graph, load, top, u, p, q)
            moved += 1
    return moved


@kernel
def match(graph: AssignmentGraph, order: Ids, weights: Floats, most: float, places: Places) -> Ids:
    """Pairs each node with the free neighbour in its slot that it shares most with, up to a weight of `most`.

    Returns node -> merged node. What two nodes share is rated against what both have.
    """
    nodes = weights.shape[0]
    owner = np.full(nodes, -1, np.int64)
    count = 0
    for u in order:
        if owner[u] >= 0:
            continue
        best, partner = 0.0, u
        for e in range(graph.edge_start[u], graph.edge_start[u + 1]):
            v = graph.edge_node[e]
            if owner[v] < 0 and places[u] == places[v] and weights[u] + weights[v] <= most:
                rating = graph.edge_rows[e] * graph.edge_rows[e] / (weights[v] + 1e-300)
                if rating > best:
                    best, partner = rating, v
        owner[u] = owner[partner] = count
        count += 1
    return owner


@kernel
def agglomerate(heads: Ids, tails: Ids, weights: Floats, most: float) -> Ids:
    """Merges the ends of the edges, in their order, while the merged weigh no more than `most`. Node -> cluster."""
    nodes = weights.shape[0]
    parent = np.arange(nodes)
    weight = weights.copy()
    for e in range(heads.shape[0]):
        u, v = heads[e], tails[e]
        while parent[u] != u:
            parent[u] = parent[parent[u]]
            u = parent[u]
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        if u != v and weight[u] + weight[v] <= most:
            parent[v] = u
            weight[u] += weight[v]
    owner = np.full(nodes, -1, np.int64)
    count = 0
    for u in range(nodes):
        root = u
        while parent[root] != root:
            root = parent[root]
        if owner[root] < 0:
            owner[root] = count
            count += 1
        owner[u] = owner[root]
    return owner


@kernel
def tridiagonal(matrix: Floats) -> tuple[Floats, Floats]:
    """Householder's reduction of a symmetric matrix, which is lost: the diagonal and the one beside it."""
    size = matrix.shape[0]
    diagonal, beside = np.zeros(size), np.zeros(max(size - 1, 0))
    mirror, image = np.zeros(size), np.zeros(size)
    for k in range(size - 1):
        diagonal[k] = matrix[k, k]
        norm = 0.0
        for i in range(k + 1, size):
            mirror[i] = matrix[k, i]
            norm += mirror[i] * mirror[i]
        norm = np.sqrt(norm) * (-1.0 if mirror[k + 1] > 0.0 else 1.0)
        beside[k] = norm
        mirror[k + 1] -= norm
        length = -norm * mirror[k + 1]
        if length <= 0.0:
            continue
        dot = 0.0
        for i in range(k + 1, size):
            value = 0.0
            for j in range(k + 1, size):
                value += matrix[i, j] * mirror[j]
            image[i] = value / length
            dot += image[i] * mirror[i]
        for i in range(k + 1, size):
            image[i] -= dot / (2.0 * length) * mirror[i]
        for i in range(k + 1, size):
            for j in range(k + 1, size):
                matrix[i, j] -= mirror[i] * image[j] + image[i] * mirror[j]
    if size:
        diagonal[size - 1] = matrix[size - 1, size - 1]
    return diagonal, beside
