"""First of those that say where rows go, as the plan is put together: the slots that were decided for key groups, and
the hot key groups that several slots share, as far as they fit the plan.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.optimize.draft import Draft
from thalweg.optimize.put_together import route_keys_of


def assign_slots(draft: Draft, last: Draft) -> Draft:
    decided, plan = draft.given.decisions, draft.plan
    used = route_keys_of(draft) if decided.assignment or decided.spread else set()
    assignment = {
        key: tuple(slots)
        for key, slots in sorted(decided.assignment.items())
        if key in used and len(slots) == plan.groups and max(slots) < plan.slots
    }
    spread = {key: tuple(groups) for key, groups in sorted(decided.spread.items()) if key in used}
    return replace(draft, plan=replace(plan, assignment=assignment, spread=spread if plan.slots > 1 else {}))
