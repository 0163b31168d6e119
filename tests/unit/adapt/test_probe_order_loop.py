"""Unit: when the join planner is asked, what it adopts and keeps, and that nothing it does can disturb a batch."""

from __future__ import annotations

import threading
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.clocks import CountingClock

import thalweg
from thalweg.adapt import loop as adapt_loop
from thalweg.adapt.contract import SeenBatch
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.probe_orders import adaptation, question
from thalweg.adapt.settings import AdaptSettings, JoinPlanning
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Equality, Join, KeyPart, Relation, TimeBound, joined_column
from thalweg.model.manifest import Manifest
from thalweg.model.measurements import Measurements
from thalweg.model.plan import Plan
from thalweg.model.plan_input import PlanInput, PlanSettings, RunningQuery
from thalweg.model.probe import ProbeNode
from thalweg.model.probe_order import OrderingReport, OrdersInForce
from thalweg.model.query import Output, Query
from thalweg.model.report import SAMPLED, ProbeId, StreamSample
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000
SCHEMA = Schema((Field("k", "bigint"), Field("x", "bigint"), Field("ts", "timestamp")))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "abcde"}
EPOCH = 2
CALM = {"ab": 0.2, "bc": 4.0, "cd": 1.0}
"""Partners of a row by edge, either way."""
FLIPPED = {"ab": 4.0, "bc": 0.2, "cd": 1.0}


def query(name: str, streams: str) -> Query:
    """A chain: each stream joined with the next by a column of its own."""

    def part(relation: str, column: str) -> KeyPart:
        return KeyPart(relation, Expr(quote(column), "bigint", (column,)))

    edges = [(a, b, "k" if place % 2 else "x") for place, (a, b) in enumerate(pairwise(streams))]
    join = Join(
        tuple(Relation(s, s) for s in streams),
        tuple(Equality(part(a, c), part(b, c)) for a, b, c in edges),
        tuple(TimeBound(a, b, -SECOND, SECOND) for a, b, _ in edges),
    )
    first = streams[0]
    output = Output("k", Expr(quote(joined_column(first, "k")), "bigint", (joined_column(first, "k"),)))
    return Query(name, "", f"j_{streams}", (output,), join=join)


class Life:
    """Batches as the runner has them, without tasks: what probes would have counted is made up."""

    def __init__(self, loop: AdaptLoop, **queries: str) -> None:
        self.loop = loop
        self.queries = {f"{name}@1": query(name, streams) for name, streams in queries.items()}
        self.manifest = Manifest(-1, 256, "test")
        self.plans: list[Plan] = []
        self.together = 1
        """How many times more tuples there are than the rows' partners let expect."""

    def batch(self, finds: dict[str, float], rows: int = 1000) -> None:
        number, before = self.manifest.batch + 1, self.manifest.measured
        decided = self.loop.decide(before, number)
        registered = [RunningQuery(id_, q) for id_, q in self.queries.items()]
        given = PlanInput(registered, STREAMS, measurements=decided.measurements, settings=PlanSettings(2))
        plan = make_plan(given)
        samples = {s: StreamSample((), (), rows, {}) for s in "abcd"}
        probes = counted(plan, finds, rows, self.together)
        learned = self.loop.observe(SeenBatch(plan, decided, before, probes=probes, samples=samples, rows=rows))
        kept = msgspec.json.decode(msgspec.json.encode(learned.measured), type=Measurements)
        self.manifest = Manifest(number, 256, "test", measured=kept)
        self.plans.append(plan)
        self.loop.commit(learned)
        self.loop.wait()

    def run(self, batches: int, finds: dict[str, float], rows: int = 1000) -> None:
        for _ in range(batches):
            self.batch(finds, rows)

    def first(self, relation: str, name: str = "q") -> list[str]:
        """Where rows of a relation looked first, batch by batch."""
        return [plan.joins.ordered[f"{name}@1"].orders[relation][0][0] for plan in self.plans]

    @property
    def report(self) -> OrderingReport:
        report = self.loop.explain(self.manifest.measured)["probe_orders"].report
        assert isinstance(report, OrderingReport)
        return report

    @property
    def ordering(self) -> OrdersInForce:
        return self.manifest.measured.probe_orders.ordering


def counted(plan: Plan, finds: dict[str, float], rows: int, together: int) -> dict[ProbeId, tuple[int, int]]:
    """What the probes of a plan would have seen, by CLASH's model: of k rows that are joined, each is the latest of
    every k-th tuple. Intermediates count as complete from the batch after they were begun."""

    def made(relations: tuple[str, ...]) -> float:
        tuples = float(rows ** len(relations))
        for pair in ("".join(sorted((a, b))) for a, b in combinations(relations, 2)):
            tuples *= 2 * finds[pair] / rows if pair in finds else 1.0
        return tuples / len(relations)

    counts: dict[ProbeId, tuple[int, int]] = {}
    for cohort in plan.joins.cohorts.values():
        for tree in cohort.trees:
            waiting: list[tuple[ProbeNode, tuple[str, ...]]] = [(child, (tree.relation,)) for child in tree.children]
            for node, known in waiting:
                m = plan.joins.intermediates.get(node.relation)
                found = (*known, *(m.relations if m is not None else (node.relation,)))
                probe = ProbeId(cohort.id, node.key[0][0], node.relation, node.edge, len(known))
                looked, seen = counts.get(probe, (0, 0))
                times = together if len(known) > 1 else 1
                counts[probe] = looked + times * round(made(known)), seen + times * round(made(found))
                waiting += [(child, found) for child in node.children]
            for node in tree.counted:
                pair = (tree.relation, node.relation)
                probe = ProbeId(cohort.id, tree.relation, node.relation, node.edge, SAMPLED)
                counts[probe] = (rows, round(made(pair)))
    return counts


def planner() -> AdaptLoop:
    return AdaptLoop(AdaptSettings(2, 2, None, JoinPlanning(EPOCH)), CountingClock())


def test_statistics_of_an_epoch_are_in_force_two_epochs_later() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    assert life.first("b")[2 * EPOCH :] == ["a"] * EPOCH
    assert life.ordering.planned == ("q@1",)
    assert not life.plans[2 * EPOCH - 1].joins.ordered["q@1"].decided
    assert life.plans[2 * EPOCH].joins.ordered["q@1"].decided
    life.run(4 * EPOCH, FLIPPED)
    assert life.first("b")[3 * EPOCH :] == ["a"] * 2 * EPOCH + ["c"] * 2 * EPOCH
    assert life.ordering.switched == 5 * EPOCH
    assert life.ordering.changes
    assert life.report.epoch == 7


def test_what_lies_between_two_powers_of_two_does_not_sway() -> None:
    life = Life(planner(), q="ab")
    seen = []
    for partners in (2.7, 3.0) * 6:
        life.batch({"ab": partners})
        seen.append(life.manifest.measured.probe_orders.joins.matches)
    assert seen[-1].values()
    assert all(found == seen[0] for found in seen)
    life.run(8, {"ab": 12.0})
    assert life.manifest.measured.probe_orders.joins.matches != seen[0]


def test_it_is_not_asked_while_nothing_changes() -> None:
    life = Life(planner(), q="abcd", p="abc")
    life.run(3 * EPOCH, CALM)
    asked = life.report.asked
    assert asked.startswith(f"after batch {EPOCH - 1}, because 2 of 2 queries have changed")
    life.run(3 * EPOCH, CALM)
    assert life.report.asked == asked
    assert life.report.answer.startswith("not asked again: ")


def test_it_is_asked_when_what_is_sent_drifts() -> None:
    """Tuples of two rows and more become ten times as many, by keys that go together: no edge by itself shows it."""
    life = Life(planner(), q="abcd")
    life.run(5 * EPOCH, CALM)
    assert "because 1 of 1 queries have changed" in life.report.asked
    life.together = 10
    life.run(EPOCH, CALM)
    assert f"after batch {6 * EPOCH - 1}, because the measured cost is" in life.report.asked


def test_noise_changes_no_order() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, {"ab": 1.0, "bc": 1.02, "cd": 1.0})
    decided = life.ordering.orders
    life.run(3 * EPOCH, {"ab": 1.1, "bc": 1.0, "cd": 1.0})
    assert life.ordering.orders == decided
    assert life.ordering.switches <= 1


def test_a_new_query_is_attached_at_once_and_changes_no_other() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    before = life.ordering.orders["q@1"]
    life.queries["late@1"] = query("late", "abc")
    life.batch(CALM)
    ordered = life.plans[-1].joins.ordered
    assert ordered["late@1"].decided
    assert ordered["q@1"].orders == before
    assert ordered["late@1"].orders["b"][0] == ("a",)
    assert life.ordering.orders["late@1"] == ordered["late@1"].orders
    assert life.ordering.planned == ("q@1",)


def test_a_query_that_goes_takes_its_orders_along() -> None:
    life = Life(planner(), q="abcd", p="abc")
    life.run(3 * EPOCH, CALM)
    del life.queries["p@1"]
    life.batch(CALM)
    assert set(life.ordering.orders) == {"q@1"}


def test_joins_that_come_after_the_last_has_gone_are_watched_as_the_first_were() -> None:
    """Decisions are remembered by the number of their epoch, so the numbers must go on."""
    life = Life(planner(), q="abcd")
    life.run(6 * EPOCH, CALM)
    join = life.queries.pop("q@1")
    life.run(2, CALM)
    life.queries["new@1"] = join
    life.run(4 * EPOCH, CALM)
    assert life.plans[-1].joins.ordered["new@1"].orders["b"][0][0] == "a"
    life.run(4 * EPOCH, FLIPPED)
    assert life.plans[-1].joins.ordered["new@1"].orders["b"][0][0] == "c"


def test_a_restart_goes_on_with_what_was_decided() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    decided = life.ordering
    life.loop = planner()
    life.run(1, CALM)
    assert life.ordering == decided
    assert life.plans[-1].joins.ordered["q@1"].decided
    life.run(2 * EPOCH, CALM)
    assert life.report.asked == ""


def test_a_decision_that_was_lost_is_made_again() -> None:
    """Killed between the answer and the epoch in which it would have been in force: the news is in the manifest."""
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    life.run(EPOCH, FLIPPED)
    assert life.report.asked.startswith(f"after batch {4 * EPOCH - 1}")
    assert life.report.answer.startswith("other orders send")
    life.loop = planner()
    life.run(EPOCH, FLIPPED)
    assert life.first("b")[-1] == "a"
    assert "selectivities are no longer what they were" in life.report.asked
    life.run(2 * EPOCH, FLIPPED)
    assert life.first("b")[-1] == "c"
    asked = life.report.asked
    life.run(2 * EPOCH, FLIPPED)
    assert life.report.asked == asked


def test_what_is_proposed_waits_for_its_epoch_and_is_taken_once() -> None:
    one = planner()
    life = Life(one, q="abcd")
    life.run(3 * EPOCH, CALM)
    orders = {"q@1": {**life.ordering.orders["q@1"], "b": (("c",), ("a",), ("d",))}}
    one.change("probe_orders", coming=((4, OrdersInForce(orders, ("q@1",), changes=("something",))),))
    life.run(EPOCH, CALM)
    assert life.first("b")[-EPOCH:] == ["a"] * EPOCH
    life.run(1, CALM)
    assert life.first("b")[-1] == "c"
    assert one.decide(life.manifest.measured, life.manifest.batch + 1).ordering == life.ordering


def test_orders_that_do_not_fit_are_not_used() -> None:
    one = planner()
    life = Life(one, q="abcd")
    one.change("probe_orders", coming=((0, OrdersInForce({"q@1": {"a": (("d",), ("c",), ("b",))}}, ("q@1",))),))
    life.run(1, CALM)
    assert not life.plans[-1].joins.ordered["q@1"].decided


def test_without_planning_nothing_is_asked() -> None:
    life = Life(AdaptLoop(AdaptSettings(2, 2)), q="abcd")
    life.run(24, CALM)
    assert life.report.asked == ""
    assert life.ordering == OrdersInForce()


def test_a_failure_of_the_optimiser_leaves_the_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(question, "judge", fail)
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    assert life.report.answer == "the optimiser failed: RuntimeError: no"
    assert life.ordering.orders == {}
    monkeypatch.setattr(adaptation, "question", fail)
    life.run(EPOCH, CALM)
    assert life.report.answer == "measuring failed: RuntimeError: no"


def test_it_runs_beside_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(adapt_loop, "yield_to_batches", lambda: found.append(threading.current_thread().name))
    life = Life(planner(), q="abcd")
    life.run(EPOCH, CALM)
    assert found == ["thalweg-adapt"]


def test_the_report_says_what_sharing_saves() -> None:
    life = Life(planner(), q="abcd", p="abcd")
    life.run(3 * EPOCH, CALM)
    (cohort,) = life.report.groups
    assert cohort.queries == ("q@1", "p@1")
    assert cohort.apart == pytest.approx(2 * cohort.now, rel=0.06)


def test_a_query_over_a_stream_that_was_not_measured_keeps_no_other_from_being_attached() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    life.queries["late@1"] = query("late", "abc")
    life.queries["strange@1"] = query("strange", "cde")
    life.batch({**CALM, "de": 1.0})
    ordered = life.plans[-1].joins.ordered
    assert ordered["late@1"].decided
    assert not ordered["strange@1"].decided


@pytest.mark.parametrize("given", [0, -1, 2.5, "8"])
def test_an_epoch_is_a_number_of_batches(tmp_path: Path, given: Any) -> None:
    with pytest.raises(thalweg.ThalwegError, match="is not a number of batches"):
        thalweg.connect(tmp_path, join_epoch=given)


def test_many_new_queries_are_attached_some_at_a_time() -> None:
    life = Life(planner(), q="abcd")
    life.run(3 * EPOCH, CALM)
    life.queries |= {f"new{i}@1": query(f"new{i}", "abc") for i in range(10)}
    decided = []
    for _ in range(3):
        life.batch(CALM)
        decided.append(sum(join.decided for join in life.plans[-1].joins.ordered.values()))
    assert decided == [9, 11, 11]
