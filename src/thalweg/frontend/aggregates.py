"""Aggregate calls -> the model's aggregates. What a call means, its family knows (`aggregates/`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from thalweg.aggregates.contract import AggregateFamily, Argument, Arity
from thalweg.aggregates.families import family_named
from thalweg.aggregates.user import USER
from thalweg.errors import SqlError, bad_arguments, not_supported
from thalweg.frontend import operators
from thalweg.frontend.code import Code, emit
from thalweg.frontend.compile import Compiler
from thalweg.frontend.tree import Call, Column, Node, Star
from thalweg.model.own import Definition
from thalweg.model.query import Aggregate

_ANY = Arity(1, 99)


def is_aggregate(node: Node) -> bool:
    return isinstance(node, Call) and (node.own is not None or family_named(node.name) is not None)


def type_told(node: Node) -> str | None:
    """The type of an aggregate that Spark does not know: the user's, or of a family from outside."""
    if not isinstance(node, Call):
        return None
    if node.own is not None:
        return node.own.type
    family = family_named(node.name)
    return None if family is None else family.returns


def check_unknown_to_spark(node: Call, text: str) -> None:
    """What cannot be said of such an aggregate; Spark is shown another one in its place."""
    if node.distinct:
        hint = "let update and merge leave out what they have seen" if node.own is not None else None
        raise not_supported(f"{node.name}(DISTINCT ...)", text, node.span, hint)
    if node.ignore_nulls:
        hint = "update may skip them" if node.own is not None else None
        raise not_supported(f"IGNORE NULLS of {node.name}", text, node.span, hint)
    if not node.args or any(isinstance(arg, Star) for arg in node.args):
        raise bad_arguments(node.name, "one argument or more", text, node.span)


def check_before_spark(scope: Compiler, node: Call) -> None:
    family = None if node.own is not None else family_named(node.name)
    if family is not None:
        family.check(_Calling(scope, node))


def build(scope: Compiler, node: Call) -> Aggregate:
    """The aggregate a call stands for; `scope` compiles over the stream's columns."""
    family, arity = _family_of(node)
    if node.distinct and not family.takes_distinct:
        raise scope.refuse(f"{node.name}(DISTINCT ...)", node, "only count takes DISTINCT")
    if node.ignore_nulls and not family.chooses_nulls:
        raise scope.refuse(f"IGNORE NULLS of {node.name}", node)
    if not arity.least <= len(node.args) <= arity.most:
        many = f"{arity.least}" if arity.least == arity.most else f"{arity.least} to {arity.most}"
        expected = f"{many} argument{'' if many == '1' else 's'}, not {len(node.args)}"
        raise bad_arguments(node.name, expected, scope.text, node.span)
    call = _Calling(scope, node)
    for i in range(call.many):
        call.arg(i)
    if not call.many and not family.takes_star:
        raise scope.refuse(f"{node.name}(*)", node)
    aggregate = family.signature(call)
    if node.filter is None:
        return aggregate
    condition = scope.boolean(node.filter)
    if aggregate.filter is not None:
        own = Code(aggregate.filter.sql, "boolean", frozenset(aggregate.filter.columns), aggregate.filter.fails)
        condition = operators.conjunction("AND", [condition, own])
    return replace(aggregate, filter=condition.to_expr())


def _family_of(node: Call) -> tuple[AggregateFamily, Arity]:
    if node.own is not None:
        return USER, _ANY
    family = family_named(node.name)
    assert family is not None
    return family, family.names[node.name]


@dataclass(frozen=True)
class _Calling:
    """See `aggregates/contract.Calling`."""

    scope: Compiler
    node: Call

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def many(self) -> int:
        args = self.node.args
        is_star = len(args) == 1 and isinstance(args[0], Star) and not args[0].qualifier
        return 0 if is_star else len(args)

    @property
    def distinct(self) -> bool:
        return self.node.distinct

    @property
    def ignore_nulls(self) -> bool:
        return self.node.ignore_nulls

    @property
    def user(self) -> Definition | None:
        return self.node.own

    def arg(self, i: int) -> Code:
        return self.scope.compile(self.node.args[i])

    def column_name(self, i: int) -> str | None:
        given = self.node.args[i]
        return given.parts[-1] if isinstance(given, Column) else None

    def cast(self, arg: Argument, type_: str) -> Code:
        return self.scope.cast(cast(Code, arg), type_, self.node)

    def emit(self, sql: str, type_: str, parts: Sequence[Argument]) -> Code:
        return emit(sql, type_, *cast(Sequence[Code], parts))

    def refuse(self, what: str, i: int | None = None, hint: str | None = None) -> SqlError:
        return self.scope.refuse(what, self.node if i is None else self.node.args[i], hint)

    def place(self, i: int) -> tuple[str, tuple[int, int]]:
        return self.scope.text, self.node.args[i].span
