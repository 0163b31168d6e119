"""What the planner does for one query more or less, counted: hardly more beside many queries than beside few.

Counted are the steps of the interpreter, which are the same every time. Copies of tuples and mappings are one step
each, as little as they cost beside the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from benchmarks import many, many_joins
from benchmarks.local_batches import Load

from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, RunningQuery
from thalweg.optimize.planner import NOTHING, plan_next

FEW = 20


def steps(call: Callable[[], object]) -> int:
    found = 0

    def count(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal found
        frame.f_trace_opcodes = True
        found += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def cost(load: Load, queries: int) -> tuple[int, int]:
    """Of one query more, and of one less."""
    running = [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(load.queries)]
    asked = PlanInput((), {stream.name: stream for stream in load.streams})

    def by(those: Sequence[RunningQuery]) -> PlanInput:
        return replace(asked, queries=tuple(those))

    draft = plan_next(by(running[:queries]), NOTHING)
    cohorts = tuple(cohort.queries for cohort in draft.plan.joins.cohorts.values())
    asked = replace(asked, measurements=PlanMeasurements(joins=JoinLoad(cohorts=cohorts)))
    draft = plan_next(by(running[:queries]), draft)
    more, less = by(running[: queries + 1]), by([*running[:7], *running[8:queries]])
    return steps(lambda: plan_next(more, draft)), steps(lambda: plan_next(less, draft))


@pytest.mark.slow
def test_an_aggregation_costs_at_most_twice_what_it_costs_beside_few() -> None:
    few, there = cost(many.load(FEW + 1, "noop"), FEW), cost(many.load(1_501, "noop"), 1_500)
    assert there[0] < 1.8 * few[0]
    assert there[1] < 2.8 * few[1]


@pytest.mark.slow
def test_a_join_costs_its_cohort_and_not_all_cohorts() -> None:
    """Of which one is full, and the others are as they were."""
    one, many_more = cost(many_joins.load(66, "noop", 9), 65), cost(many_joins.load(386, "noop", 9), 385)
    assert many_more[0] < 2.5 * one[0]
    assert many_more[1] < 3.5 * one[1]
