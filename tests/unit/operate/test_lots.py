"""Unit: which windows the rows of a lot are in."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.plan import Grouping, Partial
from thalweg.model.query import Window
from thalweg.operate import dense, lots
from thalweg.operate.columns import START, key
from thalweg.operate.lots import Lot, window_rounds

SECOND = 1_000_000


def _lot(starts: tuple[int, ...], rows: list[int]) -> Lot:
    return Lot(pa.table({START: pa.array(rows, pa.int64())}), SECOND, starts, new=False)


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
    monkeypatch.setattr(lots, "MOST_BETWEEN", -1)
    far = window_rounds([lot], cover, numbers)
    assert [a.tolist() for a in near] == [b.tolist() for b in far]


def test_many_windows_of_many_rows_are_left_to_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows times windows are never laid out at once: a watermark that jumps closes thousands that overlap."""
    count = Partial("n", "count(*)", None, "sum(n)", "BIGINT", op="count")
    grouping = Grouping("g", "s", ("k",), (), (count,), (Window(60 * SECOND, SECOND),), SECOND, 0)
    table = pa.table({START: pa.array([0] * 100, pa.int64()), key(0): list(range(100)), "n": [1] * 100})
    held, cover = [Lot(table, SECOND, (0,), new=False)], [(0, SECOND, -w * SECOND) for w in range(60)]
    made = lots.merge_dense(grouping, held, cover, [count])
    assert made is not None
    assert made.num_rows == 6000
    monkeypatch.setattr(lots, "MOST_COUNTED", 5999)
    assert lots.merge_dense(grouping, held, cover, [count]) is None


def test_places_have_numbers_of_32_bits() -> None:
    rows = 20_000
    windows = [np.zeros(rows, np.int32)] * 64
    wide = dense.Key(np.arange(rows, dtype=np.int64), 0, 40_000, pa.int64())
    assert dense.place(windows, dense.Key(windows[0], 0, 60, pa.int64()), [wide], rows) is not None
    assert dense.place(windows * 2000, dense.Key(windows[0], 0, 60_000, pa.int64()), [wide], rows) is None
