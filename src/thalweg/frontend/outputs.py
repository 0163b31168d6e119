"""The results of a SELECT, column by column: of plain queries and of grouped ones."""

from __future__ import annotations

from collections.abc import Iterator

from thalweg.errors import SqlError, not_supported
from thalweg.frontend.code import Code
from thalweg.frontend.compile import Compiler
from thalweg.frontend.group import GroupedSelect
from thalweg.frontend.scope import Frame, Scope
from thalweg.frontend.tree import Column, Item, Select, Star
from thalweg.model.expr import Expr
from thalweg.model.query import Output, Query


def where_of(tree: Select, frame: Frame) -> Expr | None:
    return None if tree.where is None else frame.final.compiler.boolean(tree.where).to_expr()


def plain(name: str, tree: Select, frame: Frame, where: Expr | None, columns: list[tuple[str, str]]) -> Query:
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


def grouped(name: str, tree: Select, frame: Frame, where: Expr | None, columns: list[tuple[str, str]]) -> Query:
    grouping = GroupedSelect(tree, frame.final)
    codes = grouping.outputs()
    outputs = tuple(Output(column, code.to_expr()) for (column, _), code in zip(columns, codes, strict=True))
    having = grouping.having()
    order = grouping.order()
    return Query(
        name=name, text="", stream=frame.entries[0].of, outputs=outputs, where=where, window=grouping.window,
        keys=grouping.keys, aggregates=grouping.aggregates, having=having, order=order, limit=tree.limit,
        time=grouping.time if frame.joins else "",
    )  # fmt: skip
