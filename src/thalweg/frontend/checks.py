"""What is refused before Spark sees a text: unknown functions, shapes that a stream cannot serve, sizes."""

from __future__ import annotations

from collections.abc import Collection

from thalweg.errors import (
    bad_window,
    needs_window,
    nested_too_deeply,
    not_supported,
    place_without_window,
    query_as_stream,
    too_many,
)
from thalweg.frontend.aggregates import check_before_spark, check_unknown_to_spark, is_aggregate, type_told
from thalweg.frontend.code import MOST_DEEP
from thalweg.frontend.elsewhere import function_hint
from thalweg.frontend.functions import WINDOW, check_arity, find
from thalweg.frontend.scope import Frame
from thalweg.frontend.tree import Call, In, Literal, Node, Select, depth, nodes_of, roots_of, walk
from thalweg.frontend.windows import read_window

MOST_COLUMNS = 2_000
MOST_LISTED = 10_000


def check_sources(tree: Select, text: str, known: Collection[str], queries: Collection[str]) -> None:
    names = {name.lower() for name in known}
    for source in tree.sources:
        if source.name in queries and source.name.lower() not in names:
            raise query_as_stream(source.name, text, source.span)


def check_size(tree: Select, text: str) -> None:
    """Spark's analyser takes seconds for more of these, and so does every plan."""
    if len(tree.items) > MOST_COLUMNS:
        raise too_many("columns", len(tree.items), MOST_COLUMNS, text, tree.items[MOST_COLUMNS].expr.span)
    for node in nodes_of(tree):
        if isinstance(node, In) and len(node.options) > MOST_LISTED:
            raise too_many("values of IN", len(node.options), MOST_LISTED, text, node.arg.span)


def check_depth(tree: Select, text: str) -> None:
    """Spark goes down every tree that it is given, on a stack that ends; so does the compiler."""
    for root in roots_of(tree):
        if depth(root) > MOST_DEEP:
            raise nested_too_deeply(text, root.span)


def check_functions(tree: Select, text: str) -> None:
    for node in nodes_of(tree):
        if isinstance(node, Call) and type_told(node) is not None:
            check_unknown_to_spark(node, text)
        if not isinstance(node, Call) or is_aggregate(node) or node.name == WINDOW:
            continue
        if node.name == "session_window":
            raise not_supported("session_window", text, node.span, function_hint("session_window"))
        check_arity(find(node, text), node, text)


def check_shape(tree: Select, frame: Frame, text: str) -> None:
    """What Spark would run over a bounded table but a stream cannot serve."""
    nodes = list(nodes_of(tree, conditions=not frame.joins))
    time = next(iter(frame.final.times.values())).time
    aggregate = next((node for node in nodes if is_aggregate(node)), None)
    window = next((n for n in nodes if isinstance(n, Call) and n.name == WINDOW), None)
    if tree.group and window is None and any(_is_place(node) for node in tree.group):
        raise place_without_window(time, text, tree.group_span or (0, 1))
    if tree.group and window is None:
        raise needs_window("GROUP BY", time, text, tree.group_span or (0, 1))
    if not tree.group:
        if aggregate is not None:
            raise needs_window("an aggregate", time, text, aggregate.span)
        if window is not None:
            raise not_supported("window() outside GROUP BY", text, window.span, "group by it")
        if tree.having is not None:
            raise needs_window("HAVING", time, text, tree.having.span)
        for what, span in (("ORDER BY", tree.order_span), ("LIMIT", tree.limit_span)):
            if span is not None:
                raise needs_window(what, time, text, span)
    if tree.limit is not None and not tree.order:
        raise not_supported(
            "LIMIT without ORDER BY", text, tree.limit_span or (0, 1),
            "say which rows of each window come first: ORDER BY ... LIMIT n",
        )  # fmt: skip
    if tree.where is not None and (found := next((n for n in walk(tree.where) if is_aggregate(n)), None)):
        raise not_supported("an aggregate in WHERE", text, found.span, "use HAVING")


def _is_place(node: Node) -> bool:
    return isinstance(node, Literal) and node.type == "int"


def check_names(tree: Select, frame: Frame) -> None:
    for root in (*(item.expr for item in tree.items), *tree.group):
        frame.final.check(root)
    times: set[str] = set()
    for node in nodes_of(tree, conditions=not frame.joins):
        if not isinstance(node, Call):
            continue
        check_before_spark(frame.final.compiler, node)
        if node.name == WINDOW:
            times.add(read_window(node, frame.final)[1])
            if len(times) > 1:
                raise bad_window("a query has one window, over one event time", frame.final.text, node.span)
