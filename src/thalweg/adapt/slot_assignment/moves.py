"""What a switch of key groups moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from thalweg.adapt.routing_totals import Floats
from thalweg.model.bucket import SliceBucket
from thalweg.model.measurements import KeyGroupMoves, SlotAssignment
from thalweg.model.plan import Plan, route_key, route_keys
from thalweg.optimize.slot_assignment import RouteKey
from thalweg.route.bucket import decode_offsets
from thalweg.route.table import routing_table


def next_moves(decided: SlotAssignment, plan: Plan, batch: int) -> KeyGroupMoves:
    """The last switch, after `batch`: in which batch, and how many key groups it moved; and how many switches there
    have been. `decided`: what the batch before ran with."""
    if decided.slots != plan.slots:
        return decided.moves
    old, co_located_with = decided.assignment, decided.co_located_with
    used = route_keys(plan)
    moved = 0
    for name in sorted({*old, *plan.assignment} & used):
        then = np.array(old[name]) if name in old else routing_table(plan, "").owners
        moved += int(np.count_nonzero(routing_table(plan, name).owners != then))
    still = {key: leader for key, leader in co_located_with.items() if key in used and leader in used}
    if not moved and still == plan.co_located_with:
        return decided.moves
    return KeyGroupMoves(batch, moved, decided.moves.switches + 1)


def held_rows(plan: Plan, buckets: Iterable[SliceBucket]) -> dict[str, Floats]:
    """Rows in the state by route key and key group."""
    held: dict[str, Floats] = {}
    for bucket in buckets:
        grouping = plan.groupings.get(bucket.relation)
        if grouping is not None:
            rows = np.diff(decode_offsets(bucket.offsets)).astype(np.float64)
            held[grouping.route_key] = held.get(grouping.route_key, 0.0) + rows
    return held


def joined_keys(plan: Plan) -> Iterator[tuple[RouteKey, RouteKey]]:
    """The two sides of every first probe: SASPAR assigns them alike (Eq. 3)."""
    for cohort in plan.joins.cohorts.values():
        for tree in cohort.trees:
            for child in tree.children:
                own = plan.joins.stores[tree.stream].index(child.own)
                other = plan.joins.stores[child.stream].index(child.index)
                sides = (
                    (tree.stream, route_key(tree.stream, own.keys)),
                    (child.stream, route_key(child.stream, other.keys)),
                )
                if sides[0] != sides[1]:
                    yield (sides[0], sides[1]) if sides[0] < sides[1] else (sides[1], sides[0])
