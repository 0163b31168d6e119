"""After all parts have been planned by themselves: the plan, before it is said where its rows go."""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.plan import Plan, route_key
from thalweg.optimize.draft import Draft
from thalweg.optimize.roll_up import notes_of


def put_together(draft: Draft, last: Draft) -> Draft:
    settings, begun = draft.given.settings, draft.begun(last)
    found = {id_: g for name in draft.touched for id_, g in draft.planned[name].value.groupings.items()}
    # In the order in which queries have asked.
    groupings = {id_: found[id_] if id_ in found else begun.plan.groupings[id_] for id_ in draft.shared}
    plan = Plan(
        "",
        settings.slots,
        settings.key_groups,
        {name: part.value.plan for name, part in draft.planned.items()},
        groupings,
        tuple(draft.members.values()),
        pinned=dict(sorted(draft.pins.items())),
        joins=draft.join_plan,
        notes=_notes(draft, last),
    )
    return replace(draft, plan=plan)


def _notes(draft: Draft, last: Draft) -> tuple[str, ...]:
    chosen = {name: of_stream.chosen.value for name, of_stream in draft.rolled_up.items()}
    same = chosen == {name: of_stream.chosen.value for name, of_stream in last.rolled_up.items()}
    return last.plan.notes if same else notes_of(draft.rolled_up.values())


def route_keys_of(draft: Draft) -> set[str]:
    """The route keys in use: of groupings, and of the indexes by which joins are probed."""
    used = set[str]().union(*(part.value.route_keys for part in draft.planned.values()))
    for store in draft.join_plan.stores.values():
        used |= {route_key(store.stream, index.keys) for index in store.indexes}
    return used
