"""Unit: orders as the engine runs them, put into the optimiser's words and back, and priced alike."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from tests.support.clocks import counted
from tests.support.unsettled import random_order

from thalweg.model.join_statistics import Estimate, PredicateSample
from thalweg.model.probe import Predicate, Role, Want
from thalweg.model.probe_order import Edge, OrderedJoin, ProbeOrder
from thalweg.optimize import probe_orders, weigh_orders
from thalweg.optimize.probe_orders import Statistics
from thalweg.optimize.relation_order import can_find, order_relations
from thalweg.optimize.weigh_orders import (
    as_plan,
    as_query,
    asked_of,
    attached,
    cost,
    looks_of,
    orders_of,
    pairs_key,
    partners,
    predicate_of,
    reordered,
    rows_key,
    rows_of,
    statistics_of,
)

optimize, judge, cost_apart = (
    counted(probe_orders.optimize),
    counted(weigh_orders.judge),
    counted(weigh_orders.cost_apart),
)

RS: Edge = ("r", "s", "a")
ST: Edge = ("s", "t", "b")
TU: Edge = ("t", "u", "c")
NAMES = ("r", "s", "t", "u", "v")


def chain(*edges: Edge, orders: dict[str, ProbeOrder] | None = None) -> OrderedJoin:
    relations = tuple(sorted({name for edge in edges for name in edge[:2]}))
    return OrderedJoin(relations, tuple(sorted(edges)), orders or {}, True)


def stats_of(joins: dict[str, OrderedJoin], **shares: float) -> Statistics:
    selectivity = {predicate_of(e): shares.get(e[2], 0.01) for j in joins.values() for e in j.edges}
    return Statistics({r: 100.0 for j in joins.values() for r in j.relations}, selectivity)


def random_cohort(rng: random.Random) -> dict[str, OrderedJoin]:
    edges: list[Edge] = [RS, ST, TU, ("r", "t", "d"), ("u", "v", "e")]
    cohort = {}
    for number in range(rng.randint(1, 5)):
        chosen = [rng.choice(edges)]
        for _ in range(rng.randint(0, 3)):
            known = {name for edge in chosen for name in edge[:2]}
            more = [e for e in edges if e not in chosen and known & {*e[:2]}]
            chosen += [rng.choice(more)] if more else []
        join = chain(*chosen)
        cohort[f"q{number}"] = join
    return cohort


def random_stats(rng: random.Random, cohort: dict[str, OrderedJoin]) -> Statistics:
    rates = {r: rng.choice((1.0, 20.0, 300.0)) for j in cohort.values() for r in j.relations}
    shares = {predicate_of(e): rng.choice((0.001, 0.01, 0.2)) for j in cohort.values() for e in j.edges}
    return Statistics(rates, shares)


def with_random_orders(rng: random.Random, cohort: dict[str, OrderedJoin]) -> dict[str, OrderedJoin]:
    orders = {name: {s: random_order(rng, j, s) for s in j.relations} for name, j in cohort.items()}
    return reordered(cohort, orders)


@pytest.mark.parametrize("seed", range(30))
def test_the_cost_is_the_optimisers(seed: int) -> None:
    """Differential: without intermediates nothing has to be brought into another form, so both count the same."""
    rng = random.Random(seed)
    cohort = random_cohort(rng)
    stats = random_stats(rng, cohort)
    plan = optimize([as_query(n, j) for n, j in cohort.items()], stats, budget_seconds=5.0, materialize=False)
    orders = {name: orders_of(plan, name, join, NAMES) for name, join in cohort.items()}
    assert cost(reordered(cohort, orders), stats) == pytest.approx(plan.cost)
    least = optimize([as_query(n, j) for n, j in cohort.items()], stats, budget_seconds=5.0).bound
    assert cost(with_random_orders(rng, cohort), stats) >= least * (1 - 1e-9)


def test_intermediates_are_priced_as_the_optimiser_does() -> None:
    """Differential: where the engine can run the plan as it is, both count the same."""
    compared = 0
    for seed in range(60):
        rng = random.Random(seed)
        cohort = random_cohort(rng)
        stats = random_stats(rng, cohort)
        plan = optimize([as_query(n, j) for n, j in cohort.items()], stats, budget_seconds=1.0, materialize=2)
        looks = looks_of(plan)
        relations = order_relations({r for join in cohort.values() for r in join.relations}, looks)
        if looks and all(can_find(relations, look) for look in looks):
            orders = {name: orders_of(plan, name, join, relations) for name, join in cohort.items()}
            assert cost(reordered(cohort, orders), stats) == pytest.approx(plan.cost)
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("seed", range(30))
def test_what_the_engine_cannot_find_is_taken_apart(seed: int) -> None:
    rng = random.Random(seed)
    cohort = random_cohort(rng)
    stats = random_stats(rng, cohort)
    plan = optimize([as_query(n, j) for n, j in cohort.items()], stats, budget_seconds=1.0, materialize=2)
    for name, join in cohort.items():
        for start, order in orders_of(plan, name, join, NAMES).items():
            assert join.admits(start, order)
            assert all(len(found) == 1 or can_find(NAMES, (start, found)) for found in order)
            assert join.admits(start, tuple((r,) for r in join.flat(start, order)))


def test_judgement_needs_five_per_cent() -> None:
    """r looks for s and then t; whether t first would be better depends on which leaves fewer."""
    star = chain(("m", "n", "x"), ("m", "o", "y"))
    orders: dict[str, ProbeOrder] = {"m": (("n",), ("o",)), "n": (("m",), ("o",)), "o": (("m",), ("n",))}
    cohort = {"q": OrderedJoin(star.relations, star.edges, orders, True)}
    little = judge(cohort, stats_of(cohort, x=0.01, y=0.0095), budget_seconds=1.0)
    assert little.orders is None
    assert little.better < little.now
    much = judge(cohort, stats_of(cohort, x=0.02, y=0.001), budget_seconds=1.0)
    assert much.orders is not None
    assert much.orders["q"]["m"] == (("o",), ("n",))
    assert much.better < 0.95 * much.now


@pytest.mark.parametrize("seed", range(20))
def test_a_judgement_is_never_worse_and_apart_never_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    cohort = with_random_orders(rng, random_cohort(rng))
    stats = random_stats(rng, cohort)
    judged = judge(cohort, stats, budget_seconds=2.0)
    assert judged.now == pytest.approx(cost(cohort, stats))
    if judged.orders is not None:
        assert cost(reordered(cohort, judged.orders), stats) == pytest.approx(judged.better)
        assert judged.better < 0.95 * judged.now
    assert cost_apart(cohort, stats, budget_seconds=2.0) >= judged.better * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_attached_queries_get_orders_and_change_no_others(seed: int) -> None:
    rng = random.Random(seed)
    whole = random_cohort(rng) | {"last": chain(RS, ST, TU)}
    stats = random_stats(rng, whole)
    running = with_random_orders(rng, {n: j for n, j in whole.items() if n != "last"})
    new = attached(running, {"last": whole["last"]}, stats)
    assert set(new) == {"last"}
    assert set(new["last"]) == set(whole["last"].relations)
    assert all(whole["last"].admits(start, order) for start, order in new["last"].items())
    assert as_plan(running, stats).cost == pytest.approx(cost(running, stats))


def test_an_attached_query_shares_what_runs() -> None:
    """The same join again costs nothing more, although other orders would be cheaper for it alone."""
    orders: dict[str, ProbeOrder] = {
        "r": (("s",), ("t",)), "s": (("r",), ("t",)), "t": (("s",), ("r",))
    }  # fmt: skip
    running = {"q": chain(RS, ST, orders=orders)}
    stats = stats_of(running, a=0.5, b=0.001)
    assert attached(running, {"twin": chain(RS, ST)}, stats) == {"twin": orders}


def test_a_selectivity_makes_the_pairs_of_a_batch() -> None:
    """100 rows of r find 0.5 rows of s each, 40 rows of s find 2 of r: 130 pairs a batch, of 4,000 possible ones."""
    join = chain(RS)
    stats = statistics_of([join], {"r": 100.0, "s": 40.0}, {("r", "s", "a"): 0.5, ("s", "r", "a"): 2.0})
    assert stats is not None
    assert stats.selectivity[predicate_of(RS)] * 100 * 40 == pytest.approx(130)
    one_sided = statistics_of([join], {"r": 100.0, "s": 40.0}, {("r", "s", "a"): 0.5})
    assert one_sided is not None
    assert one_sided.selectivity[predicate_of(RS)] * 100 * 40 == pytest.approx(100)
    assert statistics_of([join], {"r": 100.0}, {}) is None


def test_rows_are_those_that_some_query_wants() -> None:
    wants = tuple(Want(1 << i, Predicate(id_, ()), ()) for i, id_ in enumerate(("p", "q")))
    sample = PredicateSample(("p", "x", "q"), (0b001, 0b100, 0b101, 0b010, 0b000), 5.0, {})
    estimates = {rows_key("events"): Estimate(1000.0, 1.0, 8)}
    assert rows_of([Role("e", "events", wants)], estimates, {"events": sample}) == {"e": 600.0}
    every = Role("e", "events", (*wants, Want(4, None, ())))
    assert rows_of([every], estimates, {"events": sample}) == {"e": 1000.0}
    assert rows_of([Role("o", "others", wants)], estimates, {}) == {}


def role(relation: str, *predicates: str | None) -> Role:
    """What so many queries ask of a relation, one after another."""
    asked = [None if id_ is None else Predicate(id_, ()) for id_ in predicates]
    return Role(relation, relation, tuple(Want(1 << bit, p, ()) for bit, p in enumerate(asked)))


def test_partners_are_those_of_what_is_asked() -> None:
    """Of the same pairs of predicates as they were measured; else as over all cohorts, of rows that are wanted."""
    roles = {"r": role("r", "p"), "s": role("s", "q")}
    samples = {"s": PredicateSample(("q",), (1, 0, 0, 0), 4.0, {})}
    every = {pairs_key("r", "s", "a"): Estimate(2.0, 0.1, 8), rows_key("r"): Estimate(9.0, 0.1, 8)}
    assert partners([RS], roles, every, samples) == {("r", "s", "a"): 0.5}
    own = {**every, pairs_key("r", "s", "a", asked_of(roles["r"], roles["s"])): Estimate(1.5, 0.1, 8)}
    assert partners([RS], roles, own, samples) == {("r", "s", "a"): 1.5}
    everyone = {"r": role("r", "p", None), "s": role("s", "q", None)}
    assert partners([RS], everyone, own, samples) == {("r", "s", "a"): 2.0}
    assert partners([ST], {**roles, "t": role("t", None)}, own, samples) == {}


def test_what_is_asked_is_the_same_whoever_asks() -> None:
    asked = asked_of(role("r", "p", "q"), role("s", None, "x"))
    assert asked == asked_of(role("r", "q", "p", "q"), role("s", "x", None, "x"))
    assert asked != asked_of(role("r", "p", "q"), role("s", "x", None))
    assert asked_of(role("r", "p", None), role("s", "x", None)) == ""
    assert asked_of(role("r", None, "p"), role("s", "x", None)) != ""


def test_orders_are_checked() -> None:
    join = chain(RS, ST, TU)
    assert join.admits("u", (("t",), ("r", "s")))
    assert not join.admits("u", (("r", "s"), ("t",)))  # nothing joins u and (r ⋈ s)
    assert not join.admits("s", (("r",), ("t",)))  # u is missing
    assert not join.admits("t", (("s",), ("r", "u")))  # r and u are not joined
    assert not join.admits("r", (("s",), ("t",), ("t",), ("u",)))
    assert not chain(RS, ST).admits("s", (("r", "t"),))
    valid = [o for o in permutations(("s", "t", "u")) if join.admits("r", tuple((r,) for r in o))]
    assert valid == [("s", "t", "u")]
