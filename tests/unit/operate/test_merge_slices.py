"""Unit: which windows the rows of a lot are in."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.columns import START, key
from thalweg.model.plan import Grouping, Partial
from thalweg.model.window import Window
from thalweg.operate import columns, dense
from thalweg.operate import merge_slices as slices
from thalweg.operate.merge_slices import SliceTable, window_rounds

SECOND = 1_000_000


def _lot(starts: tuple[int, ...], rows: list[int]) -> SliceTable:
    return SliceTable(pa.table({START: pa.array(rows, pa.int64())}), SECOND, starts, new=False)


def test_a_start_that_is_decades_away_costs_no_memory() -> None:
    far, now, then = starts = (0, 1_750_000_000 * SECOND, 1_750_000_001 * SECOND)
    lot = _lot(starts, [now, far, then, now])
    tracemalloc.start()
    try:
        (found,) = window_rounds([lot], [(s, SECOND, s) for s in (now, then)], {now: 0, then: 1})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == [0, -1, 1, 0]
    assert most < 1 << 20


@pytest.mark.parametrize("seed", range(5))
def test_near_and_far_starts_are_looked_up_alike(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    starts = tuple(rng.sample(range(0, 300 * SECOND, SECOND), 40))
    lot = _lot(starts, rng.choices(starts, k=500))
    windows = sorted({s - s % (10 * SECOND) for s in starts} | {s - s % (15 * SECOND) for s in starts})
    cover = [(s, SECOND, w) for w in windows for s in starts if w <= s < w + 20 * SECOND and rng.random() < 0.8]
    numbers = {w: i for i, w in enumerate(windows)}
    near = window_rounds([lot], cover, numbers)
    monkeypatch.setattr(slices, "MOST_BETWEEN", -1)
    far = window_rounds([lot], cover, numbers)
    assert [a.tolist() for a in near] == [b.tolist() for b in far]


def test_many_windows_of_many_rows_are_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows times windows are never laid out at once: a watermark that jumps closes thousands that overlap."""
    count = Partial("n", "count(*)", None, "sum(n)", "BIGINT", op="count")
    grouping = Grouping("g", "s", ("k",), (), (count,), (Window(60 * SECOND, SECOND),), SECOND, 0)
    table = pa.table({START: pa.array([0] * 100, pa.int64()), key(0): list(range(100)), "n": [1] * 100})
    held, cover = [SliceTable(table, SECOND, (0,), new=False)], [(0, SECOND, -w * SECOND) for w in range(60)]
    made = slices.merge_dense(grouping, held, cover, [count])
    assert made is not None
    assert made.num_rows == 6000
    monkeypatch.setattr(slices, "MOST_COUNTED", 5999)
    assert slices.merge_dense(grouping, held, cover, [count]) is None


def test_places_have_numbers_of_32_bits() -> None:
    rows = 20_000
    windows = [np.zeros(rows, np.int32)] * 64
    wide = columns.Key(np.arange(rows, dtype=np.int64), 0, 40_000, pa.int64())
    assert dense.place(windows, columns.Key(windows[0], 0, 60, pa.int64()), [wide], rows) is not None
    assert dense.place(windows * 2000, columns.Key(windows[0], 0, 60_000, pa.int64()), [wide], rows) is None


@dataclass
class _Asked:
    """In the place of a table: counts how often the names of its columns are made."""

    table: pa.Table
    times: int = 0

    @property
    def column_names(self) -> list[str]:
        self.times += 1
        return self.table.column_names

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def test_names_of_columns_are_not_asked_for_each_of_them() -> None:
    """Arrow makes the list anew at every access: by the thousand columns that was a sixth of a batch."""
    count = [Partial(f"n{i}", "count(*)", None, f"sum(n{i})", "BIGINT", op="count") for i in range(100)]
    grouping = Grouping("g", "s", ("k",), (), tuple(count), (Window(SECOND, SECOND),), SECOND, 0)
    table = pa.table({START: pa.array([0], pa.int64()), key(0): [7], **{p.name: [1] for p in count}})
    asked = [_Asked(table), _Asked(table)]
    held = [SliceTable(one, SECOND, (0,), new=False) for one in asked]
    found = slices.merge_dense(grouping, held, [(0, SECOND, 0)], count)
    assert found is not None
    assert found.select(["n0", "n99"]).to_pylist() == [{"n0": 2, "n99": 2}]
    assert all(one.times <= 1 for one in asked)


def test_what_lots_lack_merges_as_nothing() -> None:
    count = [Partial(name, "count(*)", None, f"sum({name})", "BIGINT", op="count") for name in ("n0", "n1")]
    grouping = Grouping("g", "s", ("k",), (), tuple(count), (Window(SECOND, SECOND),), SECOND, 0)
    table = pa.table({START: pa.array([0, 0], pa.int64()), key(0): [7, 8], "n0": [1, 1], "n1": [1, 1]})
    held = [SliceTable(t, SECOND, (0,), new=False) for t in (table.slice(0, 1), table.drop_columns("n1"))]
    found = slices.merge_dense(grouping, held, [(0, SECOND, 0)], count)
    assert found is not None
    assert found.select([key(0), "n0", "n1"]).to_pylist() == [
        {key(0): 7, "n0": 2, "n1": 1},
        {key(0): 8, "n0": 1, "n1": None},
    ]


def test_partials_that_a_bucket_lacks_are_null() -> None:
    old, new = (Partial(name, f"sum({name})", None, f"sum({name})", "BIGINT", op="sum") for name in ("old", "new"))
    text = Partial("text", "max(t)", None, "max(text)", "VARCHAR")
    grouping = Grouping("g", "s", ("k",), (), (old, new, text), (Window(SECOND, SECOND),), SECOND, 0)
    table = pa.table({START: pa.array([0], pa.int64()), key(0): [7], "old": [3]})
    found = slices.whole(grouping, [SliceTable(table, SECOND, (0,), new=True)])
    assert found.select(["old", "new", "text"]).to_pylist() == [{"old": 3, "new": None, "text": None}]
    assert found.schema.field("new").type == pa.int64()
    assert found.schema.field("text").type == pa.string()
