"""Functions that choose among values and ask for NULL."""

from __future__ import annotations

from thalweg.frontend import operators
from thalweg.frontend.code import Code, emit
from thalweg.frontend.scalars.contract import Context, Emit, entries
from thalweg.frontend.tree import Call


def _coalesce(c: Context, node: Call, args: list[Code]) -> Code:
    args = c.common(args, node)
    if len(args) == 1:
        return args[0]
    return emit(f"COALESCE({', '.join(arg.sql for arg in args)})", args[0].type, *args)


def _if(c: Context, node: Call, args: list[Code]) -> Code:
    return c.choose([c.cast(args[0], "boolean", node)], c.common(args[1:], node))


def _nvl2(c: Context, node: Call, args: list[Code]) -> Code:
    present = emit(f"({args[0].sql} IS NOT NULL)", "boolean", args[0])
    return c.choose([present], c.common(args[1:], node))


def _nullif(_: Context, __: Call, args: list[Code]) -> Code:
    same = operators.comparison("=", args[0], args[1])
    first = args[0]
    return emit(f"CASE WHEN {same.sql} THEN NULL ELSE {first.sql} END", first.type, same, first)


def _extreme(word: str) -> Emit:
    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        args = c.common(args, node)
        return emit(f"{word}({', '.join(arg.sql for arg in args)})", args[0].type, *args)

    return emit_


def _null_test(word: str) -> Emit:
    return lambda _, __, args: emit(f"({args[0].sql} IS {word})", "boolean", args[0])


def _isnan(c: Context, node: Call, args: list[Code]) -> Code:
    arg = args[0] if args[0].type == "float" else c.cast(args[0], "double", node)
    return emit(f"COALESCE(isnan({arg.sql}), FALSE)", "boolean", arg)


CONDITIONS = (
    *entries("coalesce", 1, 999, _coalesce),
    *entries("nvl ifnull", 2, 2, _coalesce),
    *entries("if iff", 3, 3, _if),
    *entries("nvl2", 3, 3, _nvl2),
    *entries("nullif", 2, 2, _nullif),
    *entries("greatest", 2, 999, _extreme("greatest")),
    *entries("least", 2, 999, _extreme("least")),
    *entries("isnull", 1, 1, _null_test("NULL")),
    *entries("isnotnull", 1, 1, _null_test("NOT NULL")),
    *entries("isnan", 1, 1, _isnan),
)
