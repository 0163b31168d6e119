"""Prompt against its plain transcription, row for row (differential), and its promises (property)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.errors import ThalwegError
from thalweg.partition import create

sys.path.insert(0, str(Path(__file__).parent))
from plain_dalton import plain_prompt


def zipf(exponent: float, keys: int, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = np.cumsum(1.0 / np.arange(1, keys + 1) ** exponent)
    names = rng.choice(2**62, keys, replace=False).astype(np.int64) - 2**61
    return names[np.searchsorted(weights / weights[-1], rng.random(rows))]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("workers", [1, 3, 16, 64])
def test_batches_are_cut_as_told(exponent: float, workers: int) -> None:
    made = create("prompt", workers)
    for seed, rows in enumerate((4000, 1, 777)):
        keys = zipf(exponent, 500, rows, seed)
        assert made.assign(keys).tolist() == plain_prompt(keys.tolist(), workers)


@settings(max_examples=examples(150))
@given(st.lists(st.integers(-2, 12) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=120), st.integers(1, 9))
def test_any_batch(keys: list[int], workers: int) -> None:
    out = create("prompt", workers).assign(np.array(keys, np.int64))
    assert out.dtype == np.int32
    assert out.tolist() == plain_prompt(keys, workers)
    assert all(0 <= worker < workers for worker in out.tolist())


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_blocks_are_even_and_few_keys_are_split(exponent: float) -> None:
    keys = zipf(exponent, 5000, 50_000, 1)
    out = create("prompt", 16).assign(keys)
    assert np.bincount(out, minlength=16).max() <= 1.01 * len(keys) / 16
    pairs = np.unique(np.stack([keys, out]), axis=1)
    assert pairs.shape[1] < 1.25 * len(np.unique(keys))


def test_no_batch_depends_on_the_one_before() -> None:
    made = create("prompt", 8)
    keys = zipf(1.2, 100, 1000, 3)
    first = made.assign(keys)
    assert (made.assign(keys) == first).all()
    made.reset()
    assert (made.assign(keys, np.arange(1000)) == first).all()
    assert made.state_bytes == 0
    assert len(made.assign(np.zeros(0, np.int64))) == 0


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ThalwegError, match="workers"):
        create("prompt", 0)
    with pytest.raises(ThalwegError, match="epsilon"):
        create("prompt", 4, epsilon=0.1)
