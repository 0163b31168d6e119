"""Unit: which way a batch runs, by what is known of it and of those before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thalweg.adapt.small_batches import (
    BYTE_SECONDS,
    LEAST_QUERIES,
    MOST,
    REMEMBERED,
    ROW_SECONDS,
    SAVED,
    Load,
    SmallBatches,
    TimedBatch,
    choose_way,
    predict,
    small_work,
)
from thalweg.model.plan import Plan
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.query import Aggregate, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.way import Way
from thalweg.model.window import Window
from thalweg.optimize.planner import make_plan

STREAM = Stream("s", Schema((Field("ts", "timestamp"),)), "ts", 0, SourceSpec("memory", {}))
MEGABYTE = 1_000_000


def plan_of(*names: str) -> Plan:
    window, count = Window(1_000_000, 1_000_000), (Aggregate("count_all", (), "bigint"),)
    queries = [Query(name, "", "s", (), None, window, (), count) for name in names]
    return make_plan(PlanInput([RunningQuery(q.name, q) for q in queries], {"s": STREAM}))


# -- how much work


def test_without_a_batch_before_rows_state_and_queries_are_guessed() -> None:
    assert predict(Load(0, 0), [], 1) == 0
    assert predict(Load(1000, 0), [], 1) == pytest.approx(1000 * ROW_SECONDS * LEAST_QUERIES)
    assert predict(Load(1000, 0), [], 200) == pytest.approx(1000 * ROW_SECONDS * 200)
    assert predict(Load(0, 10 * MEGABYTE), [], 1) == pytest.approx(10 * MEGABYTE * BYTE_SECONDS)


def test_what_was_seen_is_scaled_up_and_never_down() -> None:
    seen = [TimedBatch(Load(1000, MEGABYTE), 0.03)]
    assert predict(Load(10, 0), seen, 1) == 0.03
    assert predict(Load(1000, MEGABYTE), seen, 1) == 0.03
    assert predict(Load(5000, MEGABYTE), seen, 1) == pytest.approx(0.15)
    assert predict(Load(1000, 6 * MEGABYTE), seen, 1) == pytest.approx(0.03 + 5 * MEGABYTE * BYTE_SECONDS)


def test_the_batch_that_says_most_is_believed() -> None:
    """A large batch says more of large ones, a small one of small ones."""
    seen = [TimedBatch(Load(1000, 0), 0.03), TimedBatch(Load(100_000, 0), 0.2)]
    assert predict(Load(1000, 0), seen, 1) == 0.03
    assert predict(Load(50_000, 0), seen, 1) == 0.2
    assert predict(Load(200_000, 0), seen, 1) == pytest.approx(0.4)


def test_a_batch_without_rows_says_nothing_of_rows() -> None:
    empty = [TimedBatch(Load(0, 0), 0.001)]
    assert predict(Load(1000, 0), empty, 1) == predict(Load(1000, 0), [], 1)
    assert predict(Load(0, 0), empty, 1) == 0.001
    assert predict(Load(0, 0), [TimedBatch(Load(1000, 0), 0.03)], 1) == 0.03


# -- which way


def test_less_work_is_small_where_there_are_more_cores() -> None:
    limits = [small_work(cores) for cores in (1, 2, 4, 64)]
    assert limits == [MOST, pytest.approx(2 * SAVED), pytest.approx(4 / 3 * SAVED), pytest.approx(64 / 63 * SAVED)]


@pytest.mark.parametrize(
    ("rows", "seconds", "setting", "has_functions", "way"),
    [
        (1000, 0.05, "spark", False, Way.FUSED),
        (1000, 0.05, "driver", False, Way.DRIVER),
        (0, 0.05, "spark", False, Way.DRIVER),
        (0, 0.05, "driver", False, Way.DRIVER),
        (1000, 0.05, "driver", True, Way.FUSED),
        (0, 0.05, "spark", True, Way.FUSED),
        (0, 0.05, "driver", True, Way.FUSED),
        (1000, 0.5, "driver", False, Way.STAGES),
        (0, 0.5, "spark", False, Way.STAGES),
    ],
)
def test_a_way_for_every_batch(rows: int, seconds: float, setting: str, has_functions: bool, way: Way) -> None:
    assert choose_way(Load(rows, 0), seconds, 2, setting, has_functions) == way


def test_the_first_batches_are_judged_by_rows_and_the_next_by_what_they_took() -> None:
    small, plan = SmallBatches("spark", cores=2), plan_of("a")
    assert small.choose(plan, Load(100_000, 0)) == Way.STAGES
    small.take_in(Load(100_000, 0), 0.05)
    assert small.choose(plan, Load(100_000, 0)) == Way.FUSED
    small.take_in(Load(100_000, 0), 0.05)
    assert small.choose(plan, Load(0, 0)) == Way.DRIVER


def test_other_queries_are_other_work() -> None:
    small = SmallBatches("spark", cores=2)
    small.choose(plan_of("a"), Load(100_000, 0))
    small.take_in(Load(100_000, 0), 0.05)
    assert small.choose(plan_of("a", "b"), Load(100_000, 0)) == Way.STAGES
    small.take_in(Load(100_000, 0), 0.3)
    assert small.choose(plan_of("a", "b"), Load(100_000, 0)) == Way.STAGES


def test_code_of_users_never_runs_in_the_driver() -> None:
    plan = replace(plan_of("a"), functions={"v": b"code"})
    for setting in ("spark", "driver"):
        assert SmallBatches(setting, cores=2).choose(plan, Load(0, 0)) == Way.FUSED


def test_after_a_batch_that_did_not_end_the_next_runs_in_stages() -> None:
    small, plan = SmallBatches("driver", cores=2), plan_of("a")
    assert small.choose(plan, Load(10, 0)) == Way.DRIVER
    assert small.choose(plan, Load(10, 0)) == Way.STAGES
    small.take_in(Load(10, 0), 0.01)
    assert small.choose(plan, Load(10, 0)) == Way.DRIVER


def test_what_was_long_ago_is_forgotten() -> None:
    small, plan = SmallBatches("spark", cores=2), plan_of("a")
    for seconds in (0.05, *[0.5] * REMEMBERED):
        small.choose(plan, Load(100_000, 0))
        small.take_in(Load(100_000, 0), seconds)
    assert small.choose(plan, Load(100_000, 0)) == Way.STAGES
