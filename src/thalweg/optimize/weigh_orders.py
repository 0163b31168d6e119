"""Join orders for running queries: what was measured, a question to `probe_orders` of that, and its answer weighed.

The engine keeps rows where they are and an index for every key: no step is a broadcast (chi = 1), and any order may
be taken up at any batch. What it can keep besides are joins of two relations, found by rows that come before or after
both of them in the order of relations. That order is part of the answer: where no order allows all that a plan wants,
orders are tried with plans that keep to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from thalweg.model.canonical import named
from thalweg.model.join_statistics import Estimate, PredicateSample
from thalweg.model.probe import Role
from thalweg.model.probe_order import Edge, Found, OrderedJoin, OrdersByStart, ProbeOrder
from thalweg.optimize import probe_orders
from thalweg.optimize.deadline import SECONDS, Clock, Deadline
from thalweg.optimize.probe_orders.model import JoinQuery, Plan, Predicate, Statistics, Step, Store
from thalweg.optimize.relation_order import MOST_TRIED, Look, can_find, every_order, order_relations

WORTH = 0.05
"""What a decision must save of the cost of what is in force, to be adopted."""
ALONE_SECONDS = 0.05
"""In which a query of five relations is planned by itself, mostly to the optimum."""
LARGEST = 2
"""Relations of an intermediate that the engine can keep."""
CLOSE = 1e-9
"""Costs that differ by this share are the same."""


# -- what was measured


def rows_key(stream: str) -> str:
    return f"rows|{stream}"


def pairs_key(known: str, found: str, key: str, asked: str = "") -> str:
    """`asked`: of rows that some query of a cohort wants. Without it: of all cohorts, as if every row were wanted."""
    return "|".join(("pairs", known, found, key, *([asked] if asked else [])))


def asked_of(known: Role, found: Role) -> str:
    """What the queries of a cohort ask of two relations, by name; empty where one of them wants every pair.

    The name is the same whatever queries ask it, in whatever cohort: what was measured with it outlives them.
    """
    pairs = {
        (a.predicate.id if a.predicate is not None else "", b.predicate.id if b.predicate is not None else "")
        for a in known.wants
        for b in found.wants
        if a.queries & b.queries
    }
    return "" if ("", "") in pairs or not pairs else named("a", sorted(pairs))


def partners(
    edges: Iterable[Edge],
    roles: Mapping[str, Role],
    estimates: Mapping[str, Estimate],
    samples: Mapping[str, PredicateSample],
) -> dict[Edge, float]:
    """(known, found, key) -> partners per row that looks for them, for the queries of a cohort."""
    found = {}
    for a, b, key in edges:
        for known, other in ((a, b), (b, a)):
            estimate = partners_of(roles[known], roles[other], key, estimates, samples)
            if estimate is not None:
                found[known, other, key] = estimate.value
    return found


def partners_of(
    known: Role, found: Role, key: str, estimates: Mapping[str, Estimate], samples: Mapping[str, PredicateSample]
) -> Estimate | None:
    """As it was measured where the same was asked. Where it was not yet: as over all cohorts, of the rows that are
    wanted here, as if keys had nothing to do with what is asked."""
    own = estimates.get(pairs_key(known.relation, found.relation, key, asked_of(known, found)))
    every = estimates.get(pairs_key(known.relation, found.relation, key))
    if own is not None or every is None:
        return own
    share = share_of(found, samples)
    return Estimate(every.value * share, every.error * share, every.batches, every.since)


def rows_of(
    roles: Iterable[Role], estimates: Mapping[str, Estimate], samples: Mapping[str, PredicateSample]
) -> dict[str, float]:
    """Relation -> rows per batch that some query of the cohort wants, of streams that have been measured."""
    measured = [(role, estimates.get(rows_key(role.stream))) for role in roles]
    return {role.relation: of.value * share_of(role, samples) for role, of in measured if of is not None}


def share_of(role: Role, samples: Mapping[str, PredicateSample]) -> float:
    """Of the relation's rows that some query of the cohort wants, as sampled; where it was not: all."""
    wanted = {want.predicate.id if want.predicate is not None else None for want in role.wants}
    sample = samples.get(role.stream)
    if None in wanted or sample is None or not sample.rows or not wanted <= {*sample.predicates}:
        return 1.0
    mask = sum(1 << sample.predicates.index(p) for p in wanted if p is not None)
    # None among those sampled does not mean that there are none.
    return max(0.5, sum(1 for row in sample.rows if row & mask)) / len(sample.rows)


def statistics_of(
    ordered: Iterable[OrderedJoin], rows: Mapping[str, float], found: Mapping[Edge, float]
) -> Statistics | None:
    """Rows per batch and selectivities, as the optimiser takes them; None where a relation has not been measured.

    Of a pair of rows the later one finds the earlier one, so a row finds half of what is joined in a window (CLASH
    Eq. 1's 1/j). Both directions together are the pairs made per batch: that is what a selectivity makes of the rows.
    """
    rates: dict[str, float] = {}
    selectivity: dict[Predicate, float] = {}
    for join in ordered:
        for relation in join.relations:
            if relation not in rows:
                return None
            rates[relation] = max(rows[relation], 1e-3)
        for a, b, key in join.edges:
            there, back = found.get((a, b, key)), found.get((b, a, key))
            forth = there if there is not None else None if back is None else back * rates[b] / rates[a]
            other = back if back is not None else None if there is None else there * rates[a] / rates[b]
            towards, backwards = (1.0 if m is None else m for m in (forth, other))
            selectivity[predicate_of((a, b, key))] = towards / rates[b] + backwards / rates[a]
    return Statistics(rates, selectivity)


# -- the optimiser's words


def predicate_of(edge: Edge) -> Predicate:
    one, other = f"{edge[0]}.{edge[2]}", f"{edge[1]}.{edge[2]}"
    return (one, other) if one <= other else (other, one)


def as_query(name: str, join: OrderedJoin) -> JoinQuery:
    return JoinQuery(name, join.relations, tuple(sorted(predicate_of(edge) for edge in join.edges)))


def as_plan(cohort: Mapping[str, OrderedJoin], stats: Statistics) -> Plan:
    """The orders that a cohort has, as a plan of the optimiser's."""
    steps: dict[tuple[str, str], tuple[Step, ...]] = {}
    stores: dict[tuple[Found, tuple[Predicate, ...]], Store] = {}
    for name, join in cohort.items():
        for start, order in join.orders.items():
            steps[name, start] = _steps((start,), order, join)
            for found in order:
                store = _store(found, join)
                known = stores.setdefault((store.relations, store.predicates), store)
                if name not in known.users:
                    stores[store.relations, store.predicates] = replace(known, users=(*known.users, name))
        for relation in join.relations:
            stores.setdefault(((relation,), ()), Store((relation,), (), None, (name,), 0.0))
    queries = tuple(as_query(name, join) for name, join in cohort.items())
    total = cost(cohort, stats)
    apart = probe_orders.cost_separately
    return Plan(steps, tuple(stores.values()), total, 0.0, "in force", queries, stats, LARGEST, apart)


def _steps(start: Found, order: ProbeOrder, join: OrderedJoin) -> tuple[Step, ...]:
    known, steps = set(start), []
    for found in order:
        within = join.among(found)
        between = [e for e in join.among({*known, *found}) if e not in within and e not in join.among(known)]
        steps.append(Step(found, None, _predicates(between), _predicates(within), 0.0, 1.0))
        known |= {*found}
    return tuple(steps)


def _store(found: Found, join: OrderedJoin) -> Store:
    """How it is kept filled: rows of either relation find the other's."""
    relations = tuple(sorted(found))
    orders = {r: _steps((r,), tuple((o,) for o in relations if o != r), join) for r in relations}
    return Store(relations, _predicates(join.among(found)), None, (), 0.0, orders if len(found) > 1 else {})


def _predicates(edges: Iterable[Edge]) -> tuple[Predicate, ...]:
    return tuple(sorted(predicate_of(edge) for edge in edges))


def looks_of(plan: Plan) -> list[Look]:
    """Who looks into which intermediate."""
    return [
        (start, tuple(sorted(step.relations)))
        for (_, start), steps in sorted(plan.probe_orders.items())
        for step in steps
        if len(step.relations) == LARGEST
    ]


def orders_of(plan: Plan, name: str, join: OrderedJoin, relations: Sequence[str]) -> OrdersByStart:
    """A query's orders in the plan, as the engine can run them where relations stand in this order."""
    return {start: feasible(start, plan.probe_orders[name, start], join, relations) for start in join.relations}


def feasible(start: str, steps: Sequence[Step], join: OrderedJoin, relations: Sequence[str]) -> ProbeOrder:
    order: list[Found] = []
    known = [start]
    for step in steps:
        found = tuple(sorted(step.relations))
        if len(found) == 1 or (len(found) == LARGEST and can_find(relations, (start, found))):
            order.append(found)
            known += found
        else:
            for relation in join.flat(start, (*order, found))[len(known) - 1 :]:
                order.append((relation,))
                known.append(relation)
    return tuple(order)


# -- what it costs


def cost(cohort: Mapping[str, OrderedJoin], stats: Statistics) -> float:
    """Tuples sent per batch: CLASH Eq. 1 with chi = 1, a step that several queries take once, and every row that is
    sent into an intermediate."""
    sent: dict[tuple[object, ...], float] = {}
    for join in cohort.values():
        for start, order in join.orders.items():
            _add_path(sent, join, start, order, stats)
            for pair in (found for found in order if len(found) > 1):
                within = join.among(pair)
                sent[("kept", pair, within)] = stats.storing * _rows(join, pair, stats)
                for relation in pair:
                    (other,) = (r for r in pair if r != relation)
                    _add_path(sent, join, relation, ((other,),), stats)
    return math.fsum(sent.values())


def _add_path(
    sent: dict[tuple[object, ...], float], join: OrderedJoin, start: str, order: ProbeOrder, stats: Statistics
) -> None:
    known: Found = (start,)
    path: tuple[object, ...] = (start,)
    for found in order:
        rows = _rows(join, known, stats) / len(known)
        known = (*known, *found)
        path = (*path, found, join.among(known))
        sent[path] = rows


def _rows(join: OrderedJoin, relations: Found, stats: Statistics) -> float:
    rows = math.prod(stats.rates[relation] for relation in relations)
    return rows * math.prod(stats.selectivity[predicate_of(edge)] for edge in join.among(relations))


# -- decisions


@dataclass(frozen=True)
class Judgement:
    """Of the orders of one cohort."""

    orders: Mapping[str, OrdersByStart] | None
    """None: those in force are good enough."""
    now: float
    better: float
    """What the best orders found cost."""
    method: str


def judge(
    cohort: Mapping[str, OrderedJoin], stats: Statistics, *, budget_seconds: float, clock: Clock = SECONDS
) -> Judgement:
    """Whether other orders are worth a switch. They are worth it if they save `WORTH` of what is in force."""
    now = cost(cohort, stats)
    deadline = Deadline.after(budget_seconds, clock)
    queries = [as_query(name, join) for name, join in cohort.items()]
    plans = [
        probe_orders.optimize(queries, stats, budget_seconds=budget_seconds / 3, materialize=most, clock=clock)
        for most in (False, LARGEST)
    ]
    found = [_as_run(cohort, stats, plan) for plan in plans]
    free = found[-1]
    # No order of relations makes a plan cheaper than the one that minds none.
    if free.cost > free.plan.cost * (1.0 + CLOSE):
        tried = _orders_to_try(cohort, free.plan)
        for i, relations in enumerate(tried):
            share = max(deadline.left, 0.0) / (len(tried) - i)
            plan = probe_orders.optimize(
                queries, stats, budget_seconds=share, materialize=LARGEST, order=relations, clock=deadline.clock
            )
            found.append(_as_run(cohort, stats, plan, relations))
    best = min(found, key=lambda one: one.cost)
    worth = best.cost < (1.0 - WORTH) * now
    return Judgement(best.orders if worth else None, now, best.cost, best.plan.method)


def _orders_to_try(cohort: Mapping[str, OrderedJoin], plan: Plan) -> list[tuple[str, ...]]:
    """Of few relations, the orders that allow something no other allows as well; of many, the best one for a plan."""
    names = {relation for join in cohort.values() for relation in join.relations}
    if len(names) > MOST_TRIED:
        return [order_relations(names, looks_of(plan))]
    pairs = {(start, edge[:2]) for join in cohort.values() for start in join.relations for edge in join.edges}
    allowed: dict[frozenset[Look], tuple[str, ...]] = {}
    for order in every_order(names):
        allowed.setdefault(frozenset(look for look in pairs if can_find(order, look)), order)
    return [order for looks, order in allowed.items() if not any(looks < other for other in allowed)]


@dataclass(frozen=True)
class _Run:
    """A plan as the engine would run it."""

    plan: Plan
    orders: Mapping[str, OrdersByStart]
    cost: float


def _as_run(cohort: Mapping[str, OrderedJoin], stats: Statistics, plan: Plan, relations: Sequence[str] = ()) -> _Run:
    """In this order of relations, or in the one that allows most of what the plan wants."""
    names = {relation for join in cohort.values() for relation in join.relations}
    relations = relations or order_relations(names, looks_of(plan))
    orders = {name: orders_of(plan, name, join, relations) for name, join in cohort.items()}
    return _Run(plan, orders, cost(reordered(cohort, orders), stats))


def cost_apart(
    cohort: Mapping[str, OrderedJoin], stats: Statistics, *, budget_seconds: float, clock: Clock = SECONDS
) -> float:
    """What the queries cost with each planned by itself. Of those that join the same, one is planned."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, join in cohort.items():
        alike.setdefault((join.relations, join.edges), []).append(name)
    total = 0.0
    for names in alike.values():
        alone = {names[0]: cohort[names[0]]}
        share = max(ALONE_SECONDS, budget_seconds / len(alike))
        judged = judge(alone, stats, budget_seconds=share, clock=clock)
        total += len(names) * min(judged.now, judged.better)
    return total


def reordered(cohort: Mapping[str, OrderedJoin], orders: Mapping[str, OrdersByStart]) -> dict[str, OrderedJoin]:
    return {name: replace(join, orders=orders[name]) for name, join in cohort.items()}


def attached(
    cohort: Mapping[str, OrderedJoin], new: Mapping[str, OrderedJoin], stats: Statistics
) -> dict[str, OrdersByStart]:
    """Orders for new queries beside those of a cohort, which stay as they are (AJoin's eager sharing)."""
    plan = as_plan(cohort, stats)
    for name, join in new.items():
        plan = probe_orders.attach(plan, as_query(name, join))
    relations = order_relations((r for query in plan.queries for r in query.relations), looks_of(plan))
    return {name: orders_of(plan, name, join, relations) for name, join in new.items()}
