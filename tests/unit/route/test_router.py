"""Differential and property tests: dealing rows out against a plain loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.route.router import Dealt, Router, router_for, sample_groups, warm

Array = npt.NDArray[Any]


def plain_deal(
    tables: Sequence[Sequence[int]], slots: int, groups: Sequence[Array], admitted: Sequence[Array | None]
) -> list[list[tuple[int, int]]]:
    """Per slot: (row, the keys it serves) in the order of the rows."""
    dealt: list[list[tuple[int, int]]] = [[] for _ in range(slots)]
    for row in range(len(groups[0])):
        serves: dict[int, int] = {}
        for k, table in enumerate(tables):
            wanted = admitted[k]
            if wanted is None or wanted[row]:
                slot = table[int(groups[k][row])]
                serves[slot] = serves.get(slot, 0) | 1 << k
        for slot, bits in serves.items():
            dealt[slot].append((row, bits))
    return dealt


def by_slot(dealt: Dealt) -> list[list[tuple[int, int]]]:
    pairs = list(zip(dealt.rows.tolist(), dealt.serves.tolist(), strict=True))
    offsets = dealt.offsets.tolist()
    assert offsets[0] == 0
    assert offsets[-1] == len(pairs)
    return [pairs[start:end] for start, end in pairwise(offsets)]


def mask_type(keys: int) -> Any:
    return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if keys <= np.iinfo(kind).bits)


def check(
    tables: Sequence[Sequence[int]], slots: int, groups: Sequence[Array], admitted: Sequence[Array | None] | None
) -> None:
    dealt = Router(tables, slots).deal(groups, admitted)
    assert dealt.rows.dtype == np.uint32
    assert dealt.offsets.dtype == np.int64
    assert dealt.serves.dtype == mask_type(len(tables))
    assert len(dealt.offsets) == slots + 1
    assert by_slot(dealt) == plain_deal(tables, slots, groups, admitted or [None] * len(tables))


def draw(
    seed: int, keys: int, slots: int, rows: int, n_groups: int = 23
) -> tuple[list[tuple[int, ...]], list[Array], list[Array | None]]:
    """Tables that agree on some key groups, rows that agree on some keys, and admissions of every kind."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, slots, n_groups)
    tables = [np.where(rng.random(n_groups) < 0.5, table, rng.integers(0, slots, n_groups)) for _ in range(keys)]
    group = rng.integers(0, n_groups, rows)
    groups = [np.where(rng.random(rows) < 0.5, group, rng.integers(0, n_groups, rows)) for _ in range(keys)]
    shares = (None, 0.0, 0.1, 0.5, 1.0)
    chosen = [shares[i] for i in rng.integers(0, len(shares), keys)]
    admitted = [None if share is None else rng.random(rows) < share for share in chosen]
    return [tuple(t.tolist()) for t in tables], [g.astype(np.uint16) for g in groups], admitted


@pytest.mark.parametrize("keys", [1, 2, 3, 4, 5, 6, 9, 17, 40])
@given(
    seed=st.integers(0, 2**32 - 1),
    slots=st.integers(1, 70),
    rows=st.integers(0, 60),
    admits=st.booleans(),
)
def test_rows_are_dealt_as_by_a_plain_loop(keys: int, seed: int, slots: int, rows: int, admits: bool) -> None:
    tables, groups, admitted = draw(seed, keys, slots, rows)
    check(tables, slots, groups, admitted if admits else None)


@pytest.mark.parametrize("keys", [7, 8, 16, 32, 33, 64])
def test_every_width_of_the_mask(keys: int) -> None:
    tables, groups, admitted = draw(keys, keys, 5, 200)
    check(tables, 5, groups, None)
    check(tables, 5, groups, admitted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "slots"), [(1, 255), (3, 255), (8, 255), (3, 256), (8, 300), (2, 65536), (9, 70000)]
)
def test_slot_numbers_of_every_width(keys: int, slots: int) -> None:
    tables, groups, admitted = draw(slots, keys, slots, 2000, n_groups=1000)
    tables = [(slots - 1, 0, *table[2:]) for table in tables]
    check(tables, slots, groups, None)
    check(tables, slots, groups, admitted)


@pytest.mark.parametrize("keys", [2, 9])
def test_the_largest_number_of_key_groups(keys: int) -> None:
    tables, groups, admitted = draw(3, keys, 6, 500, n_groups=1 << 16)
    groups[0][:3] = (0, 65535, 65535)
    admitted[0] = np.arange(500) % 3 != 0
    check(tables, 6, groups, None)
    check(tables, 6, groups, admitted)


@pytest.mark.parametrize("keys", [1, 3, 12])
def test_no_rows_and_one_row(keys: int) -> None:
    none: Array = np.empty(0, dtype=np.uint16)
    one: Array = np.array([1], dtype=np.uint16)
    router = Router([(2, 0)] * keys, 3)
    for rows in (None, [np.empty(0, dtype=bool)] * keys):
        empty = router.deal([none] * keys, rows)
        assert (len(empty.rows), len(empty.serves), empty.offsets.tolist()) == (0, 0, [0, 0, 0, 0])
        assert empty.serves.dtype == mask_type(keys)
    assert by_slot(router.deal([one] * keys)) == [[(0, (1 << keys) - 1)], [], []]


def test_a_row_that_no_key_needs_has_no_copy() -> None:
    groups = [np.array([0, 1, 1], dtype=np.uint16)] * 2
    needed = [np.array([False, True, False]), np.array([False, False, True])]
    assert by_slot(Router([(0, 1), (1, 1)], 2).deal(groups, needed)) == [[], [(1, 0b01), (2, 0b10)]]


def test_the_slots_of_one_row_are_told_apart_by_every_key() -> None:
    """Each pair of keys shares a slot in some row: no byte of a word is taken for another."""
    keys = 8
    rows = [(i, j) for i in range(keys) for j in range(i)]
    groups = [np.array([i if k == j else k for i, j in rows], dtype=np.uint16) for k in range(keys)]
    for first in (0, 120, 247):
        check([tuple(range(first, first + keys))] * keys, 255, groups, None)


def test_views_with_strides_are_dealt_as_copies_are() -> None:
    tables, groups, admitted = draw(11, 3, 9, 400)
    strided = [np.repeat(group, 2)[::2] for group in groups]
    assert by_slot(Router(tables, 9).deal(strided, admitted)) == by_slot(Router(tables, 9).deal(groups, admitted))


@pytest.mark.parametrize(
    ("tables", "slots", "message"),
    [
        ([], 2, "1 to 64 route keys"),
        ([(0, 1)] * 65, 2, "1 to 64 route keys"),
        ([()], 2, "number of key groups"),
        ([(0, 1), (0, 1, 1)], 2, "differ"),
        ([(0, 2)], 2, "outside 0 to 1"),
        ([(0, 1), (0, -1)], 2, "outside 0 to 1"),
        ([(0,)], 0, "outside"),
    ],
)
def test_tables_that_cannot_be_are_refused(tables: list[tuple[int, ...]], slots: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Router(tables, slots)


def numbers(*values: int, kind: Any = np.uint16) -> Array:
    return np.array(values, dtype=kind)


@pytest.mark.parametrize(
    ("groups", "admitted", "message"),
    [
        ([numbers(0)], None, "each of 2 route keys"),
        ([numbers(0)] * 2, [None], "each of 2 route keys"),
        ([numbers(0), numbers(0, 1)], None, "different numbers of rows"),
        ([numbers(0), numbers(3)], None, "key group 3 is outside 0 to 2"),
        ([numbers(0), numbers(1, kind=np.int64)], None, "must be uint16"),
        ([numbers(0)] * 2, [None, numbers(1, 1, kind=bool)], "as 1 booleans"),
        ([numbers(0)] * 2, [None, numbers(1)], "as 1 booleans"),
    ],
)
def test_rows_that_do_not_fit_the_tables_are_refused(
    groups: list[Array], admitted: list[Array | None] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Router([(0, 1, 0)] * 2, 2).deal(groups, admitted)


def test_a_router_is_kept_by_what_its_tables_say() -> None:
    assert router_for(((0, 1), (1, 0)), 2) is router_for(tuple((a, 1 - a) for a in (0, 1)), 2)
    assert router_for(((0, 1), (1, 0)), 2) is not router_for(((0, 1), (1, 0)), 3)


def test_warm_runs() -> None:
    warm()


@settings(max_examples=examples(100))
@given(rows=st.integers(0, 300), most=st.integers(1, 80), seed=st.integers(0, 2**32 - 1), keys=st.integers(1, 4))
def test_a_sample_is_evenly_spaced_and_keeps_rows_whole(rows: int, most: int, seed: int, keys: int) -> None:
    groups = [(np.arange(rows) + 1000 * k).astype(np.uint16) for k in range(keys)]
    sample = sample_groups(groups, most, seed)
    assert sample.shape == (min(rows, most), keys)
    assert sample.dtype == np.uint16
    chosen = sample[:, 0].astype(np.int64)
    assert (sample == chosen[:, None] + 1000 * np.arange(keys)).all()
    gaps = np.diff(chosen)
    assert rows < 2 or most < 2 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)
    assert (chosen < rows).all()
    assert np.array_equal(sample, sample_groups(groups, most, seed))


def test_samples_of_many_seeds_reach_every_row() -> None:
    groups = [np.arange(50, dtype=np.uint16)]
    assert {int(row) for seed in range(300) for row in sample_groups(groups, 4, seed)[:, 0]} == set(range(50))


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        sample_groups([np.arange(3, dtype=np.uint16)], 0, 1)
    with pytest.raises(ValueError, match="different numbers of rows"):
        sample_groups([], 3, 1)
