"""Unit: how far the next batch goes, from the streams and offsets alone."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.errors import StateError
from thalweg.model.offsets import NOTHING, Offsets, SourceMark
from thalweg.model.stream import Stream
from thalweg.source.contract import Source
from thalweg.source.files import files
from thalweg.source.generate import generate
from thalweg.source.memory import memory
from thalweg.source.split_planner import SplitPlanner, share_out
from thalweg.state.local_storage import LocalStorage


def stream(source: Source, name: str = "s") -> Stream:
    schema = source.schema()
    assert schema is not None
    return Stream(name, schema, "ts", 0, source.spec())


class World:
    """A catalog, and what of it is read now."""

    def __init__(self, path: Path, *streams: Stream) -> None:
        self.storage = LocalStorage(str(path))
        self.known = {stream.name: stream for stream in streams}
        self.read = dict(self.known)

    def planner(self, marks: dict[str, SourceMark] | None = None) -> SplitPlanner:
        return SplitPlanner(self.storage, lambda: self.read, lambda: self.known, marks)


def test_a_tick_waits_until_the_limits_leave_nothing(tmp_path: Path) -> None:
    planner = World(tmp_path, stream(generate("facts", rows=250, rows_per_batch=100))).planner()
    offset, seen = NOTHING, []
    for _ in range(4):
        offset = planner.latest(offset, 3)
        seen.append((offset.tick, offset.streams["s"]))
    assert seen == [(0, 100), (0, 200), (3, 250), (3, 250)]


def test_an_endless_generator_is_available_for_one_batch(tmp_path: Path) -> None:
    planner = World(tmp_path, stream(generate("facts", rows_per_batch=100))).planner()
    target = planner.target()
    first = planner.until(NOTHING, target, 0)
    second = planner.until(first, target, 0)
    assert (first, second) == (Offsets(0, {"s": 100}), Offsets(1, {"s": 100}))
    assert planner.until(second, target, 0) == second


def test_splits_from_offsets_alone(tmp_path: Path) -> None:
    planner = World(tmp_path, stream(generate("facts", rows=400_000))).planner()
    end = Offsets(0, {"s": 200_000})
    tasks = planner.splits(NOTHING, end, 2)
    assert [[(s.start, s.end) for s in task] for task in tasks] == [[(0, 100_000)], [(100_000, 200_000)]]
    assert planner.splits(end, end, 3) == [[], [], []]


def test_inventories_are_kept_while_streams_come_and_go(tmp_path: Path) -> None:
    source = generate("facts", rows=10)
    world = World(tmp_path, stream(source, "a"))
    planner = world.planner()
    before = planner.inventories()["a"]
    world.read["b"] = stream(source, "b")
    assert set(planner.inventories()) == {"a", "b"}
    assert planner.inventories()["a"] is before
    world.read = {}
    assert planner.inventories() == {}
    world.read = {"a": stream(source, "a")}
    assert planner.inventories()["a"] is before


def test_a_stream_that_rests_keeps_its_place_and_its_planned_rows(tmp_path: Path) -> None:
    world = World(tmp_path, stream(generate("facts", rows=100, rows_per_batch=60)))
    planner = world.planner()
    first = planner.latest(NOTHING, 0)
    world.read = {}
    assert planner.latest(first, 0) == first
    for planned in (planner, world.planner()):  # the second began after the stream had gone
        assert [(s.start, s.end) for s in planned.splits(NOTHING, first, 1)[0]] == [(0, 60)]
    resting = planner.latest(first, 1)
    assert resting == Offsets(1, {"s": 60})
    world.read = world.known
    assert planner.latest(resting, 1).streams == {"s": 100}


def test_what_a_source_had_at_the_last_batch_is_there_at_the_next_start(tmp_path: Path) -> None:
    fed = memory("ts timestamp")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"ts": pa.array([0], pa.timestamp("us"))}), tmp_path / "in" / "a.parquet")
    world = World(tmp_path / "state", stream(files(f"{tmp_path}/in/*.parquet"), "f"), stream(fed, "m"))
    fed.attach(world.storage, "m")
    fed.append(pa.table({"ts": pa.array([0], pa.timestamp("us", tz="UTC"))}))
    planner = world.planner()
    end = planner.latest(NOTHING, 0)
    marks = planner.marks(end)
    assert end.streams == {"f": 1, "m": 1} == {name: mark.units for name, mark in marks.items()}
    again = world.planner(marks)
    assert again.latest(end, 0) is end
    assert again.marks(end) == marks
    world.read = {}  # of what nobody looks at, what was known is kept
    assert world.planner(marks).marks(end) == marks
    assert world.planner().marks(end) == {}
    world.read = world.known
    logged = next((tmp_path / "state" / "sources" / "f" / "files").iterdir())
    logged.unlink()
    with pytest.raises(StateError, match=r"files/000000000000 is missing"):
        world.planner(marks).available()
    world.read = {"m": world.known["m"]}
    (tmp_path / "state" / "sources" / "m" / "0000000000.arrow").unlink()
    with pytest.raises(StateError, match=r"0000000000\.arrow is missing"):
        world.planner(marks).available()


def write_rows(directory: Path, name: str, rows: int, files_of: int) -> Source:
    directory.mkdir(exist_ok=True)
    for number in range(files_of):
        times = pa.array(range(rows), pa.timestamp("us"))
        pq.write_table(pa.table({"ts": times}), directory / f"{name}{number:02}.parquet")
    return files(f"{directory}/{name}*.parquet")


def test_of_a_backlog_a_batch_takes_about_as_many_rows_as_it_may(tmp_path: Path) -> None:
    few = stream(write_rows(tmp_path / "in", "few", 10, 4), "few")
    many = stream(write_rows(tmp_path / "in", "many", 100, 8), "many")
    planner = World(tmp_path / "state", few, many, stream(generate("facts", rows=7, rows_per_batch=5), "g")).planner()
    offset, seen = NOTHING, []
    while (after := planner.latest(offset, 1, most_rows=420)) != offset:
        offset = after
        seen.append((offset.tick, *(offset.streams[name] for name in ("few", "many", "g")), planner.has_left))
    # In proportion to what waits; a generator goes as far as it says itself. The tick comes with the last of them.
    assert seen == [(0, 2, 4, 5, True), (1, 4, 8, 7, False)]
    assert planner.latest(NOTHING, 1).streams == {"few": 4, "many": 8, "g": 5}
    assert not planner.has_left


def test_what_a_user_allows_is_never_more_for_a_backlog(tmp_path: Path) -> None:
    write_rows(tmp_path / "in", "f", 10, 6)
    limited = files(f"{tmp_path}/in/*.parquet", max_files_per_batch=2)
    planner = World(tmp_path / "state", stream(limited)).planner()
    assert planner.latest(NOTHING, 0, most_rows=1000).streams == {"s": 2}
    assert not planner.has_left
    assert planner.latest(NOTHING, 0, most_rows=15).streams == {"s": 1}
    assert planner.has_left


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_whole_units_at_least_one_and_no_more_than_wanted(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        waiting = {
            name: [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 20))]
            for name in "abc"[: rng.randrange(1, 4)]
        }
        most, whole = rng.randrange(1, 20_000), sum(map(sum, waiting.values()))
        taken = share_out(waiting, most)
        assert all(1 <= taken[name] <= len(rows) for name, rows in waiting.items())
        rows_of = {name: sum(rows[: taken[name]]) for name, rows in waiting.items()}
        if most >= whole:
            assert rows_of == {name: sum(rows) for name, rows in waiting.items()}
            continue
        for name, rows in waiting.items():
            share = most / whole * sum(rows)
            assert rows_of[name] <= share or taken[name] == 1
            assert sum(rows[: taken[name] + 1]) > share
