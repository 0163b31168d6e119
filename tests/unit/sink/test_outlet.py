"""Unit: a task's results travel with its report while they are few, and are in one file when they are many."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.route.bucket import unpack
from thalweg.sink.outlet import INLINE_BYTES, Results
from thalweg.state.container import Section, read_section


def table(rows: int, first: int = 0) -> pa.Table:
    return pa.table({"0": np.arange(first, first + rows)})


def files(state: Path) -> list[Path]:
    return sorted(state.glob("spill/*"))


def test_no_results_are_no_cell(tmp_path: Path) -> None:
    assert Results(tmp_path, 3, 1, Stopwatch()).close() is None


def test_few_results_travel(tmp_path: Path) -> None:
    results = Results(tmp_path, 3, 1, Stopwatch())
    results.add("a", table(10))
    results.add("b", table(5))
    told = results.close()
    assert told is not None
    kind, payload = told
    assert kind == "results"
    assert [(name, t.num_rows) for name, t in unpack(pa.py_buffer(payload))] == [("a", 10), ("b", 5)]
    assert files(tmp_path) == []


def test_many_results_are_in_one_file_in_order(tmp_path: Path) -> None:
    watch = Stopwatch()
    results = Results(tmp_path, 3, 1, watch)
    given = [("a", table(10)), ("b", table(INLINE_BYTES // 8, 7)), ("a", table(3, 100)), ("c", table(0))]
    for name, one in given:
        results.add(name, one)
    told = results.close()
    assert told is not None
    kind, payload = told
    assert kind == "spill"
    sections = [Section.from_json(s) for s in json.loads(payload)]
    assert [(s.name, read_section(tmp_path, s)) for s in sections] == given
    assert len(files(tmp_path)) == 1
    assert watch.take()[SINK] > 0


def test_what_nobody_takes_is_counted_and_goes_nowhere(tmp_path: Path) -> None:
    results = Results(tmp_path, 3, 1, Stopwatch(), unheard={"a", "c"})
    for query, rows in (("a", 10), ("b", 5), ("a", INLINE_BYTES)):
        results.add(query, table(rows))
    told = results.close()
    assert told is not None
    assert [name for name, _ in unpack(pa.py_buffer(told[1]))] == ["b"]
    assert results.counted == {"a": 10 + INLINE_BYTES}
    assert files(tmp_path) == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_task_that_fails_leaves_no_file_behind(tmp_path: Path, closed: bool) -> None:
    results = Results(tmp_path, 3, 1, Stopwatch())
    results.add("a", table(INLINE_BYTES))
    if closed:
        results.close()
    results.abandon()
    assert len(files(tmp_path)) == int(closed)
