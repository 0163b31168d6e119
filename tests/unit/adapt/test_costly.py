"""Unit: where the partials of users' aggregates are made, by seconds that a simulated load takes either way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.operate.test_own import MEAN, STREAM, TUMBLING, call, code, planned, query

from thalweg.adapt.costly import LONGEST, WORTH, next_costs, splittable
from thalweg.adapt.partitioners import costly_keys, next_dealing
from thalweg.adapt.routing_totals import KeyCounts, RoutingTotals
from thalweg.model.measurements import Combining, MakingCost
from thalweg.model.message import decode, encode
from thalweg.model.plan import Plan
from thalweg.model.report import GroupedRows

SLOTS = 16
ROWS = 8000


def _plan(**changes: object) -> Plan:
    found = planned([query("q", TUMBLING, call("mean", "v", "double", "v"))])
    return replace(found, slots=SLOTS, functions=code(v=MEAN), **changes)  # type: ignore[arg-type]


PLAN = _plan()
(ID,) = PLAN.groupings
KEY = PLAN.groupings[ID].route_key


def at_source(*seconds: float) -> RoutingTotals:
    """What tasks took that read equally many rows."""
    return RoutingTotals(making={ID: [(ROWS // len(seconds), took) for took in seconds]})


def in_slots(*seconds: float, readers: int = 1) -> RoutingTotals:
    served = {slot: GroupedRows(ROWS // len(seconds), 1, (), took) for slot, took in enumerate(seconds)}
    skews = {KEY: KeyCounts(rows=ROWS, most=ROWS // readers)}
    return RoutingTotals(making_in_slots={ID: dict(enumerate(seconds))}, served={ID: served}, skews=skews)


def after(cost: MakingCost, *seen: RoutingTotals, tasks: int = SLOTS) -> MakingCost:
    for routing in seen:
        cost = next_costs({ID: cost}, PLAN, routing, tasks).get(ID, MakingCost())
    return cost


def test_one_task_that_does_what_many_slots_could_is_relieved_at_once() -> None:
    cost = after(MakingCost(), at_source(0.4))
    assert (cost.is_split, cost.switches) == (True, 1)
    assert "0.4 s in the busiest task" in cost.why


@pytest.mark.parametrize(
    ("seconds", "tasks"), [((0.4,) * SLOTS, SLOTS), ((0.4, 0.4), 2), ((0.5 * WORTH,), SLOTS), ((0.4,), 1)]
)
def test_what_slots_would_not_shorten_stays_at_the_source(seconds: tuple[float, ...], tasks: int) -> None:
    """Even tasks, as many as slots run side by side; little work; one core."""
    assert not after(MakingCost(), *[at_source(*seconds)] * 5, tasks=tasks).is_split


def test_slots_that_turn_out_slower_are_given_up_and_not_tried_at_once() -> None:
    cost = after(MakingCost(), at_source(0.4), in_slots(2.0, 0.1))
    assert cost.is_split, "the first batch loads what users' code needs"
    cost = after(cost, in_slots(2.0, 0.1))
    assert not cost.is_split
    for _ in range(30):
        cost = after(cost, at_source(0.4))
        assert not cost.is_split


def test_input_that_comes_in_more_pieces_goes_back_to_the_source() -> None:
    cost = after(MakingCost(), at_source(0.4), *[in_slots(*[0.03] * SLOTS)] * 5)
    assert cost.is_split
    cost = after(cost, *[in_slots(*[0.03] * SLOTS, readers=SLOTS)] * 5)
    assert not cost.is_split, "every one of 16 tasks would take 0.025 s"


@pytest.mark.parametrize("seed", range(5))
def test_a_load_that_flips_is_followed_ever_more_rarely(seed: int) -> None:
    """Now tasks are even and slots are not, now the other way round; in every batch, or whenever that hurts most."""
    rng, cost, switches = random.Random(seed), MakingCost(), 0
    for batch in range(4 * LONGEST):
        was, is_bad = cost.is_split, rng.random() < 0.5 if seed else True
        if cost.is_split:
            cost = after(cost, in_slots(2.0, 0.1, readers=16) if is_bad else in_slots(*[0.02] * SLOTS))
        else:
            cost = after(cost, at_source(0.4) if is_bad else at_source(*[0.03] * 16))
        switches += cost.is_split != was
        assert batch < 64 or switches <= 2 * (batch // 16)
    assert switches <= 20


def test_nothing_is_learned_of_a_batch_without_rows_and_nothing_known_of_what_is_gone() -> None:
    cost = after(MakingCost(), at_source(0.4))
    assert after(cost, RoutingTotals(), at_source(0.0)) == cost
    assert next_costs({"gone": cost}, PLAN, RoutingTotals(), SLOTS) == {}


def test_what_is_kept_is_read_again() -> None:
    kept = Combining(costs={ID: after(MakingCost(), at_source(0.4))})
    assert decode(encode(kept), Combining) == kept


def test_who_may_be_split() -> None:
    assert splittable(PLAN) == {ID}
    assert not splittable(replace(PLAN, slots=1))
    assert not splittable(_plan(pinned={KEY: "combine"}))
    (member,) = PLAN.members
    assert not splittable(_plan(members=(replace(member, updates=True),)))
    plain = replace(PLAN.groupings[ID], partials=tuple(p for p in PLAN.groupings[ID].partials if p.own is None))
    assert not splittable(_plan(groupings={ID: plain}))


def test_what_is_split_is_dealt_out_by_dalton_from_the_first_row_on_however_even_it_is() -> None:
    combining = Combining(costs={ID: after(MakingCost(), at_source(0.4))})
    dealing = next_dealing({}, PLAN, RoutingTotals(), costly_keys(PLAN, combining))
    assert dealing[KEY].partitioner == "dalton"
    assert "users' code" in dealing[KEY].reason
    shipped = replace(PLAN, streams={STREAM.name: replace(PLAN.streams[STREAM.name], shipped=(ID,))})
    even = KeyCounts(rows=ROWS, looked_at=ROWS, hottest={1: 10}, keys=(800, ROWS))
    even.slots = even.slots + ROWS // SLOTS
    for costly, wanted in ((costly_keys(PLAN, combining), "dalton"), ({}, "hash")):
        found = next_dealing(dealing, shipped, RoutingTotals(skews={KEY: even}), costly)
        assert (found[KEY].partitioner, found[KEY].rows) == (wanted, ROWS)
