"""SASPAR Algorithm 1: the steps that lead to an assignment within a time budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from numpy.typing import ArrayLike

from thalweg.optimize.deadline import SECONDS, Clock, Deadline
from thalweg.optimize.slot_assignment import validate
from thalweg.optimize.slot_assignment.correlation import RouteKey
from thalweg.optimize.slot_assignment.goal import Goal, lower_bound, make_goal
from thalweg.optimize.slot_assignment.graph import Places, to_places, to_slots
from thalweg.optimize.slot_assignment.model import size_of, solve
from thalweg.optimize.slot_assignment.problem import Ids, Objective, Problem
from thalweg.optimize.slot_assignment.reduce import HOPELESS, Effort, solve_by
from thalweg.optimize.slot_assignment.search import WORTH, quick_places, within_cap
from thalweg.optimize.slot_assignment.warm import warm_kernels

USED = 0.85
"""The share of the budget after which nothing new is begun."""
FIRST_GAP, GAP = 1e-6, 1e-4
"""The gap that counts as optimal, and the one that is doubled each round after."""
ROUNDS = 6
"""Rounds of the cascade, at most: the paper's iterMax."""
SEARCHED = 0.6
"""The share of the time that the search may take before the solver."""
LARGE = 60_000
"""Nodes times slots above which the search gets all the time, and the solver none."""


@dataclass(frozen=True)
class Heuristics:
    """Which heuristics of SASPAR Section IV are in use, and the local search."""

    parallel: bool = True
    """(1) Streams that no join ties together are solved apart, side by side."""
    gap: bool = True
    """(2) Each round is content with a larger gap."""
    timeout: bool = True
    """(3) No step may take all the time that is left."""
    merge_groups: bool = True
    """(4)"""
    merge_slots: bool = True
    """(7)"""
    tree: bool = True
    """(5)"""
    hybrid: bool = True
    """(6)"""
    search: bool = True

    @property
    def ladder(self) -> list[tuple[str, ...]]:
        """The steps of each rung, outermost first. As in Algorithm 1, a rung keeps what the one before it did."""
        rung: tuple[str, ...] = ()
        rungs = []
        for used, step in (
            (self.merge_groups, "merged key groups"),
            (self.merge_slots, "merged slots"),
            (self.tree, "tree"),
            (self.hybrid, "hybrid"),
        ):
            if used:
                rung = (step, *rung)
                rungs.append(rung)
        return rungs


@dataclass(frozen=True)
class Answer:
    """An assignment, and how good it is known to be."""

    slots: Mapping[RouteKey, Ids]
    cost: float
    bound: float
    """No assignment costs less."""
    method: str
    """Which steps gave the answer."""


def optimize(
    problem: Problem,
    *,
    budget_seconds: float = 4.0,
    seed: int = 0,
    objective: Objective = "copies",
    heuristics: Heuristics | None = None,
    start: Mapping[RouteKey, ArrayLike] | None = None,
    clock: Clock = SECONDS,
) -> Answer:
    """A cheap assignment, never dearer than hashing or than `start`, the one in force, if these keep the load cap.

    Of assignments with equal cost, the one that moves fewest rows away from `start`, or else from hashing.
    The budget holds but for the first run on a machine, which compiles the kernels.
    """
    validate.check_objective(objective)
    validate.check_number("budget_seconds", budget_seconds)
    seed = validate.check_seed(seed)
    given = None if start is None else problem.checked(start)
    deadline = Deadline.after(USED * budget_seconds, clock)
    if budget_seconds > 0.0 and not warm_kernels() and deadline.left < budget_seconds / 2.0:
        deadline = Deadline.after(budget_seconds / 2.0, clock)
    heuristics = heuristics or Heuristics()
    parts = _independent(problem) if heuristics.parallel else [problem]
    solved = _solve_all(parts, objective, heuristics, deadline, seed, given)
    slots = {
        key: array for part, course in zip(parts, solved, strict=True) for key, array in course.slots(part).items()
    }
    ordered = {key: slots[key] for key in problem.route_keys}
    cost = problem.cost(ordered, objective=objective)
    bound = min(sum(course.bound for course in solved), cost)
    return Answer(ordered, cost, bound, _describe([course.method for course in solved], cost, bound))


def _describe(methods: list[str], cost: float, bound: float) -> str:
    steps = " / ".join(dict.fromkeys(methods)) or "nothing to assign"
    if cost - bound <= FIRST_GAP * abs(cost):
        return f"{steps}, proven optimal"
    above = 100.0 * (cost - bound) / max(bound, 1e-300)
    return f"{steps}, at most {above:.{1 if above < 10.0 else 0}f} % above the optimum" if above < 1000.0 else steps


def _independent(problem: Problem) -> list[Problem]:
    """Heuristic (1): the problem in parts that neither a stream nor `equal` ties together."""
    names = list(problem.streams)
    part_of = {name: i for i, name in enumerate(names)}
    for first, second in problem.equal:
        old, new = part_of[second[0]], part_of[first[0]]
        part_of = {name: new if part == old else part for name, part in part_of.items()}
    parts = [[name for name in names if part_of[name] == part] for part in dict.fromkeys(part_of.values())]
    return [problem] if len(parts) == 1 else [problem.part(streams) for streams in parts]


def _solve_all(
    parts: list[Problem],
    objective: Objective,
    heuristics: Heuristics,
    deadline: Deadline,
    seed: int,
    start: Mapping[RouteKey, Ids] | None,
) -> list[_Course]:
    """Parts side by side in threads; of a thread's time, each gets what its size asks for."""
    sizes = [1 + part.groups * len(part.counts) for part in parts]
    lanes = _lanes(sizes, min(len(parts), os.cpu_count() or 1))
    forks = [deadline.fork() for _ in lanes]

    def run(lane: list[int], until: Deadline) -> list[tuple[int, _Course]]:
        solved, left = [], sum(sizes[i] for i in lane)
        for i in lane:
            share = until.share(sizes[i] / left)
            solved.append((i, _solve(parts[i], objective, heuristics, share, seed, start)))
            left -= sizes[i]
        return solved

    if len(lanes) <= 1:
        found = [pair for lane in lanes for pair in run(lane, deadline)]
    else:
        with ThreadPoolExecutor(len(lanes)) as pool:
            found = [pair for pairs in pool.map(run, lanes, forks) for pair in pairs]
    return [course for _, course in sorted(found, key=lambda pair: pair[0])]


def _lanes(sizes: list[int], count: int) -> list[list[int]]:
    """The parts dealt to threads, the largest first to the emptiest; in each thread the small ones run first.

    What they leave of their time is for the others. Who runs where does not depend on how fast a thread is.
    """
    lanes: list[list[int]] = [[] for _ in range(count)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        min(lanes, key=lambda lane: sum(sizes[j] for j in lane)).insert(0, i)
    return lanes


class _Course:
    """The best assignment of a part so far, with the steps that led to it, and the best bound."""

    def __init__(self, goal: Goal, home: Places, method: str) -> None:
        self.goal, self.home = goal, home
        inside = within_cap(goal.graph, home)
        self.places, self.cost = inside, goal.cost(inside)
        self.method = method if inside is home else f"{method}, within the load cap"
        self.bound = goal.graph.bound()

    def offer(self, places: Places, method: str) -> None:
        """Taken if it is truly cheaper: what costs the same moves nothing."""
        places = within_cap(self.goal.graph, places)
        cost = self.goal.cost(places)
        if cost < self.cost - WORTH * abs(self.cost):
            self.places, self.cost, self.method = places, cost, method

    def offer_equal(self, places: Places) -> None:
        """The same for less: taken unless it costs more, or loads a slot too much."""
        if not self.goal.graph.over(places) and self.goal.cost(places) <= self.cost + WORTH * abs(self.cost):
            self.places, self.cost = places, self.goal.cost(places)

    def raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)

    @property
    def gap(self) -> float:
        """By how much the assignment may be above the optimum, as a share of its cost."""
        return max(self.cost - self.bound, 0.0) / self.cost if self.cost > 0.0 else 0.0

    def slots(self, problem: Problem) -> dict[RouteKey, Ids]:
        return to_slots(problem, self.places)


def _solve(
    problem: Problem,
    objective: Objective,
    heuristics: Heuristics,
    deadline: Deadline,
    seed: int,
    start: Mapping[RouteKey, Ids] | None,
) -> _Course:
    """One part: the starts, the search, the cascade, and home what need not have moved."""
    goal = make_goal(problem, objective)
    hashed = to_places(problem, problem.hashed())
    home = hashed if start is None else to_places(problem, start)
    course = _Course(goal, home, "hashing" if start is None else "as it was")
    course.offer(hashed, "hashing")
    if problem.groups == 0 or problem.slots == 1:
        return course
    quick = quick_places(goal.graph)
    for method, places in quick.items():
        course.offer(places, method)
    if deadline.left > 0.0:
        course.raise_bound(lower_bound(problem, goal, objective, deadline))
        small = size_of(goal.graph) <= LARGE
        if heuristics.search:
            until = deadline.share(SEARCHED) if small else deadline
            course.offer(goal.search([home, hashed, *quick.values()], until, seed, course.bound), "search")
        if small or not heuristics.search:
            _climb(course, heuristics, deadline, seed)
    if course.places is not home and course.places is not hashed:
        course.offer_equal(goal.returned(course.places, home, deadline))
    return course


def _climb(course: _Course, heuristics: Heuristics, deadline: Deadline, seed: int) -> None:
    """SASPAR Algorithm 1. A rung that is solved to the gap ends it; until then each round asks for less."""
    gap, missed = FIRST_GAP, 0.0
    for turn in range(ROUNDS):
        if course.gap <= gap or deadline.left <= 0.0:
            return
        effort = Effort(gap, _rung_time(heuristics, deadline), seed + turn, halvings=turn + 1)
        # A model that ended further from its bound than this round allows would do so again.
        if missed <= gap:
            solved = _solve_whole(course, effort)
            if solved:
                return
            missed = course.gap
        gap = max(2.0 * gap, GAP) if heuristics.gap else gap
        for steps in heuristics.ladder:
            effort = Effort(gap, _rung_time(heuristics, deadline), seed + turn, halvings=turn + 1)
            reduced = solve_by(steps, course.goal.graph, effort)
            if reduced is None:
                continue
            method = "MIP, " + ", ".join(reversed(steps))
            course.offer(reduced.places, method)
            if heuristics.search:
                course.offer(course.goal.settle(reduced.places, deadline, seed), method + ", search")
            if reduced.proven:
                return


def _rung_time(heuristics: Heuristics, deadline: Deadline) -> Deadline:
    """Heuristic (3): half of what is left, so that the rungs after it get their turn."""
    return deadline.share(0.5) if heuristics.timeout else deadline


def _solve_whole(course: _Course, effort: Effort) -> bool:
    """The solver on the whole problem, from the best known. Whether it closed the gap."""
    if size_of(course.goal.graph) > HOPELESS:
        return False
    solved = solve(course.goal.model(), course.places, deadline=effort.deadline, gap=effort.gap, seed=effort.seed)
    course.raise_bound(solved.bound)
    if solved.places is not None:
        course.offer(solved.places, "MIP")
    return solved.proven
