"""Unit tests of join planning: input that is wrong, and input that is large. An answer in time, or a clear error."""

from __future__ import annotations

import math
import random
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the reference lies beside the tests

from joins_audit import audit
from joins_inputs import Pair, Workload
from tests.support.clocks import CountingClock, counted

from thalweg.errors import ThalwegError
from thalweg.optimize import probe_orders
from thalweg.optimize.probe_orders import JoinQuery, Plan, Statistics
from thalweg.optimize.probe_orders.warm import warm_kernels

optimize = counted(probe_orders.optimize)

RS, ST = ("R.a", "S.a"), ("S.b", "T.b")
GOOD = JoinQuery("q1", ("R", "S", "T"), (RS, ST))
RATES = dict.fromkeys("RSTU", 100.0)
SELECTIVITY = {RS: 0.01, ST: 0.01}


def refused(
    queries: list[Any], *words: str, rates: Any = None, selectivity: Any = None, parallelism: Any = 1, **options: Any
) -> None:
    """Asserts an error that names these words."""
    given = Statistics(
        rates=RATES if rates is None else rates,
        selectivity=SELECTIVITY if selectivity is None else selectivity,
        parallelism=parallelism,
    )
    with pytest.raises(ThalwegError) as caught:
        optimize(queries, given, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (JoinQuery("far apart", ("R", "S", "T"), (RS,)), ("far apart", "T")),
        (JoinQuery("crossed", ("R", "S"), ()), ("crossed",)),
        (JoinQuery("two parts", ("R", "S", "T", "U"), (RS, ("T.a", "U.a"))), ("two parts",)),
        (JoinQuery("stranger", ("R", "S"), (RS, ST)), ("stranger", "T.b")),
        (JoinQuery("bare", ("R", "S"), (("a", "b"),)), ("bare", "a")),
        (JoinQuery("itself", ("R", "S"), (RS, ("R.a", "R.b"))), ("itself", "R.b")),
        (JoinQuery("twice", ("R", "R", "S"), (RS,)), ("twice", "R")),
        (JoinQuery("nothing", (), ()), ("nothing",)),
        (JoinQuery("half", ("R", "S"), (("R.a",),)), ("half",)),  # type: ignore[arg-type]
        (JoinQuery("text", ("R", "S"), ("R.a = S.a",)), ("text",)),  # type: ignore[arg-type]
    ],
)
def test_a_query_that_cannot_be_planned_is_named(query: JoinQuery, words: tuple[str, ...]) -> None:
    refused([GOOD, query], *words)


def test_two_queries_of_one_name() -> None:
    refused([GOOD, JoinQuery("q1", ("R", "S"), (RS,))], "q1")


def test_missing_statistics_are_named() -> None:
    refused([GOOD], "S.b", "T.b", "q1", selectivity={RS: 0.01})
    refused([GOOD], "'T'", "q1", rates={"R": 1, "S": 1})


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "many", None])
def test_numbers_that_are_none(bad: Any) -> None:
    refused([GOOD], "S", rates={**RATES, "S": bad})
    refused([GOOD], "R.a", selectivity={RS: bad, ST: 0.01})
    refused([GOOD], "parallelism", parallelism=bad)
    if bad != math.inf:
        refused([GOOD], "budget", budget_seconds=bad)


def test_what_else_is_refused() -> None:
    refused([GOOD], "parallelism", parallelism=0)
    refused([GOOD], "method", "guess", method="guess")
    refused([GOOD], "method", "exhaustive", method="exhaustive")
    refused(["SELECT 1"], "SELECT 1")
    refused([GOOD], "R.a", selectivity={RS: 0.01, RS[::-1]: 0.5, ST: 0.01})


def test_no_queries_cost_nothing() -> None:
    for method in ("auto", "ilp", "dp"):
        plan = optimize([], Statistics(rates={}, selectivity={}), method=method)
        assert plan.cost == plan.separate_cost == plan.bound == 0
        assert not plan.probe_orders
        assert not plan.stores


def test_rates_and_selectivities_at_the_ends_of_the_scale() -> None:
    for rate, share in ((1e-9, 1.0), (1e12, 1e-12), (1e12, 0.0), (5.0, 1.0)):
        workload = Workload({"q1": (RS, ST)}, dict.fromkeys("RST", rate), {RS: share, ST: share}, 4)
        costs = []
        for method in ("ilp", "auto"):
            plan = timed(workload, 5.0, method)
            costs.append(plan.cost)
            assert plan.bound == pytest.approx(plan.cost, rel=1e-6)
        assert costs == pytest.approx([costs[0]] * 2, rel=1e-6)


def random_queries(count: int, size: int, relations: int, parallelism: int = 3, seed: int = 0) -> Workload:
    """Trees over random joins, drawn as in CLASH, Section VII.C."""
    rng = random.Random(f"{count} {size} {relations} {seed}")
    names = [f"r{i}" for i in range(relations)]
    queries = {}
    for i in range(count):
        inside = rng.sample(names, size)
        links = [(rng.choice(inside[:j]), inside[j]) for j in range(1, size)]
        queries[f"q{i}"] = tuple((f"{a}.{rng.choice('abc')}", f"{b}.{rng.choice('abc')}") for a, b in links)
    selectivity = {tuple(sorted(pair)): 0.001 for pairs in queries.values() for pair in pairs}
    return Workload(queries, dict.fromkeys(names, 1000.0), selectivity, parallelism)  # type: ignore[arg-type]


def shaped(links: list[tuple[int, int]], parallelism: int = 2) -> Workload:
    """One query; selectivities differ, so that orders do."""
    rng = random.Random(len(links))
    pairs: list[Pair] = [(f"r{i:02}.a{j}", f"r{j:02}.a{i}") for i, j in links]
    rates = {f"r{i:02}": rng.uniform(50, 500) for link in links for i in link}
    return Workload({"q": tuple(pairs)}, rates, {pair: rng.uniform(0.001, 0.02) for pair in pairs}, parallelism)


def planned(workload: Workload, budget: float, method: str = "auto", pace: float = 1000.0) -> Plan:
    """Asserts a plan within the budget, of which a look takes 1/pace of a second."""
    clock = CountingClock(pace)
    plan = optimize(workload.join_queries, workload.statistics, budget_seconds=budget, method=method, clock=clock)
    assert clock.passed <= 1.25 * budget + 0.3
    audit(plan, workload)
    return plan


def timed(workload: Workload, budget: float, method: str = "auto") -> Plan:
    """Asserts a plan within the budget, in seconds of the processor. On a busy machine a second of them does less, so
    one of three tries has to keep it."""
    warm_kernels()
    taken: list[float] = []
    while not taken or (min(taken) > 1.25 * budget + 0.3 and len(taken) < 3):
        began = time.thread_time()
        plan = probe_orders.optimize(workload.join_queries, workload.statistics, budget_seconds=budget, method=method)
        taken.append(time.thread_time() - began)
    assert min(taken) <= 1.25 * budget + 0.3, taken
    audit(plan, workload)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "ilp", "dp"])
@pytest.mark.parametrize("size", [3, 5])
def test_500_queries_within_the_budget(method: str, size: int) -> None:
    workload = random_queries(500, size, 100)
    plan = planned(workload, 1.0, method, pace=10_000)
    assert 0 < plan.bound <= plan.cost
    # Less than if every row of every query were broadcast at every step, and every result were as large as a stream.
    assert plan.cost < workload.parallelism * 1000 * size * (size - 1) * len(workload.queries)


@pytest.mark.slow
def test_500_queries_over_few_relations() -> None:
    planned(random_queries(500, 4, 8), 1.0, pace=10_000)


SHAPES = {
    "chain of 14": list(pairwise(range(14))),
    "star of 12": [(0, i) for i in range(1, 12)],
    "ring of 10": [*pairwise(range(10)), (0, 9)],
    "clique of 8": list(combinations(range(8), 2)),
    "clique of 12": list(combinations(range(12), 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["auto", "ilp", "dp"])
def test_one_large_query_within_the_budget(shape: str, method: str) -> None:
    planned(shaped(SHAPES[shape]), 0.3, method)


def test_a_query_of_twenty_relations_gets_an_answer() -> None:
    planned(shaped(list(pairwise(range(20)))), 0.3)


@pytest.mark.parametrize("budget", [0.0, 0.05])
def test_hardly_any_time_is_enough_for_an_answer(budget: float) -> None:
    for method in ("auto", "ilp", "dp"):
        planned(random_queries(60, 4, 20), budget, method, pace=10_000)


@pytest.mark.slow
@pytest.mark.real_budget
@pytest.mark.parametrize("method", ["auto", "ilp", "dp"])
def test_seconds_are_kept_for_500_queries(method: str) -> None:
    timed(random_queries(500, 5, 100), 1.0, method)


@pytest.mark.slow
@pytest.mark.real_budget
@pytest.mark.parametrize(("shape", "budget"), [("clique of 12", 1.0), ("clique of 8", 0.0)])
def test_seconds_are_kept_for_one_large_query(shape: str, budget: float) -> None:
    timed(shaped(SHAPES[shape]), budget)
