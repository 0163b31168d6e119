"""The face of join planning: from queries and statistics to a plan, in names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.optimize.deadline import SECONDS, Clock, Deadline
from thalweg.optimize.probe_orders.assemble import Wording, label_partitions
from thalweg.optimize.probe_orders.cascade import needs_kernels, solve_space
from thalweg.optimize.probe_orders.forest import ProbeForest
from thalweg.optimize.probe_orders.model import JoinQuery, Plan, Statistics
from thalweg.optimize.probe_orders.separate import cost_separately
from thalweg.optimize.probe_orders.space import Space
from thalweg.optimize.probe_orders.validate import (
    check_method,
    check_number,
    check_order,
    check_queries,
    check_statistics,
)
from thalweg.optimize.probe_orders.warm import warm_kernels

USED = 0.9
"""The share of the budget after which nothing new is begun."""


def optimize(
    queries: Iterable[JoinQuery],
    stats: Statistics,
    *,
    budget_seconds: float = 1.0,
    method: str = "auto",
    materialize: bool | int = True,
    order: Sequence[str] | None = None,
    clock: Clock = SECONDS,
) -> Plan:
    """The plan that sends fewest rows over all queries, as far as the budget allows.

    method: "auto" and "ilp" solve the integer program if it is not too large, "dp" does without. materialize=False:
    no intermediate stores; a number: none of more relations. There is always an answer, for 500 queries of five
    relations after some 0.3 s at least; `bound` says how good it is known to be. `order`: of all relations; a row
    probes an intermediate store only if its relation does not stand between those of the store.
    """
    check_method(method)
    check_number("budget_seconds", budget_seconds, 0.0)
    whole = Deadline.after(budget_seconds, clock)
    checked = check_queries(queries)
    known = check_statistics(stats, checked)
    space = Space(checked, known, materialize, order=None if order is None else check_order(order, checked))
    left = whole.left
    if needs_kernels(space, method):
        # Once in a process; where no process of this machine has done it yet they are compiled, which takes longer
        # than any budget.
        warm_kernels()
        whole = Deadline.after(left, clock)
    # To put the answer into words takes about as long as to read the question.
    reserve = max((1.0 - USED) * budget_seconds, budget_seconds - left)
    forest, bound, found_by = solve_space(space, method, Deadline(whole.end - reserve, whole.clock))
    return make_plan(space, forest, bound, found_by)


def make_plan(space: Space, forest: ProbeForest, bound: float, method: str) -> Plan:
    forest.shed()
    if space.chi == 1.0:
        label_partitions(space, forest)
    cost, words = forest.total(), Wording(forest)
    return Plan(
        words.probe_orders(), words.stores(), cost, min(bound, cost), method, tuple(space.queries), space.statistics,
        space.materialize, cost_separately,
    )  # fmt: skip
