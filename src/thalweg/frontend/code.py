"""A piece of DuckDB text with its Spark type: what the compiler passes from node to node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from thalweg.model.expr import Expr
from thalweg.model.types import to_duck

MOST_TEXT = 1_000_000
"""Characters of one expression: where an argument is written out several times, nesting multiplies them."""
MOST_DEEP = 200
"""Expressions within one another: DuckDB reads no more than 1,000 levels, of which one of these is up to four."""


class SizeError(Exception):
    """The text is about to be longer, or deeper, than DuckDB should be given."""


@dataclass(frozen=True)
class Code:
    sql: str
    type: str
    columns: frozenset[str] = frozenset()
    fails: bool = False
    literal: int | float | str | bool | Decimal | None = None
    """The value of a literal other than NULL, so that casts and checks can be done while compiling."""
    depth: int = 0
    growth: int = 1
    """How many times as long as what it is made of a string may be."""

    def to_expr(self) -> Expr:
        return Expr(self.sql, self.type, tuple(sorted(self.columns)), self.fails)


def emit(sql: str, type_: str, *parts: Code, fails: bool = False, growth: int | None = None) -> Code:
    """Text built from parts: it reads what they read, and fails where one of them can or `fails` says so. It grows as
    they do unless `growth` says otherwise."""
    columns = frozenset[str]().union(*(part.columns for part in parts))
    depth = 1 + max((part.depth for part in parts), default=0)
    if len(sql) > MOST_TEXT:
        raise SizeError(f"written out for DuckDB it has more than {MOST_TEXT:,} characters")
    if depth > MOST_DEEP:
        raise SizeError(f"it is nested more than {MOST_DEEP} deep")
    grows = max((part.growth for part in parts), default=1) if growth is None else growth
    return Code(sql, type_, columns, fails or any(part.fails for part in parts), depth=depth, growth=grows)


def bounded(codes: Iterable[Code]) -> list[Code]:
    """Parts of one text, taken one by one, so that no more are made than the text can hold."""
    parts: list[Code] = []
    size = 0
    for code in codes:
        parts.append(code)
        size += len(code.sql)
        if size > MOST_TEXT:
            raise SizeError(f"written out for DuckDB it has more than {MOST_TEXT:,} characters")
    return parts


def text(value: str) -> str:
    """A string as a DuckDB literal."""
    return "'" + value.replace("'", "''") + "'"


def literal(value: int | float | str | bool | Decimal | None, type_: str) -> Code:
    if value is None:
        return Code(f"CAST(NULL AS {to_duck(type_)})", type_)
    if type_ == "boolean":
        return Code("TRUE" if value else "FALSE", type_, literal=value)
    if type_ == "string":
        return Code(text(str(value)), type_, literal=value)
    body = str(value) if isinstance(value, int) else text(_plain(value))
    return Code(f"CAST({body} AS {to_duck(type_)})", type_, literal=value)


def _plain(value: float | str | Decimal) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def error(code: str, message: str, type_: str) -> str:
    """Text that raises when it is evaluated, in the place of a value of the type."""
    return f"CAST(error({text(f'[{code}] {message}')}) AS {to_duck(type_)})"
