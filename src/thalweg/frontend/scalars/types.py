"""Types called as functions: a cast."""

from __future__ import annotations

from thalweg.frontend.scalars.contract import Emit, Function, entries

_NAMES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp")


def _as_type(type_: str) -> Emit:
    return lambda c, node, args: c.cast(args[0], type_, node)


TYPES = (
    *(Function(name, 1, 1, _as_type(name)) for name in _NAMES),
    *entries("decimal", 1, 1, _as_type("decimal(10,0)")),
)
