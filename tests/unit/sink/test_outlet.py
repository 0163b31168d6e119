"""Unit: a task's results travel with its report while they are few, and are in one file when they are many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from thalweg.batch.work import unique
from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.sink.outlet import INLINE_BYTES, Outlet
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
