"""Differential: an index orders rows as a plain sort by hash prefix does, and agrees with the router's hash."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from thalweg.operate.index import (
    MAX_BITS,
    MIN_BITS,
    as_words,
    build_index,
    group_range,
    hash_prefixes,
    hash_range,
    hash_words,
    word_groups,
)
from thalweg.route.hash import hash_rows, key_groups

TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint64]


def some_words(kind: type, n: int, seed: int = 0) -> np.ndarray:
    """Few distinct ones and the extremes."""
    limits = np.iinfo(kind)
    rng = np.random.default_rng(seed)
    pool = np.concatenate(
        [
            np.array([limits.min, limits.max, 0, 1], dtype=kind),
            rng.integers(limits.min, limits.max, n // 2 + 1, dtype=kind, endpoint=True),
        ]
    )
    return rng.choice(pool, n)


@pytest.mark.parametrize("kind", TYPES)
def test_hash_is_the_routers(kind: type) -> None:
    words = some_words(kind, 500)
    hashes = hash_rows([pa.array(words)])
    assert hash_words(words).tolist() == hashes.tolist()
    assert hash_prefixes(words, 11).tolist() == (hashes >> np.uint64(53)).tolist()
    for groups in (1, 7, 256):
        assert word_groups(words, groups).tolist() == key_groups(hashes, groups).tolist()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 511, 512, 1023, 1024, 5000])
@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_order_is_a_stable_sort_by_prefix(kind: type, n: int, nulls: float) -> None:
    words = some_words(kind, n, n)
    valid = np.random.default_rng(n + 1).random(n) >= nulls if nulls else None
    index = build_index(words, valid)
    rows = np.arange(n) if valid is None else np.flatnonzero(valid)
    prefixes = (hash_words(words) >> np.uint64(64 - index.bits)).astype(np.int64)
    assert index.starts.dtype == index.order.dtype == np.uint16
    assert index.order.tolist() == sorted(rows.tolist(), key=lambda row: prefixes[row])
    counts = np.bincount(prefixes[rows], minlength=1 << index.bits)
    assert index.starts.tolist() == [0, *np.cumsum(counts).tolist()]


@pytest.mark.parametrize(("n", "bits"), [(0, 8), (1023, 8), (1024, 9), (2047, 9), (2048, 10), (250_000, 16)])
def test_two_to_four_rows_a_prefix(n: int, bits: int) -> None:
    index = build_index(np.arange(n))
    assert index.bits == bits
    assert len(index.starts) == 2**bits + 1
    assert MIN_BITS <= bits <= MAX_BITS
    assert n < 512 or n / 2**bits < 4


def test_rows_left_out_do_not_widen_the_directory() -> None:
    assert build_index(np.arange(100_000), np.arange(100_000) < 10).bits == MIN_BITS


@pytest.mark.parametrize("groups", [1, 2, 64, 256])
@pytest.mark.parametrize("n", [3, 4000])
def test_key_groups_are_ranges(groups: int, n: int) -> None:
    words = some_words(np.int64, n)
    index = build_index(words)
    router = key_groups(hash_rows([pa.array(words)]), groups)
    for first in range(0, groups, max(1, groups // 8)):
        last = min(first + 5, groups)
        low, high = group_range(index, first, last, groups)
        inside = index.order[low:high]
        assert sorted(inside.tolist()) == np.flatnonzero((router >= first) & (router < last)).tolist()
    assert group_range(index, 0, groups, groups) == (0, n)
    assert group_range(index, groups, groups, groups) == (n, n)


@pytest.mark.parametrize(("first", "last", "groups"), [(0, 1, 100), (0, 1, 512), (2, 1, 4), (-1, 1, 4), (0, 5, 4)])
def test_what_is_no_range_is_refused(first: int, last: int, groups: int) -> None:
    with pytest.raises(ValueError, match="key groups"):
        group_range(build_index(np.arange(10)), first, last, groups)


@pytest.mark.parametrize("n", [0, 1, 300, 70_000])
def test_hashes_between_two_are_a_range(n: int) -> None:
    words = some_words(np.int64, n, seed=n)
    index, hashes = build_index(words), hash_words(words)
    assert hash_range(index, 0, 2**64 - 1) == (0, n)
    rng = np.random.default_rng(n)
    for least, most in np.sort(rng.integers(0, 2**64, (20, 2), dtype=np.uint64), axis=1):
        first, last = hash_range(index, int(least), int(most))
        between = set(np.flatnonzero((hashes >= least) & (hashes <= most)).tolist())
        assert between <= set(index.order[first:last].tolist())
        assert last - first - len(between) <= n // 20 + 8  # no more than the rest of two prefixes


def test_words_are_read_in_place_where_they_can_be() -> None:
    for kind in (np.int32, np.int64, np.uint64):
        words = np.arange(4, dtype=kind)
        assert np.shares_memory(as_words(words), words)
    assert as_words(np.array([2**32 - 1], dtype=np.uint32)).tolist() == [2**32 - 1]
    with pytest.raises(TypeError, match="float64"):
        as_words(np.zeros(1))
