"""What the probes of a batch counted, as statistics of the joins: rows, partners per row, tuples sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thalweg.model.bucket import RowBucket
from thalweg.model.join_statistics import Estimate, JoinStatistics, PredicateSample
from thalweg.model.plan import Plan
from thalweg.model.probe import Cohort
from thalweg.model.probe_order import Edge
from thalweg.model.report import SAMPLED, ProbeId
from thalweg.optimize.weigh_orders import asked_of, pairs_key, partners_of, rows_key, share_of

Probes = Mapping[ProbeId, tuple[int, int]]
Counts = dict[str, tuple[float, float]]
"""Key of an estimate -> looked at, found."""


def by_edge(probes: Probes) -> dict[Edge, tuple[int, int]]:
    """(known, found, edge) -> tuples that probed, pairs found, over all cohorts and steps."""
    added: dict[Edge, tuple[int, int]] = {}
    for probe, (probing, found) in probes.items():
        edge = (probe.known, probe.found, probe.edge)
        before = added.get(edge, (0, 0))
        added[edge] = before[0] + probing, before[1] + found
    return added


def next_statistics(
    known: JoinStatistics,
    plan: Plan,
    probes: Probes,
    rates: Mapping[str, float],
    samples: Mapping[str, PredicateSample],
    epoch: int,
) -> JoinStatistics:
    """With one more batch. `rates`: rows of it by stream; `samples`: what predicates let through."""
    streams = [name for name in plan.joins.stores if name not in plan.joins.intermediates]
    known = _of_current(known, plan, streams, samples)
    rows = {name: rate for name, rate in rates.items() if name in streams}
    if not any(rows.values()):
        return known  # nothing came: a batch that only closes windows says nothing of the streams
    counts = {rows_key(name): (1.0, rows.get(name, 0.0)) for name in streams}
    return known.after({**counts, **_partners_found(plan, probes, samples)}, epoch)


def _of_current(
    known: JoinStatistics, plan: Plan, streams: Sequence[str], samples: Mapping[str, PredicateSample]
) -> JoinStatistics:
    """What concerns the joins that run. Where it is asked together for the first time, others give the estimate."""
    current = {rows_key(name) for name in streams}
    expected: dict[str, Estimate] = {}
    for cohort in plan.joins.cohorts.values():
        for one, other, key in _edges(plan, cohort):
            for a, b in ((one, other), (other, one)):
                own = pairs_key(a, b, key, asked_of(cohort.roles[a], cohort.roles[b]))
                current |= {own, pairs_key(a, b, key)}
                estimate = partners_of(cohort.roles[a], cohort.roles[b], key, known.estimates, samples)
                if estimate is not None:
                    expected[own] = estimate
    return known.only(current.__contains__).believing(expected)


def _edges(plan: Plan, cohort: Cohort) -> set[Edge]:
    return {edge for id_ in cohort.queries if id_ in plan.joins.ordered for edge in plan.joins.ordered[id_].edges}


def _partners_found(plan: Plan, probes: Probes, samples: Mapping[str, PredicateSample]) -> Counts:
    """Rows that looked for partners by an edge, and partners found; from first steps where there are some.

    Counted twice: with what the cohort asks, and over all by the share of the rows that each cohort wants. A tuple of
    k rows finds what is earlier than its latest: k / (k + 1) of a window's partners, where a row alone finds half
    (CLASH Eq. 1). So what longer tuples found is brought down to what a row would have.
    """
    first: Counts = {}
    later: Counts = {}
    edges = {id_: _edges(plan, cohort) for id_, cohort in plan.joins.cohorts.items()}
    for probe, (probing, found) in probes.items():
        known, other, key = probe.known, probe.found, probe.edge
        k, roles = abs(probe.width), plan.joins.cohorts[probe.cohort].roles
        if not k or not {(known, other, key), (other, known, key)} & edges[probe.cohort]:
            continue
        counts, asked = first if k == 1 else later, asked_of(roles[known], roles[other])
        alone = found * (k + 1) / (2 * k)
        _add(counts, pairs_key(known, other, key), probing * share_of(roles[other], samples), alone)
        if asked:
            _add(counts, pairs_key(known, other, key, asked), probing, alone)
    return {**later, **first}


def _add(counts: Counts, key: str, looked: float, found: float) -> None:
    before = counts.get(key, (0.0, 0.0))
    counts[key] = before[0] + looked, before[1] + found


def _sent(plan: Plan, batch: int, probes: Probes, stores: Sequence[RowBucket]) -> dict[str, float]:
    """cohort -> tuples sent to probes and into intermediates in the batch."""
    sent = dict.fromkeys(plan.joins.cohorts, 0.0)
    for probe, (probing, _) in probes.items():
        sent[probe.cohort] += probing if probe.width != SAMPLED else 0
    home = {
        m: id_ for id_, cohort in plan.joins.cohorts.items() for m in cohort.roles if m in plan.joins.intermediates
    }
    for bucket in stores:
        if bucket.relation in home and bucket.batch_from == bucket.batch_to == batch:
            sent[home[bucket.relation]] += bucket.section.rows
    return sent


def next_sent(
    known: Mapping[str, float],
    plan: Plan,
    batch: int,
    probes: Probes,
    stores: Sequence[RowBucket],
) -> dict[str, float]:
    """cohort -> tuples sent per batch, smoothed."""
    after = {id_: rows for id_, rows in known.items() if id_ in plan.joins.cohorts}
    for id_, rows in _sent(plan, batch, probes, stores).items():
        if rows:
            after[id_] = round(0.5 * after.get(id_, rows) + 0.5 * rows, 1)
    return after
