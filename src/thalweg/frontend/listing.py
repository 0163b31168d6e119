"""Every function that SQL may use, from the registries themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thalweg.aggregates.families import arities
from thalweg.frontend.functions import FUNCTIONS

SCALAR, AGGREGATE, OWN = "scalar", "aggregate", "own aggregate"
_ENDLESS = 99


@dataclass(frozen=True)
class Listed:
    name: str
    kind: str
    """scalar: of one row; aggregate; own aggregate: one that the program has defined."""
    arguments: str
    """How many there are."""


def functions(own: Iterable[str] = ()) -> list[Listed]:
    """By name. `own`: aggregates that the program has defined."""
    scalar = [Listed(name, SCALAR, _many(f.least, f.most)) for name, f in FUNCTIONS.items()]
    aggregates = [Listed(name, AGGREGATE, _many(*arity)) for name, arity in arities().items()]
    return sorted([*scalar, *aggregates, *(Listed(name, OWN, "any") for name in own)], key=lambda f: (f.name, f.kind))


def _many(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most >= _ENDLESS else f"{least} to {most}"
