"""Join planning for all queries at once: CLASH's integer program and AJoin's iterative dynamic programming.

optimizer   the face: checks (validate), compiles (space), solves (cascade), puts into words (assemble)
model       what is asked and what is answered
space       the queries compiled: sub-joins and the moves between them
forest      a solution while it is made: probe trees, stores, partitions, their cost
cascade     which method when, within the time that there is
search      iterative dynamic programming with shared costs
candidates  probe orders, as tries that end where nothing can be shared any more; reduce: fewer of them
program     the integer program over the candidates
exhaustive  every plan there is, for small inputs
incremental queries attached and detached while the plan is in force
separate    what the queries cost apart
"""

from __future__ import annotations

from thalweg.optimize.joins.incremental import FullRun, attach, detach, needs_full_run
from thalweg.optimize.joins.model import JoinQuery, Plan, Statistics, Step, Store
from thalweg.optimize.joins.optimizer import optimize

__all__ = [
    "FullRun",
    "JoinQuery",
    "Plan",
    "Statistics",
    "Step",
    "Store",
    "attach",
    "detach",
    "needs_full_run",
    "optimize",
]
