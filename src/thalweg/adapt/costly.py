"""Groupings that call users' code: made where rows are read, or shared by the slots, by the seconds either way takes.

How many groups there are says nothing of what a row costs: a clustering compares every record with all others of its
group. A batch waits for the busiest task. Where rows are read by fewer tasks than there are slots, as those of one
small file are, these make everything and the slots wait. So both ways have a price, measured while a way is taken:
the seconds of its busiest task. A way that was never taken is guessed: what all tasks of INGEST took, in even parts.
That guess has to promise more than a price that was measured, and every switch has to wait twice as long as the one
before, so a load that flips with every batch is not followed for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.model.measurements import MakingCost
from thalweg.model.plan import Grouping, Plan, updated_groupings

WORTH = 0.05
"""Seconds that slots have to save in a batch: about what it takes to begin a stage."""
GUESSED, MEASURED = 1.5, 1.1
"""How many times as long as the other way the one in force takes before it is given up."""
PAUSE, LONGEST = 4, 512
"""Batches before rows are split again, twice as many after every switch; and at most."""
FORGOTTEN = 64
"""Batches after which the price of a way that was given up may be another."""
TOWARDS = 0.5
"""The weight of the newest batch."""


def next_costs(
    known: Mapping[str, MakingCost], plan: Plan, routing: RoutingTotals, tasks: int
) -> dict[str, MakingCost]:
    """By grouping, after a batch. `tasks`: how many of a stage run side by side."""
    after, ways = {}, min(tasks, plan.slots)
    for id_ in sorted(splittable(plan)):
        cost = known.get(id_, MakingCost())
        if routing.making.get(id_):
            cost = _made_at_source(cost, routing.making[id_], ways)
        elif id_ in routing.making_in_slots:
            rows = sum(made.rows for made in routing.served[id_].values())
            most = routing.skews[plan.groupings[id_].route_key].most
            cost = _made_in_slots(cost, max(routing.making_in_slots[id_].values()), rows, most)
        if cost != MakingCost():
            after[id_] = cost
    return after


def splittable(plan: Plan) -> set[str]:
    """The groupings that call users' code and whose rows any slot may have: every one but those whose windows show
    what arrives, those over joined rows, whose order is nobody's, those that are made with others, and those of which
    a query says how."""
    if plan.slots == 1 or not plan.functions:
        return set()
    sources = {g.rolled_up_from for g in plan.groupings.values()}
    unordered = {name for name, joined in plan.joins.joined.items() if not joined.alone}
    shown = {plan.groupings[id_].route_key for id_ in updated_groupings(plan)}

    def is_free(grouping: Grouping) -> bool:
        alone = grouping.rolled_up_from is None and grouping.id not in sources
        is_bound = grouping.stream in unordered or grouping.route_key in shown or grouping.route_key in plan.pinned
        return alone and bool(grouping.keys) and not is_bound

    return {id_ for id_, grouping in plan.groupings.items() if grouping.calls_users and is_free(grouping)}


def _made_at_source(cost: MakingCost, made: list[tuple[int, float]], ways: int) -> MakingCost:
    rows, total = sum(rows for rows, _ in made), sum(seconds for _, seconds in made)
    if not rows or total <= 0:
        return cost
    most, busiest = max(made, key=lambda one: one[1])
    held = cost.held + 1
    cost = replace(cost, at_source=_smoothed(cost.at_source, busiest / max(1, most)), held=held)
    is_known = cost.in_slots > 0 and held < FORGOTTEN
    other, margin = (cost.in_slots * rows, MEASURED) if is_known else (total / ways, GUESSED)
    if cost.is_split or busiest <= other * margin or busiest - other < WORTH or held < _pause(cost.switches):
        return cost
    why = f"users' code took {busiest:.2g} s in the busiest task that read rows, {other:.2g} s split over slots"
    return replace(cost, is_split=True, held=0, switches=cost.switches + 1, why=why)


def _made_in_slots(cost: MakingCost, busiest: float, rows: int, most: int) -> MakingCost:
    """`most`: the rows of the task that read most of them."""
    if not rows or busiest <= 0:
        return cost
    cost = replace(cost, in_slots=_smoothed(cost.in_slots, busiest / rows), held=cost.held + 1)
    other = cost.at_source * most
    # The first batch loads in every slot what users' code needs.
    if not cost.is_split or not other or cost.held < 2 or busiest <= other * MEASURED:
        return cost
    why = f"users' code took {busiest:.2g} s in the busiest slot, {other:.2g} s where rows are read"
    return replace(cost, is_split=False, held=0, switches=cost.switches + 1, why=why)


def _pause(switches: int) -> int:
    return min(PAUSE << min(switches, 16), LONGEST) if switches else 0


def _smoothed(known: float, new: float) -> float:
    return known + TOWARDS * (new - known) if known else new
