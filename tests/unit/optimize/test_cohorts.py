"""Cohorts: the paper's examples, what holds of all cohorts, and the cost against an exhaustive search."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.model.join_statistics import PredicateSample
from thalweg.model.probe import COHORT_SIZE
from thalweg.optimize import cohort_costs
from thalweg.optimize.cohort_costs import Demand, Sides
from thalweg.optimize.cohorts import NOTHING, judge_cohorts

Cohorts = list[tuple[str, ...]]

SIDES: dict[str, Sides] = {
    "VW": (("V", "vID"), ("W", "vID")),
    "WC": (("W", "usrID"), ("C", "usrID")),
    "CX": (("C", "x"), ("X", "x")),
}


def demand(query: str, edges: str = "VW", **predicates: str) -> Demand:
    names = edges.split()
    return Demand(query, tuple(sorted(set("".join(names)))), frozenset(names), predicates)


def sample(rate: float, rows: Sequence[str], distinct: Mapping[str, float] | None = None) -> PredicateSample:
    """Rows as the predicates they satisfy, a letter each."""
    letters = sorted({letter for row in rows for letter in row})
    bits = tuple(sum(1 << letters.index(letter) for letter in row) for row in rows)
    return PredicateSample(tuple(letters), bits, rate, distinct or {})


def choose_cohorts(*given: Any, **options: Any) -> tuple[Cohorts, list[str]]:
    judged = judge_cohorts(*given, **options)
    return [*judged.cohorts], [*judged.notes]


def plain_cost(
    cohorts: Sequence[Sequence[str]],
    demands: Sequence[Demand],
    samples: Mapping[str, PredicateSample],
    held: Mapping[str, float] | None = None,
) -> float:
    """AJoin Eq. 2, row by row."""
    by_name = {d.query: d for d in demands}
    total = 0.0
    for cohort in cohorts:
        for edge in {e for query in cohort for e in by_name[query].edges}:
            asking = [by_name[query] for query in cohort if edge in by_name[query].edges]
            sizes, keys = [], []
            for relation, key in SIDES[edge]:
                s = samples[relation]
                wanted = [d.predicates.get(relation) for d in asking]
                count = sum(any(p is None or row >> s.predicates.index(p) & 1 for p in wanted) for row in s.rows)
                sizes.append(max(count, 0.5) * s.rate / len(s.rows))
                keys.append(s.distinct.get(key, s.rate))
            meetings = sum((held or {}).get(relation, 1.0) for relation, _ in SIDES[edge]) - 1
            total += sum(sizes) + min(*sizes, *keys) + sizes[0] * sizes[1] * meetings / max(keys)
    return total


def partitions(names: Sequence[str]) -> Iterator[list[list[str]]]:
    if not names:
        yield []
        return
    for rest in partitions(names[1:]):
        yield [[names[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [names[0], *rest[i]], *rest[i + 1 :]]


def together(cohorts: Cohorts, *queries: str) -> bool:
    return any(set(queries) <= set(cohort) for cohort in cohorts)


def check(cohorts: Cohorts, demands: Sequence[Demand]) -> None:
    """What holds of every answer."""
    order = [d.query for d in demands]
    edges = {d.query: d.edges for d in demands}
    assert sorted(q for g in cohorts for q in g) == sorted(order)
    for cohort in cohorts:
        assert 1 <= len(cohort) <= COHORT_SIZE
        assert list(cohort) == sorted(cohort, key=order.index)
        assert all(edges[a] & edges[b] for a, b in combinations(cohort, 2))


# -- the paper's examples


def test_disjoint_predicates_run_apart() -> None:
    """Figure 6: Q4 (V.lang = FRE, W.geo = CAN) and Q5 (ENG, GER) have no row in common; Q6 has Q4's."""
    demands = [demand("q4", V="f", W="c"), demand("q5", V="e", W="g"), demand("q6", V="a", W="n")]
    samples = {
        "V": sample(1000, ["fa"] * 5 + ["e"] * 5, {"vID": 50}),
        "W": sample(1000, ["cn"] * 5 + ["g"] * 5, {"vID": 50}),
    }
    cohorts, notes = choose_cohorts(demands, samples, sides=SIDES)
    assert cohorts == [("q4", "q6"), ("q5",)]
    pair = plain_cost([("q4", "q5", "q6")], demands, samples)
    ratio = pair / plain_cost(cohorts, demands, samples)
    assert notes == [f"q4 and 1 more run apart from q5: sharing would cost {ratio:.2f}x"]
    assert ratio > 1.5


def test_queries_that_keep_the_same_rows_run_together() -> None:
    """Section 4: t1 (100100), t2 (101100), t3 (100100), t4 (100000): Q1 and Q4 share three rows of four. The other
    side is the same for those two and has rows of its own for the others, as predicates that never meet do."""
    demands = [demand(f"q{i}", V=str(i), W="x" if i in (1, 4) else "y") for i in range(1, 7)]
    v = PredicateSample(tuple("123456"), (0b001001, 0b001101, 0b001001, 0b000001), 400, {"vID": 10})
    samples = {"V": v, "W": sample(400, ["x", "x", "y", "y"], {"vID": 10})}
    cohorts, _ = choose_cohorts(demands, samples, sides=SIDES)
    assert cohorts == [("q1", "q4"), ("q2", "q3", "q5", "q6")]


def test_without_predicates_all_queries_on_an_edge_share() -> None:
    demands = [demand(f"q{i}") for i in range(10)]
    cohorts, notes = choose_cohorts(demands, {"V": sample(10, ["p"]), "W": sample(10, ["p"])}, sides=SIDES)
    assert cohorts == [tuple(d.query for d in demands)]
    assert notes == []


# -- sharing before anything is known


def test_a_new_query_joins_the_group_with_most_edges_in_common() -> None:
    running = [demand("a", "VW"), demand("b", "VW WC", V="p"), demand("c", "CX")]
    new = [demand("d", "VW WC", V="q"), demand("e", "CX", X="q")]
    cohorts, _ = choose_cohorts([*running, *new], {}, [["a"], ["b"], ["c"]], sides=SIDES)
    # What has no predicate needs no sample: a and b are known to differ by V alone and are not moved.
    assert together(cohorts, "b", "d")
    assert together(cohorts, "c", "e")
    assert not together(cohorts, "a", "b")


def test_a_new_query_with_nothing_in_common_has_its_own_group() -> None:
    demands = [demand("a", V="p"), demand("b", "CX", C="p")]
    assert choose_cohorts(demands, {}, sides=SIDES)[0] == [("a",), ("b",)]


def test_without_the_sides_of_edges_all_is_shared_eagerly() -> None:
    demands = [demand("q4", V="f", W="c"), demand("q5", V="e", W="g")]
    samples = {"V": sample(1000, ["f", "e"], {"vID": 5}), "W": sample(1000, ["c", "g"], {"vID": 5})}
    assert choose_cohorts(demands, samples)[0] == [("q4", "q5")]
    assert choose_cohorts(demands, samples, sides=SIDES)[0] == [("q4",), ("q5",)]


def test_what_was_shared_eagerly_is_judged_once_it_is_measured() -> None:
    demands = [demand("q1", V="f", W="c"), demand("q2", V="e", W="g"), demand("q3", V="e", W="g")]
    eager, _ = choose_cohorts(demands[:2], {}, [["q1"]], sides=SIDES)
    assert eager == [("q1", "q2")]
    samples = {"V": sample(1000, ["f", "e"], {"vID": 50}), "W": sample(1000, ["c", "g"], {"vID": 50})}
    # q3 has its own cohort; q2 leaves q1 for it although nothing was created or dropped.
    assert choose_cohorts(demands, samples, [*eager, ("q3",)], sides=SIDES)[0] == [("q1",), ("q2", "q3")]


# -- running cohorts


def test_running_groups_stay_while_the_gain_is_small() -> None:
    demands = [demand("q1", V="f", W="c"), demand("q2", V="e", W="g")]
    samples = {
        "V": sample(1000, ["f", "fe", "e"], {"vID": 100}),
        "W": sample(1000, ["c", "cg", "g"], {"vID": 100}),
    }
    together, apart = [("q1", "q2")], [("q1",), ("q2",)]
    assert 1 < plain_cost(together, demands, samples) / plain_cost(apart, demands, samples) < 1.1
    assert choose_cohorts(demands, samples, sides=SIDES)[0] == apart
    assert choose_cohorts(demands, samples, together, sides=SIDES)[0] == together


def test_the_gain_of_regrouping_decides() -> None:
    demands = [demand(f"q{i}", V="fe"[i % 2], W="cg"[i % 2]) for i in range(4)]
    samples = {"V": sample(1000, ["f", "e"], {"vID": 50}), "W": sample(1000, ["c", "g"], {"vID": 50})}
    wrong = [["q0", "q1"], ["q2", "q3"]]
    right = [("q0", "q2"), ("q1", "q3")]
    assert plain_cost(wrong, demands, samples) > 1.1 * plain_cost(right, demands, samples)
    assert choose_cohorts(demands, samples, wrong, sides=SIDES)[0] == right
    assert choose_cohorts(demands, samples, right, sides=SIDES)[0] == right


def test_groups_that_no_change_touches_are_left_alone() -> None:
    """Two cohorts that would gain by being one stay two when a query comes to a third; when most queries are new,
    all are looked at."""
    samples = {"V": sample(1000, ["p"]), "W": sample(1000, ["p"]), "C": sample(1000, ["p"]), "X": sample(1000, ["p"])}
    demands = [demand(f"q{i}") for i in range(4)] + [demand("x", "CX")]
    current = [["q0", "q1"], ["q2", "q3"], ["x"]]
    one_new, _ = choose_cohorts([*demands, demand("y", "CX")], samples, current, sides=SIDES)
    assert one_new == [("q0", "q1"), ("q2", "q3"), ("x", "y")]
    many = [demand(f"y{i}", "CX") for i in range(6)]
    most_new, _ = choose_cohorts([*demands, *many], samples, current, sides=SIDES)
    assert most_new == [("q0", "q1", "q2", "q3"), ("x", *(d.query for d in many))]


def test_dropping_a_query_makes_its_group_be_looked_at() -> None:
    samples = {"V": sample(1000, ["p"]), "W": sample(1000, ["p"])}
    demands = [demand(f"q{i}") for i in range(6)]
    current = [["q0", "q1", "q2"], ["q3", "q4", "q5"]]
    assert choose_cohorts(demands, samples, current, sides=SIDES)[0] == [tuple(g) for g in current]
    assert choose_cohorts(demands[1:5], samples, current, sides=SIDES)[0] == [("q1", "q2", "q3", "q4")]


def test_a_group_has_at_most_64_queries() -> None:
    demands = [demand(f"q{i}", V="p") for i in range(150)]
    samples = {"V": sample(1000, ["p"]), "W": sample(1000, ["p"])}
    for known, notes in ((samples, ["a group holds at most 64 queries"]), ({}, [])):
        cohorts, said = choose_cohorts(demands, known, sides=SIDES)
        assert [len(g) for g in cohorts] == [64, 64, 22]
        check(cohorts, demands)
        assert sorted({note.split(": ")[1] for note in said}) == notes


def test_queries_that_no_sampled_row_satisfies_run_together() -> None:
    """They are rare, not free: in cohorts of their own each would walk its own trees for next to nothing."""
    demands = [demand(f"q{i}", V=f"p{i}", W=f"p{i}") for i in range(8)]
    rare = PredicateSample(tuple(f"p{i}" for i in range(8)), (0,) * 100, 1000, {"vID": 100})
    assert len(choose_cohorts(demands, {"V": rare, "W": rare}, sides=SIDES)[0]) == 1


def test_a_query_without_edges_runs_by_itself() -> None:
    demands = [Demand("t", ("V",), frozenset(), {}), Demand("u", ("V",), frozenset(), {}), demand("q")]
    assert choose_cohorts(demands, {}, [["t", "q"]], sides=SIDES)[0] == [("t",), ("u",), ("q",)]
    assert choose_cohorts([], {}, [["gone"]], sides=SIDES) == ([], [])


def test_an_idle_stream_still_has_groups() -> None:
    demands = [demand("q1", V="f"), demand("q2", V="f")]
    samples = {"V": sample(0.0, ["f"], {"vID": 0.0}), "W": PredicateSample((), (), 0.0, {})}
    assert choose_cohorts(demands, samples, sides=SIDES)[0] == [("q1", "q2")]


def test_a_long_window_makes_sharing_dearer() -> None:
    """Rows that overlap a little share while pairs are few, and not when every row meets those of many batches."""
    demands = [demand("q1", V="f", W="c"), demand("q2", V="e", W="g")]
    rows_v, rows_w = ["f", "fe", "e"], ["c", "cg", "g"]
    samples = {"V": sample(1000, rows_v, {"vID": 1000}), "W": sample(1000, rows_w, {"vID": 1000})}
    held = {"V": 100.0, "W": 100.0}
    assert choose_cohorts(demands, samples, sides=SIDES)[0] == [("q1", "q2")]
    assert choose_cohorts(demands, samples, sides=SIDES, held=held)[0] == [("q1",), ("q2",)]
    for h, cheaper in ((None, True), (held, False)):
        shared = plain_cost([["q1", "q2"]], demands, samples, h)
        assert (shared < plain_cost([["q1"], ["q2"]], demands, samples, h)) is cheaper


# -- properties and differential


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[Demand], dict[str, PredicateSample], list[list[str]]]:
    seed, count = draw(st.integers(0, 2**32)), draw(st.integers(0, 90))
    rng = random.Random(seed)
    demands, samples = workload(rng, count, known=draw(st.sampled_from(["abcdef", "abc", ""])))
    names = [d.query for d in demands if rng.random() < 0.7] + ["dropped1", "dropped2"]
    rng.shuffle(names)
    cuts = sorted(rng.sample(range(len(names) + 1), min(len(names), 4)))
    current = [names[i:j] for i, j in zip([0, *cuts], [*cuts, len(names)], strict=True)]
    return demands, samples, current


def workload(
    rng: random.Random, count: int, known: str = "abcdef"
) -> tuple[list[Demand], dict[str, PredicateSample]]:
    """Predicates a to f are ranges of a uniform column; those that are not `known` have not been sampled."""
    samples = {}
    for relation, key in (("V", "vID"), ("W", "vID"), ("C", "usrID"), ("X", "x")):
        ranges = [(low := rng.random(), low + rng.choice([0.05, 0.3, 0.6])) for _ in known]
        points = [rng.random() for _ in range(40)]
        rows = tuple(sum(1 << i for i, (low, high) in enumerate(ranges) if low <= x < high) for x in points)
        samples[relation] = PredicateSample(
            tuple(known), rows, rng.choice([10.0, 1e3, 1e5]), {key: rng.choice([10.0, 1e3])}
        )
    demands = []
    for i in range(count):
        edges = rng.choice(["VW", "VW", "WC", "VW WC", "CX", "WC CX", "VW WC CX"])
        wanted = {r: rng.choice("abcdef") for r in sorted(set(edges) - {" "}) if rng.random() < 0.8}
        demands.append(demand(f"q{i}", edges, **wanted))
    return demands, samples


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(workloads())
def test_groups_partition_the_queries(
    given_: tuple[list[Demand], dict[str, PredicateSample], list[list[str]]],
) -> None:
    demands, samples, current = given_
    for before in ((), current):
        cohorts, notes = choose_cohorts(demands, samples, before, sides=SIDES)
        check(cohorts, demands)
        assert (cohorts, notes) == choose_cohorts(demands, samples, before, sides=SIDES)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_groups_never_cost_more_than_running_apart_and_stay(seed: int, count: int) -> None:
    demands, samples = workload(random.Random(seed), count)
    cohorts, _ = choose_cohorts(demands, samples, sides=SIDES)
    apart = plain_cost([[d.query] for d in demands], demands, samples)
    assert plain_cost(cohorts, demands, samples) <= apart * (1 + 1e-9)
    assert choose_cohorts(demands, samples, cohorts, sides=SIDES)[0] == cohorts


@pytest.mark.slow
def test_cost_is_near_the_best_partition() -> None:
    """Differential: all partitions of six queries, priced row by row. The greedy answer may miss the best one."""
    factors = []
    for seed in range(100):
        demands, samples = workload(random.Random(seed), 6)
        cost = plain_cost(choose_cohorts(demands, samples, sides=SIDES)[0], demands, samples)
        factors.append(cost / best_cost(demands, samples))
    assert min(factors) >= 1 - 1e-9
    assert max(factors) <= 1.3
    assert sum(factors) / len(factors) <= 1.01


def best_cost(demands: Sequence[Demand], samples: Mapping[str, PredicateSample]) -> float:
    edges = {d.query: d.edges for d in demands}

    @cache
    def cost(cohort: tuple[str, ...]) -> float:
        apart = any(not edges[a] & edges[b] for a, b in combinations(cohort, 2))
        return math.inf if apart else plain_cost([cohort], demands, samples)

    return min(sum(cost(tuple(cohort)) for cohort in p) for p in partitions([d.query for d in demands]))


# -- what was judged before


@pytest.mark.parametrize("seed", range(30))
def test_what_was_judged_before_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    letters = "abcdefgh"

    def samples() -> dict[str, PredicateSample]:
        rows = ["".join(x for x in letters if rng.random() < 0.4) for _ in range(rng.choice((1, 30)))]
        return {name: sample(rng.choice((10.0, 1e4)), rows, {"vID": 50.0}) for name in "VWCX" if rng.random() < 0.9}

    def new(number: int) -> Demand:
        edges = " ".join(rng.sample(sorted(SIDES), rng.choice((1, 1, 2))))
        return demand(f"q{number}", edges, **{name: rng.choice(letters) for name in "VWCX" if rng.random() < 0.7})

    demands, measured, current, judged = [new(i) for i in range(rng.choice((1, 8, 90)))], samples(), (), NOTHING
    for step in range(8):
        judged = judge_cohorts(demands, measured, current, sides=SIDES, fixed=200.0, before=judged)
        fresh = choose_cohorts(demands, measured, current, sides=SIDES, fixed=200.0)
        assert ([*judged.cohorts], [*judged.notes]) == fresh
        current = judged.cohorts if rng.random() < 0.9 else current
        demands = [d for d in demands if len(demands) < 2 or rng.random() < 0.97]
        demands += [new(100 * (step + 1) + i) for i in range(rng.choice((0, 1, 2)))]
        measured = samples() if rng.random() < 0.3 else measured


def test_of_cohorts_that_stay_nothing_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["".join(x for x in "abcdefgh" if random.Random(i).random() < 0.4) for i in range(30)]
    samples = {name: sample(1e4, rows, {"vID": 50.0}) for name in "VW"}
    demands = [demand(f"q{i}", V="abcdefgh"[i % 8]) for i in range(100)]
    judged = judge_cohorts(demands, samples, sides=SIDES)
    judged = judge_cohorts(demands, samples, judged.cohorts, sides=SIDES, before=judged)
    counted: list[int] = []
    of_edge = cohort_costs._Edge.__init__
    monkeypatch.setattr(cohort_costs._Edge, "__init__", lambda *a: counted.append(1) or of_edge(*a))
    more = [*demands, demand("new", V="unheard")]
    judged = judge_cohorts(more, samples, judged.cohorts, sides=SIDES, before=judged)
    assert sum(map(len, judged.cohorts)) == 101
    assert not counted
