"""The compiled search and the relaxation: what they say holds when recounted or solved exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from joins_audit import audit
from test_joins_input import random_queries
from tests.support.clocks import CountingClock, counted

from thalweg.optimize import probe_orders
from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.anneal import annealed
from thalweg.optimize.probe_orders.candidates import Generator
from thalweg.optimize.probe_orders.network import make_network
from thalweg.optimize.probe_orders.program import Matrix, Program, build
from thalweg.optimize.probe_orders.search import Search
from thalweg.optimize.probe_orders.space import Space
from thalweg.optimize.probe_orders.validate import check_queries, check_statistics

optimize = counted(probe_orders.optimize)


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
def test_the_relaxation_is_a_bound_of_the_program(seed: int) -> None:
    matrix = Matrix.of(programmed(spaced(4, 4, 6, seed)))
    _, duals, finished = matrix.relax(soon())
    bound, _ = matrix.lagrangian(duals)
    found = matrix.integral(np.ones(len(matrix.cost), np.bool_), np.zeros(len(matrix.cost)), soon())
    assert finished
    assert found is not None
    assert 0.0 < bound <= float(matrix.cost @ found[0]) * (1 + 1e-6)


@pytest.mark.parametrize("method", ["auto", "dp"])
def test_a_large_plan_costs_what_it_says(method: str) -> None:
    workload = random_queries(30, 5, 10, seed=3)
    plan = optimize(workload.join_queries, workload.statistics, budget_seconds=0.9, method=method)
    audit(plan, workload)
    assert 0.0 < plan.bound <= plan.cost
