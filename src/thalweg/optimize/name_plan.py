"""After the last rule that changes anything: the plan is named by what it is, so that nobody takes it for another.

The name is made from names of parts, and a part keeps the name that it was given: of a plan that differs in one
query, one query is written. Members and selections have one name, to which each adds its own.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.optimize.draft import Draft


def name_plan(draft: Draft, last: Draft) -> Draft:
    plan, queries = draft.plan, draft.begun(last).queries_name
    for running in draft.new:
        parts = draft.parts[running.id].value
        queries = named("", queries, parts.member, parts.selection)
    name = named(
        "plan",
        (plan.slots, plan.groups),
        queries,
        [(name, part.value.name) for name, part in draft.planned.items()],
        (plan.assignment, plan.follows, plan.partitioners, plan.pinned, plan.spread),
        _joins(draft),
    )
    return replace(draft, queries_name=queries, plan=replace(plan, id=name))


def _joins(draft: Draft) -> tuple[object, ...]:
    plan = draft.join_plan
    return (
        [part.value.name for part in draft.grown.values()],
        [part.name for part in draft.stores.values()],
        [part.name for part in draft.kept_stores.values()],
        [part.name for part in draft.kept.values()],
        list(plan.joined.values()),
        (plan.stages, plan.notes, tuple(plan.limits.items())),
    )
