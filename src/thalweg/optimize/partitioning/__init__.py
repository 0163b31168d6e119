"""Key groups to slots: SASPAR's optimizer. `optimize` takes a `Problem` and gives an `Answer`."""

from __future__ import annotations

from thalweg.optimize.partitioning.cascade import Answer, Heuristics, optimize
from thalweg.optimize.partitioning.correlation import RouteKey
from thalweg.optimize.partitioning.problem import Objective, Problem

__all__ = ["Answer", "Heuristics", "Objective", "Problem", "RouteKey", "optimize"]
