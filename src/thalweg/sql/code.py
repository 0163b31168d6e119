"""A piece of DuckDB text with its Spark type: what the compiler passes from node to node."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from thalweg.model.expr import Expr
from thalweg.model.types import to_duck


@dataclass(frozen=True)
class Code:
    sql: str
    type: str
    columns: frozenset[str] = frozenset()
    fails: bool = False
    literal: int | float | str | bool | Decimal | None = None
    """The value of a literal other than NULL, so that casts and checks can be done while compiling."""

    def to_expr(self) -> Expr:
        return Expr(self.sql, self.type, tuple(sorted(self.columns)), self.fails)


def emit(sql: str, type_: str, *parts: Code, fails: bool = False) -> Code:
    """Text built from parts: it reads what they read, and fails where one of them can or `fails` says so."""
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return Code(sql, type_, columns, fails or any(part.fails for part in parts))


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
