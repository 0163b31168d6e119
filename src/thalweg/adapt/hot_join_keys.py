"""Key groups of joins that are too much for one slot, from batch to batch.

The optimiser moves whole key groups between slots (0003); a key that has more rows than a slot's share is left over.
Its rows are dealt out to all slots in turn, since each of them can look for partners in any store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch
from thalweg.adapt.routing_totals import ENOUGH, RoutingTotals
from thalweg.adapt.settings import AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import HotJoinKeys, Measurements
from thalweg.model.plan import Plan

HOT = 0.5
"""A key group is spread from this part of a slot's share on: two of them on one slot are a slot too much."""
STILL_HOT = 0.35
"""Below, it is whole again."""


class SpreadHotKeys(Adaptation[HotJoinKeys, None]):
    name = "hot_join_keys"
    empty = HotJoinKeys()
    lost = ""

    def __init__(self, settings: AdaptSettings) -> None:
        """There is nothing to set."""

    def restore(self, memory: HotJoinKeys, measured: Measurements) -> HotJoinKeys:
        return measured.hot_join_keys

    def observe(self, memory: HotJoinKeys, seen: SeenBatch) -> HotJoinKeys:
        return HotJoinKeys(spread=next_spread(memory.spread, seen.plan, seen.routing))

    def keep(self, memory: HotJoinKeys, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, hot_join_keys=memory)

    def propose(self, memory: HotJoinKeys, decided: Decided) -> Decided:
        return replace(decided, placement=replace(decided.placement, spread=memory.spread))

    def explain(self, memory: HotJoinKeys) -> AdaptationReport:
        hot = sum(len(groups) for groups in memory.spread.values())
        return AdaptationReport(answer=f"{hot} key groups of joins are probed by all slots")


def next_spread(known: Mapping[str, Sequence[int]], plan: Plan, routing: RoutingTotals) -> dict[str, list[int]]:
    """route key -> the key groups that are spread over all slots in the next batch."""
    names = {name for _, name in routing.probing}
    after = {name: list(groups) for name, groups in known.items() if name not in names and name in plan.spread}
    for (_, name), rows in routing.probing.items():
        if rows.sum() < ENOUGH:
            after[name] = list(known.get(name, ()))
        else:
            share = rows.sum() / plan.slots
            hot = np.flatnonzero(rows > HOT * share).tolist()
            still = [g for g in known.get(name, ()) if g < len(rows) and rows[g] > STILL_HOT * share]
            after[name] = sorted({*hot, *still})
    return {name: groups for name, groups in sorted(after.items()) if groups}
