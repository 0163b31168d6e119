"""Last of those that say where rows go, because what a partitioner deals out neither leads nor follows: rows of one
route key go along with those of another, whose slots they share.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.plan import shipped_keys
from thalweg.optimize.choose_partitioners import bound_to_slots
from thalweg.optimize.draft import Draft


def follow_route_keys(draft: Draft, last: Draft) -> Draft:
    """Who may follow whom: both are sent whole from one stream."""
    plan, co_located_with = draft.plan, draft.given.decisions.co_located_with
    if not co_located_with:
        return draft
    bound = bound_to_slots(plan) | {*plan.partitioners}
    found = {}
    for stream in plan.streams.values():
        keys = shipped_keys(plan, stream)
        for key in keys:
            leader = co_located_with.get(key)
            if leader in keys and leader not in {*co_located_with, *plan.partitioners} and key not in bound:
                found[key] = leader
    return replace(draft, plan=replace(plan, co_located_with=dict(sorted(found.items()))))
