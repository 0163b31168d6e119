"""Joins, stores and probe orders as arrays, for the compiled search.

A step is a start and a move: which row arrived, and what its partial result is joined with. How the partial result
came about is not part of it. Where two orders reach one partial result by different steps, one of them can follow the
other and sends no more: so an optimum has every partial result of a start made in one way, as in a probe tree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thalweg.kernel import frozen_view
from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.forest import Path, ProbeForest, Target
from thalweg.optimize.probe_orders.space import Move, Space

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
MOST_OPTIONS = 62
"""Attributes of a store that fit into the mask of those that a step knows."""

LISTED = 0.3
"""The share of the time in which all steps must be listed. Arrays take as long again, and so does a solution."""


class Net(NamedTuple):
    """What does not change while the search runs. Lists of lists are one array, with where each of them begins."""

    chi: float
    step_head: Ids
    step_found: Ids
    step_store: Ids
    step_sent: Floats
    step_known: Ids
    """Which of the store's attributes the partial result knows, as a mask of their places among its options."""
    target_start: Ids
    target_end: Ids
    target_first: Ids
    target_steps: Ids
    """The steps that a target can use, those from larger partial results first."""
    store_charge: Floats
    store_options: Ids
    """By how many attributes it can be partitioned."""
    store_fill: Ids
    """The first and the last but one of the targets that fill an intermediate store and that no query has."""
    probed_first: Ids
    probed_by: Ids
    """Store -> the targets that could probe it."""
    near_first: Ids
    near: Ids
    """Intermediate store -> the targets that fill it, and all targets of the joins that it is a part of."""
    priced_first: Ids
    priced: Ids
    """Store -> the steps that probe it."""
    shared_first: Ids
    shared_by: Ids
    """Step -> the targets that can use it."""
    loose: Ids
    """Stores of several options."""
    results: Ids
    """Intermediate stores."""


class SearchState(NamedTuple):
    """A solution while the search changes it."""

    cost: Floats
    """One number."""
    use: Ids
    """Step -> how many orders take it."""
    price: Floats
    """Step -> what it costs as its store is partitioned now."""
    length: Ids
    """Target -> the steps of its order; -1: it has none."""
    path: Ids
    """Target -> its steps."""
    kept: Flags
    """Store -> whether it is there; base relations always are."""
    part: Ids
    """Store -> the place of its attribute among its options."""
    rest: Floats
    """Sub-join -> what the steps still to come cost; while a target is looked at."""
    choice: Ids
    """Sub-join -> the next step; while a target is looked at."""

    def copied(self) -> SearchState:
        return SearchState(*(array.copy() for array in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Network:
    """Arrays and what their places stand for."""

    space: Space
    net: Net
    stores: list[int]
    targets: list[Target]
    steps: dict[tuple[int, int, Move], int]
    longest: int

    def blank(self) -> SearchState:
        """No order, no intermediate store, every store partitioned by its first attribute."""
        net, parts = self.net, len(self.space.rows)
        state = SearchState(
            np.zeros(1), np.zeros(len(net.step_sent), np.int64), np.zeros(len(net.step_sent)),
            np.full(len(self.targets), -1), np.zeros((len(self.targets), self.longest), np.int64),
            np.array([self.space.base[store] for store in self.stores]), np.zeros(len(self.stores), np.int64),
            np.zeros(parts), np.zeros(parts, np.int64),
        )  # fmt: skip
        state.price[:] = self._prices(state.part)
        return state

    def _prices(self, part: Ids) -> Floats:
        net = self.net
        knows = (net.step_known >> part[net.step_store]) & 1
        return np.where(knows == 1, net.step_sent, net.step_sent * net.chi)

    def state_of(self, forest: ProbeForest) -> SearchState:
        state, place = self.blank(), {target: i for i, target in enumerate(self.targets)}
        for i, store in enumerate(self.stores):
            options = self.space.partitions[store]
            if forest.partition.get(store) in options:
                state.part[i] = options.index(forest.partition[store])
            state.kept[i] |= store in forest.kept
        state.price[:] = self._prices(state.part)
        for target, leaf in forest.leaves.items():
            head, i = target[1], place[target]
            state.length[i] = len(leaf.path)
            for j, move in enumerate(leaf.path):
                step = state.path[i, j] = self.steps[target[1], head, move]
                state.use[step] += 1
                head = move[1]
        state.cost[0] = state.price[state.use > 0].sum() + self.net.store_charge[state.kept].sum()
        return state

    def forest_of(self, state: SearchState) -> ProbeForest:
        """The solution, every partial result of a start made in one way."""
        space, forest = self.space, ProbeForest(self.space)
        moves = list(self.steps)
        into: dict[tuple[int, int], tuple[int, Move]] = {}
        for i in range(len(self.targets)):
            for j in range(state.length[i]):
                start, head, move = moves[state.path[i, j]]
                into.setdefault((start, move[1]), (head, move))
        for i, store in enumerate(self.stores):
            options = space.partitions[store]
            if options:
                forest.partition[store] = options[state.part[i]]
            if state.kept[i] and not space.base[store]:
                forest.keep(store)
        for i, target in enumerate(self.targets):
            if state.length[i] >= 0:
                forest.put(target, _back(into, target))
        forest.shed()
        return forest


def _back(into: dict[tuple[int, int], tuple[int, Move]], target: Target) -> Path:
    head, start = target
    path: list[Move] = []
    while head != start:
        head, move = into[start, head]
        path.append(move)
    return tuple(reversed(path))


def make_network(
    space: Space, numbers: Collection[int], stores: Collection[int], deadline: Deadline
) -> Network | None:
    """The network of some joins and of the intermediate stores that they may use; None if there is no time."""
    listed = deadline.share(LISTED)
    bases = {start for number in numbers for start in space.graphs[number].starts}
    order = [*sorted(bases), *sorted(stores)]
    if any(len(space.partitions.get(store, ())) > MOST_OPTIONS for store in order):
        return None
    place = {store: i for i, store in enumerate(order)}
    steps: dict[tuple[int, int, Move], int] = {}
    targets: list[Target] = []
    usable: list[list[int]] = []
    fill = np.zeros((len(order), 2), np.int64)
    for number in dict.fromkeys((*numbers, *order[len(bases) :])):
        if listed.over:
            return None
        graph, first = space.graph(number), len(targets)
        for start in graph.starts:
            inside = space.relations[start]
            targets.append((number, start))
            usable.append(
                [
                    steps.setdefault((start, head, move), len(steps))
                    for head, moves in graph.moves.items()
                    if space.relations[head] & inside
                    for move in moves
                    if move[0] in place
                ]
            )
        if number not in space.graphs:
            fill[place[number]] = first, len(targets)
    net = _net(space, order, len(bases), steps, targets, usable, fill)
    return Network(space, net, order, targets, steps, max(len(space.graph(n).starts) for n, _ in targets))


def _net(
    space: Space,
    order: list[int],
    bases: int,
    steps: dict[tuple[int, int, Move], int],
    targets: list[Target],
    usable: list[list[int]],
    fill: Ids,
) -> Net:
    place = {store: i for i, store in enumerate(order)}
    options = [space.partitions.get(store, []) for store in order]
    # Without options there is nothing to know: copies go everywhere, unless one place is all there is.
    known = [_known(space, head, move, options[place[move[0]]]) for _, head, move in steps]
    store_of = np.array([place[move[0]] for _, _, move in steps], np.int64)
    target_first, target_steps = _listed(usable)
    owner = np.repeat(np.arange(len(targets)), np.diff(target_first))
    probing = np.unique(store_of[target_steps] * max(len(targets), 1) + owner)
    probed_by = probing % max(len(targets), 1)
    near_first, near = _near(space, order, bases, targets)
    by_step = np.argsort(target_steps, kind="stable")
    arrays: list[NDArray[np.int64] | Floats] = [
        np.array([head for _, head, _ in steps], np.int64), np.array([move[1] for _, _, move in steps], np.int64),
        store_of, np.array([space.sent[head] for _, head, _ in steps], np.float64), np.array(known, np.int64),
        np.array([start for _, start in targets], np.int64), np.array([number for number, _ in targets], np.int64),
        target_first, target_steps, np.array([space.charge(store) for store in order], np.float64),
        np.array([max(len(found), 1) for found in options], np.int64), fill,
        np.searchsorted(probing // max(len(targets), 1), np.arange(len(order) + 1)), probed_by,
        near_first, near,
        np.searchsorted(np.sort(store_of), np.arange(len(order) + 1)), np.argsort(store_of, kind="stable"),
        np.searchsorted(target_steps[by_step], np.arange(len(steps) + 1)), owner[by_step],
        np.array([i for i, found in enumerate(options) if len(found) > 1], np.int64),
        np.arange(bases, len(order)),
    ]  # fmt: skip
    return Net(space.chi, *map(frozen_view, arrays))


def _near(space: Space, order: list[int], bases: int, targets: list[Target]) -> tuple[Ids, Ids]:
    lists: list[list[int]] = [[] for _ in order]
    place = {store: i for i, store in enumerate(order) if i >= bases}
    for i, (number, _) in enumerate(targets):
        for part in (number, *space.graph(number).moves):
            if part in place and (part != number or number not in space.graphs):
                lists[place[part]].append(i)
    return _listed(lists)


def _known(space: Space, head: int, move: Move, options: list[int]) -> int:
    if space.chi == 1.0:
        return -1
    known = space.known(head, move)
    return sum((known >> attribute & 1) << i for i, attribute in enumerate(options))


def _listed(lists: Iterable[list[int]]) -> tuple[Ids, Ids]:
    found = list(lists)
    first = np.concatenate([[0], np.cumsum([len(each) for each in found], dtype=np.int64)]).astype(np.int64)
    return first, np.array([each for some in found for each in some], np.int64)
