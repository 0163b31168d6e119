"""Search by annealing: stores, partitions and orders change at random, for the worse less and less often."""

from __future__ import annotations

from collections.abc import Collection

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.forest import WORTH, ProbeForest
from thalweg.optimize.probe_orders.kernels import anneal
from thalweg.optimize.probe_orders.network import Network, make_network
from thalweg.optimize.probe_orders.space import Space

HOT, COLD = 0.5, 0.02
"""The first and the last warmth, as shares of what a query's order costs on average."""
MOVES, MANY = 10, 30
"""Moves of a round for every target and store, where these are few and where there are more than `LARGE` of them."""
LARGE = 850
CHUNK, WORK = 500, 2_000_000
"""Moves between two looks at the clock, and the steps that they may look at. Not the time that they take: a seed must
always lead to the same solution."""


def annealed(
    space: Space,
    numbers: Collection[int],
    stores: Collection[int],
    known: ProbeForest,
    deadline: Deadline,
    rounds: int,
) -> ProbeForest | None:
    """A forest that is no dearer than the one known; None if there is no time even to begin.

    Rounds follow each other as long as they find something.
    """
    network = make_network(space, numbers, stores, deadline)
    if network is None:
        return None
    best = known
    for seed in range(rounds):
        if deadline.over:
            break
        found = _round(network, best, deadline, seed)
        if found.cost >= best.cost - WORTH * abs(best.cost):
            break
        best = found
    return best


def _round(network: Network, known: ProbeForest, deadline: Deadline, seed: int) -> ProbeForest:
    state = network.state_of(known)
    best = state.copied()
    asked = sum(number in network.space.graphs for number, _ in network.targets)
    warm = known.cost / max(asked, 1)
    size, whole = len(network.targets) + len(network.stores), deadline.left
    moves = size * (MANY if network.net.chi != 1.0 and size > LARGE else MOVES)
    done, chunk = 0, _chunk(network)
    while done < moves and not deadline.over and warm > 0.0:
        passed = max(done / moves, 1.0 - deadline.left / whole)
        count = min(chunk, moves - done)
        hot = warm * HOT * (COLD / HOT) ** passed
        cold = warm * HOT * (COLD / HOT) ** min(passed + count / moves, 1.0)
        anneal(network.net, state, best, seed << 20 | done, count, hot, cold)
        done += count
    return network.forest_of(best) if best.cost[0] < known.cost else known


def _chunk(network: Network) -> int:
    """So many moves that they do not take long: each makes the orders anew that are near a store."""
    net = network.net
    orders = max(len(net.near), len(net.probed_by)) / max(len(network.stores), 1)
    steps = len(net.target_steps) / max(len(network.targets), 1)
    return int(min(max(WORK / max(orders * steps, 1.0), 1), CHUNK))
