"""Unit: when the optimiser is asked, what it is told, and that nothing it does can disturb a batch."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.support.clocks import CountingClock

from thalweg.adapt.contract import SeenBatch
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.routing_totals import RoutingTotals, Shipped
from thalweg.adapt.settings import AdaptSettings, Repartitioning
from thalweg.adapt.slot_assignment.moves import next_moves
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample
from thalweg.model.expr import Expr
from thalweg.model.measurements import KeyGroupMoves, Measurements, SlotAssignment
from thalweg.model.partitioning import Partitioning, PartitioningReport
from thalweg.model.plan import Plan
from thalweg.model.plan_input import Placement, PlanInput, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.report import GroupedRows
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window
from thalweg.optimize.planner import make_plan

SCHEMA = Schema((Field("ts", "timestamp"), Field("a", "bigint"), Field("b", "bigint"), Field("v", "double")))
STREAM = Stream("s", SCHEMA, "ts", 1, SourceSpec("memory", {}))
KEYS = ("s(a)", "s(b)")
EAGER = Repartitioning(interval_seconds=1e-6, budget_seconds=0.15)


WHOLE = (("partitioner", "hash"),)


def plan_of(**options: object) -> Plan:
    column = {f.name: Expr(f'"{f.name}"', f.type, (f.name,)) for f in SCHEMA.fields}
    queries = []
    for key in ("a", "b"):
        middle = Aggregate("percentile", (column["v"],), "double", parameters=(0.5,))
        outputs = (Output(key, column[key]), Output("m", Expr("a0", "double", ("a0",))))
        window = Window(10_000_000, 10_000_000)
        query = Query(key, "", "s", outputs, None, window, (column[key],), (middle,), options=WHOLE)
        queries.append(RunningQuery(key, query))
    placement = Placement(**options)  # type: ignore[arg-type]
    return make_plan(PlanInput(queries, {"s": STREAM}, decisions=placement, settings=PlanSettings(4, 64)))


class Life:
    """Batches as the runner has them, without tasks: what was sent is made up."""

    def __init__(self, settings: Repartitioning | None = EAGER) -> None:
        self.loop = AdaptLoop(AdaptSettings(2, 4, settings), CountingClock())
        self.measured = Measurements()
        self.plan = plan_of()

    def batch(self, number: int, routing: RoutingTotals) -> Placement:
        """What was decided for the batch."""
        decided = self.loop.decide(self.measured, number)
        placed = decided.placement
        self.plan = plan_of(assignment=placed.assignment, co_located_with=placed.co_located_with)
        learned = self.loop.observe(SeenBatch(self.plan, decided, self.measured, routing, rows=1, seconds=0.5))
        self.measured = learned.measured
        self.loop.commit(learned)
        self.loop.wait()
        return placed

    def proposed(self, number: int) -> Placement:
        return self.loop.decided(self.measured, number).placement

    @property
    def report(self) -> PartitioningReport:
        report = self.loop.explain(self.measured)["slot_assignment"].report
        assert isinstance(report, PartitioningReport)
        return report


def movement(seed: int, shift: int = 0, rows: int = 12_000, together: float = 0.0) -> RoutingTotals:
    """Twenty entities, each in one key group of either route key; with `shift`, in others of the second."""
    rng = np.random.default_rng(seed)
    entity = rng.integers(0, 20, rows)
    groups = np.stack([entity * 3 % 64, (entity * 7 + 31 + shift * 5) % 64 * 1], axis=1).astype(np.uint16)
    shipped = Shipped(rows, rows, np.full(4, rows // 2), [KeyGroupSample(KEYS, groups, float(rows))])
    shipped.together = {("s(b)", "s(a)"): (int(together * 1000), 1000), ("s(a)", "s(b)"): (0, 1000)}
    served = {"g": {0: GroupedRows(2 * rows, 20, (20, 0, 0, 0))}}
    return RoutingTotals({"s": shipped}, ship_seconds=0.1, work_seconds=0.3, served=served)


@pytest.mark.slow
def test_new_route_keys_are_looked_at_and_proposed_once() -> None:
    life = Life()
    life.batch(3, movement(1))
    assert life.report.asked == "after batch 3, because route keys have come or gone"
    assert life.report.streams["s"].copies == 2.0
    assert life.report.streams["s"].hashed == pytest.approx(1.75, abs=0.25)
    assert life.report.answer.startswith("a better one was found: ")
    proposed = life.proposed(4)
    assert set(proposed.assignment) == set(KEYS)
    assert life.batch(4, RoutingTotals()) == proposed
    assert life.loop.memories(life.measured)["slot_assignment"].proposed is None


@pytest.mark.slow
def test_what_is_in_force_is_left_and_said_so() -> None:
    life = Life()
    life.batch(0, movement(1))
    proposed = life.batch(1, movement(2))
    assert proposed.assignment
    assert "have passed" in life.report.asked
    assert life.proposed(2) == proposed
    assert life.report.answer.startswith("left as it is: ")


@pytest.mark.slow
def test_a_shift_asks_before_the_interval_is_over() -> None:
    life = Life(Repartitioning(interval_seconds=3600, least_seconds=0.0, budget_seconds=0.15))
    life.batch(0, movement(1))
    first = life.batch(1, movement(2))
    assert first.assignment
    assert "after batch 0" in life.report.asked
    for batch in range(2, 5):
        life.batch(batch, movement(batch + 1, shift=1))
    assert "of the rows of s have drifted" in life.report.asked
    second = life.proposed(5)
    assert second.assignment
    assert second.assignment != first.assignment


def test_keys_inside_others_are_told_to_follow() -> None:
    life = Life()
    life.batch(0, movement(1, together=1.0))
    assert life.proposed(1).co_located_with == {"s(b)": "s(a)"}


def test_switched_off_it_only_counts() -> None:
    life = Life(None)
    life.batch(0, movement(1))
    assert life.report.asked == ""
    assert life.proposed(1).assignment == {}
    assert life.report.streams["s"].copies == 2.0


def test_a_measurement_that_cannot_be_does_not_end_the_batch() -> None:
    life, broken = Life(), movement(1)
    broken.shipped["s"].samples = [KeyGroupSample(KEYS, np.full((10, 2), 64_000, np.uint16), 10.0)]
    life.batch(0, broken)
    assert "measuring failed" in life.report.answer


def test_switches_are_counted_where_key_groups_move() -> None:
    plan = plan_of()
    lists = {route_key: list(slots) for route_key, slots in plan.assignment.items()}
    decided = SlotAssignment(assignment=lists, co_located_with=dict(plan.co_located_with), slots=plan.slots)
    assert next_moves(decided, plan, 6).switches == 0
    moved = plan_of(assignment={"s(a)": [3] * 64})
    assert next_moves(decided, moved, 6) == KeyGroupMoves(6, 48, 1)
    assert next_moves(decided, plan_of(co_located_with={"s(a)": "s(b)"}), 6).switches == 1
    fewer = msgspec.structs.replace(decided, slots=2)
    assert next_moves(fewer, moved, 6).switches == 0


def test_a_proposal_speaks_for_its_own_route_keys_only() -> None:
    known = Partitioning({"s(a)": [0], "t(x)": [1]}, {"s(b)": "s(a)", "t(y)": "t(x)"}, 2)
    changed = known.changed_by(Partitioning({"s(a)": [1], "s(b)": [0]}, {}, 2))
    assert changed.assignment == {"s(a)": [1], "t(x)": [1], "s(b)": [0]}
    assert changed.co_located_with == {"t(y)": "t(x)"}
    assert changed.slots == 2
