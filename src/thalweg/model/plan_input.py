"""All that a plan is made from: what runs, over what, what was measured of it, and what was decided by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from thalweg.model.join_statistics import Estimate, PredicateSample
from thalweg.model.probe_order import Edge, OrdersByStart
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream

KEY_GROUPS = 256
"""Key groups per route key: enough to spread over hundreds of slots, few enough to list in a bucket."""


class RunningQuery(NamedTuple):
    """A query as the engine runs it. A tuple: two thousand are compared before every plan."""

    id: str
    query: Query
    fence: tuple[int, int] | None = None
    complete_from: int | None = None
    """Of one that came while others ran: the event time after which all rows of its joins are there."""


class GroupingLoad(NamedTuple):
    """What was measured of a grouping, an average over recent batches."""

    groups_per_row: float
    """Among the rows of a task, wherever they are grouped."""
    in_slots: bool = False
    """Whether it is made from rows in the slots."""


@dataclass(frozen=True)
class JoinLoad:
    """What was measured of the joins so far."""

    samples: Mapping[str, PredicateSample] = field(default_factory=dict)
    """By stream."""
    matches: Mapping[Edge, float] = field(default_factory=dict)
    """(known, found, key) -> partners per row in recent batches, over all cohorts."""
    cohorts: tuple[tuple[str, ...], ...] = ()
    """The cohorts of the plan before."""
    ready: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """intermediate -> the queries for which it holds all that it should."""
    held: Mapping[str, float] = field(default_factory=dict)
    """stream -> how many batches' rows its store holds."""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    """What is believed of the joins, gathered over epochs."""
    orders: Mapping[str, OrdersByStart] = field(default_factory=dict)
    """query -> the orders that were decided for it."""


@dataclass(frozen=True)
class PlanMeasurements:
    """What batches before have shown."""

    groupings: Mapping[str, GroupingLoad] = field(default_factory=dict)
    """By grouping."""
    joins: JoinLoad = field(default_factory=JoinLoad)
    kept_rows: frozenset[str] = frozenset()
    """The streams whose rows are kept as they are, so far."""


@dataclass(frozen=True)
class Placement:
    """What was decided about where rows go. All by route key."""

    assignment: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The slot of each key group."""
    co_located_with: Mapping[str, str] = field(default_factory=dict)
    """Whose rows go where those of another do."""
    partitioners: Mapping[str, str] = field(default_factory=dict)
    """What deals rows out."""
    spread: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Key groups that several slots share."""


@dataclass(frozen=True)
class PlanSettings:
    slots: int = 1
    key_groups: int = KEY_GROUPS


@dataclass(frozen=True)
class PlanInput:
    """The same input always gives the same plan."""

    queries: Sequence[RunningQuery]
    streams: Mapping[str, Stream]
    tables: Mapping[str, Schema] = field(default_factory=dict)
    measurements: PlanMeasurements = field(default_factory=PlanMeasurements)
    decisions: Placement = field(default_factory=Placement)
    settings: PlanSettings = field(default_factory=PlanSettings)
    held_rows: frozenset[str] = frozenset()
    """The streams of which the state holds rows as they are."""
