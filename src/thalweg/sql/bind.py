"""SELECT text -> Query: parsed, held against the allow-list, analysed by Spark, compiled.

Order matters. Nothing reaches Spark's analyser before every function and every table has been found on the
list, because a text can do harm there; and nothing is compiled that Spark would refuse.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from thalweg.errors import SqlError, needs_window, not_supported, unknown_column, unknown_stream
from thalweg.model.query import Output, Query, SinkSpec, quote
from thalweg.model.stream import Stream
from thalweg.sql.aggregates import is_aggregate
from thalweg.sql.code import Code
from thalweg.sql.compile import Compiler
from thalweg.sql.functions import WINDOW, check_arity, find
from thalweg.sql.group import Grouping
from thalweg.sql.parse import parse_select
from thalweg.sql.tree import Call, Column, Item, Node, Select, Star, walk
from thalweg.sql.windows import read_window


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
) -> Query:
    """The query that a SELECT means. Raises SqlError with the place in `select` underlined."""
    tree = parse_select(select)
    stream = _find_stream(tree, streams, select)
    _check_functions(tree, select)
    _check_shape(tree, stream, select)
    scope = _scope(tree, stream, select)
    for node in _nodes(tree):
        if isinstance(node, Call) and node.name == WINDOW:
            read_window(node, stream, scope)
    columns = analyzer.analyze(select)
    shape = _grouped if tree.group else _plain
    query = shape(name, tree, stream, scope, columns)
    _check_types(query, columns, scope, tree, analyzer)
    return replace(query, text=select, sink=sink or SinkSpec(), options=tuple(options), emit=emit)


# -- before Spark sees the text


def _find_stream(tree: Select, streams: Mapping[str, Stream], text: str) -> Stream:
    for stream in streams.values():
        if stream.name.lower() == tree.stream.lower():
            return stream
    near = difflib.get_close_matches(tree.stream, list(streams), 3, 0.6)
    raise unknown_stream(tree.stream, near, text, tree.stream_span)


def _nodes(tree: Select) -> Iterator[Node]:
    roots = [item.expr for item in tree.items]
    roots += [node for node in (tree.where, tree.having) if node is not None]
    roots += [*tree.group, *(sort.expr for sort in tree.order)]
    for root in roots:
        yield from walk(root)


def _check_functions(tree: Select, text: str) -> None:
    for node in _nodes(tree):
        if not isinstance(node, Call) or is_aggregate(node) or node.name == WINDOW:
            continue
        if node.name == "session_window":
            raise not_supported("session_window", text, node.span, "use window(time, range[, slide])")
        check_arity(find(node, text), node, text)


def _check_shape(tree: Select, stream: Stream, text: str) -> None:
    """What Spark would run over a bounded table but a stream cannot serve."""
    aggregate = next((node for node in _nodes(tree) if is_aggregate(node)), None)
    window = next((n for n in _nodes(tree) if isinstance(n, Call) and n.name == WINDOW), None)
    if tree.group and window is None:
        raise needs_window("GROUP BY", stream.time, text, tree.group_span or (0, 1))
    if not tree.group:
        if aggregate is not None:
            raise needs_window("an aggregate", stream.time, text, aggregate.span)
        if window is not None:
            raise not_supported("window() outside GROUP BY", text, window.span, "group by it")
        if tree.having is not None:
            raise needs_window("HAVING", stream.time, text, tree.having.span)
        for what, span in (("ORDER BY", tree.order_span), ("LIMIT", tree.limit_span)):
            if span is not None:
                raise needs_window(what, stream.time, text, span)
    if tree.limit is not None and not tree.order:
        raise not_supported(
            "LIMIT without ORDER BY", text, tree.limit_span or (0, 1),
            "say which rows of each window come first: ORDER BY ... LIMIT n",
        )  # fmt: skip
    if tree.where is not None and (found := next((n for n in walk(tree.where) if is_aggregate(n)), None)):
        raise not_supported("an aggregate in WHERE", text, found.span, "use HAVING")


# -- the stream's columns


def _scope(tree: Select, stream: Stream, text: str) -> Compiler:
    """A compiler over the stream's columns, by bare name or qualified with the stream's name or alias."""
    names = {field.name.lower(): field for field in stream.schema.fields}
    qualifier = (tree.alias or tree.stream).lower()

    def resolve(column: Column) -> Code:
        parts = [part.lower() for part in column.parts]
        if len(parts) == 2 and parts[0] == qualifier:
            parts = parts[1:]
        if len(parts) == 1 and parts[0] in names:
            field = names[parts[0]]
            return Code(quote(field.name), field.type, frozenset((field.name,)))
        near = difflib.get_close_matches(parts[-1], list(names), 3, 0.6)
        raise unknown_column(".".join(column.parts), near, text, column.span)

    return Compiler(text, resolve)


# -- plain queries


def _plain(name: str, tree: Select, stream: Stream, scope: Compiler, columns: list[tuple[str, str]]) -> Query:
    codes = _project(_expand(tree.items, stream), scope)
    outputs = tuple(Output(column, code.to_expr()) for (column, _), code in zip(columns, codes, strict=True))
    where = None if tree.where is None else scope.boolean(tree.where).to_expr()
    return Query(name=name, text="", stream=stream.name, outputs=outputs, where=where)


def _expand(items: tuple[Item, ...], stream: Stream) -> Iterator[Item]:
    for item in items:
        if isinstance(item.expr, Star):
            for field in stream.schema.fields:
                yield Item(Column(item.expr.span, (field.name,)), None)
        else:
            yield item


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


def _grouped(name: str, tree: Select, stream: Stream, scope: Compiler, columns: list[tuple[str, str]]) -> Query:
    grouping = Grouping(tree, stream, scope)
    codes = grouping.outputs()
    outputs = tuple(Output(column, code.to_expr()) for (column, _), code in zip(columns, codes, strict=True))
    where = None if tree.where is None else scope.boolean(tree.where).to_expr()
    having = grouping.having()
    order = grouping.order()
    return Query(
        name=name, text="", stream=stream.name, outputs=outputs, where=where, window=grouping.window,
        keys=grouping.keys, aggregates=grouping.aggregates, having=having, order=order, limit=tree.limit,
    )  # fmt: skip


# -- held against Spark


def _check_types(
    query: Query, columns: list[tuple[str, str]], scope: Compiler, tree: Select, analyzer: Analyzer
) -> None:
    """Every type this package worked out must be the one Spark works out; a difference is refused."""
    for (column, type_), output in zip(columns, query.outputs, strict=True):
        if not _same(type_, output.expr.type):
            raise not_supported(
                f"'{column}'", scope.text, (0, len(scope.text)),
                detail=f"Spark types it as {type_}, Thalweg as {output.expr.type}",
            )  # fmt: skip
    if not scope.typed:
        return
    texts = sorted(scope.typed)
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    source = quote_spark(tree.stream) + (f" AS {quote_spark(tree.alias)}" if tree.alias else "")
    for text, (_, spark) in zip(texts, analyzer.analyze(f"SELECT {listed} FROM {source}"), strict=True):
        ours, node = scope.typed[text]
        if not _same(spark, ours):
            detail = f"Spark types it as {spark}, Thalweg as {ours}"
            raise not_supported(f"'{text}'", scope.text, node.span, detail=detail)


def _same(spark: str, ours: str) -> bool:
    return spark == ours or (spark.startswith(("varchar", "char")) and ours == "string")


def quote_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
