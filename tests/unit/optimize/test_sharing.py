"""The plan: what is shared, what is rolled up, and that it is a function of the queries alone."""

from __future__ import annotations

from thalweg.model.expr import Expr, quote
from thalweg.model.plan_input import GroupingLoad, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window, slice_grid
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "a": "int", "b": "int", "v": "double"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 0, SourceSpec("memory", {}))


def column(name: str) -> Expr:
    return Expr(quote(name), TYPES[name], (name,))


def query(name: str, keys: str, window: Window, where: Expr | None = None) -> RunningQuery:
    outputs = (Output("n", Expr("a0", "bigint", ("a0",))),)
    aggregates = (Aggregate("sum", (column("v"),), "double"),)
    return RunningQuery(name, Query(name, "", "s", outputs, where, window, tuple(map(column, keys)), aggregates))


def plan(*queries: RunningQuery, loads: dict[str, GroupingLoad] | None = None):  # type: ignore[no-untyped-def]
    measured = PlanMeasurements(loads or {})
    return make_plan(PlanInput(queries, {"s": STREAM}, measurements=measured, settings=PlanSettings(2)))


TUMBLING = Window(10 * SECOND, 10 * SECOND)


def test_equal_keys_share_one_grouping_whatever_their_order_and_predicates() -> None:
    where = Expr('"v" > 1', "boolean", ("v",))
    shared = plan(query("x", "ab", TUMBLING), query("y", "ba", Window(20 * SECOND, 5 * SECOND), where))
    assert len(shared.groupings) == 1
    (grouping,) = shared.groupings.values()
    assert grouping.slice_us == 5 * SECOND
    assert len({p.filter for p in grouping.partials}) == 2
    assert shared.streams["s"].columns == ("ts", "a", "b", "v")


def test_a_coarser_grouping_is_rolled_up_while_that_is_cheaper() -> None:
    queries = (query("fine", "ab", TUMBLING), query("coarse", "a", TUMBLING))
    first = plan(*queries)
    (coarse,) = [g for g in first.groupings.values() if g.rolled_up_from]
    assert coarse.keys == ("a",)
    many = plan(*queries, loads={coarse.rolled_up_from: GroupingLoad(0.9)})
    assert not any(g.rolled_up_from for g in many.groupings.values())


def test_slices_are_cut_by_no_window() -> None:
    windows = (Window(60 * SECOND, 60 * SECOND), Window(45 * SECOND, 45 * SECOND, 5 * SECOND))
    width, start = slice_grid(windows)
    assert (width, start) == (5 * SECOND, 0)


def test_the_plan_is_a_function_of_the_queries() -> None:
    queries = (query("x", "ab", TUMBLING), query("y", "a", TUMBLING))
    assert plan(*queries).id == plan(*queries).id
    assert plan(*queries).id != plan(queries[0]).id
