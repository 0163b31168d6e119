"""Queries -> plan, rule by rule.

Each rule has a file with its name, which begins with why it stands where it stands. A rule sees the draft so far and
the whole draft of the last time, of which it takes what was made from the same.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.plan import Plan
from thalweg.model.plan_input import PlanInput
from thalweg.optimize.check_plan import check_plan
from thalweg.optimize.draft import NOTHING, Draft, Rule
from thalweg.optimize.rules_of_joins import RULES_OF_JOINS
from thalweg.optimize.rules_of_queries import RULES_OF_QUERIES
from thalweg.optimize.rules_of_rows import RULES_OF_ROWS

__all__ = ("NOTHING", "RULES", "Draft", "make_plan", "plan_next")

RULES: tuple[Rule, ...] = (
    *RULES_OF_QUERIES,  # what each asks, and what they share
    *RULES_OF_JOINS,  # how joins run
    *RULES_OF_ROWS,  # what is kept of rows, and where they go
    check_plan,  # changes nothing
)


def make_plan(given: PlanInput) -> Plan:
    """One plan for all queries. The same input always gives the same plan."""
    return plan_next(given, NOTHING).plan


def plan_next(given: PlanInput, last: Draft) -> Draft:
    """The plan, with all that the next one may take from it. `last`: the draft that was made before, or NOTHING."""
    given = replace(given, queries=tuple(given.queries), streams=dict(given.streams), tables=dict(given.tables))
    if last is not NOTHING and len(given.queries) == len(last.given.queries) and given == last.given:
        return last
    draft = Draft(given)
    for rule in RULES:
        draft = rule(draft, last)
    return draft
