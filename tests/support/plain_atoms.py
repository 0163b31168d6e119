"""Comparisons of predicates, value by value, as Spark means them."""

from __future__ import annotations

import math
from typing import Any

from thalweg.model.join import Atom


def order(value: Any) -> tuple[int, Any]:
    """Spark's order of numbers."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def holds(value: Any, atom: Atom) -> bool:
    if value is None:
        return False
    a, b = order(value), order(atom.value)
    return {"=": a == b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[atom.op]
