"""Unit: which partitioner is chosen for which skew."""

from __future__ import annotations

import pytest

from thalweg.model.expr import Expr
from thalweg.model.partitioning import Skew
from thalweg.model.plan import Plan
from thalweg.model.plan_input import Placement, PlanInput, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window
from thalweg.optimize.choose_partitioner import choose, choose_partitioner
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("skew", "now", "chosen", "why"),
    [
        (Skew(1e6, 1e5, 0.001, 0.26), "hash", "hash", "even enough"),
        (Skew(1e6, 1e5, 0.38, 0.54), "hash", "dalton", "one key alone has 38%"),
        (Skew(1e6, 2e5, 0.10, 0.40), "hash", "affinity_count", "groups are many"),
        (Skew(1e6, 60, 0.10, 0.40), "hash", "dalton", "groups are few"),
        # What is in force is not given up for noise.
        (Skew(1e6, 1e5, 0.27, 0.27), "hash", "hash", "even enough"),
        (Skew(1e6, 1e5, 0.27, 0.27), "dalton", "dalton", "one key alone has 27%"),
        (Skew(1e6, 1e5, 0.02, 0.26), "dalton", "hash", "even enough"),
    ],
)
def test_what_is_chosen_for_rows_that_travel(skew: Skew, now: str, chosen: str, why: str) -> None:
    choice = choose_partitioner(skew, 4, now)
    assert choice.partitioner == chosen
    assert why in choice.reason
    assert choose(skew, 4, now, rows_are_partials=False) == choice
    stays = choose(skew, 4, now, rows_are_partials=True)
    assert stays.partitioner == "local"
    assert choice.reason in stays.reason


def test_one_slot_has_nothing_to_choose() -> None:
    assert choose_partitioner(Skew(1e6, 1, 1.0, 1.0), 1).partitioner == "hash"


def plan_of(*options: str, emit: str = "final", slots: int = 3) -> Plan:
    """Sums by one key, of queries that ask for these partitioners; the second one's keys are finer."""
    kinds = {"ts": "timestamp", "a": "bigint", "b": "bigint"}
    stream = Stream("s", Schema(tuple(Field(*f) for f in kinds.items())), "ts", 0, SourceSpec("memory", {}))
    column = {name: Expr(f'"{name}"', kind, (name,)) for name, kind in kinds.items()}
    registered = []
    for i, name in enumerate(options):
        keys = (column["a"],) if i % 2 == 0 else (column["a"], column["b"])
        pin = () if name == "" else (("partitioner", name),)
        output = (Output("x", Expr("a0", "bigint", ("a0",))),)
        total = (Aggregate("sum", (column["b"],), "bigint"),)
        window = Window(SECOND, SECOND)
        query = Query(f"q{i}", "", "s", output, None, window, keys, total, emit=emit, options=pin)
        registered.append(RunningQuery(f"q{i}", query))
    placement = Placement(partitioners={"s(a)": "shuffle"})
    return make_plan(PlanInput(registered, {"s": stream}, decisions=placement, settings=PlanSettings(slots)))


def test_a_pin_makes_rows_travel_and_is_kept() -> None:
    assert plan_of("").partitioners == {}
    assert plan_of("").streams["s"].shipped == ()
    plan = plan_of("dalton")
    assert plan.partitioners == {"s(a)": "dalton"}
    assert plan.pinned == {"s(a)": "dalton"}
    assert len(plan.streams["s"].shipped) == 1
    assert plan_of("combine").streams["s"].shipped == ()
    hashed = plan_of("hash")
    assert (len(hashed.streams["s"].shipped), hashed.partitioners) == (1, {})


def test_what_is_pinned_is_not_rolled_up() -> None:
    rolled = [g for g in plan_of("", "").groupings.values() if g.rolled_up_from]
    assert len(rolled) == 1
    for options in (("dalton", ""), ("", "hash"), ("local", "shuffle")):
        assert not [g for g in plan_of(*options).groupings.values() if g.rolled_up_from]


def test_the_oldest_of_several_wishes_counts() -> None:
    assert plan_of("prompt", "", "dalton").partitioners == {"s(a)": "prompt"}


def test_changes_and_single_slots_need_no_partitioner() -> None:
    assert plan_of("dalton", emit="updates").partitioners == {}
    assert plan_of("dalton", slots=1).partitioners == {}
    assert plan_of("local", slots=1).partitioners == {"s(a)": "local"}
