"""SELECT text -> Query: parsed, held against the allow-list, analysed by Spark, compiled.

Order matters. Nothing reaches Spark's analyser before every function and every table has been found on the
list, because a text can do harm there; and nothing is compiled that Spark would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from thalweg.errors import (
    SqlError,
    bad_window,
    expression_too_large,
    moved,
    needs_window,
    nested_too_deeply,
    not_supported,
    place_without_window,
    query_as_stream,
    too_many,
)
from thalweg.frontend.aggregates import check_before_spark, check_unknown_to_spark, is_aggregate, type_told
from thalweg.frontend.code import MOST_DEEP, Code, SizeError
from thalweg.frontend.compile import Compiler
from thalweg.frontend.compile_join import compile_join
from thalweg.frontend.elsewhere import function_hint
from thalweg.frontend.functions import WINDOW, check_arity, find
from thalweg.frontend.group import Grouping
from thalweg.frontend.joins import read_join, same_windows
from thalweg.frontend.lex import only_tokens
from thalweg.frontend.parse import parse_select
from thalweg.frontend.scope import Frame, Scope, read_from
from thalweg.frontend.standins import stand_in
from thalweg.frontend.tree import Call, Column, In, Item, Literal, Node, Select, Span, Star, depth, walk
from thalweg.frontend.windows import read_window
from thalweg.model.expr import Expr
from thalweg.model.join import Join, joined_name
from thalweg.model.own import Definition
from thalweg.model.query import Output, Query, SinkSpec
from thalweg.model.stream import Schema, Stream

MOST_CHARACTERS = 500_000
MOST_COLUMNS = 2_000
MOST_LISTED = 10_000
_NO_TABLES: Mapping[str, Schema] = MappingProxyType({})


class Analyzer(Protocol):
    """Spark's analyser, seen from here."""

    def analyze(self, sql: str) -> list[tuple[str, str]]:
        """(name, Spark type) of each result column of a SELECT over the registered streams."""
        ...


def bind(
    name: str,
    select: str,
    streams: Mapping[str, Stream],
    analyzer: Analyzer,
    *,
    sink: SinkSpec | None = None,
    options: Iterable[tuple[str, str]] = (),
    emit: str = "final",
    tables: Mapping[str, Schema] = _NO_TABLES,
    own: Mapping[str, Definition] | None = None,
    queries: Collection[str] = (),
) -> Query:
    """The query that a SELECT means. Raises SqlError with the place in `select` underlined. `queries`: those there
    are, for who takes one for a stream."""
    if len(select) > MOST_CHARACTERS:
        raise too_many("characters", len(select), MOST_CHARACTERS, select, (0, 1))
    try:
        query = _bind(name, only_tokens(select), streams, analyzer, tables, own, queries)
    except SqlError as error:
        raise moved(error, select, 0) from None
    except RecursionError:
        raise nested_too_deeply(select, (0, len(select))) from None
    except SizeError as reason:
        # Several conditions as one: no single place in the text.
        raise expression_too_large(str(reason), select, (0, len(select))) from None
    return replace(query, text=select, sink=sink or SinkSpec(), options=tuple(options), emit=emit)


def _bind(
    name: str,
    select: str,
    streams: Mapping[str, Stream],
    analyzer: Analyzer,
    tables: Mapping[str, Schema],
    own: Mapping[str, Definition] | None,
    queries: Collection[str],
) -> Query:
    tree = parse_select(select, own)
    _check_size(tree, select)
    _check_sources(tree, select, (*streams, *tables), queries)
    _check_depth(tree, select)
    spark = _for_spark(select, tree)
    frame = read_from(tree, select, spark, streams, tables)
    _check_functions(tree, select)
    # First, since it refuses a join after which no event time is left.
    draft = read_join(tree, frame, select) if frame.joins else None
    _check_shape(tree, frame, select)
    _check_names(tree, frame)
    columns = _analyze(spark, tree, select, analyzer)
    join, where = (None, _where(tree, frame)) if draft is None else compile_join(draft)
    query = (_grouped if tree.group else _plain)(name, tree, frame, where, columns)
    if join is not None:
        query = _over_join(query, join, tree, frame)
    _check_types(query, columns, frame, analyzer)
    _check_typed(query, tree, select)
    return query


# -- before Spark sees the text


def _check_sources(tree: Select, text: str, known: Collection[str], queries: Collection[str]) -> None:
    names = {name.lower() for name in known}
    for source in tree.sources:
        if source.name in queries and source.name.lower() not in names:
            raise query_as_stream(source.name, text, source.span)


def _for_spark(text: str, tree: Select) -> str:
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


def _analyze(spark: str, tree: Select, select: str, analyzer: Analyzer) -> list[tuple[str, str]]:
    """Names and types of the result as Spark sees it, with aggregates of the same type in the place of users' own."""
    calls = [n for n in _nodes(tree, conditions=False) if isinstance(n, Call) and type_told(n) is not None]
    windows = [n for n in _nodes(tree, conditions=False) if isinstance(n, Call) and n.shown]
    shown = stand_in(spark, [(call, type_told(call) or "") for call in calls], windows)
    try:
        columns = analyzer.analyze(shown.text)
    except SqlError as error:
        raise moved(shown.back(error), select, 0) from None
    if calls:
        columns = [_renamed(item, column, select) for item, column in zip(tree.items, columns, strict=False)]
    return columns


def _renamed(item: Item, column: tuple[str, str], text: str) -> tuple[str, str]:
    """A result without a name of its own that calls a user's aggregate is named by its text."""
    called = any(type_told(node) is not None for node in walk(item.expr))
    if item.alias is not None or not called:
        return column
    return " ".join(text[slice(*item.expr.span)].split()), column[1]


def _nodes(tree: Select, conditions: bool = True) -> Iterator[Node]:
    for root in _roots(tree, conditions):
        yield from walk(root)


def _roots(tree: Select, conditions: bool = True) -> list[Node]:
    roots = [item.expr for item in tree.items]
    roots += [*tree.group, *(sort.expr for sort in tree.order)]
    roots += [tree.having] if tree.having is not None else []
    if conditions:
        roots += [node for node in (tree.where, *(source.on for source in tree.sources)) if node is not None]
    return roots


def _check_size(tree: Select, text: str) -> None:
    """Spark's analyser takes seconds for more of these, and so does every plan."""
    if len(tree.items) > MOST_COLUMNS:
        raise too_many("columns", len(tree.items), MOST_COLUMNS, text, tree.items[MOST_COLUMNS].expr.span)
    for node in _nodes(tree):
        if isinstance(node, In) and len(node.options) > MOST_LISTED:
            raise too_many("values of IN", len(node.options), MOST_LISTED, text, node.arg.span)


def _check_depth(tree: Select, text: str) -> None:
    """Spark goes down every tree that it is given, on a stack that ends; so does the compiler."""
    for root in _roots(tree):
        if depth(root) > MOST_DEEP:
            raise nested_too_deeply(text, root.span)


def _check_functions(tree: Select, text: str) -> None:
    for node in _nodes(tree):
        if isinstance(node, Call) and type_told(node) is not None:
            check_unknown_to_spark(node, text)
        if not isinstance(node, Call) or is_aggregate(node) or node.name == WINDOW:
            continue
        if node.name == "session_window":
            raise not_supported("session_window", text, node.span, function_hint("session_window"))
        check_arity(find(node, text), node, text)


def _check_shape(tree: Select, frame: Frame, text: str) -> None:
    """What Spark would run over a bounded table but a stream cannot serve."""
    nodes = list(_nodes(tree, conditions=not frame.joins))
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


def _check_names(tree: Select, frame: Frame) -> None:
    for root in (*(item.expr for item in tree.items), *tree.group):
        frame.final.check(root)
    times: set[str] = set()
    for node in _nodes(tree, conditions=not frame.joins):
        if not isinstance(node, Call):
            continue
        check_before_spark(frame.final.compiler, node)
        if node.name == WINDOW:
            times.add(read_window(node, frame.final)[1])
            if len(times) > 1:
                raise bad_window("a query has one window, over one event time", frame.final.text, node.span)


# -- plain queries


def _where(tree: Select, frame: Frame) -> Expr | None:
    return None if tree.where is None else frame.final.compiler.boolean(tree.where).to_expr()


def _plain(name: str, tree: Select, frame: Frame, where: Expr | None, columns: list[tuple[str, str]]) -> Query:
    codes = _project(_expand(tree.items, frame.final, columns), frame.final.compiler)
    outputs = tuple(Output(column, code.to_expr()) for (column, _), code in zip(columns, codes, strict=True))
    return Query(name=name, text="", stream=frame.entries[0].of, outputs=outputs, where=where)


def _expand(items: tuple[Item, ...], scope: Scope, columns: list[tuple[str, str]]) -> Iterator[Item]:
    """Every star as the columns it stands for, in the order that Spark says."""
    at = 0
    for item in items:
        if not isinstance(item.expr, Star):
            at += 1
            yield item
            continue
        listed = scope.expand(item.expr)
        names = [name.lower() for name, _ in columns[at : at + len(listed)]]
        if item.expr.qualifier is not None:
            # After USING it is not the order of the schema.
            listed = sorted(listed, key=lambda c: names.index(c.name) if c.name in names else -1)
        if [column.name for column in listed] != names:
            raise not_supported("* here", scope.text, item.expr.span, "name the columns")
        at += len(listed)
        yield from (Item(column, None) for column in listed)


def _project(items: Iterator[Item], scope: Compiler) -> list[Code]:
    """The items from left to right; a later one may name an earlier one's alias where no column has it."""
    aliases: dict[str, Code] = {}
    used: list[Column] = []

    def resolve(column: Column) -> Code:
        alias = aliases.get(column.parts[0].lower()) if len(column.parts) == 1 else None
        try:
            return scope.resolve(column)
        except SqlError:
            if alias is None:
                raise
            used.append(column)
            return alias

    codes: list[Code] = []
    for item in items:
        lateral = Compiler(scope.text, resolve)
        used.clear()
        codes.append(lateral.compile(item.expr))
        if not used:
            # An expression over another one's alias means nothing to Spark outside this SELECT.
            scope.typed.update(lateral.typed)
        if item.alias is not None:
            aliases[item.alias.lower()] = codes[-1]
    return codes


# -- grouped queries


def _grouped(name: str, tree: Select, frame: Frame, where: Expr | None, columns: list[tuple[str, str]]) -> Query:
    grouping = Grouping(tree, frame.final)
    codes = grouping.outputs()
    outputs = tuple(Output(column, code.to_expr()) for (column, _), code in zip(columns, codes, strict=True))
    having = grouping.having()
    order = grouping.order()
    return Query(
        name=name, text="", stream=frame.entries[0].of, outputs=outputs, where=where, window=grouping.window,
        keys=grouping.keys, aggregates=grouping.aggregates, having=having, order=order, limit=tree.limit,
        time=grouping.time if frame.joins else "",
    )  # fmt: skip


# -- joins


def _over_join(query: Query, join: Join, tree: Select, frame: Frame) -> Query:
    """The query over the rows of its join."""
    if query.time and join.kind == "outer":
        owner = frame.final.times[query.time]
        if join.preserved != (owner.name,):
            raise bad_window(
                "after an outer join a window is over the event time of the side that keeps all its rows",
                frame.final.text, tree.group_span or (0, 1), "the other side's time can be NULL",
            )  # fmt: skip
    return replace(query, stream=joined_name(join, query.time), join=join)


# -- held against Spark


def _check_types(query: Query, columns: list[tuple[str, str]], frame: Frame, analyzer: Analyzer) -> None:
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


def _check_typed(query: Query, tree: Select, text: str) -> None:
    """A column of nothing but NULL has no type in which it could be kept or written."""
    hint = "write CAST(NULL AS STRING), or of any other type"
    if any(expr.type == "void" for expr in query.keys):
        raise not_supported("to group by NULL", text, tree.group_span or (0, len(text)), hint)
    items = tree.items if len(tree.items) == len(query.outputs) else ()
    for at, output in enumerate(query.outputs):
        if output.expr.type == "void":
            span = items[at].expr.span if items else (0, len(text))
            raise not_supported(f"'{output.name}', which is NULL without a type,", text, span, hint)


def _check_scope(scope: Scope, analyzer: Analyzer) -> None:
    typed = scope.compiler.typed
    if not typed:
        return
    texts = sorted(typed)
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    for text, (_, spark) in zip(texts, analyzer.analyze(f"SELECT {listed} FROM {scope.source}"), strict=True):
        ours, node = typed[text]
        if not _same(spark, ours):
            detail = f"Spark types it as {spark}, Thalweg as {ours}"
            raise not_supported(f"'{text}'", scope.text, node.span, detail=detail)


def _same(spark: str, ours: str) -> bool:
    return spark == ours or (spark.startswith(("varchar", "char")) and ours == "string")
