"""Probe orders: the paper's example, what holds of all orders, and the cost against an exhaustive search."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.optimize.default_probe_orders import DefaultOrders, Edge, Shape, Sizes, choose_orders, cost

RS, ST, TU = ("R", "S", "a"), ("S", "T", "b"), ("T", "U", "c")
Q1 = Shape("q1", ("R", "S", "T"), frozenset({RS, ST}))
Q2 = Shape("q2", ("S", "T", "U"), frozenset({ST, TU}))
CLASH = Sizes(dict.fromkeys("RSTU", 100.0), {ST: 1.5, ("T", "S", "b"): 1.5})


def shape(query: str, *edges: Edge) -> Shape:
    return Shape(query, tuple(sorted({r for a, b, _ in edges for r in (a, b)})), frozenset(edges))


def prefixes(shape: Shape, start: str) -> Iterator[tuple[str, ...]]:
    """Every order without a cross product."""

    def extend(order: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if len(order) == len(shape.relations):
            yield order[1:]
        for r in shape.relations:
            if r not in order and any({a, b} == {r, k} for a, b, _ in shape.edges for k in order):
                yield from extend((*order, r))

    return extend((start,))


def best_cost(shapes: list[Shape], sizes: Sizes) -> float:
    """Over every choice of orders. Start relations share no prefix, so each is searched by itself."""
    total = 0.0
    for start in {r for s in shapes for r in s.relations}:
        here = [s for s in shapes if start in s.relations]
        alone = [Shape(s.query, (start,), s.edges) for s in here]
        choices = product(*(list(prefixes(s, start)) for s in here))
        total += min(
            cost({(s.query, start): o for s, o in zip(here, orders, strict=True)}, alone, sizes) for orders in choices
        )
    return total


def check(orders: DefaultOrders, shapes: list[Shape]) -> None:
    assert orders.keys() == {(s.query, r) for s in shapes for r in s.relations}
    for s in shapes:
        for start in s.relations:
            assert orders[s.query, start] in set(prefixes(s, start))


# -- the paper's example (CLASH, Section V.2)


def test_cost_of_the_orders_that_the_paper_names() -> None:
    alone1: DefaultOrders = {("q1", "R"): ("S", "T"), ("q1", "S"): ("R", "T"), ("q1", "T"): ("S", "R")}
    alone2: DefaultOrders = {("q2", "S"): ("T", "U"), ("q2", "T"): ("U", "S"), ("q2", "U"): ("T", "S")}
    assert cost(alone1, [Q1], CLASH) == 475
    assert cost(alone2, [Q2], CLASH) == 475
    # Without a common prefix 950; <T,S> and <S,T> are sent for the other query anyway.
    together = {**alone1, **alone2, ("q1", "S"): ("T", "R"), ("q2", "T"): ("S", "U")}
    assert cost(together, [Q1, Q2], CLASH) == 800
    assert best_cost([Q1, Q2], CLASH) == 800


def test_the_chosen_orders_reach_the_best_of_the_paper() -> None:
    assert cost(choose_orders([Q1], CLASH), [Q1], CLASH) == 475
    orders = choose_orders([Q1, Q2], CLASH)
    assert cost(orders, [Q1, Q2], CLASH) == 800
    assert orders["q1", "S"] == ("T", "R")
    assert choose_orders([Q1], CLASH)["q1", "S"] == ("R", "T")


# -- what the choice weighs


def test_a_query_alone_takes_the_smallest_growth_first() -> None:
    star = shape("q", ("A", "B", "k"), ("A", "C", "k"), ("A", "D", "k"))
    sizes = Sizes({}, {("A", "B", "k"): 3.0, ("A", "C", "k"): 0.1, ("A", "D", "k"): 1.5})
    assert choose_orders([star], sizes)["q", "A"] == ("C", "D", "B")


def test_a_step_that_opens_a_cheap_one_is_taken_first() -> None:
    """B grows more than D, but only through B is C found, which leaves next to nothing."""
    chain = shape("q", ("A", "B", "k"), ("B", "C", "k"), ("A", "D", "k"))
    sizes = Sizes({}, {("A", "B", "k"): 1.5, ("B", "C", "k"): 0.01, ("A", "D", "k"): 1.4})
    assert choose_orders([chain], sizes)["q", "A"] == ("B", "C", "D")


def test_a_query_branches_off_where_sharing_would_cost_it_more() -> None:
    ab, ac, bd = ("A", "B", "k"), ("A", "C", "k"), ("B", "D", "k")
    both, other = shape("both", ab, ac), shape("other", ab, bd)
    for growth, first in ((1.2, "B"), (50.0, "C")):
        orders = choose_orders([both, other], Sizes({}, {ab: growth, ac: 0.1}))
        assert orders["other", "A"][0] == "B"
        assert orders["both", "A"][0] == first


def test_a_step_that_many_take_is_not_forced_on_one_that_loses_by_it() -> None:
    ab, ac = ("A", "B", "k"), ("A", "C", "k")
    through = [shape(f"q{x}", ab, ("B", x, "k")) for x in "DEF"]
    loser = shape("loser", ab, ac)
    orders = choose_orders([*through, loser], Sizes({}, {ab: 5.0, ac: 0.01}))
    assert {orders[s.query, "A"][0] for s in through} == {"B"}
    assert orders["loser", "A"] == ("C", "B")


def test_equal_relations_joined_by_other_keys_are_other_steps() -> None:
    one, two = shape("one", ("A", "B", "k")), shape("two", ("A", "B", "l"))
    orders = choose_orders([one, two], Sizes())
    assert cost(orders, [one, two], Sizes()) == 4000
    assert (
        cost({**orders, ("alike", "A"): ("B",), ("alike", "B"): ("A",)}, [one, shape("alike", *one.edges)], Sizes())
        == 2000
    )


def test_a_second_edge_thins_out_what_the_first_finds() -> None:
    triangle = shape("q", ("A", "B", "k"), ("A", "C", "k"), ("B", "C", "k"))
    sizes = Sizes({"A": 100.0, "B": 100.0, "C": 50.0}, {("A", "C", "k"): 5.0, ("B", "C", "k"): 10.0})
    assert sizes.growth(("C", frozenset({("A", "C", "k"), ("B", "C", "k")}))) == 5.0 * 10.0 / 50.0
    assert sizes.growth(("A", frozenset({("A", "C", "k")}))) == 1.0
    check(choose_orders([triangle], sizes), [triangle])


def test_one_relation_has_nothing_to_probe() -> None:
    assert choose_orders([Shape("q", ("A",), frozenset())], Sizes()) == {("q", "A"): ()}
    assert choose_orders([], Sizes()) == {}


def test_a_cross_product_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing joins C"):
        choose_orders([Shape("q", ("A", "B", "C"), frozenset({("A", "B", "k")}))], Sizes())
    with pytest.raises(ValueError, match="T cannot be probed from R"):
        cost({("q1", "R"): ("T", "S")}, [Shape("q1", ("R",), Q1.edges)], CLASH)


# -- properties and differential


def workload(rng: random.Random, count: int, relations: str, most: int) -> tuple[list[Shape], Sizes]:
    shapes = []
    for i in range(count):
        chosen = rng.sample(relations, rng.randint(2, most))
        edges = {_edge(rng.choice(chosen[:j]), chosen[j], rng.choice("kkkkl")) for j in range(1, len(chosen))}
        if rng.random() < 0.3:
            edges.add(_edge(*rng.sample(chosen, 2), "k"))
        shapes.append(shape(f"q{i}", *edges))
    pairs = [(a, b, key) for a in relations for b in relations if a != b for key in "kl"]
    rows = {r: rng.choice([0.0, 10.0, 100.0, 1000.0]) for r in relations if rng.random() < 0.9}
    return shapes, Sizes(rows, {p: rng.choice([0.0, 0.1, 0.5, 1.5, 3.0, 10.0]) for p in pairs if rng.random() < 0.9})


def _edge(a: str, b: str, key: str) -> Edge:
    return (min(a, b), max(a, b), key)


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_orders_are_connected_and_the_same_for_the_same_input(seed: int, count: int) -> None:
    rng = random.Random(seed)
    shapes, sizes = workload(rng, count, "ABCDEFG", 5)
    orders = choose_orders(shapes, sizes)
    check(orders, shapes)
    assert choose_orders(rng.sample(shapes, len(shapes)), sizes) == orders


@given(st.integers(0, 2**32))
def test_a_query_alone_gets_its_best_orders(seed: int) -> None:
    """Without anything to share, looking ahead over all orders is cheap, and done."""
    shapes, sizes = workload(random.Random(seed), 1, "ABCDE", 5)
    assert cost(choose_orders(shapes, sizes), shapes, sizes) == pytest.approx(best_cost(shapes, sizes))


def test_cost_is_near_the_best_orders() -> None:
    """Differential: every combination of orders of four queries. The greedy answer may miss the best one."""
    factors, alone = [], []
    for seed in range(150):
        shapes, sizes = workload(random.Random(seed), 4, "ABCDE", 4)
        best = best_cost(shapes, sizes)
        if best:
            factors.append(cost(choose_orders(shapes, sizes), shapes, sizes) / best)
            separate = {k: v for s in shapes for k, v in choose_orders([s], sizes).items()}
            alone.append(cost(separate, shapes, sizes) / best)
    assert min(factors) >= 1 - 1e-9
    assert max(factors) <= 1.5
    assert sum(factors) / len(factors) <= 1.01
    assert sum(factor < 1 + 1e-9 for factor in factors) >= 0.95 * len(factors)
    assert sum(factors) < sum(alone)
