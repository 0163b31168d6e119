"""Aggregate calls -> the model's aggregates: one entry per name, arguments brought to Spark's types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from thalweg.errors import bad_arguments, bad_deviation, not_supported
from thalweg.frontend import operators
from thalweg.frontend.code import Code, emit
from thalweg.frontend.coercion import decimal
from thalweg.frontend.compile import Compiler
from thalweg.frontend.functions import AGGREGATES
from thalweg.frontend.tree import Call, Column, Node, Star
from thalweg.model.own import OWN, Own
from thalweg.model.query import Aggregate
from thalweg.model.types import FLOATING, INTEGRAL, decimal_parts, is_numeric

Build = Callable[[Compiler, Call, list[Code]], Aggregate]
_DEFAULT_RSD = 0.05
_LEAST_RSD, _MOST_RSD = 0.0041, 0.39
"""What 2^16 registers can give, which is the most that are kept; and the most that Spark lets pass."""


def is_aggregate(node: Node) -> bool:
    return isinstance(node, Call) and (node.name in AGGREGATES or node.own is not None)


def check_own(node: Call, text: str) -> None:
    """What cannot be said of an aggregate that the user has defined; Spark is shown another one in its place."""
    if node.distinct:
        hint = "let update and merge leave out what they have seen"
        raise not_supported(f"{node.name}(DISTINCT ...)", text, node.span, hint)
    if node.ignore_nulls:
        raise not_supported(f"IGNORE NULLS of {node.name}", text, node.span, "update may skip them")
    if not node.args or any(isinstance(arg, Star) for arg in node.args):
        raise bad_arguments(node.name, "one argument or more", text, node.span)


def read_deviation(scope: Compiler, node: Call) -> float:
    """The second argument of approx_count_distinct. To be read before Spark does, which makes as many columns as it
    asks for registers."""
    given = scope.compile(node.args[1])
    if isinstance(given.literal, int | float | Decimal) and is_numeric(given.type):
        rsd = float(given.literal)
        if _LEAST_RSD <= rsd <= _MOST_RSD:
            return rsd
    raise bad_deviation(_LEAST_RSD, _MOST_RSD, scope.text, node.args[1].span)


def build(scope: Compiler, node: Call) -> Aggregate:
    """The aggregate a call stands for; `scope` compiles over the stream's columns."""
    entry = ENTRIES[node.name] if node.own is None else _OWN
    if node.distinct and node.name != "count":
        hint = "only count takes DISTINCT"
        raise scope.refuse(f"{node.name}(DISTINCT ...)", node, hint)
    if node.ignore_nulls and node.name not in _NULL_CHOOSERS:
        raise scope.refuse(f"IGNORE NULLS of {node.name}", node)
    if not entry.least <= len(node.args) <= entry.most:
        many = f"{entry.least}" if entry.least == entry.most else f"{entry.least} to {entry.most}"
        expected = f"{many} argument{'' if many == '1' else 's'}, not {len(node.args)}"
        raise bad_arguments(node.name, expected, scope.text, node.span)
    star = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], Star) else None
    args = [] if star is not None and not star.qualifier else [scope.compile(arg) for arg in node.args]
    if not args and node.name != "count":
        raise scope.refuse(f"{node.name}(*)", node)
    aggregate = entry.build(scope, node, args)
    if node.filter is None:
        return aggregate
    condition = scope.boolean(node.filter)
    if aggregate.filter is not None:
        own = Code(aggregate.filter.sql, "boolean", frozenset(aggregate.filter.columns), aggregate.filter.fails)
        condition = operators.conjunction("AND", [condition, own])
    return replace(aggregate, filter=condition.to_expr())


@dataclass(frozen=True)
class _Entry:
    least: int
    most: int
    build: Build


def _count(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    if node.distinct:
        if not args:
            raise scope.refuse("count(DISTINCT *)", node, "name the columns")
        return Aggregate("count_distinct", tuple(arg.to_expr() for arg in args), "bigint")
    if all(arg.literal is not None for arg in args):
        return Aggregate("count_all", (), "bigint")
    if len(args) == 1:
        return Aggregate("count", (args[0].to_expr(),), "bigint")
    nulls = " OR ".join(f"({arg.sql} IS NULL)" for arg in args)
    present = emit(f"CASE WHEN {nulls} THEN NULL ELSE TRUE END", "boolean", *args)
    return Aggregate("count", (present.to_expr(),), "bigint")


def _count_if(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    condition = scope.cast(args[0], "boolean", node)
    return Aggregate("count_all", (), "bigint", filter=condition.to_expr())


def _numeric(scope: Compiler, node: Call, arg: Code) -> Code:
    return arg if is_numeric(arg.type) else scope.cast(arg, "double", node)


def _sum(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    arg = _numeric(scope, node, args[0])
    type_ = "bigint" if arg.type in INTEGRAL else "double"
    if parts := decimal_parts(arg.type):
        type_ = decimal(min(38, parts[0] + 10), parts[1])
    return Aggregate("sum", (arg.to_expr(),), type_)


def _avg(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    arg = _numeric(scope, node, args[0])
    type_ = "double"
    if parts := decimal_parts(arg.type):
        type_ = decimal(min(38, parts[0] + 4), min(38, parts[1] + 4))
    return Aggregate("avg", (arg.to_expr(),), type_)


def _spread(function: str) -> Build:
    def build_(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
        return Aggregate(function, (scope.cast(args[0], "double", node).to_expr(),), "double")

    return build_


def _same_type(function: str) -> Build:
    def build_(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
        if args[0].type == "void":
            raise scope.refuse(f"{function} of NULL", node)
        return Aggregate(function, (args[0].to_expr(),), args[0].type)

    return build_


def _by(function: str) -> Build:
    def build_(_: Compiler, __: Call, args: list[Code]) -> Aggregate:
        return Aggregate(function, (args[0].to_expr(), args[1].to_expr()), args[0].type)

    return build_


def _edge(function: str) -> Build:
    """first / last; the second argument is the older way to say IGNORE NULLS."""

    def build_(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
        ignore = node.ignore_nulls
        if len(args) == 2:
            if not isinstance(args[1].literal, bool):
                raise scope.refuse(f"{node.name} with a second argument that is not true or false", node)
            ignore = args[1].literal
        return Aggregate(function, (args[0].to_expr(),), args[0].type, ignore_nulls=ignore)

    return build_


def _logic(function: str) -> Build:
    def build_(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
        return Aggregate(function, (scope.cast(args[0], "boolean", node).to_expr(),), "boolean")

    return build_


def _percentile(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    arg = _numeric(scope, node, args[0])
    portion = 0.5 if node.name == "median" else _fraction(scope, node, args[1])
    if not 0 <= portion <= 1:
        raise scope.refuse("a percentage outside 0 to 1", node.args[1])
    return Aggregate("percentile", (arg.to_expr(),), "double", parameters=(portion,))


def _approx_count_distinct(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    rsd = read_deviation(scope, node) if len(args) == 2 else _DEFAULT_RSD
    return Aggregate("approx_count_distinct", (args[0].to_expr(),), "bigint", parameters=(rsd,))


def _fraction(scope: Compiler, node: Call, code: Code) -> float:
    if code.literal is None or not (code.type in INTEGRAL or code.type in FLOATING or decimal_parts(code.type)):
        raise scope.refuse("anything but a number as the second argument", node.args[1])
    return float(code.literal)


def _own(scope: Compiler, node: Call, args: list[Code]) -> Aggregate:
    """One that the user has defined: rows as they are, NULLs included."""
    assert node.own is not None
    exprs = []
    for arg, given in zip(args, node.args, strict=True):
        if arg.type == "void":
            raise scope.refuse(f"NULL as an argument of {node.name}", given, "CAST(NULL AS a type)")
        exprs.append(arg.to_expr())
    columns = tuple(a.parts[-1] if isinstance(a, Column) else f"a{i}" for i, a in enumerate(node.args))
    own = Own(node.own.name, columns, node.own.version)
    return Aggregate(OWN, tuple(exprs), node.own.type, own=own)


_OWN = _Entry(1, 99, _own)
_NULL_CHOOSERS = ("first", "first_value", "any_value", "last", "last_value")
ENTRIES: dict[str, _Entry] = {
    "count": _Entry(1, 99, _count),
    "count_if": _Entry(1, 1, _count_if),
    "sum": _Entry(1, 1, _sum),
    "avg": _Entry(1, 1, _avg),
    "mean": _Entry(1, 1, _avg),
    "min": _Entry(1, 1, _same_type("min")),
    "max": _Entry(1, 1, _same_type("max")),
    "stddev": _Entry(1, 1, _spread("stddev_samp")),
    "stddev_samp": _Entry(1, 1, _spread("stddev_samp")),
    "std": _Entry(1, 1, _spread("stddev_samp")),
    "stddev_pop": _Entry(1, 1, _spread("stddev_pop")),
    "variance": _Entry(1, 1, _spread("var_samp")),
    "var_samp": _Entry(1, 1, _spread("var_samp")),
    "var_pop": _Entry(1, 1, _spread("var_pop")),
    "approx_count_distinct": _Entry(1, 2, _approx_count_distinct),
    "median": _Entry(1, 1, _percentile),
    "percentile": _Entry(2, 2, _percentile),
    "min_by": _Entry(2, 2, _by("min_by")),
    "max_by": _Entry(2, 2, _by("max_by")),
    "first": _Entry(1, 2, _edge("first")),
    "first_value": _Entry(1, 2, _edge("first")),
    "any_value": _Entry(1, 2, _edge("first")),
    "last": _Entry(1, 2, _edge("last")),
    "last_value": _Entry(1, 2, _edge("last")),
    "bool_and": _Entry(1, 1, _logic("bool_and")),
    "every": _Entry(1, 1, _logic("bool_and")),
    "bool_or": _Entry(1, 1, _logic("bool_or")),
    "some": _Entry(1, 1, _logic("bool_or")),
    "any": _Entry(1, 1, _logic("bool_or")),
}
