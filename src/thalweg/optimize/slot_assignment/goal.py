"""What an assignment is judged by: the graph's cost, or the true one of "saspar" where it differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment.bounds import spectral_bound
from thalweg.optimize.slot_assignment.correlation import count_rows
from thalweg.optimize.slot_assignment.graph import AssignmentGraph, Floats, Places, compile_graph
from thalweg.optimize.slot_assignment.model import Model, linear_model, pivot_model
from thalweg.optimize.slot_assignment.pivots import CELLS, Pivots, compile_pivots, pivot_cost, sweep
from thalweg.optimize.slot_assignment.problem import Objective, Problem
from thalweg.optimize.slot_assignment.search import (
    PATIENCE,
    SPREAD,
    WORTH,
    bring_home,
    search,
    settle,
    with_attainable_cap,
    within_cap,
)

WARMTHS, COOLING = (0.02, 0.1, 0.3), (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08, 0.05, 0.03)
"""Where rounds of sweeps start, as a share of what a node ships, and how they go on, as shares of that."""
RENUMBERED = 1_000_000
"""Pairs of slots up to which the best renumbering is looked for."""


@dataclass(frozen=True)
class Goal:
    """An objective, compiled."""

    graph: AssignmentGraph
    pivots: Pivots | None
    """None where the graph says it all; else the graph is an upper bound."""

    def cost(self, places: Places) -> float:
        return self.graph.cost(places) if self.pivots is None else pivot_cost(self.graph, self.pivots, places)

    def model(self) -> Model:
        return linear_model(self.graph) if self.pivots is None else pivot_model(self.graph, self.pivots)

    @property
    def sweepable(self) -> bool:
        return self.pivots is not None and self.pivots.cells * self.graph.slots <= CELLS

    def settle(self, places: Places, deadline: Deadline, seed: int) -> Places:
        """Descends until no single move saves anything."""
        if self.pivots is None:
            return settle(self.graph, places, deadline, seed)
        return self._swept(places, deadline, seed) if self.sweepable else places

    def search(self, starts: list[Places], deadline: Deadline, seed: int, floor: float) -> Places:
        """The best found until the deadline; nothing is looked for below `floor`."""
        if self.pivots is None:
            return search(self.graph, starts, deadline, seed, floor)
        # The star around the pivot is never cheaper than the truth, and mostly close to it.
        near = search(self.graph, starts, deadline.share(0.4), seed, floor)
        return self._explore([near, *starts], deadline, seed, floor) if self.sweepable else near

    def _explore(self, starts: list[Places], deadline: Deadline, seed: int, floor: float) -> Places:
        """Rounds of sweeps on the true cost that grow cooler."""
        inside = [within_cap(self.graph, start) for start in starts]
        best = min((self.settle(start, deadline, seed) for start in inside), key=self.cost)
        lowest, idle = self.cost(best), 0
        rng = np.random.default_rng(seed)
        while idle < PATIENCE and deadline.left > 0.0 and lowest > floor * (1.0 + WORTH):
            places = best
            warmth = float(rng.choice(WARMTHS))
            load = self.graph.load_of(places)
            cap = 1.0 + SPREAD * float(rng.standard_normal())
            caps = np.minimum(np.maximum(cap * load.max(axis=1), load.mean(axis=1)), self.graph.most)
            for share in COOLING:
                if deadline.left > 0.0:
                    places = self._sweep(places, places, rng, warmth * share, caps)
            places = self.settle(places, deadline, seed)
            cost, idle = self.cost(places), idle + 1
            if cost < lowest - WORTH * abs(lowest):
                best, lowest, idle = places, cost, 0
        return best

    def _swept(self, places: Places, deadline: Deadline, seed: int, home: Places | None = None) -> Places:
        rng = np.random.default_rng(seed)
        while deadline.left > 0.0:
            after = self._sweep(places, places if home is None else home, rng)
            if (after == places).all():
                break
            places = after
        return places

    def _sweep(
        self, places: Places, home: Places, rng: np.random.Generator, share: float = 0.0, caps: Floats | None = None
    ) -> Places:
        """A sweep with the warmth of a share of what a node ships."""
        assert self.pivots is not None
        places = places.copy()
        typical = float(self.graph.freight.mean() * self.graph.latency.mean())
        least = WORTH * typical
        order, seed = rng.permutation(len(places)), int(rng.integers(1 << 31))
        caps = np.full(self.graph.streams, -1.0) if caps is None else caps
        sweep(self.graph, self.pivots, places, home.copy(), order, caps, least, share * typical, seed)
        return places

    def returned(self, places: Places, home: Places, deadline: Deadline) -> Places:
        """An assignment that costs the same with fewer rows away from home: slots renumbered, idle moves undone."""
        if self.graph.uniform:
            places = _renumbered(places, home, self.graph)
        if self.pivots is None:
            return bring_home(self.graph, places, home)
        return self._swept(places, deadline, 0, home) if self.sweepable else places


def _renumbered(places: Places, home: Places, graph: AssignmentGraph) -> Places:
    """The slots renumbered so that most rows stay at home."""
    used, place = np.unique(places, return_inverse=True)
    if len(used) * graph.slots > RENUMBERED:
        return places
    stay = count_rows(place * graph.slots + home, graph.weights, len(used) * graph.slots)
    label = linear_sum_assignment(stay.reshape(len(used), graph.slots), maximize=True)[1]
    return np.asarray(label[place], np.int64)


def make_goal(problem: Problem, objective: Objective) -> Goal:
    pivots = compile_pivots(problem) if objective == "saspar" else None
    return Goal(with_attainable_cap(compile_graph(problem, objective)), pivots)


def lower_bound(problem: Problem, goal: Goal, objective: Objective, deadline: Deadline) -> float:
    """Less than any assignment costs. Streams are bounded apart: what ties them together only costs."""
    if goal.pivots is not None:
        return goal.graph.bound()
    if len(problem.streams) == 1:
        return spectral_bound(goal.graph, deadline.left)
    graphs = [compile_graph(problem.part([stream]), objective) for stream in problem.streams]
    capped = [graph._replace(most=goal.graph.most[i : i + 1]) for i, graph in enumerate(graphs)]
    return sum(spectral_bound(graph, deadline.left) for graph in capped)
