"""Unit: what EXPLAIN says of join orders, and the pictures it draws."""

from __future__ import annotations

import re
from dataclasses import replace

from thalweg.model.expr import Expr, quote
from thalweg.model.join import Equality, Join, KeyPart, Relation, TimeBound, joined_column
from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.probe_order import CohortCost, OrderingReport, ProbeOrder
from thalweg.model.query import Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.observe.drawing import Drawing, draw, to_graphviz, to_mermaid
from thalweg.observe.explain_joins import explain_join, explain_joins
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000
SCHEMA = Schema((Field("k", "bigint"), Field("x", "bigint"), Field("ts", "timestamp")))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "abc"}
NOTHING = Manifest(-1, 256, "test")
INTO_PAIR: dict[str, ProbeOrder] = {"a": (("b", "c"),), "b": (("c",), ("a",)), "c": (("b",), ("a",))}


def part(relation: str, column: str) -> KeyPart:
    return KeyPart(relation, Expr(quote(column), "bigint", (column,)))


def query(name: str, *edges: tuple[str, str, str]) -> Query:
    streams = sorted({s for a, b, _ in edges for s in (a, b)})
    join = Join(
        tuple(Relation(s, s) for s in streams),
        tuple(Equality(part(a, c), part(b, c)) for a, b, c in edges),
        tuple(TimeBound(a, b, -SECOND, SECOND) for a, b, _ in edges),
    )
    column = joined_column(streams[0], "k")
    return Query(name, "", f"j_{streams}", (Output("k", Expr(quote(column), "bigint", (column,))),), join=join)


QUERIES = {
    "chain@1": query("chain", ("a", "b", "k"), ("b", "c", "x")),
    "pair@2": query("pair", ("a", "b", "k")),
}


def planned() -> Plan:
    """Rows of a look into (b ⋈ c), which is kept and complete."""
    registered = [RunningQuery(id_, q) for id_, q in QUERIES.items()]
    load = JoinLoad(orders={"chain@1": INTO_PAIR})
    given = PlanInput(registered, STREAMS, measurements=PlanMeasurements(joins=load), settings=PlanSettings(2))
    (kept,) = make_plan(given).joins.intermediates
    ready = replace(load, ready={kept: ["chain@1"]})
    return make_plan(replace(given, measurements=PlanMeasurements(joins=ready)))


def report(plan: Plan, **fields: object) -> OrderingReport:
    (cohort,) = plan.joins.cohorts.values()
    known = OrderingReport(
        epoch=6, asked="after batch 31, because x", answer="left as they are: y", switches=2, switched=24, reason="z",
        changes=("chain: rows of b look into c, then a; before: a, then c",),
        groups=(CohortCost(cohort.queries, 300.0, 400.0),), sent={cohort.id: 1234.0},
    )  # fmt: skip
    return replace(known, **fields)  # type: ignore[arg-type]


def test_costs_and_decisions_are_told() -> None:
    plan = planned()
    lines = explain_joins(plan, QUERIES, NOTHING, report(plan))
    text = "\n".join(lines)
    assert "  sends 1,234 tuples a batch" in lines
    assert "  expected: 300 tuples a batch; each query planned by itself: 400 (25% saved)" in lines
    assert "join orders were planned after batch 31, because x; epoch 7 is running" in lines
    assert "  left as they are: y" in lines
    assert "  last changed in batch 24: z" in lines
    assert "    chain: rows of b look into c, then a; before: a, then c" in lines
    assert "─▶ (b ⋈ c) where" in text
    assert "store of (b ⋈ c), joined: chain" in text


def test_long_lists_of_changes_are_cut() -> None:
    plan = planned()
    lines = explain_joins(plan, QUERIES, NOTHING, report(plan, changes=tuple(f"q{i}" for i in range(20))))
    assert "    q11" in lines
    assert "    q12" not in lines
    assert "    and 8 more" in lines


def test_before_anything_was_asked_it_says_so() -> None:
    text = "\n".join(explain_joins(planned(), QUERIES, NOTHING, OrderingReport()))
    assert "join orders follow what was measured so far; epoch 1 is running" in text
    assert "tuples a batch" not in text


def test_costs_of_groups_that_are_no_more_are_not_told() -> None:
    plan = planned()
    gone = report(plan, groups=(CohortCost(("chain@1",), 1.0, 2.0),), sent={})
    assert not any("tuples a batch" in line for line in explain_join(plan, "chain@1", QUERIES, NOTHING, gone))


def test_a_picture_has_stores_probes_and_queries() -> None:
    drawing = draw(planned(), QUERIES, NOTHING)
    kinds = [kind for kind, _ in drawing.boxes.values()]
    assert kinds.count("query") == 2
    assert kinds.count("row") == 3
    assert kinds.count("store") == 4
    labels = {label for _, label in drawing.boxes.values()}
    assert "(b ⋈ c)\nkept for chain" in labels
    assert {kind for kind, _ in drawing.lines.values()} == {"flow", "look", "keep"}
    assert all(end in drawing.boxes for line in drawing.lines for end in line)


def test_a_picture_of_one_query_leaves_out_the_others() -> None:
    plan = planned()
    drawing = draw(plan, QUERIES, NOTHING, "pair@2")
    labels = {label for _, label in drawing.boxes.values()}
    assert "pair" in labels
    assert "chain" not in labels
    assert not any(
        label.startswith("c") or "(b ⋈ c)" in label.split("\n")[0] for label in labels if "row" not in label
    )


def test_every_query_is_reached_from_a_stream() -> None:
    drawing = draw(planned(), QUERIES, NOTHING)
    reached = {name for name, (kind, _) in drawing.boxes.items() if kind == "store"}
    for _ in drawing.boxes:
        reached |= {end for (start, end) in drawing.lines if start in reached}
    assert reached == set(drawing.boxes)


def test_mermaid_is_well_formed() -> None:
    lines = to_mermaid(draw(planned(), QUERIES, NOTHING)).splitlines()
    assert lines[0] == "flowchart LR"
    box = re.compile(r'  n\d+(\[\("[^"]*"\)\]|>"[^"]*"\]|\["[^"]*"\]|\(\["[^"]*"\]\))')
    line = re.compile(r"  n\d+ (-->|-\.->|==>)(\|[a-z ]+\|)? n\d+")
    assert all(box.fullmatch(text) or line.fullmatch(text) for text in lines[1:])


def test_labels_are_escaped() -> None:
    drawing = Drawing()
    drawing.line(drawing.box("x", "probe", 'a "b" <c> #d\\\nnext'), drawing.box("y", "query", "q"), label="to there")
    assert to_mermaid(drawing).splitlines()[1:] == [
        '  n0["a #quot;b#quot; #lt;c#gt; #35;d\\<br/>next"]',
        '  n1(["q"])',
        "  n0 -->|to there| n1",
    ]
    assert to_graphviz(drawing).splitlines()[2:] == [
        '  n0 [shape=box, label="a \\"b\\" <c> #d\\\\\\nnext"];',
        '  n1 [shape=oval, label="q"];',
        '  n0 -> n1 [style=solid, label="to there"];',
        "}",
    ]
