"""Unit: which windows the rows of a lot are in."""

from __future__ import annotations

import random
import tracemalloc

import pyarrow as pa
import pytest

from thalweg.operate import lots
from thalweg.operate.columns import START
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
