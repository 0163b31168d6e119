"""EXPLAIN as a picture: streams and stores, the probes that arriving rows make, the queries that end there.

A drawing is made once and written as Mermaid or Graphviz text.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan
from thalweg.model.probe import Cohort, ProbeNode
from thalweg.model.query import Query, query_name
from thalweg.observe.explain_joins import equal_columns, title_of
from thalweg.observe.words import listed


@dataclass
class Drawing:
    """Boxes by name, in the order in which they were drawn, and the lines between them."""

    boxes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """name -> (kind, label): store | row | probe | query."""
    lines: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(from, to) -> (kind, label): flow | look | keep."""

    def box(self, name: str, kind: str, label: str) -> str:
        self.boxes.setdefault(name, (kind, label))
        return name

    def line(self, start: str, end: str, kind: str = "flow", label: str = "") -> None:
        self.lines.setdefault((start, end), (kind, label))


def draw(plan: Plan, queries: Mapping[str, Query], manifest: Manifest, only: str | None = None) -> Drawing:
    """All queries, or one."""
    drawing = Drawing()
    rows: dict[str, int] = {}
    for bucket in manifest.stores:
        rows[bucket.relation] = rows.get(bucket.relation, 0) + bucket.section.rows
    for id_, query in queries.items():
        if only in (None, id_) and all(id_ not in cohort.queries for cohort in plan.joins.cohorts.values()):
            for stream in query.streams:
                source = drawing.box(f"store {stream}", "store", _held(plan, stream, rows))
                drawing.line(source, _query(drawing, id_, query))
    for cohort in plan.joins.cohorts.values():
        if only is None or only in cohort.queries:
            _draw_cohort(drawing, plan, cohort, queries, rows, only)
    return drawing


def _draw_cohort(
    drawing: Drawing,
    plan: Plan,
    cohort: Cohort,
    queries: Mapping[str, Query],
    rows: Mapping[str, int],
    only: str | None,
) -> None:
    mask = -1 if only is None else 1 << cohort.bit(only)
    for tree in cohort.trees:
        start = f"{cohort.id} {tree.relation}"
        for place, child in enumerate(tree.children):
            if child.queries & mask:
                drawing.box(start, "row", f"a row of {tree.relation}")
                source = drawing.box(f"store {tree.stream}", "store", _held(plan, tree.stream, rows))
                drawing.line(source, start)
                _draw_node(drawing, plan, cohort, child, start, f"{start} {place}", queries, rows, mask)


def _draw_node(
    drawing: Drawing,
    plan: Plan,
    cohort: Cohort,
    node: ProbeNode,
    before: str,
    name: str,
    queries: Mapping[str, Query],
    rows: Mapping[str, int],
    mask: int,
) -> None:
    equal = " and ".join(equal_columns(plan, cohort, node))
    probe = drawing.box(name, "probe", f"{title_of(plan, node.relation)}\n{equal}")
    drawing.line(before, probe, label="to another slot" if node.moves else "")
    store = drawing.box(f"store {node.stream}", "store", _held(plan, node.stream, rows))
    drawing.line(store, probe, "look")
    for kept, _ in node.keeps:
        drawing.line(probe, drawing.box(f"store {kept}", "store", _held(plan, kept, rows)), "keep")
    for _, ended in node.complete:
        for bit, id_ in enumerate(cohort.queries):
            if ended & mask & (1 << bit) and id_ in queries:
                drawing.line(probe, _query(drawing, id_, queries[id_]))
    for place, child in enumerate(node.children):
        if child.queries & mask:
            _draw_node(drawing, plan, cohort, child, probe, f"{name} {place}", queries, rows, mask)


def _query(drawing: Drawing, id_: str, query: Query) -> str:
    return drawing.box(f"query {id_}", "query", query.name)


def _held(plan: Plan, store: str, rows: Mapping[str, int]) -> str:
    held = f"\n{rows[store]:,} rows" if rows.get(store) else ""
    m = plan.joins.intermediates.get(store)
    users = f"\nkept for {listed([query_name(q) for q in m.queries])}" if m is not None else ""
    return f"{title_of(plan, store)}{held}{users}"


# -- as text

_MERMAID_BOXES = {
    "store": '[("{}")]',
    "row": '>"{}"]',
    "probe": '["{}"]',
    "query": '(["{}"])',
}
_MERMAID_LINES = {"flow": "-->", "look": "-.->", "keep": "==>"}
_DOT_BOXES = {"store": "cylinder", "row": "cds", "probe": "box", "query": "oval"}
_DOT_LINES = {"flow": "solid", "look": "dashed", "keep": "bold"}


def to_mermaid(drawing: Drawing) -> str:
    return "\n".join(_mermaid(drawing))


def _mermaid(drawing: Drawing) -> Iterator[str]:
    yield "flowchart LR"
    number = {name: f"n{place}" for place, name in enumerate(drawing.boxes)}
    for name, (kind, label) in drawing.boxes.items():
        # Mermaid takes entities with # for &; a label in quotes may have anything else.
        text = html.escape(label.replace("#", "&num;")).replace("&amp;num;", "#35;").replace("&", "#")
        yield f"  {number[name]}{_MERMAID_BOXES[kind].format(text.replace(chr(10), '<br/>'))}"
    for (start, end), (kind, label) in drawing.lines.items():
        middle = f"|{label}|" if label else ""
        yield f"  {number[start]} {_MERMAID_LINES[kind]}{middle} {number[end]}"


def to_graphviz(drawing: Drawing) -> str:
    return "\n".join(_graphviz(drawing))


def _graphviz(drawing: Drawing) -> Iterator[str]:
    yield "digraph thalweg {"
    yield "  rankdir=LR;"
    number = {name: f"n{place}" for place, name in enumerate(drawing.boxes)}
    for name, (kind, label) in drawing.boxes.items():
        text = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'  {number[name]} [shape={_DOT_BOXES[kind]}, label="{text}"];'
    for (start, end), (kind, label) in drawing.lines.items():
        yield f'  {number[start]} -> {number[end]} [style={_DOT_LINES[kind]}, label="{label}"];'
    yield "}"


FORMS: Mapping[str, Callable[[Drawing], str]] = {"mermaid": to_mermaid, "graphviz": to_graphviz}
