"""What batches measure of the joins, and what that leaves of the intermediates."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from msgspec import structs

from thalweg.adapt.probe_orders.counts import Probes, by_edge, next_sent, next_statistics
from thalweg.adapt.steady import power_of_two
from thalweg.model.bucket import RowBucket
from thalweg.model.join_statistics import JoinMeasurements, JoinStatistics
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad
from thalweg.model.probe_order import Edge, OrdersInForce
from thalweg.model.report import StreamSample

_EDGE = "|"
"""Between the parts of an edge in a manifest."""


def join_load(value: JoinMeasurements, ordering: OrdersInForce | None = None) -> JoinLoad:
    """The measurements and what was decided by them, as the planner takes them."""
    orders = ordering.orders if ordering is not None else {}
    estimates = value.statistics.estimates
    return JoinLoad(value.samples, matches_of(value), value.cohorts, value.ready, value.held, estimates, orders)


def matches_of(value: JoinMeasurements) -> dict[Edge, float]:
    matches = {}
    for probe, ratio in value.matches.items():
        known, found, edge = probe.split(_EDGE)
        matches[known, found, edge] = ratio
    return matches


def next_measurements(
    value: JoinMeasurements,
    plan: Plan,
    batch: int,
    probes: Probes,
    samples: Mapping[str, StreamSample],
    stores: Sequence[RowBucket],
    epoch: int,
) -> JoinMeasurements:
    """Averages over recent batches, and statistics over epochs of `epoch` batches. What cohorts are formed by is in
    `value` already, with this batch.

    Until an epoch has ended, orders follow the averages, kept to powers of two: noise does not make a new plan.
    """
    known = value.statistics
    if not plan.joins.cohorts:
        # Epochs go on being counted from there: decisions are remembered by their numbers.
        return JoinMeasurements(statistics=JoinStatistics(known.epoch))
    average = {edge: ratio for edge, ratio in value.average.items() if _is_current(edge, plan.joins.intermediates)}
    since = _next_since(value.since, plan, batch)
    for edge, (probing, found) in by_edge(probes).items():
        if probing:
            text = _EDGE.join(edge)
            average[text] = round(0.5 * average.get(text, found / probing) + 0.5 * found / probing, 6)
    rates = {name: float(sample.seen) for name, sample in samples.items()}
    return structs.replace(
        value,
        average=average,
        matches={p: power_of_two(ratio, value.matches.get(p)) for p, ratio in average.items()},
        since=since,
        ready=_ready(since, plan, stores),
        statistics=next_statistics(known, plan, probes, rates, value.samples, epoch),
        sent=next_sent(value.sent, plan, batch, probes, stores),
    )


def _next_since(known: Mapping[str, Mapping[str, int]], plan: Plan, batch: int) -> dict[str, dict[str, int]]:
    """intermediate -> query -> the batch since which it is kept for the query, without a gap."""
    return {
        id_: {query: known.get(id_, {}).get(query, batch) for query in m.queries}
        for id_, m in plan.joins.intermediates.items()
    }


def _ready(
    since: Mapping[str, Mapping[str, int]], plan: Plan, stores: Sequence[RowBucket]
) -> dict[str, tuple[str, ...]]:
    """An intermediate is complete for a query once every row that its relations still hold came after it began."""
    found = {}
    for id_, queries in since.items():
        streams = {
            role.stream
            for cohort in plan.joins.cohorts.values()
            for name, role in cohort.roles.items()
            if name in plan.joins.intermediates[id_].relations
        }
        oldest = min((b.batch_from for b in stores if b.relation in streams), default=None)
        found[id_] = tuple(query for query, began in queries.items() if oldest is None or oldest >= began)
    return found


def _is_current(edge: str, intermediates: Container[str]) -> bool:
    """Intermediates come and go; what was measured of those that have gone says nothing any more."""
    return all(not name.startswith("+") or name in intermediates for name in edge.split(_EDGE))
