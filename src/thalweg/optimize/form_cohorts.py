"""After joins have been taken apart, before orders: only queries of one cohort can share a probe.

Which of them do is `cohorts`; here is what it is asked, and what of it stays the same until a join comes or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from thalweg.model.join_statistics import PredicateSample
from thalweg.model.probe_order import Edge
from thalweg.optimize.cohort_costs import Demand, Sides
from thalweg.optimize.cohorts import NOTHING, Judged, judge_cohorts
from thalweg.optimize.draft import Draft, JoinParts, Part, Queries
from thalweg.optimize.probe_trees import index_id

PROBE_COST = 20_000.0
"""What the probes of one edge cost a cohort in every batch before they have found anything, in rows."""
T = TypeVar("T")


def form_cohorts(draft: Draft, last: Draft) -> Draft:
    begun, load = draft.begun(last), draft.given.measurements.joins
    new = [draft.joins[running.id].value for running in draft.new if running.id in draft.joins]
    probing = [join for join in new if join.probes]
    relations = {**begun.relations, **{r.name: r.stream for join in new for r in join.join.relations}}
    demands = draft.of_queries(begun.demands, {join.id: _demand(join) for join in probing})
    sides = {**begun.sides, **{_name(join, edge): _sides(join, edge) for join in probing for edge in join.edges}}
    if not draft.only_adds:
        edges = frozenset[str]().union(*(demand.edges for demand in demands.values()))
        sides = {name: ends for name, ends in sides.items() if name in edges}
        names = {r.name for part in draft.joins.values() for r in part.value.join.relations}
        relations = {name: stream for name, stream in relations.items() if name in names}
    samples, held = _by_relation(load.samples, relations), _by_relation(load.held, relations)
    given = tuple(demands.values()), samples, load.cohorts, sides, held
    formed = last.formed
    if formed is None or formed.given != given:
        formed = Part(given, _form(*given, NOTHING if formed is None else formed.value))
    cohorts = {ids: tuple(draft.joins[id_].value for id_ in ids) for ids in formed.value.cohorts}
    return replace(draft, relations=relations, demands=demands, sides=sides, formed=formed, cohorts=cohorts)


def _form(
    demands: tuple[Demand, ...],
    samples: Mapping[str, PredicateSample],
    current: tuple[Queries, ...],
    sides: Mapping[str, Sides],
    held: Mapping[str, float],
    before: Judged,
) -> Judged:
    return judge_cohorts(demands, samples, current, sides=sides, held=held, fixed=PROBE_COST, before=before)


def _demand(join: JoinParts) -> Demand:
    return Demand(
        join.id,
        tuple(r.name for r in join.join.relations),
        frozenset(_name(join, edge) for edge in join.edges),
        {name: predicate.id for name, predicate in join.predicates.items() if predicate is not None},
    )


def _name(join: JoinParts, edge: Edge) -> str:
    """Of an edge, as demands have it: outer, semi and anti joins share theirs with nobody."""
    return "|".join((*edge, "" if join.join.kind == "inner" else join.id))


def _sides(join: JoinParts, edge: Edge) -> Sides:
    left, right = (
        (name, index_id(join.join.relation(name).stream, keys))
        for name, keys in zip(edge[:2], join.edges[edge], strict=True)
    )
    return left, right


def _by_relation(of_streams: Mapping[str, T], relations: Mapping[str, str]) -> dict[str, T]:
    """Relations of one stream have the stream's measurements."""
    return {name: of_streams[stream] for name, stream in relations.items() if stream in of_streams}
