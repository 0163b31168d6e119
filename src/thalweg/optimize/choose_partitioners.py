"""After it is known which rows are sent whole, and before followers: a route key that a partitioner deals out neither
leads nor follows.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.partitioning import HASH, LOCAL
from thalweg.model.plan import Plan, shipped_keys
from thalweg.optimize.draft import Draft


def choose_partitioners(draft: Draft, last: Draft) -> Draft:
    """What deals out rows other than by the routing table, of the route keys for which that is possible."""
    plan = draft.plan
    sent = {key: found for stream in plan.streams.values() for key, found in shipped_keys(plan, stream).items()}
    if not sent:
        return draft
    chosen, pins = draft.given.decisions.partitioners, draft.pins
    wanted = {
        **{key: LOCAL for key, found in sent.items() if all(g.rows_are_partials for g in found)},
        **chosen,
        **pins,
    }
    # Joined rows come in any order. A partitioner would deal them out in another way when a task is run again, and
    # those that have seen the first attempt would miss some rows and have others twice.
    unordered = {name for name, joined in plan.joins.joined.items() if not joined.alone}
    fixed = {key for key, found in sent.items() if found[0].stream in unordered or plan.slots == 1}
    free = sent.keys() - bound_to_slots(plan)
    partitioners = {
        key: name
        for key, name in sorted(wanted.items())
        if key in free and name != HASH and (name == LOCAL or key not in fixed)
    }
    return replace(draft, plan=replace(plan, partitioners=partitioners))


def bound_to_slots(plan: Plan) -> set[str]:
    """Route keys whose rows are needed where their windows are, at once."""
    return {plan.groupings[m.main.grouping].route_key for m in plan.members if m.updates}
