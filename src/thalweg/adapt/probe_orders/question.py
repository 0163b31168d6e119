"""What the optimiser of probe orders is asked, what it answers, and the answer in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad
from thalweg.model.probe_order import CohortCost, OrderedJoin, OrdersByStart, OrdersInForce, ProbeOrder
from thalweg.model.query import query_name
from thalweg.optimize.deadline import Clock
from thalweg.optimize.probe_orders.model import Statistics
from thalweg.optimize.weigh_orders import Judgement, cost, cost_apart, judge, partners, rows_of, statistics_of

LEAST_SECONDS = 0.02
"""Of the budget, for one cohort."""


@dataclass(frozen=True)
class OrderingProblem:
    """The cohorts as they run, and what is known of each."""

    cohorts: Sequence[tuple[dict[str, OrderedJoin], Statistics]]
    unmeasured: int
    """Cohorts of which too little is known."""

    @property
    def queries(self) -> list[str]:
        return [query for cohort, _ in self.cohorts for query in cohort]

    @property
    def cost(self) -> float:
        return sum(cost(cohort, stats) for cohort, stats in self.cohorts)


@dataclass(frozen=True)
class NewOrders:
    """An answer: the orders of all that was asked, changed or not, from the epoch on."""

    ordering: OrdersInForce
    epoch: int
    saved: float
    """The share of what is sent that they save."""
    rejected: str
    cohorts: tuple[CohortCost, ...]


def question(plan: Plan, load: JoinLoad, coming: OrdersInForce | None = None) -> OrderingProblem:
    """What can be asked of the optimiser now. Outer, semi and anti joins have but one order.

    `coming`: the orders that will be in force; those of the plan without it."""
    found, unmeasured = [], 0
    orders = coming.orders if coming is not None else {}
    for cohort in plan.joins.cohorts.values():
        joins = {id_: plan.joins.ordered[id_] for id_ in cohort.queries if id_ in plan.joins.ordered}
        joins = {id_: replace(join, orders=orders.get(id_, join.orders)) for id_, join in joins.items()}
        roles = [role for role in cohort.roles.values() if role.relation not in plan.joins.intermediates]
        rows = rows_of(roles, load.estimates, load.samples)
        edges = sorted({edge for join in joins.values() for edge in join.edges})
        known = partners(edges, cohort.roles, load.estimates, load.samples)
        stats = statistics_of(joins.values(), rows, known)
        if joins and stats is not None:
            found.append((joins, stats))
        unmeasured += bool(joins) and stats is None
    return OrderingProblem(found, unmeasured)


def answer(asked: OrderingProblem, epoch: int, budget_seconds: float, clock: Clock) -> NewOrders:
    """Orders worth a switch from the epoch on. Those that were found good are settled too: nothing but a decision
    changes them from now on."""
    share = max(LEAST_SECONDS, budget_seconds / len(asked.cohorts))
    judged = [
        (cohort, stats, judge(cohort, stats, budget_seconds=share, clock=clock)) for cohort, stats in asked.cohorts
    ]
    orders: dict[str, OrdersByStart] = {}
    changes: list[str] = []
    for cohort, _, one in judged:
        for query, join in cohort.items():
            orders[query] = join.orders if one.orders is None else one.orders[query]
            changes += _changes(query, join.orders, orders[query])
    reason, saved, rejected = _words_of([one for _, _, one in judged], bool(changes), epoch)
    ordering = OrdersInForce(orders, tuple(orders), reason=reason, changes=tuple(changes), epoch=epoch - 1)
    costs = tuple(
        CohortCost(
            tuple(cohort),
            one.now if one.orders is None else one.better,
            cost_apart(cohort, stats, budget_seconds=share, clock=clock),
        )
        for cohort, stats, one in judged
    )
    return NewOrders(ordering, epoch, saved, rejected, costs)


def _words_of(judged: Sequence[Judgement], changed: bool, epoch: int) -> tuple[str, float, str]:
    """What was decided, which share that saves, and what was rejected."""
    now, better = (sum(getattr(one, of) for one in judged) for of in ("now", "better"))
    if changed:
        after = sum(one.now if one.orders is None else one.better for one in judged)
        saved = 1 - after / now
        return f"other orders send {saved:.0%} less: from epoch {epoch + 1} on", saved, ""
    saving = 1.0 - better / now if now > 0 else 0.0
    rejected = f"no others would send more than {saving:.0%} less"
    return f"left as they are: {rejected}", 0.0, rejected


def _changes(query: str, before: OrdersByStart, after: OrdersByStart) -> list[str]:
    """In words."""
    return [
        f"{query_name(query)}: rows of {start} look into {_words(after[start])}; before: {_words(before[start])}"
        for start in sorted(after)
        if after[start] != before[start]
    ]


def _words(order: ProbeOrder) -> str:
    return ", then ".join(found[0] if len(found) == 1 else f"({' ⋈ '.join(found)})" for found in order)


def cost_ratio(running: OrderingProblem, sent: Mapping[str, float]) -> float:
    """What is sent per batch, divided by what the statistics predict for the orders that run."""
    expected, measured = running.cost, sum(sent.values())
    return measured / expected if expected > 0 and measured > 0 else 1.0
