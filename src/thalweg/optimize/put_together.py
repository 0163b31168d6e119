"""After all parts have been planned by themselves: the plan, before it is said where its rows go."""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.plan import Grouping, Plan, route_key
from thalweg.optimize.draft import Draft
from thalweg.optimize.roll_up import notes_of


def put_together(draft: Draft, last: Draft) -> Draft:
    settings = draft.given.settings
    found: dict[str, Grouping] = {}
    for part in draft.planned.values():
        found.update(part.value.groupings)
    plan = Plan(
        "",
        settings.slots,
        settings.key_groups,
        {name: part.value.plan for name, part in draft.planned.items()},
        {id_: found[id_] for id_ in draft.shared},
        draft.members,
        pinned=dict(sorted(draft.pins.items())),
        joins=draft.join_plan,
        notes=notes_of({name: part.value for name, part in draft.rolled_up.items()}),
    )
    return replace(draft, plan=plan)


def route_keys_of(draft: Draft) -> set[str]:
    """The route keys in use: of groupings, and of the indexes by which joins are probed."""
    used = set[str]().union(*(part.value.route_keys for part in draft.planned.values()))
    for store in draft.join_plan.stores.values():
        used |= {route_key(store.stream, index.keys) for index in store.indexes}
    return used
