"""After the last rule that changes anything: the plan is named by what it is, so that nobody takes it for another.

The name is made from names of parts, and a part keeps the name that it was given: of a plan that differs in one
query, one query is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.model.probe import Store
from thalweg.optimize.draft import Draft


def name_plan(draft: Draft, last: Draft) -> Draft:
    plan, new = draft.plan, {running.id: draft.parts[running.id].value.name for running in draft.new}
    queries = draft.of_queries(draft.begun(last).query_names, new)
    joined = {
        name: last.joined_names[name] if last.joined.get(name) is rows else named("", rows)
        for name, rows in plan.joins.joined.items()
    }
    name = named(
        "plan",
        (plan.slots, plan.groups),
        " ".join(queries.values()),
        [(name, part.value.name) for name, part in draft.planned.items()],
        (plan.assignment, plan.co_located_with, plan.partitioners, plan.pinned, plan.spread),
        _joins(draft, joined),
    )
    return replace(draft, query_names=queries, joined_names=joined, plan=replace(plan, id=name))


def _joins(draft: Draft, joined: Mapping[str, str]) -> tuple[object, ...]:
    plan = draft.join_plan
    return (
        [part.value.name for part in draft.grown.values()],
        [_name_of(part.value) for part in draft.stores.values()],
        [part.name for part in draft.kept_stores.values()],
        [part.name for part in draft.kept.values()],
        tuple(joined.values()),
        (plan.stages, plan.notes, tuple(plan.limits), tuple(plan.limits.values())),
    )


def _name_of(store: Store) -> str:
    """By the names of its parts."""
    predicates = tuple([predicate.id for predicate in store.predicates])
    return named("", store.stream, store.time, store.columns, predicates, store.keeps_all, store.indexes, store.needs)
