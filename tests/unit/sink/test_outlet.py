"""Unit: a task's results travel with its report while they are few, and are in one file when they are many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.batch.work import unique
from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.sink.files import FilesInTasks
from thalweg.sink.outlet import INLINE_BYTES, PART_BYTES, Outlet
from thalweg.state.container import read_section
from thalweg.state.local_storage import LocalStorage


def table(rows: int, first: int = 0) -> pa.Table:
    return pa.table({"0": np.arange(first, first + rows)})


def files(state: Path) -> list[Path]:
    return sorted(state.glob("prepared/*"))


def test_no_results_are_no_cell(tmp_path: Path) -> None:
    outlet = Outlet(LocalStorage(str(tmp_path)), 3, 1, Stopwatch(), unique)
    assert (outlet.close(), outlet.held) == (None, [])


def test_few_results_travel(tmp_path: Path) -> None:
    outlet = Outlet(LocalStorage(str(tmp_path)), 3, 1, Stopwatch(), unique)
    outlet.add("a", table(10))
    outlet.add("b", table(5))
    assert outlet.close() is None
    assert outlet.held == [("a", table(10)), ("b", table(5))]
    assert files(tmp_path) == []


def test_many_results_are_in_one_file_in_order(tmp_path: Path) -> None:
    watch = Stopwatch()
    outlet = Outlet(LocalStorage(str(tmp_path)), 3, 1, watch, unique)
    given = [("a", table(10)), ("b", table(INLINE_BYTES // 8, 7)), ("a", table(3, 100)), ("c", table(0))]
    for name, one in given:
        outlet.add(name, one)
    left = outlet.close()
    assert left is not None
    assert (left.parts, left.failed) == ((), {})
    assert [(s.name, read_section(LocalStorage(str(tmp_path)), s)) for s in left.sections] == given
    assert outlet.held == []
    assert len(files(tmp_path)) == 1
    assert watch.take()[SINK] > 0


def test_what_nobody_takes_is_counted_and_goes_nowhere(tmp_path: Path) -> None:
    outlet = Outlet(LocalStorage(str(tmp_path)), 3, 1, Stopwatch(), unique, uncollected={"a", "c"})
    for query, rows in (("a", 10), ("b", 5), ("a", INLINE_BYTES)):
        outlet.add(query, table(rows))
    assert outlet.close() is None
    assert [name for name, _ in outlet.held] == ["b"]
    assert outlet.counted == {"a": 10 + INLINE_BYTES}
    assert files(tmp_path) == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_task_that_fails_leaves_no_file_behind(tmp_path: Path, closed: bool) -> None:
    outlet = Outlet(LocalStorage(str(tmp_path)), 3, 1, Stopwatch(), unique)
    outlet.add("a", table(INLINE_BYTES))
    if closed:
        outlet.close()
    outlet.abandon()
    assert len(files(tmp_path)) == int(closed)


class Refusing:
    """A sink that tasks cannot write to, or not to the end."""

    kind, query, rows = "files", "revenue", 0

    def __init__(self, step: str) -> None:
        self.step = step
        self.abandoned = False

    def open_part(self, batch_id: int, place: int, unique: str) -> Refusing:
        self._fail("open")
        return self

    def write(self, table: pa.Table) -> None:
        self._fail("write")

    def finish(self) -> str:
        self._fail("finish")
        return ""

    def abandon(self) -> None:
        self.abandoned = True

    def _fail(self, step: str) -> None:
        if step == self.step:
            raise OSError("No space left")


@pytest.mark.parametrize("step", ["open", "write", "finish"])
def test_a_sink_that_tasks_cannot_write_to_concerns_its_query_alone(tmp_path: Path, step: str) -> None:
    storage, sink = LocalStorage(str(tmp_path)), Refusing(step)
    outlet = Outlet(storage, 3, 1, Stopwatch(), unique, sinks={"bad": sink})
    outlet.add("bad", table(INLINE_BYTES))
    outlet.add("good", table(3))
    outlet.add("bad", table(3))
    left = outlet.close()
    assert left is not None
    assert [section.name for section in left.sections] == ["good"]
    assert left.parts == ()
    assert "No space left" in left.failed["bad"]
    assert sink.abandoned == (step != "open")


def test_what_is_little_of_each_is_made_durable_with_that_of_others(tmp_path: Path) -> None:
    """A file for each of a thousand queries costs more than their rows. What counts is all of a query's pieces."""
    storage = LocalStorage(str(tmp_path))
    sinks = {name: FilesInTasks(name, str(tmp_path / name), "parquet", True, (("n", "bigint"),)) for name in "abc"}
    for name in sinks:
        (tmp_path / name).mkdir()
    outlet = Outlet(storage, 3, 1, Stopwatch(), unique, sinks=sinks)
    half = PART_BYTES // 16
    given = {"a": [half], "memory": [INLINE_BYTES // 8], "b": [half, half, 3], "c": [2 * half + 1, 5]}
    for name, pieces in given.items():
        for rows in pieces:
            outlet.add(name, table(rows))
    left = outlet.close()
    assert left is not None
    assert [(s.name, s.rows) for s in left.sections] == [
        ("a", half),
        ("memory", INLINE_BYTES // 8),
        ("b", half),
        ("b", half),
    ]
    assert [(part.query, part.rows) for part in left.parts] == [("b", 3), ("c", 2 * half + 6)]
    for part in left.parts:
        assert pq.read_table(tmp_path / part.query / part.name).num_rows == part.rows
    assert len(files(tmp_path)) == 1
