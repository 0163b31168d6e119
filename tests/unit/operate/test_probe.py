"""Differential: the kernels of a probe and plain loops agree, wherever the output has to grow."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.operate import probe as module
from thalweg.operate.index import build_index, hash_range
from thalweg.operate.probe import (
    Near,
    Side,
    SortedSide,
    TooMany,
    begin,
    count_pairs,
    group_places,
    narrow,
    probe,
    sort_side,
    starting,
    warm_probes,
)
from thalweg.operate.query_sets import EVERY_QUERY, make_lut, query_sets, split_sets
from thalweg.route.hash import key_groups

INT64 = np.iinfo(np.int64)
Triple = tuple[int, int, int]


def plain_sets(bits: np.ndarray, masks: list[tuple[int, int]], always: int) -> list[int]:
    found = []
    for row in bits.tolist():
        queries = always
        for bit, mask in masks:
            if row[bit // 8] >> (bit % 8) & 1:
                queries |= mask
        found.append(queries)
    return found


def plain_probe(
    words: np.ndarray, low: np.ndarray, high: np.ndarray, sets: np.ndarray, side: Side, side_sets: list[int]
) -> list[Triple]:
    ours, theirs = words.tolist(), side.words.tolist()
    lows, highs, times = low.tolist(), high.tolist(), side.times.tolist()
    places = side.index.order.tolist()
    return [
        (i, s, q)
        for i, (word, mine) in enumerate(zip(ours, sets.tolist(), strict=True))
        for s in places
        if theirs[s] == word and lows[i] <= times[s] <= highs[i] and (q := mine & side_sets[s] & side.allowed)
    ]


def found(pairs: module.Pairs) -> list[Triple]:
    assert pairs.sets.dtype == np.uint64
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), pairs.sets.tolist(), strict=True))


def both_ways(side: Side) -> tuple[Side, Side]:
    """As it lies, and laid out in the order of its index."""
    return side, replace(side, ordered=laid_out(side, 0, len(side.index.order)))


def laid_out(side: Side, first: int, last: int) -> SortedSide:
    return sort_side(side.index, side.words, side.times, side.sets_of(np.arange(len(side.words))), first, last)


def random_masks(rng: np.random.Generator, nb: int) -> list[tuple[int, int]]:
    return [
        (int(bit), int(rng.integers(0, 2**64, dtype=np.uint64)) & int(rng.integers(0, 2**64, dtype=np.uint64)))
        for bit in rng.integers(0, 8 * nb, 6 * nb)
    ]


def random_side(rng: np.random.Generator, n: int, keys: int, kind: type, nb: int) -> tuple[Side, list[int]]:
    words = rng.integers(-keys, keys, n, endpoint=True).astype(kind)
    times = rng.integers(0, 50, n)
    bits = rng.integers(0, 256, (n, nb)).astype(np.uint8)
    masks, always = random_masks(rng, nb), int(rng.integers(0, 16))
    valid = rng.random(n) < 0.9
    sets = plain_sets(bits, masks, always)
    return Side(build_index(words, valid), words, times, known(sets), EVERY_QUERY >> 3), sets


def known(sets: Sequence[int]) -> Callable[[np.ndarray], np.ndarray]:
    return np.array(sets, dtype=np.uint64).__getitem__


@pytest.mark.parametrize("kinds", list(itertools.product([np.int8, np.int32, np.int64], repeat=2)), ids=str)
@pytest.mark.parametrize(("n", "keys", "nb"), [(300, 100, 2), (300, 5, 1), (200, 0, 0), (1, 0, 3), (0, 1, 1)])
def test_probe_equals_nested_loops(kinds: tuple[type, type], n: int, keys: int, nb: int) -> None:
    rng = np.random.default_rng(n + keys)
    side, side_sets = random_side(rng, n, keys, kinds[0], nb)
    words = rng.integers(-keys, keys, 200, endpoint=True).astype(kinds[1])
    low = rng.integers(0, 50, 200)
    high = low + rng.integers(-5, 20, 200)
    sets = rng.integers(0, 2**64, 200, dtype=np.uint64) & rng.integers(0, 2**64, 200, dtype=np.uint64)
    expected = plain_probe(words, low, high, sets, side, side_sets)
    since = rng.integers(0, 50, 200)
    edges = np.sort(rng.integers(-50, 50, int(rng.integers(0, 7))))
    masks = rng.integers(0, 2**64, len(edges) + 1, dtype=np.uint64)
    near_enough = [
        (i, s, left)
        for i, s, q in expected
        if (left := q & int(masks[np.count_nonzero(edges <= side.times[s] - since[i])]))
    ]
    for way in both_ways(side):
        assert found(probe(words, low, high, sets, way)) == expected
        assert found(probe(words, low, high, sets, way, near=Near(since, edges, masks))) == near_enough
        assert found(probe(words[:0], low[:0], high[:0], sets[:0], way)) == []


@pytest.mark.parametrize("allowed", [EVERY_QUERY, 0b1010, 1 << 5, 0])
@pytest.mark.parametrize("seed", range(4))
def test_as_many_are_counted_as_are_found(seed: int, allowed: int) -> None:
    rng = np.random.default_rng(seed)
    side, _ = random_side(rng, 600, 5 if seed % 2 else 100, np.int32, 2)
    side = replace(side, allowed=allowed)
    words = rng.integers(-100, 100, 300)
    low = rng.integers(0, 50, 300)
    high = low + rng.integers(-5, 20, 300)
    sets = rng.integers(0, 2**64, 300, dtype=np.uint64)
    near = Near(low, np.array([-3, 8]), rng.integers(0, 2**64, 3, dtype=np.uint64))
    hashes = module.hash_words(words)
    for way, close in itertools.product(both_ways(side), (None, near)):
        rows = (words, low, high, sets, way)
        expected = found(probe(*rows, hashes=hashes, near=close))
        count, of_each = count_pairs(*rows, 9999, hashes, close)
        assert count == len(expected)
        assert of_each.tolist() == [sum(q >> bit & 1 for _, _, q in expected) for bit in range(64)]
        assert count_pairs(*rows, count, hashes, close)[0] == count
        assert count == 0 or count_pairs(*rows, count - 1, hashes, close)[0] > count - 1


def every_pair(n: int, m: int, word: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Side]:
    """n rows that each find all m rows of the side."""
    theirs = np.full(m, word)
    side = Side(build_index(theirs), theirs, np.zeros(m, np.int64), known([1] * m))
    zeros = np.zeros(n, dtype=np.int64)
    return np.full(n, word), zeros, zeros, np.ones(n, dtype=np.uint64), side


@pytest.mark.parametrize("m", [1, 511, 512, 513, 1024, 5000])
@pytest.mark.parametrize("n", [1, 3])
def test_output_grows_in_the_middle_of_a_run(n: int, m: int) -> None:
    *rows, side = every_pair(n, m)
    for way in both_ways(side):
        assert found(probe(*rows, way)) == [(i, s, 1) for i in range(n) for s in range(m)]


@pytest.mark.parametrize("m", [511, 512, 513, 5000])
def test_what_is_not_near_makes_room(m: int) -> None:
    """The output fills with pairs that the check then refuses: it goes on, and finds what is left once."""
    *rows, side = every_pair(3, m)
    edges, masks = np.array([m // 2, m // 2 + 3]), np.array([0, 1, 0], dtype=np.uint64)
    near = Near(np.zeros(3, np.int64), edges, masks)
    late = replace(side, times=np.arange(m))
    words, low, _, sets = rows
    for way in both_ways(late):
        pairs = found(probe(words, low, low + m, sets, way, near=near))
        assert pairs == [(i, s, 1) for i in range(3) for s in range(m // 2, m // 2 + 3)]


def test_growth_with_many_keys_equals_nested_loops() -> None:
    rng = np.random.default_rng(5)
    side, side_sets = random_side(rng, 2000, 20, np.int32, 1)
    words = rng.integers(-20, 20, 400).astype(np.int64)
    low, high = np.zeros(400, np.int64), np.full(400, 40)
    sets = np.full(400, EVERY_QUERY, dtype=np.uint64)
    expected = plain_probe(words, low, high, sets, side, side_sets)
    assert len(expected) > 8 * (400 + 512)
    for way in both_ways(side):
        assert found(probe(words, low, high, sets, way)) == expected
        assert found(probe(words, low, high, sets, way, limit=len(expected))) == expected
        with pytest.raises(TooMany):
            probe(words, low, high, sets, way, limit=len(expected) - 1)


@pytest.mark.parametrize("limit", [0, 10, 600, 2999])
def test_too_many_pairs_name_the_hottest_key(limit: int) -> None:
    words, low, high, sets, _ = every_pair(3, 1)
    theirs = np.array([5, *[7] * 3000, 9])
    words[0] = 5
    side = Side(build_index(theirs), theirs, np.zeros(3002, np.int64), known([1] * 3002))
    first = words[plain_left(words, theirs)[: limit + 1]].tolist()
    for way in both_ways(side):
        with pytest.raises(TooMany) as caught:
            probe(words, low, high, sets, way, limit=limit)
        assert caught.value.count == limit + 1
        assert caught.value.word == Counter(first).most_common(1)[0][0]
        assert str(caught.value.word) in str(caught.value)


def plain_left(words: np.ndarray, theirs: np.ndarray) -> list[int]:
    return [i for i, word in enumerate(words.tolist()) for _ in range(theirs.tolist().count(word))]


def test_extremes() -> None:
    theirs = np.array([INT64.min, INT64.max, -1, 0])
    times = np.array([INT64.min, INT64.max, 0, 0])
    side = Side(build_index(theirs), theirs, times, known([1 << 63] * 4))
    low, high = np.full(4, INT64.min), np.full(4, INT64.max)
    sets = np.full(4, EVERY_QUERY, dtype=np.uint64)
    for way in both_ways(side):
        pairs = found(probe(theirs, low, high, sets, way))
        assert pairs == [(i, i, 1 << 63) for i in range(4)]
        assert found(probe(theirs.view(np.uint64), low, high, sets, way)) == pairs
        assert found(probe(np.array([-1], np.int8), low[:1], high[:1], sets[:1], way)) == [(0, 2, 1 << 63)]


@pytest.mark.parametrize("nb", [0, 1, 13])
def test_query_sets_equal_plain_ones(nb: int) -> None:
    rng = np.random.default_rng(nb)
    bits = rng.integers(0, 256, (100, nb)).astype(np.uint8)
    masks = random_masks(rng, nb)
    expected = plain_sets(bits, masks, 1 << 63)
    lut = make_lut(nb, masks)
    assert query_sets(bits, lut, 1 << 63).tolist() == expected
    assert query_sets(bits[:0], lut, 0).tolist() == []


def test_start_with_the_rows_of_some_key_groups() -> None:
    words = np.random.default_rng(2).integers(0, 500, 3000)
    index = build_index(words, words != 3)
    groups = key_groups(module.hash_words(words), 256)
    rows = starting(index, [(0, 10), (10, 10), (200, 256)])
    assert rows.dtype == np.uint32
    wanted = ((groups < 10) | (groups >= 200)) & (words != 3)
    assert rows.tolist() == [r for r in index.order.tolist() if wanted[r]]
    assert starting(index, []).tolist() == []


@pytest.mark.parametrize("nb", [0, 2])
def test_rows_set_out_with_what_their_index_says_of_them(nb: int) -> None:
    rng = np.random.default_rng(3)
    side, sets = random_side(rng, 3000, 200, np.int32, nb)
    ranges = [(0, 10), (10, 10), (200, 256)]
    serving = 0b1010 if nb else 0b1111
    rows = [r for r in starting(side.index, ranges).tolist() if sets[r] & serving]
    places = group_places(side.index, ranges, 256)
    ordered = laid_out(side, 0, len(side.index.order))
    begun = begin(side.index, ordered, places, serving, base=70_000)
    assert rows
    assert begun.rows.tolist() == [70_000 + r for r in rows]
    assert begun.words.tolist() == side.words[rows].tolist()
    assert begun.times.tolist() == side.times[rows].tolist()
    assert begun.sets.tolist() == [sets[r] & serving for r in rows]
    assert len(begin(side.index, ordered, [], serving, 0).rows) == 0


def test_a_part_that_is_laid_out_serves_the_keys_of_its_hashes() -> None:
    rng = np.random.default_rng(4)
    side, side_sets = random_side(rng, 3000, 200, np.int32, 2)
    words = rng.integers(-200, 200, 300)
    hashes = module.hash_words(words)
    words, hashes = (a[(hashes > 1 << 61) & (hashes < 3 << 61)] for a in (words, hashes))
    low, high = np.zeros(len(words), np.int64), np.full(len(words), 30)
    sets = np.full(len(words), EVERY_QUERY, dtype=np.uint64)
    first, last = hash_range(side.index, int(hashes.min()), int(hashes.max()))
    assert 0 < first < last < len(side.index.order)
    part = replace(side, ordered=laid_out(side, first, last))
    assert found(probe(words, low, high, sets, part)) == plain_probe(words, low, high, sets, side, side_sets)
    some = begin(side.index, part.ordered, [(first + 5, first + 9), (last - 2, last)], EVERY_QUERY, 0)
    chosen = [*side.index.order[first + 5 : first + 9], *side.index.order[last - 2 : last]]
    assert some.rows.tolist() == [r for r in chosen if side_sets[r]]


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.integers(0, EVERY_QUERY), st.integers(INT64.min, INT64.max) | st.integers(-5, 5))),
    st.lists(st.integers(-6, 6) | st.integers(INT64.min, INT64.max), max_size=9, unique=True).map(sorted),
    st.data(),
)
def test_narrow_counts_edges(rows: list[tuple[int, int]], edges: list[int], data: st.DataObject) -> None:
    masks = data.draw(st.lists(st.integers(0, EVERY_QUERY), min_size=len(edges) + 1, max_size=len(edges) + 1))
    sets = np.array([s for s, _ in rows], dtype=np.uint64)
    differences = np.array([d for _, d in rows], dtype=np.int64)
    expected = [s & masks[sum(e <= d for e in edges)] for s, d in rows]
    assert narrow(sets, differences, edges, masks).tolist() == expected


def test_narrow_refuses_masks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="2 masks"):
        narrow(np.ones(1, np.uint64), np.zeros(1, np.int64), (), (1, 1))


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, EVERY_QUERY) | st.integers(0, 63).map(lambda b: 1 << b)), st.integers(0, 64))
def test_split_lists_every_bit(sets: list[int], n: int) -> None:
    offsets, positions = split_sets(np.array(sets, dtype=np.uint64), n)
    assert len(offsets) == n + 1
    assert offsets.dtype == np.int64
    for q in range(n):
        assert positions[offsets[q] : offsets[q + 1]].tolist() == [i for i, s in enumerate(sets) if s >> q & 1]
    assert offsets[0] == 0
    assert offsets[-1] == len(positions)


def test_warm_kernels_serve_real_calls() -> None:
    warm_probes()
    kernels = (
        module._look,
        module._keep_serving,
        module._probe_sorted,
        module._count_sorted,
        module._sort_side,
        module._begin,
    )
    compiled = [len(kernel.signatures) for kernel in kernels]
    rng = np.random.default_rng(1)
    for ours, theirs in itertools.product([np.int8, np.int16, np.int32, np.int64, np.uint64], repeat=2):
        side, _ = random_side(rng, 10, 3, np.int64, 2)
        side = Side(side.index, abs(side.words).astype(theirs), side.times, known([1] * 10))
        low = np.zeros(5, dtype=np.int64)
        for way in both_ways(side):
            rows = (np.arange(5).astype(ours), low, low, np.ones(5, dtype=np.uint64))
            probe(*rows, way)
            count_pairs(*rows, replace(way, allowed=1), 9, module.hash_words(rows[0]))
        begin(way.index, way.ordered, [(0, 5)], 1, 7)
    assert [len(kernel.signatures) for kernel in kernels] == compiled
