"""Unit: how far the next batch goes, from the state directory alone."""

from __future__ import annotations

from pathlib import Path

from thalweg.model.stream import Stream
from thalweg.source.registry import save_streams
from thalweg.source.sources import Generate, generate
from thalweg.source.split_planner import NOTHING, SplitPlanner, plan_splits


def stream(source: Generate, name: str = "s") -> Stream:
    return Stream(name, source.schema(), "ts", 0, source.spec())


def test_a_tick_waits_until_the_limits_leave_nothing(tmp_path: Path) -> None:
    save_streams(tmp_path, [stream(generate("facts", rows=250, rows_per_batch=100))])
    planner, offset, seen = SplitPlanner(tmp_path), NOTHING, []
    for _ in range(4):
        offset = planner.latest(offset, 3)
        seen.append((offset["tick"], offset["streams"]["s"]))
    assert seen == [(0, 100), (0, 200), (3, 250), (3, 250)]


def test_an_endless_generator_is_available_for_one_batch(tmp_path: Path) -> None:
    save_streams(tmp_path, [stream(generate("facts", rows_per_batch=100))])
    planner = SplitPlanner(tmp_path)
    target = planner.target()
    first = planner.until(NOTHING, target, 0)
    second = planner.until(first, target, 0)
    assert (first, second) == (
        {"tick": 0, "streams": {"s": 100}},
        {"tick": 1, "streams": {"s": 100}},
    )
    assert planner.until(second, target, 0) == second


def test_plan_splits_from_offsets_alone(tmp_path: Path) -> None:
    save_streams(tmp_path, [stream(generate("facts", rows=400_000))])
    end = {"tick": 0, "streams": {"s": 200_000}}
    tasks = plan_splits(tmp_path, NOTHING, end, 2)
    assert [[(s.start, s.end) for s in task] for task in tasks] == [[(0, 100_000)], [(100_000, 200_000)]]
    assert plan_splits(tmp_path, end, end, 3) == [[], [], []]


def test_the_planner_keeps_inventories_while_the_registry_changes(tmp_path: Path) -> None:
    source = generate("facts", rows=10)
    save_streams(tmp_path, [stream(source, "a")])
    planner = SplitPlanner(tmp_path)
    before = planner.inventories()["a"]
    save_streams(tmp_path, [stream(source, "a"), stream(source, "b")])
    assert set(planner.inventories()) == {"a", "b"}
    assert planner.inventories()["a"] is before


def test_a_stream_that_rests_keeps_its_place_and_its_planned_rows(tmp_path: Path) -> None:
    source = stream(generate("facts", rows=100, rows_per_batch=60))
    save_streams(tmp_path, [source])
    planner = SplitPlanner(tmp_path)
    first = planner.latest(NOTHING, 0)
    save_streams(tmp_path, [])
    assert planner.latest(first, 0) == first
    for planned in (planner, SplitPlanner(tmp_path)):  # the second began after the stream had gone
        assert [(s.start, s.end) for s in planned.splits(NOTHING, first, 1)[0]] == [(0, 60)]
    resting = planner.latest(first, 1)
    assert resting == {"tick": 1, "streams": {"s": 60}}
    save_streams(tmp_path, [source])
    assert planner.latest(resting, 1)["streams"] == {"s": 100}
