"""Unit: what a batch measured, as the next plans see it."""

from __future__ import annotations

import random

from thalweg.adapt.combining import FEW, NEAR, next_loads
from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.model.plan import Plan
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.query import Aggregate, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000
STREAM = Stream("s", Schema((Field("ts", "timestamp"),)), "ts", 0, SourceSpec("memory", {}))
ROWS = 1_000_000


def _plan() -> Plan:
    query = Query("q", "", "s", (), None, Window(SECOND, SECOND), (), (Aggregate("count_all", (), "bigint"),))
    return make_plan(PlanInput([RunningQuery("q", query)], {"s": STREAM}))


PLAN = _plan()
(ID,) = PLAN.groupings


def _after(loads: dict[str, float], ratio: float) -> dict[str, float]:
    return next_loads(loads, PLAN, {ID: round(ratio * ROWS)}, {ID: ROWS}, RoutingTotals())


def test_the_first_measurement_counts_as_it_is() -> None:
    assert _after({}, 0.75) == {ID: 0.75}


def test_what_is_no_longer_planned_is_forgotten() -> None:
    assert _after({"gone": 0.3}, 0.75) == {ID: 0.75}


def test_noise_leaves_the_measurement_as_it_was() -> None:
    rng, loads = random.Random(1), {ID: 0.5}
    for _ in range(100):
        loads = _after(loads, 0.5 * rng.uniform(1 - 0.9 * NEAR, 1 + 0.9 * NEAR))
        assert loads == {ID: 0.5}


def test_noise_of_few_groups_leaves_the_measurement_as_it_was() -> None:
    loads = {ID: 0.0}
    for ratio in (0.0, 0.9 * FEW, 0.0001, 0.5 * FEW):
        loads = _after(loads, ratio)
        assert loads == {ID: 0.0}


def test_a_measurement_that_moves_is_followed_and_found() -> None:
    for before, now in ((0.1, 0.9), (0.9, 0.1), (1.0, 0.0), (0.0, 1.0)):
        loads, seen = {ID: before}, []
        for _ in range(20):
            loads = _after(loads, now)
            seen.append(loads[ID])
        assert abs(loads[ID] - now) <= max(NEAR * loads[ID], FEW)
        assert abs(seen[0] - (before + now) / 2) < 1e-9  # one batch alone moves it half way
        assert len(set(seen)) < 10


def test_nothing_is_learned_of_a_batch_without_rows() -> None:
    assert next_loads({ID: 0.5}, PLAN, {ID: 0}, {ID: 0}, RoutingTotals()) == {ID: 0.5}
