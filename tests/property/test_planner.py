"""Property: a plan is the same whether it is made from nothing or goes on from the one before, and so is its name.

Queries of the recorded worlds come and go, at the end and in the middle; what was measured and decided changes.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden.recorded_queries import Recorded, load
from tests.support.profiles import examples

from thalweg.model.canonical import write
from thalweg.model.plan import Plan, route_keys
from thalweg.model.plan_input import (
    GroupingLoad,
    JoinLoad,
    Placement,
    PlanInput,
    PlanMeasurements,
    PlanSettings,
    RunningQuery,
)
from thalweg.optimize import split_aggregates
from thalweg.optimize.planner import NOTHING, make_plan, plan_next

STEPS = 6


@pytest.fixture(scope="module")
def worlds() -> list[Recorded]:
    return list(load().values())


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10_000))
def test_it_does_not_matter_what_was_planned_before(worlds: list[Recorded], seed: int) -> None:
    rng = random.Random(seed)
    world = rng.choice(worlds)
    waiting = [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(world.queries)]
    rng.shuffle(waiting)
    start = rng.randint(0, len(waiting) - 1)
    running, waiting = waiting[:start], waiting[start:]
    asked = PlanInput(tuple(running), world.streams, world.tables, settings=PlanSettings(3, 16))
    draft = plan_next(asked, NOTHING)
    names = {draft.plan.id: write(replace(draft.plan, id=""))}
    for _ in range(STEPS):
        _turn(rng, running, waiting)
        asked = replace(asked, queries=tuple(running))
        if rng.random() < 0.4:
            asked = _decided(rng, asked, draft.plan)
        draft, fresh = plan_next(asked, draft), make_plan(asked)
        assert write(draft.plan) == write(fresh)
        assert names.setdefault(fresh.id, write(replace(fresh, id=""))) == write(replace(fresh, id=""))
    assert len(set(names.values())) == len(names)


def _turn(rng: random.Random, running: list[RunningQuery], waiting: list[RunningQuery]) -> None:
    """Queries come, mostly at the end, go from anywhere, and change where they are."""
    for _ in range(rng.choice((0, 1, 1, 3))):
        if waiting:
            running.insert(len(running) if rng.random() < 0.8 else rng.randint(0, len(running)), waiting.pop())
    for _ in range(rng.choice((0, 0, 1, 2))):
        if running:
            waiting.insert(rng.randint(0, len(waiting)), running.pop(rng.randrange(len(running))))
    if running and rng.random() < 0.3:
        at = rng.randrange(len(running))
        changed = {"fence": rng.choice((None, (3, 1_000_000))), "complete_from": rng.choice((None, 5))}
        running[at] = running[at]._replace(**changed)


@pytest.mark.parametrize("kind", ["aggregations-1", "joins-1"])
def test_one_that_comes_or_goes_is_all_that_is_taken_apart(
    worlds: list[Recorded], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = next(world for name, world in load().items() if name == kind)
    running = [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(world.queries)]
    asked = PlanInput(tuple(running[:-1]), world.streams, world.tables)
    draft, split = plan_next(asked, NOTHING), split_aggregates._split
    seen: list[str] = []
    monkeypatch.setattr(split_aggregates, "_split", lambda one, time: seen.append(one.id) or split(one, time))
    came = plan_next(replace(asked, queries=tuple(running)), draft)
    gone = plan_next(replace(asked, queries=tuple(running[1:])), came)
    changed = (running[1], running[2]._replace(fence=(3, 1_000_000)), *running[3:])
    plan_next(replace(asked, queries=changed), gone)
    assert seen == [running[-1].id, running[2].id]
    assert gone.continues
    assert [one.id for one in gone.gone] == [running[0].id]


def test_the_same_input_is_not_planned_again(worlds: list[Recorded]) -> None:
    asked = PlanInput([RunningQuery(q.name, q) for q in worlds[0].queries], worlds[0].streams, worlds[0].tables)
    draft = plan_next(asked, NOTHING)
    assert plan_next(replace(asked, queries=[RunningQuery(*q) for q in asked.queries]), draft) is draft
    # A program's own dictionary may change in its hands; what was planned by it does not.
    streams = dict(asked.streams)
    kept = plan_next(replace(asked, streams=streams), NOTHING)
    streams.clear()
    assert kept.given.streams == asked.streams


def _decided(rng: random.Random, asked: PlanInput, plan: Plan) -> PlanInput:
    """With other measurements and decisions."""
    loads = {id_: GroupingLoad(round(rng.random(), 2)) for id_ in plan.groupings if rng.random() < 0.5}
    pairs = [
        pair for o in plan.joins.ordered.values() for a, b, key in o.edges for pair in ((a, b, key), (b, a, key))
    ]
    matches = {pair: rng.choice((0.25, 1.0, 4.0)) for pair in sorted(pairs) if rng.random() < 0.7}
    cohorts = tuple(cohort.queries for cohort in plan.joins.cohorts.values())
    orders = {id_: o.orders for id_, o in plan.joins.ordered.items() if rng.random() < 0.3}
    ready = {id_: m.queries for id_, m in plan.joins.intermediates.items()}
    joins = JoinLoad(matches=matches, cohorts=cohorts, ready=ready, orders=orders)
    keys = [key for key in sorted(route_keys(plan)) if rng.random() < 0.5]
    slots = {key: [rng.randrange(plan.slots) for _ in range(plan.groups)] for key in keys}
    placement = Placement(slots, partitioners=dict.fromkeys(keys, "dalton"), spread=dict.fromkeys(keys[:1], (1,)))
    slots_now = PlanSettings(rng.choice((1, 3)), 16)
    return replace(asked, measurements=PlanMeasurements(loads, joins), decisions=placement, settings=slots_now)
