"""What batches measure of the joins, and what that leaves of the stores."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

from thalweg.adapt.probe_orders.counts import Probes, by_edge, next_sent, next_statistics
from thalweg.model.bucket import RowBucket
from thalweg.model.join_statistics import JoinMeasurements, JoinStatistics, Sample
from thalweg.model.ordering import Ordering
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad
from thalweg.model.report import StreamSample

EPOCH = 8
"""Batches of an epoch, unless the session says otherwise."""
STAYS = 1.8
"""A power of two is kept while the ratio is less than so many times away."""
_EDGE = "|"
"""Between the parts of an edge in a manifest."""
REFRESHED = 16
"""Batches after which a sample of the same predicates is replaced."""


def join_load(value: JoinMeasurements, ordering: Ordering | None = None) -> JoinLoad:
    """The measurements and what was decided by them, as the planner takes them."""
    matches = {}
    for probe, ratio in value.matches.items():
        known, found, edge = probe.split(_EDGE)
        matches[known, found, edge] = ratio
    return JoinLoad(
        value.samples,
        matches,
        value.groups,
        value.ready,
        value.held,
        value.statistics.estimates,
        ordering.orders if ordering is not None else {},
    )


def next_join_load(
    value: JoinMeasurements,
    plan: Plan,
    batch: int,
    probes: Probes,
    samples: Mapping[str, StreamSample],
    stores: Sequence[RowBucket],
    epoch: int = EPOCH,
) -> JoinMeasurements:
    """Averages over recent batches, and statistics over epochs of so many batches.

    Until an epoch has ended, orders follow the averages, kept to powers of two: noise does not make a new plan.
    """
    known = value.statistics
    if not plan.joins.groups:
        # Epochs go on being counted from there: decisions are remembered by their numbers.
        return JoinMeasurements(statistics=JoinStatistics(known.epoch))
    average = {edge: ratio for edge, ratio in value.average.items() if _is_current(edge, plan.joins.intermediates)}
    since = _next_since(value.since, plan, batch)
    for edge, (probing, found) in by_edge(probes).items():
        if probing:
            text = _EDGE.join(edge)
            average[text] = round(0.5 * average.get(text, found / probing) + 0.5 * found / probing, 6)
    sampled = _next_samples(value.samples, plan, batch, samples)
    rates = {name: float(sample.seen) for name, sample in samples.items()}
    return JoinMeasurements(
        average=average,
        matches={p: _power_of_two(ratio, value.matches.get(p)) for p, ratio in average.items()},
        samples=sampled,
        groups=tuple(tuple(group.queries) for group in plan.joins.groups.values()),
        since=since,
        ready=_ready(since, plan, stores),
        held=_next_held(stores, samples, value.held),
        statistics=next_statistics(known, plan, probes, rates, sampled, epoch),
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
            for group in plan.joins.groups.values()
            for name, role in group.roles.items()
            if name in plan.joins.intermediates[id_].relations
        }
        oldest = min((b.batch_from for b in stores if b.relation in streams), default=None)
        found[id_] = tuple(query for query, began in queries.items() if oldest is None or oldest >= began)
    return found


def _next_samples(
    known: Mapping[str, Sample], plan: Plan, batch: int, fresh: Mapping[str, StreamSample]
) -> dict[str, Sample]:
    after = {name: sample for name, sample in known.items() if name in plan.joins.stores}
    for name, sample in fresh.items():
        same = name in after and after[name].predicates == sample.predicates
        if sample.seen and (not same or batch % REFRESHED == 0):
            rows = tuple(int.from_bytes(row, "little") for row in sample.rows)
            after[name] = Sample(tuple(sample.predicates), rows, sample.seen, sample.distinct)
    return after


def _next_held(
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
            after[name] = _power_of_two(held, known.get(name))
    return after


def _newest(stores: Sequence[RowBucket]) -> int:
    return max(b.batch_to for b in stores)


def _is_current(edge: str, intermediates: Container[str]) -> bool:
    """Intermediates come and go; what was measured of those that have gone says nothing any more."""
    return all(not name.startswith("+") or name in intermediates for name in edge.split(_EDGE))


def _power_of_two(ratio: float, known: float | None) -> float:
    """The nearest one; the known one as long as it is not far off, so that what lies between two does not sway."""
    if known is not None and known / STAYS <= ratio <= known * STAYS:
        return known
    return 0.0 if ratio <= 0 else float(2.0 ** round(math.log2(ratio)))
