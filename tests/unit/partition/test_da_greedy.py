"""DAGreedy against its plain transcription, row for row (differential), and its promises (property)."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.errors import ThalwegError
from thalweg.partition import create
from thalweg.partition.da_greedy import DAGreedy

sys.path.insert(0, str(Path(__file__).parent))
from plain_dalton import PlainGreedy


def zipf(exponent: float, keys: int, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = np.cumsum(1.0 / np.arange(1, keys + 1) ** exponent)
    names = rng.choice(2**62, keys, replace=False).astype(np.int64) - 2**61
    return names[np.searchsorted(weights / weights[-1], rng.random(rows))]


STREAMS = {
    "uniform": zipf(0, 300, 5000, 1),
    "zipf 1.0": zipf(1.0, 300, 5000, 2),
    "zipf 2.0": zipf(2.0, 300, 5000, 3),
    "shifting": np.concatenate([zipf(1.5, 300, 2500, 4), zipf(1.5, 300, 2500, 5)]),
}


def both(keys: np.ndarray, workers: int, **options: Any) -> tuple[DAGreedy, PlainGreedy]:
    made = create("da_greedy", workers, seed=5, **options)
    assert isinstance(made, DAGreedy)
    names = np.unique(keys)
    homes = create("hash", workers, seed=5).assign(names, None).tolist()
    given = made.settings
    slide = given.slide_us or given.window_us or given.slide_rows
    plain = PlainGreedy(
        workers,
        dict(zip(names.tolist(), homes, strict=True)),
        slide=slide,
        slides=-(-(given.window_us or given.window_rows) // slide),
        stats_rows=given.stats_rows,
        hot_share=given.hot_share,
        sketch=given.frequencies == "sketch",
    )
    return made, plain


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("workers", [1, 2, 7, 40])
@pytest.mark.parametrize("frequencies", ["auto", "sketch"])
def test_it_decides_as_told_row_for_row(stream: str, workers: int, frequencies: str) -> None:
    keys = STREAMS[stream]
    made, plain = both(keys, workers, window_rows=1200, slide_rows=400, stats_rows=500, frequencies=frequencies)
    for start in range(0, len(keys), 999):
        part = keys[start : start + 999]
        assert made.assign(part).tolist() == plain.assign(part.tolist())


def test_windows_by_time() -> None:
    keys = STREAMS["shifting"]
    times = np.cumsum(np.random.default_rng(1).integers(0, 2000, len(keys)))
    made, plain = both(keys, 5, window_us=500_000, stats_rows=400)
    assert made.assign(keys, times).tolist() == plain.assign(keys.tolist(), times.tolist())


def test_a_frequent_key_is_split_and_named() -> None:
    keys = STREAMS["zipf 2.0"]
    made = create("da_greedy", 8)
    assert isinstance(made, DAGreedy)
    out = made.assign(keys)
    names, counts = np.unique(np.unique(np.stack([keys, out]), axis=1)[0], return_counts=True)
    assert (counts > 1).any()
    assert set(names[counts > 1].tolist()) <= set(made.split_keys().tolist())
    loads = np.bincount(out, minlength=8)
    hashed = np.bincount(create("hash", 8).assign(keys), minlength=8)
    assert loads.max() < 0.5 * hashed.max()


def test_reset_forgets() -> None:
    keys = STREAMS["shifting"]
    made = create("da_greedy", 8)
    first = made.assign(keys)
    made.reset()
    assert (made.assign(keys) == first).all()
    assert made.state_bytes > 0


@pytest.mark.parametrize("options", [{"workers": 0}, {"hot_share": math.nan}, {"epsilon": 0.1}, {"window_us": -1}])
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ThalwegError, match="da_greedy"):
        create("da_greedy", options.pop("workers", 4), **options)
