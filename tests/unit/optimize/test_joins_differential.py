"""Differential tests of join planning: the integer program, and every plan there is, written from the paper."""

from __future__ import annotations

import sys
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the reference lies beside the tests

import joins_reference as reference
from joins_audit import audit
from joins_inputs import Workload, drawn, paper
from tests.support.clocks import counted

from thalweg.optimize import probe_orders
from thalweg.optimize.probe_orders import Plan

pytestmark = pytest.mark.slow

optimize = counted(probe_orders.optimize)

KINDS: dict[str, dict[str, Any]] = {
    "pairs of small queries": {"queries": 2, "sizes": (3,)},
    "small queries": {"queries": 3, "sizes": (2, 3), "relations": 4},
    "many small queries": {"queries": 5, "sizes": (2, 3), "relations": 4, "density": 0.3},
    "larger queries": {"queries": 2, "sizes": (3, 4), "density": 0.2},
    "one query": {"queries": 1, "sizes": (4,), "density": 0.3},
    "cycles": {"queries": 2, "sizes": (3, 4), "relations": 4, "density": 1.0, "doubled": 0.0},
    "two predicates": {"queries": 2, "sizes": (3,), "relations": 4, "doubled": 1.0, "attributes": 3},
    "one attribute": {"queries": 2, "sizes": (3,), "attributes": 1},
}
SETTINGS = [(False, 1), (False, 3), (True, 1), (True, 3)]
"""Whether intermediate stores may be kept; the parallelism."""
MOST_CANDIDATES = {1: 7, 3: 5}
"""Parallelism -> intermediate stores beyond which the reference takes too long."""
MOST_COMPARED = {1: 5, 3: 4}
"""As above, where several settings are compared."""
EACH = 6
"""Workloads of each kind and setting."""
GENEROUS = 20.0


def workloads(kind: str, parallelism: int, number: int = EACH, **other: Any) -> list[Workload]:
    options = {**KINDS[kind], "parallelism": parallelism, **other}
    found = (drawn(seed, **options) for seed in count(1000 * list(KINDS).index(kind)))
    return list(islice((w for w in found if w.candidates <= MOST_CANDIDATES[parallelism]), number))


@lru_cache
def optima(kind: str, parallelism: int, materialize: bool) -> list[tuple[Workload, float]]:
    found = workloads(kind, parallelism)
    return [(one, reference.cheapest(one.reference, materialize=materialize).cost) for one in found]


def planned(workload: Workload, method: str, materialize: bool | int = True) -> Plan:
    return optimize(
        workload.join_queries,
        workload.statistics,
        budget_seconds=GENEROUS,
        method=method,
        materialize=materialize,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("materialize", "parallelism"), SETTINGS)
def test_the_program_finds_what_the_reference_finds(kind: str, materialize: bool, parallelism: int) -> None:
    for workload, best in optima(kind, parallelism, materialize):
        apart = reference.separately(workload.reference, materialize=materialize)
        for method in ("ilp", "auto"):
            plan = planned(workload, method, materialize)
            audit(plan, workload, materialize=materialize)
            assert plan.cost == pytest.approx(best, rel=1e-6), (method, workload)
            assert plan.bound == pytest.approx(best, rel=1e-6), (method, workload)
            assert plan.separate_cost == pytest.approx(apart, rel=1e-6), (method, workload)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("materialize", "parallelism"), SETTINGS)
def test_the_dynamic_program_is_never_below_the_optimum_and_near_it(
    kind: str, materialize: bool, parallelism: int
) -> None:
    ratios = []
    for workload, best in optima(kind, parallelism, materialize):
        plan = planned(workload, "dp", materialize)
        audit(plan, workload, materialize=materialize)
        assert plan.bound <= best * (1 + 1e-9)
        assert plan.cost >= best * (1 - 1e-9)
        ratios.append(plan.cost / best)
    assert max(ratios) <= 1.35
    assert sum(ratios) / len(ratios) <= 1.08


@pytest.mark.parametrize("storing", [0.0, 0.3, 5.0])
def test_what_rows_cost_that_are_sent_into_stores_is_a_factor(storing: float) -> None:
    for seed in range(6):
        drawn_one = drawn(seed, queries=2, sizes=(3,))
        workload = Workload(drawn_one.queries, drawn_one.rates, drawn_one.selectivity, 2, storing)
        best = reference.cheapest(workload.reference, materialize=True).cost
        plan = planned(workload, "ilp")
        audit(plan, workload)
        assert plan.cost == pytest.approx(best, rel=1e-6), workload


def test_the_reference_knows_the_example_of_the_paper() -> None:
    """CLASH, V.2: 475 for each query alone, 800 together."""
    given = paper().reference
    assert reference.separately(given, materialize=False) == pytest.approx(950)
    assert reference.cheapest(given, materialize=False).cost == pytest.approx(800)


def test_the_workloads_are_worth_testing_on() -> None:
    """Some optima keep stores, some save by sharing, some differ by the attributes of stores."""
    kept = saved = 0
    for workload in workloads("larger queries", 3):
        best = reference.cheapest(workload.reference, materialize=True)
        kept += bool(best.kept)
        saved += best.cost < 0.99 * reference.separately(workload.reference, materialize=True)
    assert kept >= 3
    assert saved >= 3


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("kind", ["larger queries", "cycles"])
def test_stores_of_two_relations_at_most(kind: str, parallelism: int) -> None:
    """All methods keep to the limit and agree; it costs something between no stores and all of them."""
    compared = 0
    for workload in workloads(kind, parallelism):
        if workload.candidates > MOST_COMPARED[parallelism]:
            continue
        plan = planned(workload, "ilp", materialize=2)
        audit(plan, workload)
        assert all(len(store.relations) <= 2 for store in plan.stores)
        assert plan.cost == pytest.approx(reference.cheapest(workload.reference, materialize=2).cost, rel=1e-6)
        assert planned(workload, "ilp").cost <= plan.cost * (1 + 1e-9)
        assert plan.cost <= planned(workload, "ilp", materialize=False).cost * (1 + 1e-9)
        compared += 1
    assert compared
