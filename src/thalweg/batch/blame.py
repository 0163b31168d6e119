"""Whom a failure concerns."""

from __future__ import annotations

from thalweg.foreign import brief
from thalweg.model.failure import Failing, Failures, OfColumn, OfPartial, OfQuery
from thalweg.model.plan import Plan, queries_of


def blame(plan: Plan, failures: Failures) -> dict[str, str]:
    """query id -> error, for what failed: a computed column of a stream or a partial of a grouping takes every query
    along that needs it there."""
    blamed: dict[str, str] = {}
    for failing, message in failures.items():
        for query in sorted(_concerned(plan, failing)):
            blamed.setdefault(query, message)
    return {query: brief(message) for query, message in blamed.items()}


def _concerned(plan: Plan, failing: Failing) -> set[str]:
    match failing:
        case OfColumn(stream, column):
            return {*plan.streams[stream].users.get(column, ())}
        case OfPartial(grouping, partial):
            users = plan.streams[plan.groupings[grouping].stream].users
            return _fed_by(plan, grouping) & {*users.get(partial, ())}
        case OfQuery(query):
            known = {m.query for m in plan.members} | {s.query for p in plan.streams.values() for s in p.selections}
            return known & {query}


def _fed_by(plan: Plan, grouping: str) -> set[str]:
    """The queries of a grouping and of those that are made from its partials."""
    fed = {grouping}
    while more := {id_ for id_, g in plan.groupings.items() if g.rolled_up_from in fed} - fed:
        fed |= more
    return queries_of(plan, fed)
