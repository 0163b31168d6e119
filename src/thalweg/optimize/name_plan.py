"""After the last rule that changes anything: the plan is named by what it is."""

from __future__ import annotations

from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.optimize.draft import Draft


def name_plan(draft: Draft, last: Draft) -> Draft:
    return replace(draft, plan=replace(draft.plan, id=named("plan", draft.plan)))
