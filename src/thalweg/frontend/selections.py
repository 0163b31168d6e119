"""Conditions over one stream -> comparisons with constants, and the rest as one expression."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Decimal

from thalweg.frontend import operators
from thalweg.frontend.code import Code
from thalweg.frontend.scope import Scope
from thalweg.frontend.tree import Binary, Column, Node
from thalweg.model.expr import Expr
from thalweg.model.join import Atom
from thalweg.model.types import FLOATING, INTEGRAL

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def select(conditions: Sequence[tuple[Node, Scope]]) -> tuple[tuple[Atom, ...], Expr | None]:
    """What a row of the stream must satisfy. Where the rest can raise, it looks at the atoms first, as Spark
    would have it."""
    codes: list[Code] = []
    rest: list[Code] = []
    atoms: set[Atom] = set()
    for node, scope in conditions:
        code = scope.own.boolean(node)
        codes.append(code)
        if (atom := read_atom(node, scope)) is not None:
            atoms.add(atom)
        else:
            rest.append(code)
    if any(code.fails for code in rest):
        rest = codes
    return tuple(sorted(atoms, key=lambda a: (a.column, a.op, a.value))), conjoin(rest)


def conjoin(codes: list[Code]) -> Expr | None:
    """All of them as one expression, None for none."""
    if not codes:
        return None
    return (codes[0] if len(codes) == 1 else operators.conjunction("AND", codes)).to_expr()


def read_atom(node: Node, scope: Scope) -> Atom | None:
    """`column op literal` or the other way round, where comparing with the atom's value is comparing in Spark."""
    if not isinstance(node, Binary) or node.op not in _FLIPPED:
        return None
    op, column, other = node.op, node.left, node.right
    if not isinstance(column, Column):
        op, column, other = _FLIPPED[op], other, column
    if not isinstance(column, Column) or isinstance(other, Column):
        return None
    known, constant = scope.own.compile(column), scope.own.compile(other)
    value = _value(known.type, constant)
    return None if value is None else Atom(next(iter(known.columns)), op, value)


def _value(type_: str, constant: Code) -> int | float | None:
    """The literal in the column's domain, None where there is none that compares alike."""
    value = constant.literal
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if type_ in INTEGRAL:
        fits = constant.type in INTEGRAL and isinstance(value, int)
        return int(value) if fits and -(2 ** _BITS[type_]) <= value < 2 ** _BITS[type_] else None
    if type_ not in FLOATING:
        return None
    number = float(value)
    if constant.type == "float":
        try:
            (number,) = struct.unpack("f", struct.pack("f", number))
        except OverflowError:
            return None
    return number + 0.0 if math.isfinite(number) else None
