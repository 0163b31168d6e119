"""A join as it was read -> the model's join, with every condition as DuckDB text."""

from __future__ import annotations

from thalweg.errors import incompatible_keys
from thalweg.frontend.code import Code, emit
from thalweg.frontend.coercion import common_type
from thalweg.frontend.compile import Compiler
from thalweg.frontend.joins import Conjunct, JoinDraft, Lookup, Pair, is_same_window, read_same_window
from thalweg.frontend.scope import FromEntry
from thalweg.frontend.selections import conjoin, select
from thalweg.frontend.tree import Node, Span
from thalweg.model.expr import Expr
from thalweg.model.join import Equality, Join, KeyPart, Relation, TableJoin
from thalweg.model.types import FLOATING, to_duck
from thalweg.model.window import Window


def compile_join(draft: JoinDraft) -> tuple[Join, Expr | None]:
    """The join, and the conditions that its rows must satisfy beyond it."""
    relations: list[Relation] = []
    for entry in sorted(draft.streams, key=lambda e: e.name):
        atoms, where = select(draft.selections.get(entry.name, []))
        relations.append(Relation(entry.name, entry.of, atoms, where))
    equalities = sorted({_equality(pair) for pair in draft.pairs}, key=_order)
    join = Join(
        relations=tuple(relations),
        equalities=tuple(equalities),
        bounds=draft.bounds,
        kind=draft.kind,
        preserved=draft.preserved,
        on=conjoin([_condition(conjunct) for conjunct in draft.on]),
        tables=tuple(_table_join(lookup) for lookup in draft.lookups),
    )
    return join, conjoin([_condition(conjunct) for conjunct in draft.residual])


def _order(equality: Equality) -> tuple[str, ...]:
    left, right = equality.left, equality.right
    return left.relation, right.relation, left.expr.sql, right.expr.sql


def _equality(pair: Pair) -> Equality:
    left, right = _same_type(pair.conjunct.scope.own, pair.left_node, pair.right_node, pair.conjunct.node.span)
    return Equality(KeyPart(pair.left.name, left), KeyPart(pair.right.name, right))


def _table_join(lookup: Lookup) -> TableJoin:
    keys = [_same_type(c.scope.compiler, known, own, c.node.span) for known, own, c in lookup.keys]
    on = conjoin([_condition(conjunct) for conjunct in lookup.on])
    entry = lookup.entry
    return TableJoin(entry.name, entry.of, tuple(dict.fromkeys(keys)), lookup.outer, on)


def _same_type(compiler: Compiler, left: Node, right: Node, span: Span) -> tuple[Expr, Expr]:
    """Both sides of an equality in the type that Spark compares them in."""
    sides = [(node, compiler.compile(node)) for node in (left, right)]
    type_ = common_type(sides[0][1].type, sides[1][1].type)
    if type_ is None:
        raise incompatible_keys(sides[0][1].type, sides[1][1].type, compiler.text, span)
    one, other = (_without_negative_zero(compiler.cast(code, type_, node)).to_expr() for node, code in sides)
    return one, other


def _without_negative_zero(code: Code) -> Code:
    """0.0 and -0.0 are equal, so as keys they have to be the same."""
    if code.type not in FLOATING:
        return code
    return emit(f"({code.sql} + 0::{to_duck(code.type)})", code.type, code)


def _condition(conjunct: Conjunct) -> Code:
    if not is_same_window(conjunct.node):
        return conjunct.scope.compiler.boolean(conjunct.node)
    left, right, window = read_same_window(conjunct)
    one, other = (_window_start(entry, window) for entry in sorted((left, right), key=lambda e: e.name))
    return emit(f"({one.sql} = {other.sql})", "boolean", one, other)


def _window_start(entry: FromEntry, window: Window) -> Code:
    time = entry.time_code()
    return emit(window.start_sql(time.sql), "bigint", time)
