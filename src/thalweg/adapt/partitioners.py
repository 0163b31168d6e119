"""Partitioners from batch to batch: what was measured of each route key, what that chose, and what it cost.

What is chosen is in the manifest, so that a restart goes on with it. What partitioners have learned is not: it will
be learned again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from msgspec import Struct, structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch
from thalweg.adapt.routing_totals import ENOUGH, KeyCounts, RoutingTotals
from thalweg.adapt.settings import AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Dealing, Measurements, Partitioners
from thalweg.model.partitioning import COMBINE, HASH, LOCAL, AggregationReport, Skew
from thalweg.model.plan import Plan, shipped_keys
from thalweg.optimize.choose_partitioner import choose
from thalweg.partition.cooperative import Policy, merge
from thalweg.partition.cost import (
    aggregation_cost,
    cardinality_imbalance,
    hybrid_imbalance,
    reducer_cost,
    tuple_imbalance,
)

SMOOTHING = 0.5
"""The weight of the newest batch in what is measured."""


class Dealers(Struct, frozen=True):
    """What deals rows of which route key, what it learned, and what it cost."""

    dealing: Mapping[str, Dealing] = {}
    """By route key. In the manifest."""
    slots: int = 0
    """For which that was chosen. In the manifest."""
    policies: Mapping[str, Policy] = {}
    """route key -> what its partitioners have learned."""
    reports: Mapping[str, AggregationReport] = {}
    """By grouping, of the last batch in which it had rows."""


class DealRows(Adaptation[Dealers, None]):
    name = "partitioners"
    empty = Dealers()
    lost = "what partitioners have learned of keys, and the last reports"

    def __init__(self, settings: AdaptSettings) -> None:
        """There is nothing to set."""

    def restore(self, memory: Dealers, measured: Measurements) -> Dealers:
        return structs.replace(memory, dealing=measured.partitioners.dealing, slots=measured.slot_assignment.slots)

    def observe(self, memory: Dealers, seen: SeenBatch) -> Dealers:
        plan = seen.plan
        dealing = next_dealing(memory.dealing, plan, seen.routing)
        known = {id_: report for id_, report in memory.reports.items() if id_ in plan.groupings}
        reports = aggregation_reports(plan, seen.routing, dealing)
        policies = next_policies(memory.policies, plan, seen.routing)
        return Dealers(dealing, plan.slots, policies, {**known, **reports})

    def keep(self, memory: Dealers, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, partitioners=Partitioners(dealing=dict(memory.dealing)))

    def propose(self, memory: Dealers, decided: Decided) -> Decided:
        """What was chosen for another number of slots is chosen anew."""
        names = chosen(memory.dealing) if memory.slots == decided.slots else {}
        placement = replace(decided.placement, partitioners=names)
        return replace(decided, placement=placement, policies=memory.policies)

    def explain(self, memory: Dealers) -> AdaptationReport:
        names = sorted(f"{key}: {value.partitioner}" for key, value in memory.dealing.items())
        return AdaptationReport(answer=", ".join(names), report=memory.reports)


def next_dealing(known: Mapping[str, Dealing], plan: Plan, routing: RoutingTotals) -> dict[str, Dealing]:
    """route key -> its skew and what it is dealt out by: what the manifest keeps."""
    shipped = {key: found for stream in plan.streams.values() for key, found in shipped_keys(plan, stream).items()}
    after = {key: value for key, value in known.items() if key in shipped}
    for key in sorted(shipped.keys() & routing.skews.keys()):
        counts = routing.skews[key]
        if counts.rows < ENOUGH:
            continue
        skew = _smoothed(after.get(key), _skew(counts))
        now = after[key].partitioner if key in after else HASH
        choice = choose(skew, plan.slots, now, rows_are_partials=all(g.rows_are_partials for g in shipped[key]))
        after[key] = Dealing(
            rows=round(skew.rows),
            groups=round(skew.groups),
            top=round(skew.top, 4),
            busiest=round(skew.busiest, 4),
            partitioner=choice.partitioner,
            reason=choice.reason,
        )
    return after


def _skew(counts: KeyCounts) -> Skew:
    keys, rows = counts.keys
    return Skew(
        counts.rows,
        counts.rows * keys / max(1, rows),
        max(counts.hottest.values(), default=0) / counts.looked_at,
        int(counts.slots.max()) / counts.looked_at,
    )


def _smoothed(known: Dealing | None, new: Skew) -> Skew:
    if known is None:
        return new
    return Skew(
        _towards(known.rows, new.rows),
        _towards(known.groups, new.groups),
        _towards(known.top, new.top),
        _towards(known.busiest, new.busiest),
    )


def _towards(known: float, new: float) -> float:
    return known + SMOOTHING * (new - known)


def chosen(dealing: Mapping[str, Dealing]) -> dict[str, str]:
    """route key -> partitioner."""
    return {key: value.partitioner for key, value in dealing.items()}


def next_policies(policies: Mapping[str, Policy], plan: Plan, routing: RoutingTotals) -> dict[str, Policy]:
    """What the tasks have learned, merged: the driver is the reducer of the Q-tables (Dalton Alg. 2)."""
    learned = routing.learned
    kept = {key: policy for key, policy in policies.items() if key in plan.partitioners and key not in learned}
    return kept | {key: merge(exports) for key, exports in learned.items()}


def aggregation_reports(
    plan: Plan, routing: RoutingTotals, dealing: Mapping[str, Dealing]
) -> dict[str, AggregationReport]:
    """Of every grouping that had rows in a batch."""
    found = {}
    for id_, grouping in plan.groupings.items():
        key = grouping.route_key
        pinned = key in plan.pinned
        name, reason = plan.partitioners.get(key, HASH), dealing[key].reason if key in dealing else ""
        if name == LOCAL and id_ in routing.stayed:
            tasks = routing.stayed[id_]
            loads, keys = [made.rows for made in tasks], [made.keys for made in tasks]
            partials = np.sum([made.owners for made in tasks], axis=0).tolist()
        elif id_ in routing.served:
            slots = [routing.served[id_].get(slot) for slot in range(plan.slots)]
            loads = [0 if made is None else made.rows for made in slots]
            keys = [0 if made is None else made.keys for made in slots]
            partials = np.sum([made.owners for made in slots if made is not None], axis=0).tolist()
        elif id_ in routing.workers:
            loads, keys = (list(counts) for counts in zip(*routing.workers[id_], strict=True))
            partials = [routing.merged.get(id_, {}).get(slot, 0) for slot in range(plan.slots)]
            name, reason = COMBINE, ""
        else:
            continue
        found[id_] = AggregationReport(
            name,
            "" if pinned else reason,
            pinned,
            tuple(loads),
            tuple_imbalance(loads),
            cardinality_imbalance(keys),
            hybrid_imbalance(loads, keys),
            aggregation_cost(keys),
            reducer_cost(partials),
        )
    return found
