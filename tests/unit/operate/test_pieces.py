"""How rows are cut into buckets: none is lost, none is too large, and what soon goes keeps nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from thalweg.operate import pieces as module
from thalweg.operate.pieces import in_pieces


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 100)
    monkeypatch.setattr(module, "WORTH_CUTTING", 10)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("gone", [-1, 5, 50, 200, 643, 649, 650])
def test_rows_that_soon_go_lie_apart(gone: int, in_order: bool) -> None:
    times = np.arange(650)
    if not in_order:
        np.random.default_rng(gone + 1).shuffle(times)
    made = list(in_pieces(pa.table({"t": times, "i": np.arange(650)}), times, gone))
    assert sorted(i for piece in made for i in piece.column("i").to_pylist()) == list(range(650))
    sizes = [piece.num_rows for piece in made]
    assert max(sizes) <= 100
    mixed = [piece for piece in made if len({t > gone for t in piece.column("t").to_pylist()}) == 2]
    assert bool(mixed) == (10 > gone + 1 > 0 or 10 > 649 - gone > 0)
    assert len(made) <= 8
    for piece in made:  # as they came
        assert piece.column("i").to_pylist() == sorted(piece.column("i").to_pylist())


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1]), (100, [100]), (101, [50, 51]), (299, [99, 100, 100])])
def test_buckets_are_about_as_large(rows: int, sizes: list[int]) -> None:
    times = np.arange(rows)
    assert [piece.num_rows for piece in in_pieces(pa.table({"t": times}), times, -1)] == sizes
