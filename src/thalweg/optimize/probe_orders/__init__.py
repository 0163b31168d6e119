"""Join planning for all queries at once: CLASH's integer program and AJoin's iterative dynamic programming.

optimizer   the face: checks (validate), compiles (space), solves (cascade), puts into words (assemble)
model       what is asked and what is answered
space       the queries compiled: sub-joins and the moves between them
forest      a solution while it is made: probe trees, stores, partitions, their cost
cascade     which method when, within the time that there is
search      iterative dynamic programming with shared costs
candidates  probe orders, as tries that end where nothing can be shared any more; reduce: fewer of them
program     the integer program over the candidates
incremental queries attached and detached while the plan is in force
separate    what the queries cost apart
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.optimize.probe_orders.incremental import FullRun, attach, detach, needs_full_run
    from thalweg.optimize.probe_orders.model import JoinQuery, Plan, Statistics, Step, Store
    from thalweg.optimize.probe_orders.optimizer import optimize
    from thalweg.optimize.probe_orders.separate import cost_separately

__all__ = [
    "FullRun",
    "JoinQuery",
    "Plan",
    "Statistics",
    "Step",
    "Store",
    "attach",
    "cost_separately",
    "detach",
    "needs_full_run",
    "optimize",
]

_HOMES = {
    "FullRun": "incremental",
    "JoinQuery": "model",
    "Plan": "model",
    "Statistics": "model",
    "Step": "model",
    "Store": "model",
    "attach": "incremental",
    "cost_separately": "separate",
    "detach": "incremental",
    "needs_full_run": "incremental",
    "optimize": "optimizer",
}


def __getattr__(name: str) -> Any:
    """Its names, loaded when first used: sessions start long before anything is optimised."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
