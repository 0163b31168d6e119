"""Checks that a plan of joins is one, and counts again what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import joins_reference as reference
import pytest
from joins_inputs import Workload

from thalweg.optimize.probe_orders import Plan, Step, Store

Pairs = Iterable[tuple[str, str]]
CLOSE = 1e-9
"""Relative; costs are sums of products."""


def audit(plan: Plan, workload: Workload, *, materialize: bool = True) -> None:
    """Asserts what holds for every plan, however good."""
    stores = {named(s.relations, s.predicates): s for s in plan.stores}
    assert len(stores) == len(plan.stores), "a store is listed once"
    given = workload.reference
    asked = {(name, start) for name, goal in given.queries.items() for start in goal.relations}
    assert set(plan.probe_orders) == asked
    paid: dict[tuple[str, reference.Step], float] = {}
    for (name, start), order in plan.probe_orders.items():
        paid |= _followed(given, given.queries[name], start, order, stores)
    stored = 0.0
    for key, store in stores.items():
        assert store.rows == pytest.approx(given.rows(key.relations, key.predicates), rel=CLOSE)
        assert store.partition is None or reference.relation_of(store.partition) in key.relations
        assert store.intermediate == (len(key.relations) > 1)
        if store.intermediate:
            assert materialize, "an intermediate store where none may be"
            assert set(store.probe_orders) == key.relations
            stored += given.rows(key.relations, key.predicates)
        else:
            assert not store.probe_orders
        for start, order in store.probe_orders.items():
            paid |= _followed(given, key, start, order, stores)
    assert {key: set(store.users) for key, store in stores.items()} == _users(plan, stores)
    assert plan.cost == pytest.approx(sum(paid.values()) + workload.storing * stored, rel=CLOSE)
    assert plan.bound <= plan.cost * (1 + CLOSE)


def named(relations: Iterable[str], predicates: Pairs) -> reference.Store:
    return reference.Store(frozenset(relations), frozenset(map(frozenset, predicates)))


def _followed(
    given: reference.Input,
    goal: reference.Store,
    start: str,
    order: Sequence[Step],
    stores: Mapping[reference.Store, Store],
) -> dict[tuple[str, reference.Step], float]:
    """The steps of one probe order, checked, with what they cost."""
    probed = tuple(named(step.relations, step.within) for step in order)
    head = frozenset({start})
    for store, step in zip(probed, order, strict=True):
        assert store in stores, "a store that is probed is kept"
        assert step.partition == stores[store].partition
        assert not head & store.relations
        assert reference.between(goal, head, store), "no cross products"
        assert frozenset(map(frozenset, step.predicates)) == reference.between(goal, head, store)
        assert store.predicates == reference.among(goal.predicates, store.relations)
        head |= store.relations
    assert head == goal.relations
    partitions = {store: step.partition for store, step in zip(probed, order, strict=True) if step.partition}
    costs = {}
    for key, step in zip(reference.steps(goal, start, probed), order, strict=True):
        costs[start, key] = reference.step_cost(given, start, key, partitions)
        assert step.cost == pytest.approx(costs[start, key], rel=CLOSE)
    return costs


def _users(plan: Plan, stores: Mapping[reference.Store, Store]) -> dict[reference.Store, set[str]]:
    """Who probes a store, or probes one that it helps to fill."""
    found: dict[reference.Store, set[str]] = {store: set() for store in stores}

    def use(name: str, order: Sequence[Step]) -> None:
        for step in order:
            store = named(step.relations, step.within)
            if name not in found[store]:
                found[store].add(name)
                for inner in stores[store].probe_orders.values():
                    use(name, inner)

    for (name, _), order in plan.probe_orders.items():
        use(name, order)
    assert all(found.values()), "a store that nobody needs"
    return found
