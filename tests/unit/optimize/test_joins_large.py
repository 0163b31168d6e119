"""The compiled search and the nearly solved relaxation: what they say holds when recounted or solved exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from joins_audit import audit
from test_joins_input import random_queries
from tests.support.clocks import CountingClock, counted

from thalweg.optimize import joins
from thalweg.optimize.deadline import Deadline
from thalweg.optimize.joins.anneal import annealed
from thalweg.optimize.joins.branch import bound_by_cases, relax_nearly
from thalweg.optimize.joins.candidates import Generator
from thalweg.optimize.joins.network import make_network
from thalweg.optimize.joins.program import Matrix, Program, build
from thalweg.optimize.joins.search import Search
from thalweg.optimize.joins.space import Space
from thalweg.optimize.joins.validate import check_queries, check_statistics

optimize = counted(joins.optimize)


def soon(seconds: float = 60.0) -> Deadline:
    return Deadline.after(seconds, CountingClock())


def spaced(queries: int, size: int, relations: int, seed: int) -> Space:
    workload = random_queries(queries, size, relations, seed=seed)
    checked = check_queries(workload.join_queries)
    return Space(checked, check_statistics(workload.statistics, checked), True)


def begun(space: Space) -> Search:
    search = Search(space, soon())
    search.begin(space.graphs)
    search.settle(search.forest.leaves)
    return search


def programmed(space: Space) -> Program:
    stores = space.intermediates
    return build(space, Generator(space, list(space.graphs), stores, soon(), 10**6).generate())


@pytest.mark.parametrize("seed", range(4))
def test_a_forest_becomes_arrays_and_a_forest_again(seed: int) -> None:
    space = spaced(8, 4, 7, seed)
    forest = begun(space).forest
    network = make_network(space, list(space.graphs), space.intermediates, soon())
    assert network is not None
    state = network.state_of(forest)
    assert state.cost[0] == pytest.approx(forest.total())
    assert network.forest_of(state).total() <= forest.total() * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_annealing_counts_what_its_forest_costs_and_is_never_dearer(seed: int) -> None:
    space = spaced(8, 4, 7, seed)
    before = begun(space).forest
    after = annealed(space, list(space.graphs), space.intermediates, before, soon(), 1)
    assert after is not None
    assert after.cost == pytest.approx(after.total())
    assert after.total() <= before.total() * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_nearly_solved_relaxation_is_just_below_the_solved_one(seed: int) -> None:
    matrix = Matrix.of(programmed(spaced(8, 4, 7, seed)))
    _, duals, finished = matrix.relax(soon())
    exact, _ = matrix.lagrangian(duals)
    near = relax_nearly(matrix, 2.0 * exact, soon())
    assert finished
    assert 0.98 * exact <= near.root.bound * near.scale <= exact * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_cases_only_raise_the_bound_and_never_above_the_optimum(seed: int) -> None:
    space = spaced(4, 4, 6, seed)
    program = programmed(space)
    matrix = Matrix.of(program)
    found = matrix.integral(np.ones(len(matrix.cost), np.bool_), np.zeros(len(matrix.cost)), soon())
    assert found is not None
    best = float(matrix.cost @ found[0])
    near = relax_nearly(matrix, best, soon())
    bound = bound_by_cases(program, near, 2.0 * best, soon(0.3))
    assert near.root.bound * near.scale <= bound * (1 + 1e-9)
    assert bound <= best * (1 + 1e-6)


@pytest.mark.parametrize("method", ["auto", "dp"])
def test_a_large_plan_costs_what_it_says(method: str) -> None:
    workload = random_queries(30, 5, 10, seed=3)
    plan = optimize(workload.join_queries, workload.statistics, budget_seconds=0.9, method=method)
    audit(plan, workload)
    assert 0.0 < plan.bound <= plan.cost
