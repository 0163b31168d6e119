"""Unit: when the optimiser is asked, what it is told, and that nothing it does can disturb a batch."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.support.clocks import CountingClock

from thalweg.adapt.routing_totals import RoutingTotals, Shipped
from thalweg.adapt.slot_assignment.loop import Repartitioner, Repartitioning, next_moves
from thalweg.adapt.slot_assignment.sharing import Sample
from thalweg.model.expr import Expr
from thalweg.model.manifest import Manifest
from thalweg.model.measurements import Measurements, Moves, SlotAssignment
from thalweg.model.partitioning import Partitioning
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


def manifest(batch: int, plan: Plan) -> Manifest:
    lists = {route_key: list(slots) for route_key, slots in plan.assignment.items()}
    decided = SlotAssignment(assignment=lists, follows=dict(plan.follows), slots=plan.slots)
    return Manifest(batch, 64, "test", measured=Measurements(slot_assignment=decided))


def movement(seed: int, shift: int = 0, rows: int = 12_000, together: float = 0.0) -> RoutingTotals:
    """Twenty entities, each in one key group of either route key; with `shift`, in others of the second."""
    rng = np.random.default_rng(seed)
    entity = rng.integers(0, 20, rows)
    groups = np.stack([entity * 3 % 64, (entity * 7 + 31 + shift * 5) % 64 * 1], axis=1).astype(np.uint16)
    shipped = Shipped(rows, rows, np.full(4, rows // 2), [Sample(KEYS, groups, float(rows))])
    shipped.together = {("s(b)", "s(a)"): (int(together * 1000), 1000), ("s(a)", "s(b)"): (0, 1000)}
    served = {"g": {0: GroupedRows(2 * rows, 20, (20, 0, 0, 0))}}
    return RoutingTotals({"s": shipped}, ship_seconds=0.1, work_seconds=0.3, served=served)


@pytest.mark.slow
def test_new_route_keys_are_looked_at_and_proposed_once() -> None:
    repartitioner = Repartitioner(EAGER, tasks=2, clock=CountingClock())
    plan = plan_of()
    repartitioner.observe(plan, manifest(3, plan), movement(1), 0.5)
    repartitioner.wait()
    assert repartitioner.asked == "after batch 3, because route keys have come or gone"
    proposed = repartitioner.take()
    assert proposed is not None
    assert set(proposed.assignment) == set(KEYS)
    assert proposed.slots == 4
    assert repartitioner.take() is None
    report = repartitioner.report(manifest(3, plan))
    assert report.streams["s"].copies == 2.0
    assert report.streams["s"].hashed == pytest.approx(1.75, abs=0.25)
    assert report.answer.startswith("a better one was found: ")


@pytest.mark.slow
def test_what_is_in_force_is_left_and_said_so() -> None:
    repartitioner = Repartitioner(EAGER, tasks=2, clock=CountingClock())
    plan = plan_of()
    repartitioner.observe(plan, manifest(0, plan), movement(1), 0.5)
    repartitioner.wait()
    proposed = repartitioner.take()
    assert proposed is not None
    settled = plan_of(assignment=proposed.assignment, follows=proposed.follows)
    repartitioner.observe(settled, manifest(1, settled), movement(2), 0.5)
    repartitioner.wait()
    assert "have passed" in repartitioner.asked
    assert repartitioner.take() is None
    assert repartitioner.report(manifest(1, settled)).answer.startswith("left as it is: ")


@pytest.mark.slow
def test_a_shift_asks_before_the_interval_is_over() -> None:
    patient = Repartitioning(interval_seconds=3600, least_seconds=0.0, budget_seconds=0.15)
    repartitioner = Repartitioner(patient, tasks=2, clock=CountingClock())
    plan = plan_of()
    repartitioner.observe(plan, manifest(0, plan), movement(1), 0.5)
    repartitioner.wait()
    first = repartitioner.take()
    assert first is not None
    settled = plan_of(assignment=first.assignment, follows=first.follows)
    repartitioner.observe(settled, manifest(1, settled), movement(2), 0.5)
    repartitioner.wait()
    assert "after batch 0" in repartitioner.asked
    for batch in range(2, 5):
        repartitioner.observe(settled, manifest(batch, settled), movement(batch + 1, shift=1), 0.5)
        repartitioner.wait()
    assert "of the rows of s have drifted" in repartitioner.asked
    second = repartitioner.take()
    assert second is not None
    assert second.assignment != first.assignment


def test_keys_inside_others_are_told_to_follow() -> None:
    repartitioner = Repartitioner(EAGER, tasks=2, clock=CountingClock())
    plan = plan_of()
    repartitioner.observe(plan, manifest(0, plan), movement(1, together=1.0), 0.5)
    repartitioner.wait()
    proposed = repartitioner.take()
    assert proposed is not None
    assert proposed.follows == {"s(b)": "s(a)"}


def test_switched_off_it_only_counts() -> None:
    repartitioner = Repartitioner(None, tasks=2)
    plan = plan_of()
    repartitioner.take_in(plan, manifest(0, plan), movement(1), 0.5)
    repartitioner.wait()
    assert repartitioner.asked == ""
    assert repartitioner.take() is None
    assert repartitioner.replication["s"].copies == 2.0


def test_a_measurement_that_cannot_be_does_not_end_the_batch() -> None:
    repartitioner = Repartitioner(EAGER, tasks=2, clock=CountingClock())
    plan = plan_of()
    broken = movement(1)
    broken.shipped["s"].samples = [Sample(KEYS, np.full((10, 2), 64_000, np.uint16), 10.0)]
    repartitioner.take_in(plan, manifest(0, plan), broken, 0.5)
    assert repartitioner.verdict is not None
    assert "measuring failed" in repartitioner.verdict.reason


def test_switches_are_counted_where_key_groups_move() -> None:
    plan = plan_of()
    before = manifest(5, plan)
    assert next_moves(before, plan).switches == 0
    moved = plan_of(assignment={"s(a)": [3] * 64})
    assert next_moves(before, moved) == Moves(6, 48, 1)
    assert next_moves(before, plan_of(follows={"s(a)": "s(b)"})).switches == 1
    decided = msgspec.structs.replace(before.measured.slot_assignment, slots=2)
    fewer = replace(before, measured=Measurements(slot_assignment=decided))
    assert next_moves(fewer, moved).switches == 0


def test_a_proposal_speaks_for_its_own_route_keys_only() -> None:
    known = Partitioning({"s(a)": [0], "t(x)": [1]}, {"s(b)": "s(a)", "t(y)": "t(x)"}, 2)
    changed = known.changed_by(Partitioning({"s(a)": [1], "s(b)": [0]}, {}, 2))
    assert changed.assignment == {"s(a)": [1], "t(x)": [1], "s(b)": [0]}
    assert changed.follows == {"t(y)": "t(x)"}
    assert changed.slots == 2
