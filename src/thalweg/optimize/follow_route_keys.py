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
    plan, follows = draft.plan, draft.given.decisions.follows
    if not follows:
        return draft
    bound = bound_to_slots(plan) | {*plan.partitioners}
    found = {}
    for stream in plan.streams.values():
        keys = shipped_keys(plan, stream)
        for key in keys:
            leader = follows.get(key)
            if leader in keys and leader not in {*follows, *plan.partitioners} and key not in bound:
                found[key] = leader
    return replace(draft, plan=replace(plan, follows=dict(sorted(found.items()))))
