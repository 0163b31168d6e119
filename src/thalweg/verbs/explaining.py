"""EXPLAIN: the plan as it is now, in words or as a drawing; of a file of statements, over a copy of a state."""

from __future__ import annotations

from thalweg import errors
from thalweg.batch.requests import running_queries
from thalweg.model.plan_input import PlanInput, PlanSettings
from thalweg.observe.drawing import FORMS, draw
from thalweg.observe.explain import explain_failed, explain_plan, explain_query
from thalweg.observe.shown import Explanation
from thalweg.optimize.planner import make_plan
from thalweg.state.definitions import copy_state
from thalweg.verbs.parts import SessionParts

__all__ = ["copy_state", "explain"]


def explain(parts: SessionParts, name: str | None, form: str) -> str:
    if form not in ("text", *FORMS):
        raise errors.unknown_form(form, ("text", *FORMS))
    with parts.mutex:
        runner, catalog = parts.runner, parts.catalog
        entries = [parts.entry_of(h) for h in catalog.queries.values()]
        manifest = runner.manifest
        decided = runner.adaptations.decided(manifest.measured, manifest.batch + 1)
        given = PlanInput(
            running_queries(entries),
            catalog.streams,
            {t.name: t.schema for t in catalog.tables.values()},
            decided.measurements,
            decided.placement,
            PlanSettings(decided.slots, manifest.groups),
        )
        plan = make_plan(given)
        id_ = None if name is None else parts.entry_of(catalog.query(name)).id
        failed = {e.id: e for e in entries if not e.runs}
        names = {e.id: e.query for e in entries if e.id not in failed}
        if form in FORMS:
            return Explanation(FORMS[form](draw(plan, names, manifest, id_)))
        loop, kept = runner.adaptations, manifest.measured
        reports = loop.partitioning_report(kept), loop.ordering_report(kept)
        if id_ is None:
            failures = {e.query.name: e.error or "" for e in failed.values()}
            return Explanation(explain_plan(plan, names, manifest, *reports, failures))
        if id_ in failed:
            return Explanation(explain_failed(failed[id_].query, failed[id_].error or ""))
        return Explanation(explain_query(plan, names, id_, manifest, *reports))
