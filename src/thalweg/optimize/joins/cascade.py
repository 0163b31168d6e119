"""Which method when: iterative dynamic programming first, then the integer program, in the time that there is."""

from __future__ import annotations

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.joins.candidates import Candidates, Generator, TooManyError
from thalweg.optimize.joins.forest import Forest
from thalweg.optimize.joins.program import build, is_close, solve
from thalweg.optimize.joins.reduce import batches, paying_stores
from thalweg.optimize.joins.search import Search, shared_bound
from thalweg.optimize.joins.space import Space

REDUCED = 0.2
"""The share of the time in which stores that cannot pay must be found out."""
GENERATED = 0.4
"""The share of the time in which all candidates must be found."""
MOST_ORDERS = 60_000
"""Candidate orders of a program that a solver gets through."""


def solve_space(space: Space, method: str, deadline: Deadline) -> tuple[Forest, float, str]:
    """A solution, a bound of all solutions, and what found it. Parts that share nothing are solved one by one."""
    whole, bound, methods = Forest(space), 0.0, set[str]()
    parts = batches(space)
    left = sum(size for size, _ in parts)
    for size, numbers in parts:
        forest, below, found_by = _solve_part(space, numbers, method, deadline.share(size / left))
        if len(parts) == 1:
            return forest, below, found_by
        whole.adopt(forest)
        bound += below
        left -= size
        methods.add(found_by)
    return whole, bound, "ilp" if "ilp" in methods else "dp"


def _solve_part(space: Space, numbers: list[int], method: str, deadline: Deadline) -> tuple[Forest, float, str]:
    search = Search(space, deadline)
    search.begin(numbers)
    search.settle(search.forest.leaves)
    bound = shared_bound(space, numbers)
    if is_close(search.forest.cost, bound) or deadline.over:
        return search.forest, bound, "dp"
    stores = paying_stores(space, numbers, deadline.share(REDUCED))
    candidates = None if method == "dp" else _candidates(space, numbers, stores, deadline.share(GENERATED))
    if candidates is None:
        search.improve(stores)
        search.explore(stores)
        return search.forest, bound, "dp"
    solved = solve(build(space, candidates), search.forest, stores, deadline)
    return solved.forest, max(bound, solved.bound) if candidates.whole else bound, "ilp"


def _candidates(space: Space, numbers: list[int], stores: list[int], deadline: Deadline) -> Candidates | None:
    try:
        return Generator(space, numbers, stores, deadline, MOST_ORDERS).generate()
    except TooManyError:
        return None
