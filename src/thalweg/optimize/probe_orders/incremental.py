"""A plan kept current between full runs: queries attached and detached one at a time (AJoin Section 4).

What is installed stays as it is. A new query shares as much of it as saves it something; a query that goes takes with
it what nobody else needs. So the plan drifts from the optimum: `needs_full_run` says when to plan all queries anew.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from thalweg import errors
from thalweg.optimize.deadline import SECONDS, Clock, Deadline
from thalweg.optimize.probe_orders.assemble import Wording, by_size, label_partitions
from thalweg.optimize.probe_orders.forest import Path, ProbeForest
from thalweg.optimize.probe_orders.model import JoinQuery, Plan, Statistics, Step
from thalweg.optimize.probe_orders.optimizer import make_plan
from thalweg.optimize.probe_orders.search import Search, cheapest_rest, shared_bound
from thalweg.optimize.probe_orders.space import Move, Space
from thalweg.optimize.probe_orders.validate import check_number, check_query, check_statistics

CHANGED = 0.5
"""The share of queries created and dropped above which all are planned anew: AJoin's threshold."""
DRIFT = 1.5
"""Measured costs this many times above or below the expected ones mean that the statistics are old."""


@dataclass(frozen=True)
class FullRun:
    """Whether all queries should be planned anew, and why. It is true if they should."""

    needed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.needed


def attach(
    plan: Plan,
    query: JoinQuery,
    stats: Statistics | None = None,
    *,
    budget_seconds: float = 0.0,
    clock: Clock = SECONDS,
) -> Plan:
    """The plan with one more query. `stats` must know what is new in it; what it does not say is as it was.

    At once the query gets the orders that add least to what is installed, and stores of its own where they pay. Then,
    within the budget, it is placed by cost: the queries that share with it may change too. With a budget of 0, all
    orders and partitions that are in force stay as they are.
    """
    check_number("budget_seconds", budget_seconds, 0.0)
    deadline = Deadline.after(budget_seconds, clock)
    added, merged = check_query(query), _merged(plan.statistics, stats)
    if any(added.name == other.name for other in plan.queries):
        raise errors.bad_join_query(added.name, "there are two queries of this name")
    near = plan.queries if budget_seconds > 0.0 or _changed(plan.statistics, merged) else _near(plan, added)
    queries = (*near, added)
    space = Space(queries, check_statistics(merged, queries), plan.materialize, _partitions(plan))
    search = _running(plan, space)
    before = search.forest.cost
    number = space.graph_of[-1]
    useful = [store for store in space.intermediates if number in space.within[store]]
    in_force = {space.find(store.relations, store.predicates) for store in plan.stores}
    _attach_at_once(search, number, useful, in_force)
    search.forest.shed(in_force)
    if len(near) < len(plan.queries):
        return _grown(plan, search.forest, search.forest.cost - before)
    search.deadline = deadline
    search.improve(useful)
    search.explore(useful)
    found = make_plan(space, search.forest, shared_bound(space, space.graphs), "attach")
    return replace(found, changed=plan.changed + 1)


def _attach_at_once(search: Search, number: int, useful: list[int], in_force: Collection[int | None]) -> None:
    targets = [(number, start) for start in search.space.graph(number).starts]
    if targets[0] in search.forest.leaves:
        # An equal query runs already, or its result is kept as a store.
        return
    for target in targets:
        search.forest.put(target, search.best(target)[1])
    for store in search.promising(useful):
        search.attempt_store(store, [target for target in search.affected(store) if target in targets])
    search.attempt_partitions([store for store in search.forest.probes if store not in in_force], targets)


def _near(plan: Plan, query: JoinQuery) -> tuple[JoinQuery, ...]:
    """The queries that can share a step with this one: they have a predicate in common."""
    predicates = set(query.predicates)
    return tuple(other for other in plan.queries if not predicates.isdisjoint(other.predicates))


def _grown(plan: Plan, forest: ProbeForest, added: float) -> Plan:
    """The plan with the last query of a forest that knows only the queries near it."""
    query, number = forest.space.queries[-1], forest.space.graph_of[-1]
    there = {(store.relations, store.predicates): store for store in plan.stores}
    if forest.space.chi == 1.0:
        label_partitions(forest.space, forest, [s for s in forest.probes if forest.space.identity(s) not in there])
    words = Wording(forest)
    stores = dict(there)
    for store in words.stores():
        if query.name in store.users:
            key = store.relations, store.predicates
            stores[key] = replace(there[key], users=(*there[key].users, query.name)) if key in there else store
    orders = {(query.name, relation): order for relation, order in words.orders_of(number).items()}
    return replace(
        plan,
        probe_orders={**plan.probe_orders, **orders},
        stores=tuple(sorted(stores.values(), key=by_size)),
        cost=plan.cost + added,
        method="attach",
        queries=(*plan.queries, query),
        statistics=_merged(plan.statistics, forest.space.statistics),
        changed=plan.changed + 1,
    )


def detach(plan: Plan, name: str) -> Plan:
    """The plan without a query, and without the steps and stores that nobody else needs."""
    gone = next((query for query in plan.queries if query.name == name), None)
    if gone is None:
        raise errors.not_in_join_plan(name, [query.name for query in plan.queries])
    near = tuple(query for query in _near(plan, gone) if query is not gone)
    space = Space((*near, gone), plan.statistics, plan.materialize, _partitions(plan))
    forest = _running(plan, space).forest
    before = forest.cost
    stores = [replace(store, users=tuple(user for user in store.users if user != name)) for store in plan.stores]
    number = space.graph_of[-1]
    unused = {(store.relations, store.predicates) for store in stores if not store.users}
    dead = {store for store in forest.kept if space.identity(store) in unused}
    still_needed = {*space.graph_of[:-1], *(forest.kept - dead)}
    for other in sorted({number, *dead} - still_needed):
        for start in space.graph(other).starts:
            forest.take((other, start))
    for store in sorted(dead):
        forest.drop(store)
    left = tuple(query for query in plan.queries if query is not gone)
    cost = plan.cost + forest.cost - before if left else 0.0
    return replace(
        plan,
        probe_orders={key: steps for key, steps in plan.probe_orders.items() if key[0] != name},
        stores=tuple(store for store in stores if store.users),
        cost=cost,
        bound=min(_bound_without(plan, gone, left), cost),
        method="detach",
        queries=left,
        changed=plan.changed + 1,
    )


def _bound_without(plan: Plan, gone: JoinQuery, left: tuple[JoinQuery, ...]) -> float:
    """What the rest costs at least: the optimum falls by no more than the query costs at worst; and rows arrive."""
    space = Space((gone,), plan.statistics, materialize=False)
    graph = space.graphs[space.graph_of[0]]
    worst = cheapest_rest(space, graph, None, lambda head, _: space.sent[head] * space.chi)
    arriving = {name for query in left if len(query.relations) > 1 for name in query.relations}
    least = math.fsum(plan.statistics.rates[name] for name in arriving)
    return max(plan.bound - math.fsum(worst[start][0] for start in graph.starts), least)


def needs_full_run(
    plan: Plan | None,
    changed: int | Collection[str] | None = None,
    queries: int | Collection[object] | None = None,
    measured_cost_ratio: float = 1.0,
) -> FullRun:
    """Whether it is time to plan all queries anew.

    `changed`: queries created and dropped since that was done (None: as the plan has counted them); `queries`: all
    that run now; `measured_cost_ratio`: rows that are really sent, divided by the plan's cost. Where the first two
    are given, the plan itself may be None.
    """
    known: Collection[object] = () if plan is None else plan.queries
    made = 0 if plan is None else plan.changed
    count = made if changed is None else changed if isinstance(changed, int) else len(changed)
    total = len(known) if queries is None else queries if isinstance(queries, int) else len(queries)
    check_number("measured_cost_ratio", measured_cost_ratio, 0.0)
    if count > CHANGED * total:
        return FullRun(True, f"{count} of {total} queries have changed, more than {CHANGED:.0%}")
    if not 1.0 / DRIFT <= measured_cost_ratio <= DRIFT:
        return FullRun(True, f"the measured cost is {measured_cost_ratio:.2g} times the expected one")
    return FullRun(False, f"{count} of {total} queries have changed, and the measured cost is as expected")


def _merged(old: Statistics, new: Statistics | None) -> Statistics:
    if new is None:
        return old
    # Old predicates are the way round that the check gave them; new ones come either way, and count.
    given = {frozenset(predicate) for predicate in new.selectivity}
    kept = {predicate: share for predicate, share in old.selectivity.items() if frozenset(predicate) not in given}
    return Statistics({**old.rates, **new.rates}, {**kept, **new.selectivity}, new.parallelism, new.storing)


def _changed(old: Statistics, new: Statistics) -> bool:
    """Whether the new statistics say something else about what the old ones knew."""
    if (old.parallelism, old.storing) != (new.parallelism, new.storing):
        return True
    shares = {**new.selectivity, **{(other, one): share for (one, other), share in new.selectivity.items()}}
    return any(new.rates[name] != rate for name, rate in old.rates.items()) or any(
        shares[predicate] != share for predicate, share in old.selectivity.items()
    )


def _partitions(plan: Plan) -> list[str]:
    return [store.partition for store in plan.stores if store.partition is not None]


def _running(plan: Plan, space: Space) -> Search:
    """What the plan has installed for the queries that are in the space, as far as it can be told there."""
    attributes = {name: i for i, name in enumerate(space.attributes)}
    forest = ProbeForest(space)
    orders: dict[tuple[int, int], tuple[Step, ...]] = {}
    for store in plan.stores:
        number = space.find(store.relations, store.predicates)
        if number is None:
            continue
        if store.partition is not None:
            forest.partition[number] = attributes[store.partition]
        if store.intermediate and number in space.within:
            forest.keep(number)
            orders |= {(number, _start(space, r)): steps for r, steps in store.probe_orders.items()}
    search = Search(space, Deadline.after(math.inf), forest)
    for query, number in zip(space.queries, space.graph_of, strict=True):
        for relation in query.relations:
            steps = plan.probe_orders.get((query.name, relation))
            if steps is not None:
                orders[number, _start(space, relation)] = steps
    for target, steps in orders.items():
        path = _path(space, target[1], steps)
        usable = path is not None and all(space.base[store] or store in forest.kept for store, _ in path)
        forest.put(target, path if path is not None and usable else search.best(target)[1])
    return search


def _start(space: Space, relation: str) -> int:
    number = space.find((relation,), ())
    if number is None:
        raise AssertionError(f"{relation} is a relation of a query")
    return number


def _path(space: Space, start: int, steps: tuple[Step, ...]) -> Path | None:
    moves: list[Move] = []
    relations, predicates = set(space.named(space.relations[start])), set[tuple[str, str]]()
    for step in steps:
        relations.update(step.relations)
        predicates.update(step.predicates, step.within)
        store, found = space.find(step.relations, step.within), space.find(relations, predicates)
        if store is None or found is None:
            return None
        moves.append((store, found))
    return tuple(moves)
