"""What Spark's analyser says of a SELECT: names and types of results. A type that we work out must be the same."""

from __future__ import annotations

from typing import Protocol

from thalweg.errors import SqlError, moved, not_supported
from thalweg.frontend.aggregates import type_told
from thalweg.frontend.joins import same_windows
from thalweg.frontend.scope import Frame, Scope
from thalweg.frontend.standins import stand_in
from thalweg.frontend.templates import spaced, template_of, template_of_expression
from thalweg.frontend.tree import Call, Item, Select, Span, nodes_of, walk
from thalweg.model.analysis import Columns, Learned
from thalweg.model.query import Query

_WHERE_IS_RIGHT: Columns = []


class SelectAnalyzer(Protocol):
    """Spark's analyser, seen from here."""

    def analyze(self, sql: str) -> Columns:
        """(name, Spark type) of each result column of a SELECT over the registered streams."""
        ...

    @property
    def learned(self) -> Learned:
        """What follows from its answers, as long as they hold; another mapping from then on."""
        ...


def for_spark(text: str, tree: Select) -> str:
    """The text without what is Thalweg's own. Everything else keeps its place."""
    withins = [source.within for source in tree.sources] + [tree.within]
    for span in (within.span for within in withins if within is not None):
        text = _replaced(text, span, "")
    if len(tree.sources) > 1:
        for node in same_windows(tree):
            text = _replaced(text, node.span, "TRUE")
    return text


def _replaced(text: str, span: Span, word: str) -> str:
    start, end = span
    blank = "".join(char if char == "\n" else " " for char in text[start + len(word) : end])
    return text[:start] + word + blank + text[end:]


def analyze(spark: str, tree: Select, frame: Frame, select: str, analyzer: SelectAnalyzer) -> Columns:
    """Names and types of the result as Spark sees it, with aggregates of the same type in the place of users' own.

    Spark is asked once for each template: of a text whose parts it has found right, the answer is known."""
    calls = [n for n in nodes_of(tree, conditions=False) if isinstance(n, Call) and type_told(n) is not None]
    windows = [n for n in nodes_of(tree, conditions=False) if isinstance(n, Call) and n.shown]
    types = tuple(type_told(call) or "" for call in calls)
    template, learned = template_of(tree, frame, spark, types), analyzer.learned
    columns = template.known(learned)
    if columns is None:
        shown = stand_in(spark, zip(calls, types, strict=True), windows)
        try:
            columns = analyzer.analyze(shown.text)
        except SqlError as error:
            raise moved(shown.back(error), select, 0) from None
        template.learn(columns, learned)
    if calls:
        columns = [_renamed(item, column, select) for item, column in zip(tree.items, columns, strict=False)]
    return columns


def _renamed(item: Item, column: tuple[str, str], text: str) -> tuple[str, str]:
    """A result without a name of its own that calls a user's aggregate is named by its text."""
    called = any(type_told(node) is not None for node in walk(item.expr))
    if item.alias is not None or not called:
        return column
    return " ".join(text[slice(*item.expr.span)].split()), column[1]


def check_types(query: Query, columns: Columns, frame: Frame, analyzer: SelectAnalyzer) -> None:
    """Every type this package worked out must be the one Spark works out; a difference is refused."""
    text = frame.final.text
    for (column, type_), output in zip(columns, query.outputs, strict=True):
        if not _same(type_, output.expr.type):
            raise not_supported(
                f"'{column}'", text, (0, len(text)),
                detail=f"Spark types it as {type_}, Thalweg as {output.expr.type}",
            )  # fmt: skip
    for scope in frame.scopes:
        _check_scope(scope, analyzer)


def check_typed(query: Query, tree: Select, text: str) -> None:
    """A column of nothing but NULL has no type in which it could be kept or written."""
    hint = "write CAST(NULL AS STRING), or of any other type"
    if any(expr.type == "void" for expr in query.keys):
        raise not_supported("to group by NULL", text, tree.group_span or (0, len(text)), hint)
    items = tree.items if len(tree.items) == len(query.outputs) else ()
    for at, output in enumerate(query.outputs):
        if output.expr.type == "void":
            span = items[at].expr.span if items else (0, len(text))
            raise not_supported(f"'{output.name}', which is NULL without a type,", text, span, hint)


def _check_scope(scope: Scope, analyzer: SelectAnalyzer) -> None:
    typed = scope.compiler.typed
    if not typed:
        return
    for text, spark in sorted(_types_of(scope, analyzer).items()):
        ours, node = typed[text]
        if not _same(spark, ours):
            detail = f"Spark types it as {spark}, Thalweg as {ours}"
            raise not_supported(f"'{text}'", scope.text, node.span, detail=detail)


def _types_of(scope: Scope, analyzer: SelectAnalyzer) -> dict[str, str]:
    """Of each compound expression, by its text, the type that Spark gives it. Only what is new to it is asked."""
    typed, learned, source = scope.compiler.typed, analyzer.learned, spaced(scope.source)
    keys = {text: ("type", source, template_of_expression(node, scope.text)) for text, (_, node) in typed.items()}
    new = sorted(text for text, key in keys.items() if key not in learned)
    if new:
        listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(new))
        for text, column in zip(new, analyzer.analyze(f"SELECT {listed} FROM {scope.source}"), strict=True):
            learned[keys[text]] = [column]
    return {text: learned[key][0][1] for text, key in keys.items()}


def _same(spark: str, ours: str) -> bool:
    return spark == ours or (spark.startswith(("varchar", "char")) and ours == "string")
