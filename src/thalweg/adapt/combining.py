"""Combine at the source, or send rows whole: groups per row of every grouping, from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch
from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.adapt.settings import AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Combining, Measurements
from thalweg.model.plan import Plan
from thalweg.model.plan_input import GroupingLoad

NEAR = 0.2
"""Groups per row that differ by less than this share from what is known are the same."""
FEW = 0.005
"""Or by this many: so few groups are cheap wherever they are made."""


class CombineOrSend(Adaptation[Combining, None]):
    """What was measured is what decides: the planner compares it with what a row and a partial weigh."""

    name = "combining"
    empty = Combining()
    lost = ""

    def __init__(self, settings: AdaptSettings) -> None:
        """There is nothing to set."""

    def restore(self, memory: Combining, measured: Measurements) -> Combining:
        return measured.combining

    def observe(self, memory: Combining, seen: SeenBatch) -> Combining:
        loads = next_loads(memory.loads, seen.plan, seen.groups, seen.passed, seen.routing)
        shipped = sorted(id_ for stream in seen.plan.streams.values() for id_ in stream.shipped)
        rows = sorted(name for name, stream in seen.plan.streams.items() if stream.keeps_rows)
        return Combining(loads=loads, shipped=tuple(shipped), rows=tuple(rows))

    def keep(self, memory: Combining, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, combining=memory)

    def propose(self, memory: Combining, decided: Decided) -> Decided:
        measurements = replace(decided.measurements, groupings=loads_of(memory), kept_rows=frozenset(memory.rows))
        return replace(decided, measurements=measurements)

    def explain(self, memory: Combining) -> AdaptationReport:
        answer = f"{len(memory.shipped)} of {len(memory.loads)} groupings are made in the slots"
        kept = f"; rows are kept as they are of {', '.join(memory.rows)}" if memory.rows else ""
        return AdaptationReport(answer=answer + kept)


def loads_of(measured: Combining) -> dict[str, GroupingLoad]:
    in_slots = {*measured.shipped}
    return {id_: GroupingLoad(ratio, id_ in in_slots) for id_, ratio in measured.loads.items()}


def next_loads(
    loads: Mapping[str, float],
    plan: Plan,
    made: Mapping[str, int],
    admitted: Mapping[str, int],
    routing: RoutingTotals,
) -> dict[str, float]:
    """Groups per row of every grouping, smoothed. One that is near what is known stays as it was: noise would make a
    new plan in every batch."""
    after = {id_: ratio for id_, ratio in loads.items() if id_ in plan.groupings}
    groups, passed = dict(made), dict(admitted)
    for stream in plan.streams.values():
        for id_ in stream.shipped:  # made in the slots; what a task would have made of its rows was sampled
            grouping = plan.groupings[id_]
            skew = routing.skews.get(grouping.route_key)
            found = routing.made.get(id_) if grouping.values else skew and skew.keys
            groups[id_], passed[id_] = found or (0, 0)
    for id_, number in groups.items():
        if passed.get(id_):
            ratio = number / passed[id_]
            known = after.get(id_)
            if known is None or abs(ratio - known) > max(NEAR * known, FEW):
                after[id_] = round(0.5 * (ratio if known is None else known) + 0.5 * ratio, 4)
    return after
