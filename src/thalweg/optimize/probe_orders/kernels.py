"""The inner loops of the search: orders taken out and put in again, stores kept, given up and partitioned anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.kernel import inlined, kernel
from thalweg.optimize.probe_orders.network import Ids, Net, SearchState

EAGER = 0.5
"""How often orders are first made as if all that could share a step did."""
WIDE = 0.5
"""How often all orders of the joins that a store is a part of are made anew with it, not only those that could probe
it: a store costs least if the queries' own orders lead through its join."""
TOGGLE, PARTITION, SWAP = 0.3, 0.4, 0.5
"""Up to these shares of the moves: a store kept or given up, one partitioned anew, one kept in place of another. The
rest are steps that several orders could share."""
WAITING = -2
"""The length of an order that is taken out and will be put in again."""
COUNT, STAMP, ONE, OTHER, PARTED, BEFORE = range(6)
"""Places of what a log says about a move: the orders changed, the number of the move, the store kept or given up, the
one kept in its place, the one partitioned anew, and its option before."""


class UndoLog(NamedTuple):
    """What must be known to take a move back."""

    move: Ids
    targets: Ids
    """Whose orders were changed."""
    paths: Ids
    """The length and the steps that their orders had."""
    noted: Ids
    """Target -> the last move that changed its order."""


@inlined
def put(net: Net, state: SearchState, target: int, eager: bool) -> None:
    """The order that adds least to what is installed; eager: as if each step were shared by all that could."""
    end, head = net.target_end[target], -1
    rest, choice = state.rest, state.choice
    rest[end] = 0.0
    for i in range(net.target_first[target], net.target_first[target + 1]):
        step = net.target_steps[i]
        if net.step_head[step] != head:
            head = net.step_head[step]
            rest[head] = np.inf
        if state.kept[net.step_store[step]]:
            cost = rest[net.step_found[step]]
            if state.use[step] == 0:
                if eager:
                    cost += state.price[step] / (net.shared_first[step + 1] - net.shared_first[step])
                else:
                    cost += state.price[step]
            if cost < rest[head]:
                rest[head] = cost
                choice[head] = step
    head, length = net.target_start[target], 0
    while head != end:
        step = choice[head]
        state.path[target, length] = step
        length += 1
        head = net.step_found[step]
    install(state, target, length)


@inlined
def install(state: SearchState, target: int, length: int) -> None:
    state.length[target] = length
    for i in range(length):
        step = state.path[target, i]
        if state.use[step] == 0:
            state.cost[0] += state.price[step]
        state.use[step] += 1


@inlined
def take(state: SearchState, target: int) -> None:
    for i in range(state.length[target]):
        step = state.path[target, i]
        state.use[step] -= 1
        if state.use[step] == 0:
            state.cost[0] -= state.price[step]
    state.length[target] = -1


@inlined
def partition(net: Net, state: SearchState, store: int, option: int) -> None:
    state.part[store] = option
    for i in range(net.priced_first[store], net.priced_first[store + 1]):
        step = net.priced[i]
        price = net.step_sent[step]
        if not net.step_known[step] >> option & 1:
            price *= net.chi
        if state.use[step] > 0:
            state.cost[0] += price - state.price[step]
        state.price[step] = price


@inlined
def note(state: SearchState, log: UndoLog, target: int) -> None:
    """Writes down the order of a target before it is changed for the first time."""
    if log.noted[target] != log.move[STAMP]:
        log.noted[target] = log.move[STAMP]
        i = log.move[COUNT]
        log.move[COUNT] += 1
        log.targets[i] = target
        log.paths[i, 0] = state.length[target]
        for j in range(state.length[target]):
            log.paths[i, 1 + j] = state.path[target, j]


@inlined
def anew(net: Net, state: SearchState, log: UndoLog, targets: Ids) -> None:
    """Takes all these orders out, so that none holds the others where they are, and makes them anew."""
    count = len(targets)
    first, eager = np.random.randint(count), np.random.random() < EAGER
    for i in range(count):
        if state.length[targets[i]] >= 0:
            note(state, log, targets[i])
            take(state, targets[i])
            state.length[targets[i]] = WAITING
    for i in range(count):
        target = targets[(i + first) % count]
        if state.length[target] == WAITING:
            put(net, state, target, eager)
    if eager:
        for i in range(count):
            if state.length[targets[i]] >= 0:
                take(state, targets[i])
                put(net, state, targets[i], False)


@inlined
def seed_step(net: Net, state: SearchState, log: UndoLog, step: int) -> None:
    """Makes the orders anew that could have this step, as if somebody had it already."""
    if state.use[step] > 0 or not state.kept[net.step_store[step]]:
        return
    state.use[step] = 1
    state.cost[0] += state.price[step]
    anew(net, state, log, net.shared_by[net.shared_first[step] : net.shared_first[step + 1]])
    state.use[step] -= 1
    if state.use[step] == 0:
        state.cost[0] -= state.price[step]


@inlined
def give_up(net: Net, state: SearchState, log: UndoLog, store: int) -> None:
    state.kept[store] = False
    state.cost[0] -= net.store_charge[store]
    for target in range(net.store_fill[store, 0], net.store_fill[store, 1]):
        note(state, log, target)
        take(state, target)
    if np.random.random() < WIDE:
        anew(net, state, log, net.near[net.near_first[store] : net.near_first[store + 1]])
        return
    probing = net.probed_by[net.probed_first[store] : net.probed_first[store + 1]]
    for target in probing:
        for j in range(state.length[target]):
            if net.step_store[state.path[target, j]] == store:
                note(state, log, target)
                take(state, target)
                state.length[target] = WAITING
                break
    for target in probing:
        if state.length[target] == WAITING:
            put(net, state, target, False)


@inlined
def keep(net: Net, state: SearchState, log: UndoLog, store: int) -> None:
    state.kept[store] = True
    state.cost[0] += net.store_charge[store]
    part(net, state, log, store, np.random.randint(net.store_options[store]))
    wide = np.random.random() < WIDE
    for target in range(net.store_fill[store, 0], net.store_fill[store, 1]):
        note(state, log, target)
        if wide:
            state.length[target] = WAITING
        else:
            put(net, state, target, False)
    if wide:
        anew(net, state, log, net.near[net.near_first[store] : net.near_first[store + 1]])
    else:
        anew(net, state, log, net.probed_by[net.probed_first[store] : net.probed_first[store + 1]])


@inlined
def part(net: Net, state: SearchState, log: UndoLog, store: int, option: int) -> None:
    if option != state.part[store]:
        log.move[PARTED], log.move[BEFORE] = store, state.part[store]
        partition(net, state, store, option)


@inlined
def change(net: Net, state: SearchState, log: UndoLog) -> None:
    """A random move."""
    kind, results = np.random.random(), len(net.results)
    if kind < TOGGLE and results > 0:
        one = net.results[np.random.randint(results)]
        log.move[ONE] = one
        if state.kept[one]:
            give_up(net, state, log, one)
        else:
            keep(net, state, log, one)
    elif kind < PARTITION and len(net.loose) > 0 and net.chi != 1.0:
        store = net.loose[np.random.randint(len(net.loose))]
        if state.kept[store]:
            option = np.random.randint(net.store_options[store] - 1)
            part(net, state, log, store, option if option < state.part[store] else option + 1)
            anew(net, state, log, net.probed_by[net.probed_first[store] : net.probed_first[store + 1]])
    elif kind < SWAP and results > 0:
        one, other = net.results[np.random.randint(results)], net.results[np.random.randint(results)]
        if state.kept[one] and not state.kept[other]:
            log.move[ONE], log.move[OTHER] = one, other
            give_up(net, state, log, one)
            keep(net, state, log, other)
    else:
        seed_step(net, state, log, np.random.randint(len(net.step_sent)))


@inlined
def take_back(net: Net, state: SearchState, log: UndoLog, cost: float) -> None:
    for i in range(log.move[COUNT]):
        take(state, log.targets[i])
    for place in (ONE, OTHER):
        if log.move[place] >= 0:
            state.kept[log.move[place]] = not state.kept[log.move[place]]
    if log.move[PARTED] >= 0:
        partition(net, state, log.move[PARTED], log.move[BEFORE])
    for i in range(log.move[COUNT]):
        target, length = log.targets[i], log.paths[i, 0]
        for j in range(length):
            state.path[target, j] = log.paths[i, 1 + j]
        if length >= 0:
            install(state, target, length)
    state.cost[0] = cost


@inlined
def copy(state: SearchState, best: SearchState) -> None:
    best.cost[0] = state.cost[0]
    best.length[:] = state.length
    best.path[:] = state.path
    best.kept[:] = state.kept
    best.part[:] = state.part


@kernel
def anneal(net: Net, state: SearchState, best: SearchState, seed: int, moves: int, hot: float, cold: float) -> None:
    """Random moves, each followed by the best orders it allows; dearer ones less and less often."""
    np.random.seed(seed)
    targets, longest = state.path.shape
    paths = np.zeros((targets, longest + 1), np.int64)
    log = UndoLog(np.zeros(6, np.int64), np.zeros(targets, np.int64), paths, np.zeros(targets, np.int64))
    warmth, cooling = hot, (cold / hot) ** (1.0 / max(moves, 1))
    for number in range(1, moves + 1):
        warmth *= cooling
        before = state.cost[0]
        log.move[:] = -1
        log.move[COUNT], log.move[STAMP] = 0, number
        change(net, state, log)
        if state.cost[0] - before > -warmth * np.log(1.0 - np.random.random()):
            take_back(net, state, log, before)
        elif state.cost[0] < best.cost[0] * (1.0 - 1e-9):
            copy(state, best)
