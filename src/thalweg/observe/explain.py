"""EXPLAIN: the plan in words that a person enjoys reading."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.model.plan import Grouping, Member, Plan
from thalweg.model.query import Query, Window
from thalweg.state.manifest import Manifest


def explain_plan(plan: Plan, queries: Mapping[str, Query], manifest: Manifest) -> str:
    """All queries: what is read once, what is shared by whom, what is rolled up from what."""
    raise NotImplementedError


def explain_query(plan: Plan, queries: Mapping[str, Query], id_: str, manifest: Manifest) -> str:
    raise NotImplementedError
