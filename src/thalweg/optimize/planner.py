"""Queries -> plan, rule by rule.

Each rule has a file with its name, which begins with why it stands where it stands. A rule sees the draft so far and
the whole draft of the last time, of which it takes what was made from the same.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.plan import Plan
from thalweg.model.plan_input import PlanInput
from thalweg.optimize.assign_slots import assign_slots
from thalweg.optimize.check_plan import check_plan
from thalweg.optimize.choose_partitioners import choose_partitioners
from thalweg.optimize.derive_streams import derive_streams
from thalweg.optimize.draft import NOTHING, Draft, Rule
from thalweg.optimize.follow_route_keys import follow_route_keys
from thalweg.optimize.form_cohorts import form_cohorts
from thalweg.optimize.grow_probe_trees import grow_probe_trees
from thalweg.optimize.keep_intermediates import keep_intermediates
from thalweg.optimize.keep_rows import keep_rows
from thalweg.optimize.lay_out_stores import lay_out_stores
from thalweg.optimize.name_plan import name_plan
from thalweg.optimize.order_probes import order_probes
from thalweg.optimize.prune_columns import prune_columns
from thalweg.optimize.put_together import put_together
from thalweg.optimize.roll_up import roll_up
from thalweg.optimize.send_rows_whole import send_rows_whole
from thalweg.optimize.share_expressions import share_expressions
from thalweg.optimize.share_slices import share_slices
from thalweg.optimize.split_aggregates import split_aggregates
from thalweg.optimize.split_joins import split_joins

__all__ = ("NOTHING", "RULES", "Draft", "make_plan", "plan_next")

RULES: tuple[Rule, ...] = (
    derive_streams,  # rows that joins yield are streams
    split_aggregates,  # each query by itself: partials, computed columns, a member
    split_joins,  # each join by itself: edges, predicates, indexes
    share_expressions,  # each computed column once
    share_slices,  # one grouping for equal keys, one grid for its windows
    roll_up,  # coarser from finer
    form_cohorts,  # which joins run together (AJoin)
    order_probes,  # in which order rows look for partners: decided, else default (CLASH)
    keep_intermediates,  # which joins of two relations are stored
    grow_probe_trees,  # probes that queries of a cohort share
    lay_out_stores,  # what is kept of streams, found by what
    keep_rows,  # whose rows are the state of their groupings
    send_rows_whole,  # what slots make from rows, not from partials (Holistic)
    prune_columns,  # what is read at all
    put_together,
    assign_slots,  # key groups and hot keys (SASPAR)
    choose_partitioners,  # who deals rows that are sent whole (Holistic, Dalton)
    follow_route_keys,  # whose rows go along with others
    name_plan,
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
