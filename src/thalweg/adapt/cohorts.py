"""What cohorts are formed by: sampled rows of joined streams, how much their stores hold, the cohorts before.

The cohorts themselves are formed by a rule of the planner, for queries that come later too (AJoin Section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch
from thalweg.adapt.settings import AdaptSettings
from thalweg.adapt.steady import power_of_two
from thalweg.model.bucket import RowBucket
from thalweg.model.explanation import AdaptationReport
from thalweg.model.join_statistics import JoinMeasurements, PredicateSample
from thalweg.model.measurements import Measurements
from thalweg.model.plan import Plan
from thalweg.model.report import StreamSample

REFRESHED = 16
"""Batches after which a sample of the same predicates is replaced."""


class FormCohorts(Adaptation[JoinMeasurements, None]):
    name = "cohorts"
    empty = JoinMeasurements()
    lost = ""

    def __init__(self, settings: AdaptSettings) -> None:
        """There is nothing to set."""

    def restore(self, memory: JoinMeasurements, measured: Measurements) -> JoinMeasurements:
        return measured.probe_orders.joins

    def observe(self, memory: JoinMeasurements, seen: SeenBatch) -> JoinMeasurements:
        plan = seen.plan
        if not plan.joins.cohorts:
            return structs.replace(memory, samples={}, cohorts=(), held={})
        return structs.replace(
            memory,
            samples=next_samples(memory.samples, plan, seen.batch, seen.samples),
            cohorts=tuple(tuple(cohort.queries) for cohort in plan.joins.cohorts.values()),
            held=next_held(seen.stores, seen.samples, memory.held),
        )

    def keep(self, memory: JoinMeasurements, seen: SeenBatch) -> Measurements:
        orders = seen.measured.probe_orders
        joins = structs.replace(orders.joins, samples=memory.samples, cohorts=memory.cohorts, held=memory.held)
        return structs.replace(seen.measured, probe_orders=structs.replace(orders, joins=joins))

    def propose(self, memory: JoinMeasurements, decided: Decided) -> Decided:
        known = decided.measurements
        joins = replace(known.joins, samples=memory.samples, cohorts=memory.cohorts, held=memory.held)
        return replace(decided, measurements=replace(known, joins=joins))

    def explain(self, memory: JoinMeasurements) -> AdaptationReport:
        sizes = ", ".join(str(len(cohort)) for cohort in memory.cohorts)
        return AdaptationReport(answer=f"cohorts of {sizes} queries" if sizes else "")


def next_samples(
    known: Mapping[str, PredicateSample], plan: Plan, batch: int, fresh: Mapping[str, StreamSample]
) -> dict[str, PredicateSample]:
    after = {name: sample for name, sample in known.items() if name in plan.joins.stores}
    for name, sample in fresh.items():
        same = name in after and after[name].predicates == sample.predicates
        if sample.seen and (not same or batch % REFRESHED == 0):
            rows = tuple(int.from_bytes(row, "little") for row in sample.rows)
            after[name] = PredicateSample(tuple(sample.predicates), rows, sample.seen, sample.distinct)
    return after


def next_held(
    stores: Sequence[RowBucket], fresh: Mapping[str, StreamSample], known: Mapping[str, float]
) -> dict[str, float]:
    """How many batches' rows each store holds, to a power of two."""
    after = dict(known)
    for name, sample in fresh.items():
        came = sum(
            b.section.rows for b in stores if b.relation == name and b.batch_from == b.batch_to == _newest(stores)
        )
        if came and sample.seen:
            held = sum(b.section.rows for b in stores if b.relation == name) / came
            after[name] = power_of_two(held, known.get(name))
    return after


def _newest(stores: Sequence[RowBucket]) -> int:
    return max(b.batch_to for b in stores)
