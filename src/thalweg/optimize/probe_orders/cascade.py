"""Which method when: iterative dynamic programming first, then the integer program, in the time that there is."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.anneal import annealed
from thalweg.optimize.probe_orders.candidates import Generator, TooManyError
from thalweg.optimize.probe_orders.forest import ProbeForest
from thalweg.optimize.probe_orders.program import Program, build, is_close, solve
from thalweg.optimize.probe_orders.reduce import batches, paying_stores
from thalweg.optimize.probe_orders.search import Search, shared_bound
from thalweg.optimize.probe_orders.space import Space

REDUCED = 0.2
"""The share of the time in which stores that cannot pay must be found out."""
EASY = 1000
"""Moves of joins up to which the integer program is solved at once where copies cost nothing."""
ANNEALED, ONLY_ANNEALED = 0.55, 0.8
"""The share of the time then in which solutions are searched for, before the integer program and in place of it."""
ROUNDS = 100
"""Of the search, at most."""
GENERATED = 0.6
"""The share of the time in which all candidates must be found."""
MOST_ORDERS = 60_000
"""Candidate orders of a program that a solver gets through."""


def needs_kernels(space: Space, method: str) -> bool:
    """Whether compiled search may be asked for: not for a few queries whose integer program is solved at once."""
    return method == "dp" or space.chi != 1.0 or any(size > EASY for size, _ in batches(space))


def solve_space(space: Space, method: str, deadline: Deadline) -> tuple[ProbeForest, float, str]:
    """A solution, a bound of all solutions, and what found it. Parts that share nothing are solved one by one."""
    whole, bound, methods = ProbeForest(space), 0.0, set[str]()
    parts = batches(space)
    left = sum(size for size, _ in parts)
    for size, numbers in parts:
        forest, below, found_by = _solve_part(space, size, numbers, method, deadline.share(size / left))
        if len(parts) == 1:
            return forest, below, found_by
        whole.adopt(forest)
        bound += below
        left -= size
        methods.add(found_by)
    return whole, bound, "ilp" if "ilp" in methods else "dp"


def _solve_part(
    space: Space, size: int, numbers: list[int], method: str, deadline: Deadline
) -> tuple[ProbeForest, float, str]:
    search = Search(space, deadline)
    search.begin(numbers)
    search.settle(search.forest.leaves)
    bound = shared_bound(space, numbers)
    if is_close(search.forest.cost, bound) or deadline.over:
        return search.forest, bound, "dp"
    stores = paying_stores(space, numbers, deadline.share(REDUCED))
    forest = search.forest
    if method == "dp":
        return _searched(search, numbers, stores, deadline), bound, "dp"
    if (space.chi != 1.0 or size > EASY) and not space.restricted:
        # Where the solver will not end, it finds no better solutions either.
        rounds = ROUNDS if space.chi != 1.0 and size > EASY else 1
        found = annealed(space, numbers, stores, forest, deadline.share(ANNEALED), rounds)
        if found is None:
            # What is too large for that is too large for a program.
            return _searched(search, numbers, stores, deadline), bound, "dp"
        forest = found
    if is_close(forest.cost, bound) or deadline.over:
        return forest, bound, "dp"
    program = _program(space, numbers, stores, deadline.share(GENERATED))
    if program is None:
        return _searched(Search(space, deadline, forest), numbers, stores, deadline), bound, "dp"
    solved = solve(program, forest, deadline)
    return solved.forest, max(bound, solved.bound) if program.candidates.whole else bound, "ilp"


def _searched(search: Search, numbers: list[int], stores: list[int], deadline: Deadline) -> ProbeForest:
    """All the time for search: annealing, or if there is none for its arrays, one change after the other."""
    found = None
    if not search.space.restricted:
        found = annealed(search.space, numbers, stores, search.forest, deadline.share(ONLY_ANNEALED), ROUNDS)
    if found is None:
        search.improve(stores)
        search.explore(stores)
    return found or search.forest


def _program(space: Space, numbers: list[int], stores: list[int], deadline: Deadline) -> Program | None:
    """None if there is no time or no room for all candidates."""
    with _uncollected():
        try:
            return build(space, Generator(space, numbers, stores, deadline, MOST_ORDERS).generate())
        except TooManyError:
            return None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without searching for garbage: tens of thousands of tuples are made here and none is in a cycle."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
