"""check_plan: nothing is wrong with plans as they are made, and each thing that can be is named by rule and thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from thalweg.errors import PlanRefusedError
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Equality, Join, KeyPart, Relation, TimeBound
from thalweg.model.plan import Grouping, Plan, StreamPlan
from thalweg.model.plan_input import GroupingLoad, Placement, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.probe import Cohort, Store
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window, tumbling
from thalweg.optimize.check_plan import check_plan, what_is_broken
from thalweg.optimize.draft import NOTHING
from thalweg.optimize.planner import make_plan, plan_next

SECOND = 1_000_000
FIELDS = tuple(Field(*of) for of in (("ts", "timestamp"), ("a", "int"), ("b", "int"), ("v", "bigint")))
STREAMS = {name: Stream(name, Schema(FIELDS), "ts", 0, SourceSpec("memory", {})) for name in ("s", "l", "r")}
V = Expr('"v"', "bigint", ("v",))


def windowed(name: str, keys: str, *aggregates: Aggregate, emit: str = "final", partitioner: str = "auto") -> Query:
    outputs = (Output("n", Expr('"a0"', "bigint", ("a0",))),)
    by = tuple(Expr(quote(key), "int", (key,)) for key in keys)
    where = Expr('("v" < 7)', "boolean", ("v",))
    options = (("partitioner", partitioner),)
    return Query(name, "", "s", outputs, where, tumbling(10 * SECOND), by, aggregates, emit=emit, options=options)


COUNT, MEDIAN = Aggregate("count_all", (), "bigint"), Aggregate("percentile", (V,), "double", parameters=(0.5,))


def joined(name: str) -> Query:
    def side(relation: str) -> KeyPart:
        return KeyPart(relation, Expr('"a"', "int", ("a",)))

    join = Join(
        (Relation("l", "l"), Relation("r", "r")), (Equality(side("l"), side("r")),), (TimeBound("l", "r", 0, 9),)
    )
    outputs = (Output("x", Expr('("l.v" + 1)', "bigint", ("l.v",))), Output("y", Expr('"r.v"', "bigint", ("r.v",))))
    return Query(name, "", "j_lr", outputs, join=join)


QUERIES = (
    windowed("fine", "ab", Aggregate("sum", (V,), "bigint")),
    windowed("coarse", "a", Aggregate("min", (V,), "bigint")),
    windowed("median", "b", MEDIAN),
    windowed("shown", "b", COUNT, emit="updates"),
    Query("plain", "", "s", (Output("v", V),), Expr('("a" > 1)', "boolean", ("a",))),
    joined("pairs"),
    joined("more"),
)
RUNNING = tuple(RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(QUERIES))
GIVEN = PlanInput(RUNNING, STREAMS, settings=PlanSettings(4, 16))


def _whole() -> PlanInput:
    """With rows of two route keys sent whole, of which one follows the other."""
    values = [windowed(f"by_{key}", key, MEDIAN) for key in ("a", "b")]
    given = replace(GIVEN, queries=(*RUNNING[:2], *(RunningQuery(q.name, q) for q in values)))
    loads = {id_: GroupingLoad(1.0) for id_, g in make_plan(given).groupings.items() if g.values}
    placement = Placement({"s(a)": [0] * 16}, {"s(a)": "s(b)"}, {"s(a)": "hash", "s(b)": "hash"}, {"s(a)": [3]})
    return replace(given, measurements=PlanMeasurements(loads), decisions=placement)


PLAN, WHOLE = make_plan(GIVEN), make_plan(_whole())


def grouping(plan: Plan, *keys: str, values: bool = False) -> Grouping:
    return next(g for g in plan.groupings.values() if g.keys == keys and bool(g.values) == values)


def with_grouping(plan: Plan, changed: Grouping) -> Plan:
    return replace(plan, groupings={**plan.groupings, changed.id: changed})


def with_stream(plan: Plan, name: str, **changes: Any) -> Plan:
    return replace(plan, streams={**plan.streams, name: replace(plan.streams[name], **changes)})


def with_joins(**changes: Any) -> Plan:
    return replace(PLAN, joins=replace(PLAN.joins, **changes))


def with_store(name: str, change: Callable[[Store], Store]) -> Plan:
    return with_joins(stores={**PLAN.joins.stores, name: change(PLAN.joins.stores[name])})


def with_cohort(change: Callable[[Cohort], Cohort]) -> Plan:
    (cohort,) = PLAN.joins.cohorts.values()
    changed = change(cohort)
    return with_joins(cohorts={changed.id: changed})


def test_plans_as_they_are_made_are_not_refused() -> None:
    assert list(what_is_broken(PLAN)) == list(what_is_broken(WHOLE)) == []
    assert grouping(PLAN, "a").rolled_up_from == grouping(PLAN, "a", "b").id
    assert WHOLE.co_located_with == {"s(a)": "s(b)"}
    assert any(stream.shipped for stream in WHOLE.streams.values())


def _member(name: str, **changes: Any) -> Plan:
    members = [replace(m, **changes) if m.query.startswith(name) else m for m in PLAN.members]
    return replace(PLAN, members=tuple(members))


def _stays(plan: Plan) -> Plan:
    bound = next(g for g in plan.groupings.values() if g.keys == ("b",) and not g.values)
    return replace(plan, partitioners={bound.route_key: "local"})


def _without(stream: StreamPlan, column: str) -> dict[str, Any]:
    return {"columns": tuple(c for c in stream.columns if c != column)}


def _not_kept(store: Store, column: str) -> Store:
    return replace(store, columns=tuple(c for c in store.columns if c != column))


COARSE, FINE = grouping(PLAN, "a"), grouping(PLAN, "a", "b")
S, WHOLE_S = PLAN.streams["s"], WHOLE.streams["s"]
MAIN = PLAN.members[1].main
CUT = Window(7 * SECOND, 7 * SECOND)
BROKEN: dict[str, tuple[str, Callable[[], Plan]]] = {
    "a grouping under another name": ("split_aggregates", lambda: with_grouping(PLAN, replace(FINE, keys=("b",)))),
    "a grouping of no stream": (
        "share_expressions",
        lambda: replace(PLAN, streams={n: s for n, s in PLAN.streams.items() if n != "s"}),
    ),
    "a window that cuts slices": (
        "share_slices",
        lambda: with_grouping(PLAN, replace(COARSE, windows=(*COARSE.windows, CUT))),
    ),
    "rolled up from nothing": ("roll_up", lambda: with_grouping(PLAN, replace(COARSE, rolled_up_from="g_none"))),
    "rolled up from one without its keys": (
        "roll_up",
        lambda: with_grouping(PLAN, replace(COARSE, rolled_up_from=grouping(PLAN, "b").id)),
    ),
    "rolled up from other slices": ("roll_up", lambda: with_grouping(PLAN, replace(FINE, slice_us=3 * SECOND))),
    "rolled up from one without its partials": (
        "roll_up",
        lambda: with_grouping(PLAN, replace(FINE, partials_for_others=())),
    ),
    "a member of no grouping": ("share_slices", lambda: _member("coarse", main=replace(MAIN, grouping="g"))),
    "a member whose presence nobody counts": ("share_slices", lambda: _member("coarse", present="p_none")),
    "a member with other keys": ("split_aggregates", lambda: _member("coarse", keys=(("b", "int"),))),
    "a member with another window": ("share_slices", lambda: _member("coarse", window=CUT)),
    "updates of rows that stay": ("choose_partitioners", lambda: _stays(PLAN)),
    "a grouping that is not made": ("prune_columns", lambda: with_stream(PLAN, "s", groupings=S.groupings[1:])),
    "a coarse grouping first": ("prune_columns", lambda: with_stream(PLAN, "s", groupings=S.groupings[::-1])),
    "a column that is not read": ("prune_columns", lambda: with_stream(PLAN, "s", **_without(S, "b"))),
    "a filter that is not computed": ("prune_columns", lambda: with_stream(PLAN, "s", computed=())),
    "a column that is not sent": ("prune_columns", lambda: with_stream(WHOLE, "s", shipped_columns=("ts",))),
    "too few key groups": ("assign_slots", lambda: replace(PLAN, assignment={"s(a)": (0, 1)})),
    "a slot that does not exist": ("assign_slots", lambda: replace(PLAN, assignment={"s(a)": (4,) * 16})),
    "a shared key group that does not exist": ("assign_slots", lambda: replace(PLAN, spread={"s(a)": (16,)})),
    "partials dealt out": ("choose_partitioners", lambda: replace(PLAN, partitioners={"s(a, b)": "dalton"})),
    "a follower of nobody": ("follow_route_keys", lambda: replace(WHOLE, co_located_with={"s(a)": "s(x)"})),
    "a follower that is dealt out": ("follow_route_keys", lambda: replace(WHOLE, partitioners={"s(a)": "dalton"})),
    "a store without its time": ("lay_out_stores", lambda: with_store("l", lambda s: _not_kept(s, "ts"))),
    "a store without a key": ("lay_out_stores", lambda: with_store("l", lambda s: _not_kept(s, "a"))),
    "a store without what is wanted": ("lay_out_stores", lambda: with_store("l", lambda s: _not_kept(s, "v"))),
    "a store without its index": ("lay_out_stores", lambda: with_store("r", lambda s: replace(s, indexes=()))),
    "an index under another name": (
        "split_joins",
        lambda: with_store("l", lambda s: replace(s, indexes=(replace(s.indexes[0], id="i_none"),))),
    ),
    "a store of columns that nobody reads": (
        "prune_columns",
        lambda: with_stream(PLAN, "l", **_without(PLAN.streams["l"], "v")),
    ),
    "a store of no stream": ("share_expressions", lambda: replace(PLAN, streams={"s": S, "r": PLAN.streams["r"]})),
    "a cohort without its store": ("lay_out_stores", lambda: with_joins(stores={"l": PLAN.joins.stores["l"]})),
    "a cohort under another name": ("form_cohorts", lambda: with_cohort(lambda c: replace(c, id="group_none"))),
    "a bit for two queries": ("form_cohorts", lambda: with_cohort(lambda c: replace(c, queries=c.queries[:1] * 2))),
    "too many queries": (
        "form_cohorts",
        lambda: with_cohort(lambda c: replace(c, queries=tuple(str(i) for i in range(65)))),
    ),
    "too few stages": ("grow_probe_trees", lambda: with_joins(stages=0)),
    "a key of another length": (
        "grow_probe_trees",
        lambda: with_cohort(
            lambda c: replace(
                c, trees=tuple(replace(t, children=tuple(replace(n, key=()) for n in t.children)) for t in c.trees)
            )
        ),
    ),
    "a flag of a query that does not run": ("form_cohorts", lambda: with_joins(cohorts={})),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_named(what: str) -> None:
    rule, broken = BROKEN[what]
    assert rule in [found.rule for found in what_is_broken(broken())]


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_found_beside_what_was_looked_at_before(what: str) -> None:
    """Parts that are the same are not looked at again; those that have changed are."""
    rule, broken = BROKEN[what]
    plan = broken()
    before = WHOLE if plan.members == WHOLE.members else PLAN
    assert rule in [found.rule for found in what_is_broken(plan, before)]


def test_more_route_keys_than_a_mask_has_bits() -> None:
    names = [f"k{i}" for i in range(65)]
    fields = (*FIELDS, *(Field(name, "int") for name in names))
    streams = {"s": replace(STREAMS["s"], schema=Schema(fields))}
    queries = [windowed(name, "a", COUNT) for name in names]
    queries = [replace(q, keys=(Expr(quote(q.name), "int", (q.name,)),)) for q in queries]
    plan = make_plan(PlanInput([RunningQuery(q.name, q) for q in queries], streams))
    ids = plan.streams["s"].groupings
    sent = with_stream(plan, "s", shipped=ids, shipped_columns=tuple(plan.streams["s"].columns))
    assert "send_rows_whole" in [found.rule for found in what_is_broken(sent)]


def test_the_error_names_rule_thing_and_plan() -> None:
    draft = plan_next(GIVEN, NOTHING)
    broken = replace(draft, plan=BROKEN["a member whose presence nobody counts"][1]())
    with pytest.raises(PlanRefusedError) as refused:
        check_plan(broken, NOTHING)
    assert all(word in str(refused.value) for word in ("share_slices", "coarse@1", "p_none", PLAN.id))
