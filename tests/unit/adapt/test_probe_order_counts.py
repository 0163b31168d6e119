"""Unit: what probes have counted, as statistics: by what is asked, and of every edge."""

from __future__ import annotations

from typing import Any

import pytest

from thalweg.adapt.probe_orders.counts import next_statistics
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Equality, Join, KeyPart, Relation, TimeBound, joined_column
from thalweg.model.join_statistics import JoinStatistics, PredicateSample
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.query import Output, Query
from thalweg.model.report import ProbeId
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.optimize.planner import make_plan
from thalweg.optimize.weigh_orders import partners

SECOND = 1_000_000
SCHEMA = Schema((Field("k", "bigint"), Field("x", "bigint"), Field("ts", "timestamp")))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "abc"}
RATES = dict.fromkeys("abc", 100.0)
SIDES = (("a", "b", "k"), ("b", "c", "x"), ("a", "c", "x"))


def query(name: str, sides: int, **below: int) -> Query:
    """So many of the sides of a triangle; `below`: of a relation, the rows with k below it."""

    def part(relation: str, column: str) -> KeyPart:
        return KeyPart(relation, Expr(quote(column), "bigint", (column,)))

    chosen = SIDES[:sides]
    relations = sorted({r for a, b, _ in chosen for r in (a, b)})
    join = Join(
        tuple(Relation(r, r, (Atom("k", "<", below[r]),) if r in below else ()) for r in relations),
        tuple(Equality(part(a, c), part(b, c)) for a, b, c in chosen),
        tuple(TimeBound(a, b, -SECOND, SECOND) for a, b, _ in chosen),
    )
    output = Output("k", Expr(quote(joined_column("a", "k")), "bigint", (joined_column("a", "k"),)))
    return Query(name, "", f"j_{sides}", (output,), join=join)


def plan_of(*cohorts: dict[str, Query]) -> Plan:
    """Each of them a cohort."""
    registered = [RunningQuery(id_, q) for cohort in cohorts for id_, q in cohort.items()]
    measured = PlanMeasurements(joins=JoinLoad(cohorts=tuple(tuple(cohort) for cohort in cohorts)))
    return make_plan(PlanInput(registered, STREAMS, measurements=measured, settings=PlanSettings(2)))


def samples_of(plan: Plan, **shares: int) -> dict[str, PredicateSample]:
    """Of the predicates of each stream in order, one row in so many satisfies each."""
    found = {}
    for name, store in plan.joins.stores.items():
        ids = tuple(p.id for p in store.predicates)
        rows = [sum(1 << bit for bit in range(len(ids)) if row % shares.get(name, 1) == 0) for row in range(100)]
        found[name] = PredicateSample(ids, tuple(rows), 100.0, {})
    return found


def counted(plan: Plan, finds: dict[str, float], start: str = "a") -> dict[ProbeId, tuple[int, int]]:
    """What the first steps of a relation have counted: partners by cohort's first query."""
    counts = {}
    for cohort in plan.joins.cohorts.values():
        tree = next(tree for tree in cohort.trees if tree.relation == start)
        for node in tree.children:
            probe = ProbeId(cohort.id, start, node.relation, node.edge, 1)
            counts[probe] = (1000, round(1000 * finds[cohort.queries[0]]))
    return counts


def known_of(
    plan: Plan, statistics: JoinStatistics, samples: dict[str, PredicateSample]
) -> dict[str, dict[Any, float]]:
    """First query of a cohort -> what is known of its edges."""
    found = {}
    for cohort in plan.joins.cohorts.values():
        edges = [edge for id_ in cohort.queries for edge in plan.joins.ordered[id_].edges]
        of = partners(edges, cohort.roles, statistics.estimates, samples)
        found[cohort.queries[0]] = {(a, b): value for (a, b, _), value in of.items()}
    return found


def test_groups_that_ask_otherwise_have_partners_of_their_own() -> None:
    """One wants a tenth of b's rows, and these happen to have most of the partners."""
    plan = plan_of({"all@1": query("all", 1)}, {"few@1": query("few", 1, b=5)})
    assert len(plan.joins.cohorts) == 2
    samples = samples_of(plan, b=10)
    statistics = JoinStatistics()
    for _ in range(2):
        probes = counted(plan, {"all@1": 4.0, "few@1": 3.0})
        statistics = next_statistics(statistics, plan, probes, RATES, samples, 2)
    known = known_of(plan, statistics, samples)
    assert known["all@1"]["a", "b"] == pytest.approx(7000 / 1100)
    assert known["few@1"]["a", "b"] == pytest.approx(3.0)


def test_what_a_new_group_finds_is_expected_from_the_others_until_it_is_measured() -> None:
    before = plan_of({"all@1": query("all", 1)})
    statistics = JoinStatistics()
    for _ in range(2):
        statistics = next_statistics(statistics, before, counted(before, {"all@1": 4.0}), RATES, {}, 2)
    plan = plan_of({"all@1": query("all", 1)}, {"few@1": query("few", 1, b=5)})
    samples = samples_of(plan, b=10)
    assert known_of(plan, statistics, samples)["few@1"]["a", "b"] == pytest.approx(0.4)
    for _ in range(2):
        probes = counted(plan, {"all@1": 4.0, "few@1": 0.41})
        statistics = next_statistics(statistics, plan, probes, RATES, samples, 2)
    # As was expected: no news.
    assert not [key for key in statistics.replaced if key.startswith("pairs|")]
    for _ in range(2):
        probes = counted(plan, {"all@1": 4.0, "few@1": 3.0})
        statistics = next_statistics(statistics, plan, probes, RATES, samples, 2)
    assert [key for key in statistics.replaced if key.startswith("pairs|")]
    assert known_of(plan, statistics, samples)["few@1"]["a", "b"] == pytest.approx(3.0)


def test_a_query_that_asks_the_same_forgets_nothing() -> None:
    plan = plan_of({"few@1": query("few", 1, b=5)})
    statistics = JoinStatistics()
    for _ in range(2):
        probes = counted(plan, {"few@1": 3.0})
        statistics = next_statistics(statistics, plan, probes, RATES, samples_of(plan, b=10), 2)
    later = plan_of({"other@1": query("other", 1, b=5), "third@1": query("third", 1, b=5)})
    samples = samples_of(later, b=10)
    statistics = next_statistics(statistics, later, {}, dict.fromkeys("abc", 0.0), samples, 2)
    assert known_of(later, statistics, samples)["other@1"]["a", "b"] == pytest.approx(3.0)


def test_every_edge_of_a_cycle_is_told_of() -> None:
    plan = plan_of({"q@1": query("q", 3)})
    (cohort,) = plan.joins.cohorts.values()
    told = {
        frozenset((node.key[0][0], node.relation))
        for tree in cohort.trees
        for node in (*tree.nodes(), *tree.counted)
        if not node.equal
    }
    assert told == {frozenset("ab"), frozenset("bc"), frozenset("ac")}
    assert not [
        tree for tree in cohort.trees for node in tree.counted if node.children or node.complete or node.keeps
    ]


def test_a_chain_needs_no_samples() -> None:
    (cohort,) = plan_of({"q@1": query("q", 2)}).joins.cohorts.values()
    assert not any(tree.counted for tree in cohort.trees)
