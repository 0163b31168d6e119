"""A pipeline that is planned anew at every batch boundary, at random: results may not depend on it.

Where key groups are, who follows whom, what is made at the source and what in the slots, which partitioner deals out
the rows in between, which key groups of joins are probed by all slots, and in which order rows that are joined look
for partners.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from thalweg.model.measurements import Dealing
from thalweg.model.partitioning import Partitioning
from thalweg.model.plan import Plan, route_keys, shipped_keys
from thalweg.model.probe_order import OrderedJoin, OrdersInForce, ProbeOrder

PARTITIONERS = ("dalton", "shuffle", "partial_key", "affinity_count", "hybrid", "da_greedy", "prompt")


def unsettle(session: Any, seed: int, *, loads: bool = True) -> None:
    """From the first batch on, every batch of the session runs under another plan. Without `loads`, what was measured
    decides what is made where."""
    runner = session._parts.runner
    adaptations = runner.adaptations
    commit = adaptations.commit

    def commit_and_propose(learned: Any) -> None:
        commit(learned)
        plan, manifest = runner.plan, runner.manifest
        rng = random.Random(seed * 1000 + manifest.batch)
        adaptations.change("slot_assignment", proposed=random_partitioning(rng, plan))
        # What the next batch decides by, as if it had been measured.
        known = manifest.measured
        if loads:
            _replace(known.combining.loads, {id_: rng.choice([0.1, 1.0]) for id_ in sorted(plan.groupings)})
        keys = sorted(route_keys(plan))
        spread = {key: sorted(rng.sample(range(plan.groups), 5)) for key in keys}
        _replace(known.hot_join_keys.spread, spread)
        adaptations.change("probe_orders", coming=((0, random_ordering(rng, plan.joins.ordered)),))
        _replace(known.partitioners.dealing, {key: random_dealing(rng) for key in keys})

    adaptations.commit = commit_and_propose


def _replace(known: dict[str, Any], value: dict[str, Any]) -> None:
    known.clear()
    known.update(value)


def random_partitioning(rng: random.Random, plan: Plan) -> Partitioning:
    """Key groups anywhere, some route keys hashed, some led by others."""
    assignment = {
        name: [rng.randrange(plan.slots) for _ in range(plan.groups)]
        for name in sorted(route_keys(plan))
        if rng.random() < 0.8
    }
    co_located_with: dict[str, str] = {}
    for stream in plan.streams.values():
        keys = sorted(shipped_keys(plan, stream))
        leader = rng.choice([*keys, None])
        co_located_with |= {key: leader for key in keys if leader and key != leader and rng.random() < 0.7}
    return Partitioning(assignment, co_located_with, plan.slots)


def random_ordering(rng: random.Random, ordered: Mapping[str, OrderedJoin]) -> OrdersInForce:
    """Rows look for partners in any order, some in intermediates; some queries are left to what was measured."""
    orders = {
        query: {start: random_order(rng, join, start) for start in join.relations}
        for query, join in sorted(ordered.items())
        if rng.random() < 0.8
    }
    return OrdersInForce(orders, tuple(orders), reason="at random")


def random_order(rng: random.Random, join: OrderedJoin, start: str) -> ProbeOrder:
    pairs = [(a, b) for a in join.relations for b in join.relations if a < b and join.among((a, b))]
    # Of few, so that some last from one order to the next.
    pairs = [pair for pair in pairs[:2] if start not in pair] if rng.random() < 0.7 else []
    known: list[str] = [start]
    order: list[tuple[str, ...]] = []
    while len(known) < len(join.relations):
        found = [f for f in (*((r,) for r in join.relations), *pairs, *pairs) if not {*f} & {*known}]
        order.append(rng.choice([f for f in found if join.reaches(known, f)]))
        known += order[-1]
    return tuple(order)


def random_dealing(rng: random.Random) -> Dealing:
    name = rng.choice(("hash", "local", "dalton", rng.choice(PARTITIONERS)))
    return Dealing(rows=1, groups=1, top=0.5, busiest=0.5, partitioner=name, reason="at random")
