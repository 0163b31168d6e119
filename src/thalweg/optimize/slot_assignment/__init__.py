"""Key groups to slots: SASPAR's optimizer. `optimize` takes a `Problem` and gives an `Answer`.

problem       what is known, checked; what an assignment costs
graph, pivots the cost compiled: a graph to be cut, and what "saspar" adds to it; `goal` is either
search        starts, descent, annealing, on merged nodes first (loops in `kernels`)
model         the mixed integer program;  bounds: what can be proven without it
reduce        the heuristics that make a program small enough
cascade       which of these when: Algorithm 1, within a time budget
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.optimize.slot_assignment.cascade import Answer, Heuristics, optimize
    from thalweg.optimize.slot_assignment.correlation import RouteKey
    from thalweg.optimize.slot_assignment.problem import Objective, Problem
    from thalweg.optimize.slot_assignment.warm import warm_kernels

__all__ = ["Answer", "Heuristics", "Objective", "Problem", "RouteKey", "optimize", "warm_kernels"]

_HOMES = {
    "Answer": "cascade",
    "Heuristics": "cascade",
    "Objective": "problem",
    "Problem": "problem",
    "RouteKey": "correlation",
    "optimize": "cascade",
    "warm_kernels": "warm",
}


def __getattr__(name: str) -> Any:
    """Its names, loaded when first used: sessions start long before anything is optimised."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
