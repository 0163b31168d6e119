"""Unit tests of join planning: the example of CLASH, what holds for every plan, how plans of like inputs relate."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the reference lies beside the tests

import joins_reference as reference
from joins_audit import audit
from joins_inputs import Pair, Workload, drawn, paper
from tests.support.clocks import counted

from thalweg.optimize import probe_orders
from thalweg.optimize.probe_orders import JoinQuery, Plan, Statistics

optimize = counted(probe_orders.optimize)

METHODS = ("auto", "ilp", "dp")
EXACT = ("auto", "ilp")


def planned(
    workload: Workload, method: str = "auto", *, materialize: bool = True, budget_seconds: float = 20.0
) -> Plan:
    plan = optimize(
        workload.join_queries,
        workload.statistics,
        budget_seconds=budget_seconds,
        method=method,
        materialize=materialize,
    )
    audit(plan, workload, materialize=materialize)
    return plan


def probed(plan: Plan, query: str, start: str) -> list[str]:
    return ["".join(step.relations) for step in plan.probe_orders[query, start]]


@pytest.mark.parametrize("method", METHODS)
def test_the_example_of_the_paper(method: str) -> None:
    """CLASH, V.2: alone, S and T of the two queries avoid the larger join; together they share the way to it."""
    plan = planned(paper(), method, materialize=False)
    assert plan.separate_cost == pytest.approx(950)
    assert plan.cost == pytest.approx(800)
    assert probed(plan, "q1", "S") == ["T", "R"]
    assert probed(plan, "q2", "T") == ["S", "U"]
    alone = optimize(paper().join_queries[:1], paper().statistics, method=method, materialize=False)
    assert alone.cost == alone.separate_cost == pytest.approx(475)
    assert probed(alone, "q1", "S") == ["R", "T"]


@pytest.mark.parametrize("method", EXACT)
def test_exact_methods_prove_what_they_find(method: str) -> None:
    plan = planned(paper(), method, materialize=False)
    assert plan.bound == pytest.approx(plan.cost)
    assert plan.method


def test_a_store_of_few_rows_replaces_two_steps() -> None:
    """Nothing of S and T matches: rows of R probe what is kept of both, and are few where it is empty."""
    selectivity = {("R.a", "S.a"): 0.05, ("S.b", "T.b"): 1e-6}
    rates = {"R": 10_000.0, "S": 100.0, "T": 100.0}
    workload = Workload({"q": (("R.a", "S.a"), ("S.b", "T.b"))}, rates, selectivity)
    plan = planned(workload)
    assert probed(plan, "q", "R") == ["ST"]
    assert plan.cost < planned(workload, materialize=False).cost
    kept = next(store for store in plan.stores if store.intermediate)
    assert kept.users == ("q",)
    assert {start: [step.relations for step in order] for start, order in kept.probe_orders.items()} == {
        "S": [("T",)],
        "T": [("S",)],
    }


def test_a_row_that_does_not_know_the_attribute_of_a_store_is_sent_to_all_of_it() -> None:
    """S is probed by R on a and by T on b: whichever it is partitioned by, the rows of the other are broadcast."""
    queries: dict[str, tuple[Pair, ...]] = {"q1": (("R.a", "S.a"),), "q2": (("S.b", "T.b"),)}
    rates = {"R": 1000.0, "S": 10.0, "T": 100.0}
    workload = Workload(queries, rates, {("R.a", "S.a"): 0.01, ("S.b", "T.b"): 0.01}, parallelism=4)
    plan = planned(workload)
    # R to S by a: 1000; S to R: 10; S to T: 10; T to all of S: 4 x 100.
    assert plan.cost == pytest.approx(1000 + 10 + 10 + 400)
    assert next(store for store in plan.stores if store.relations == ("S",)).partition == "S.a"
    assert [step.copies for step in plan.probe_orders["q2", "T"]] == [4]
    assert plan.separate_cost == pytest.approx(1000 + 10 + 10 + 100)


def test_an_attribute_is_known_through_equal_ones() -> None:
    """R.a = S.a and S.a = T.a: whoever has one of them knows them all, also of a store of S and T."""
    pairs = (("R.a", "S.a"), ("S.a", "T.a"))
    workload = Workload({"q": pairs}, dict.fromkeys("RST", 100.0), dict.fromkeys(pairs, 0.01), parallelism=9)
    for method in METHODS:
        plan = planned(workload, method)
        assert all(step.copies == 1 for order in plan.probe_orders.values() for step in order)


def test_equal_relations_joined_by_other_predicates_are_not_shared() -> None:
    by_a, by_b = ("R.a", "S.a"), ("R.b", "S.b")
    workload = Workload(
        {"q1": (by_a,), "q2": (by_a, by_b), "q3": (by_b,)}, dict.fromkeys("RS", 100.0), {by_a: 0.01, by_b: 0.02}
    )
    for method in METHODS:
        assert planned(workload, method).cost == pytest.approx(3 * 200)


@pytest.mark.parametrize("method", METHODS)
def test_identical_queries_are_one(method: str) -> None:
    once = drawn(3, queries=1)
    (pairs,) = once.queries.values()
    flipped = tuple((second, first) for first, second in reversed(pairs))
    thrice = replace(once, queries={"q0": pairs, "again": pairs, "other way round": flipped})
    single, plan = planned(once, method), planned(thrice, method)
    assert plan.cost == pytest.approx(single.cost)
    assert plan.separate_cost == pytest.approx(3 * single.separate_cost)
    assert {user for store in plan.stores for user in store.users} == set(thrice.queries)


@pytest.mark.parametrize("method", METHODS)
def test_one_query_of_two_relations(method: str) -> None:
    workload = Workload({"q": (("R.a", "S.a"),)}, {"R": 30.0, "S": 7.0}, {("R.a", "S.a"): 0.5}, parallelism=8)
    plan = planned(workload, method)
    assert plan.cost == plan.separate_cost == pytest.approx(37)
    assert {store.relations: store.partition for store in plan.stores} == {("R",): "R.a", ("S",): "S.a"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("zero", ["R", "S", "RSTU"])
def test_relations_without_rows(method: str, zero: str) -> None:
    workload = paper(parallelism=3)
    workload = replace(workload, rates=workload.rates | dict.fromkeys(zero, 0.0))
    plan = planned(workload, method)
    best = reference.cheapest(workload.reference, materialize=True).cost
    assert plan.cost == pytest.approx(best) if method in EXACT else plan.cost >= best
    assert plan.cost < planned(paper(parallelism=3), method).cost


def test_selectivities_and_predicates_may_be_written_either_way_round() -> None:
    workload = drawn(11, queries=3, parallelism=2)
    flipped = replace(workload, selectivity={(b, a): value for (a, b), value in workload.selectivity.items()})
    turned = replace(flipped, queries={n: tuple((b, a) for a, b in p) for n, p in workload.queries.items()})
    twice = replace(workload, queries={n: p + tuple((b, a) for a, b in p) for n, p in workload.queries.items()})
    costs = {planned(one).cost for one in (workload, flipped, turned, twice)}
    assert max(costs) == pytest.approx(min(costs))


@pytest.mark.parametrize("seed", range(12))
def test_more_freedom_is_never_dearer_and_more_work_never_cheaper(seed: int) -> None:
    workload = drawn(seed, queries=4, sizes=(2, 3, 4), relations=6, density=0.3, parallelism=2)
    plan = planned(workload)
    names = list(workload.queries)
    fewer = replace(workload, queries={name: workload.queries[name] for name in names[1:]})
    slack = 1 + 1e-6
    assert plan.cost <= planned(workload, materialize=False).cost * slack
    assert planned(fewer).cost <= plan.cost * slack
    assert planned(replace(workload, parallelism=1)).cost <= plan.cost * slack
    assert plan.cost <= planned(replace(workload, parallelism=5)).cost * slack
    assert plan.cost <= planned(workload, "dp").cost * slack


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["auto", "dp"])
def test_without_broadcasts_sharing_is_never_dearer_than_planning_apart(seed: int, method: str) -> None:
    """With them it can be: alone, every query may partition a common store as it likes."""
    workload = drawn(seed, queries=6, sizes=(3, 4), relations=6)
    plan = planned(workload, method)
    assert plan.cost <= plan.separate_cost * (1 + 1e-6)
    assert plan.bound <= plan.cost


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_does_not_depend_on_names_or_on_what_comes_first(seed: int) -> None:
    workload = drawn(seed, queries=4, sizes=(3, 4), relations=5, density=0.3, parallelism=3)
    rng = random.Random(seed)
    names = dict(zip("RSTUV", rng.sample(["x", "aa", "b1", "Zoo", "m"], 5), strict=True))

    def renamed(attribute: str) -> str:
        return f"{names[attribute[0]]}{attribute[1:]}"

    queries = [(name, [(renamed(a), renamed(b)) for a, b in pairs]) for name, pairs in workload.queries.items()]
    rng.shuffle(queries)
    for _, pairs in queries:
        rng.shuffle(pairs)
    other = Workload(
        {f"{name}!": tuple(pairs) for name, pairs in queries},
        {names[name]: rate for name, rate in workload.rates.items()},
        {(renamed(b), renamed(a)): value for (a, b), value in workload.selectivity.items()},
        workload.parallelism,
    )
    assert planned(other).cost == pytest.approx(planned(workload).cost, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_scales_with_the_rates(seed: int) -> None:
    """Trees: n relations and n - 1 predicates, so that k-fold rates and 1/k of the matches give k-fold results."""
    pairs = (("R.a", "S.a"), ("S.b", "T.b"), ("T.c", "U.c"), ("T.b", "V.b"))
    rng = random.Random(seed)
    rates = {name: rng.uniform(10, 1000) for name in "RSTUV"}
    selectivity = {pair: rng.uniform(0.0005, 0.01) for pair in pairs}
    queries = {"q1": pairs[:3], "q2": pairs[1:], "q3": pairs[:2]}
    workload = Workload(queries, rates, selectivity, 2)
    larger = Workload(
        queries,
        {name: 1e6 * rate for name, rate in rates.items()},
        {pair: value / 1e6 for pair, value in selectivity.items()},
        2,
    )
    assert planned(larger).cost == pytest.approx(1e6 * planned(workload).cost, rel=1e-6)


def test_queries_that_share_nothing_cost_what_they_cost_apart() -> None:
    workload = drawn(1, queries=3, parallelism=3)
    twin = {f"{name}-": tuple((f"x{a}", f"x{b}") for a, b in pairs) for name, pairs in workload.queries.items()}
    both = replace(
        workload,
        queries=workload.queries | twin,
        rates=workload.rates | {f"x{name}": rate for name, rate in workload.rates.items()},
        selectivity=workload.selectivity | {(f"x{a}", f"x{b}"): v for (a, b), v in workload.selectivity.items()},
    )
    assert planned(both).cost == pytest.approx(2 * planned(workload).cost)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_input_gives_the_same_plan(method: str) -> None:
    workload = drawn(5, queries=3, sizes=(3,), parallelism=2)
    assert planned(workload, method) == planned(workload, method)


@pytest.mark.slow
def test_the_plan_does_not_depend_on_the_seed_of_hashes() -> None:
    """Sets of strings are walked in another order by every process."""
    program = (
        "from joins_inputs import drawn; from thalweg.optimize.probe_orders import optimize\n"
        "w = drawn(7, queries=5, sizes=(3, 4), relations=6, parallelism=2)\n"
        "for method in ('dp', 'auto'):\n"
        "    p = optimize(w.join_queries, w.statistics, budget_seconds=20.0, method=method)\n"
        "    print(p.cost, p.bound, sorted(p.probe_orders.items()), p.stores)"
    )
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
        command = [sys.executable, "-c", program]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [0.0, 0.01, 0.2])
def test_a_bound_holds_however_short_the_time(seed: int, budget: float) -> None:
    workload = drawn(seed, queries=6, sizes=(4, 5), relations=7, density=0.4, parallelism=3)
    best = planned(workload, budget_seconds=1.5)
    for method in ("auto", "ilp", "dp"):
        plan = planned(workload, method, budget_seconds=budget)
        assert plan.bound <= best.cost * (1 + 1e-6)
        assert plan.cost >= best.bound * (1 - 1e-6)


def test_the_audit_notices_what_is_wrong_with_a_plan() -> None:
    workload = drawn(2, queries=3, sizes=(3, 4), parallelism=3)
    plan = planned(workload)
    base = next(store for store in plan.stores if not store.intermediate)
    others = tuple(store for store in plan.stores if store is not base)
    key, order = max(plan.probe_orders.items(), key=lambda item: len(item[1]))
    for wrong in (
        replace(plan, cost=1.001 * plan.cost),
        replace(plan, bound=1.001 * plan.cost),
        replace(plan, stores=others),
        replace(plan, stores=(*others, replace(base, partition=None))),
        replace(plan, stores=(*others, replace(base, users=()))),
        replace(plan, stores=(*others, replace(base, rows=base.rows + 1))),
        replace(plan, probe_orders={**plan.probe_orders, key: order[:-1]}),
        replace(plan, probe_orders={**plan.probe_orders, key: (*order, order[0])}),
        replace(plan, probe_orders={**plan.probe_orders, key: (replace(order[0], rows=0.0), *order[1:])}),
    ):
        with pytest.raises(AssertionError):
            audit(wrong, workload)


def test_statistics_that_nobody_asks_for_are_ignored() -> None:
    query = JoinQuery("q", ("R", "S"), (("R.a", "S.a"),))
    rates, selectivity = {"R": 10, "S": 20, "X": -1}, {("S.a", "R.a"): 0.1, ("X.a", "Y.a"): 0.3}
    assert optimize([query], Statistics(rates=rates, selectivity=selectivity)).cost == pytest.approx(30)
