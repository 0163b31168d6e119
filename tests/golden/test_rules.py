"""Golden: what each rule of the planner adds to the draft, for queries of the recorded worlds.

A case is some queries and measurements; its file is `rules/<case>.txt`. `pytest --bless` rewrites the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.golden.recorded_queries import load

from thalweg.model.plan import Plan
from thalweg.model.plan_input import GroupingLoad, JoinLoad, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.optimize.draft import Draft
from thalweg.optimize.planner import NOTHING, RULES, make_plan

FILES = Path(__file__).with_name("rules")
WORLDS = load()
CASES = {
    f"{world}_{first}_{last}_{measured}": (world, first, last, measured)
    for world, first, last in (
        ("aggregations-1", 0, 2),
        ("aggregations-1", 4, 8),
        ("aggregations-2", 0, 3),
        ("aggregations-3", 0, 6),
        ("joins-1", 0, 2),
        ("joins-1", 2, 5),
        ("joins-2", 0, 4),
        ("joins-3", 0, 8),
        ("by-hand", 0, 6),
        ("by-hand", 6, 12),
        ("by-hand", 12, 18),
        ("joins-1", 5, 8),
        ("aggregations-1", 10, 16),
        ("aggregations-2", 5, 9),
    )
    if world in WORLDS
    for measured in ("nothing", "many", "few")
}


@pytest.mark.parametrize("case", CASES)
def test_rules(case: str, golden: Callable[[str, str], None]) -> None:
    golden(f"rules/{case}.txt", "\n".join(_told(_asked(*CASES[case]))))


def test_every_file_has_its_case() -> None:
    assert {file.stem for file in FILES.glob("*.txt")} == CASES.keys()


def _asked(world: str, first: int, last: int, measured: str) -> PlanInput:
    """`many`: groupings make few rows fewer, joins find many partners; `few`: the contrary."""
    recorded = WORLDS[world]
    running = [RunningQuery(f"{q.name}@{i}", q) for i, q in enumerate(recorded.queries)][first:last]
    asked = PlanInput(tuple(running), recorded.streams, recorded.tables, settings=PlanSettings(3))
    plan = make_plan(asked)
    if measured == "nothing":
        return asked
    ratio, partners = (1.0, 8.0) if measured == "many" else (0.01, 0.25)
    edges = [edge for ordered in plan.joins.ordered.values() for edge in ordered.edges]
    pairs = sorted({pair for a, b, key in edges for pair in ((a, b, key), (b, a, key))})
    joins = JoinLoad(matches=dict.fromkeys(pairs, partners))
    return replace(asked, measurements=PlanMeasurements({id_: GroupingLoad(ratio) for id_ in plan.groupings}, joins))


def _told(asked: PlanInput) -> Iterator[str]:
    yield from (f"-- {running.id}: {' '.join(running.query.text.split())}" for running in asked.queries)
    draft = Draft(asked)
    for rule in RULES:
        before, draft = draft, rule(draft, NOTHING)
        was, is_ = list(_shown(before)), list(_shown(draft))
        yield ""
        yield rule.__name__
        yield from (f"  - {line}" for line in was if line not in is_)
        yield from (f"  + {line}" for line in is_ if line not in was)
    yield ""


def _shown(draft: Draft) -> Iterator[str]:
    """The draft, as far as it is there."""
    for name, stream in draft.derived.items():
        yield f"stream {name}: {', '.join(stream.schema.names)}; time {stream.time}"
    for id_, part in draft.parts.items():
        for grouping in part.value.groupings:
            yield f"{id_} asks {grouping.id} for {', '.join(p.name for p in grouping.partials)}"
        for asked in part.value.asked:
            yield f"{id_} uses of {asked.stream}: {', '.join(asked.uses) or 'nothing'}"
    for id_, join in draft.joins.items():
        for edge, (left, right) in join.value.edges.items():
            yield f"{id_} joins {edge[0]} by {', '.join(left)} with {edge[1]} by {', '.join(right)}"
    for name, share in draft.shares.items():
        for column in share.value.computed.values():
            users = ", ".join(share.value.users.get(column.name, ()))
            yield f"{name} computes {column.name} as {column.expr.sql} for {users}"
    for id_, grouped in draft.groupings.items():
        g = grouped.value
        yield f"grouping {id_} of {g.stream} by ({', '.join((*g.keys, *g.values))}), slices of {g.slice_us} us"
    yield from _shown_streams(draft)
    yield from _shown_joins(draft)
    yield from _shown_plan(draft.plan)


def _shown_streams(draft: Draft) -> Iterator[str]:
    for of_stream in draft.rolled_up.values():
        yield from (f"{coarse} is rolled up from {fine}" for coarse, fine in of_stream.chosen.value.items())
    for name, whole in draft.sent_whole.items():
        if whole.value:
            yield f"{name} sends rows whole for {', '.join(whole.value)}"
    for name, planned in draft.planned.items():
        plan = planned.value.plan
        yield f"{name} reads {', '.join(plan.columns)}; makes {', '.join(plan.groupings) or 'nothing'}"
        if plan.shipped:
            yield f"{name} sends {', '.join(plan.shipped_columns)}"


def _shown_joins(draft: Draft) -> Iterator[str]:
    if draft.formed is not None:
        yield from (f"cohort of {', '.join(ids)}" for ids in draft.cohorts)
        yield from draft.formed.value.notes
    for orders in draft.orders.values():
        for (id_, start), order in orders.value.orders.items():
            yield f"{id_}: rows of {start} find {', then '.join(order)}"
    for kept in draft.kept.values():
        for m in kept.value:
            yield f"{m.id} keeps {' with '.join(m.relations)} for {', '.join(m.queries)}"
    for grown in draft.grown.values():
        for tree in grown.value.cohort.trees:
            for node in tree.nodes():
                moved = ", in another slot" if node.moves else ""
                yield f"{tree.relation}: {node.key[0][0]} finds {node.relation} by {node.index}{moved}"
    for name, store in draft.join_plan.stores.items():
        yield f"store {name}: {', '.join(store.columns)}; by {', '.join(i.id for i in store.indexes)}"


def _shown_plan(plan: Plan) -> Iterator[str]:
    if plan.streams:
        yield f"{len(plan.groupings)} groupings, {len(plan.members)} members, {plan.slots} slots"
    yield from (f"{key} is dealt out by {name}" for key, name in plan.partitioners.items())
    yield from (f"{key} follows {leader}" for key, leader in plan.co_located_with.items())
    if plan.id:
        yield f"the plan is {plan.id}"
