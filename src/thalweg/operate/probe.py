"""Probes: rows find their partners in a bucket, with the queries that each pair serves.

What a row can serve is its query set, a 64-bit word (`marks`); a pair serves the AND of two.

There are two ways to probe a bucket. Where few rows do, words and times are read where they lie, a few hundred
candidates at a time: each look writes all candidates and moves on by 0 or 1, so there is no branch to mispredict,
and the next reads of memory do not wait for the last; what is left is asked for its sets. Where many rows do, words,
times and sets are first laid out in the order of the index (`sort_side`): the candidates of a row then lie side by
side, and one look at each is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, inlined, kernel
from thalweg.model.join import Atom
from thalweg.model.probe import Predicate
from thalweg.operate.index import (
    KEY_GROUPS,
    KeyIndex,
    as_words,
    build_index,
    group_range,
    hash_words,
)
from thalweg.operate.predicates import PredicateIndex
from thalweg.operate.query_sets import EVERY_QUERY, Sets, count_sets, make_lut, query_sets, split_sets

Array = npt.NDArray[Any]

_Run = Callable[..., tuple[int, int, int]]
"""(i, place, n, left, right, sets) -> how far it came: finds pairs until there is no more room."""

PAIR_LIMIT = 1 << 26
"""A gigabyte of pairs: a key this hot needs another plan, not more memory."""
_BLOCK = 512
"""Candidates that are looked at together; they stay in the first-level cache."""

_NO_EDGES: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
_ANY: Sets = np.full(1, EVERY_QUERY, dtype=np.uint64)


@inlined
def _mask(difference: Any, edges: Any, masks: Any) -> Any:
    """masks[number of edges <= difference], by halving."""
    passed: Any = 0
    length = edges.size
    while length > 0:
        half = (length + 1) >> 1
        passed += half * np.int64(edges[passed + half - 1] <= difference)
        length -= half
    return masks[passed]


@kernel
def _look(
    words: Any, hashes: Any, shift: Any, low: Any, high: Any,
    starts: Any, order: Any, side_words: Any, times: Any, i: Any, place: Any, n: Any, left: Any, right: Any,
) -> Any:  # fmt: skip
    """Goes on from row i at a place of its prefix, with n pairs found of equal words, in time; (i, place, n) where it
    ends or needs room."""
    rows, partners = np.empty(_BLOCK, dtype=np.uint32), np.empty(_BLOCK, dtype=np.uint32)
    while i < words.size and n + _BLOCK <= left.size:
        count: Any = 0
        while i < words.size and count < _BLOCK:
            word = np.int64(words[i])
            prefix = np.int64(hashes[i] >> shift)
            begin = np.int64(starts[prefix]) + place
            end = np.int64(starts[prefix + 1])
            stop = min(end, begin + _BLOCK - count)
            for k in range(begin, stop):
                rows[count], partners[count] = i, order[k]
                count += np.int64(np.int64(side_words[order[k]]) == word)
            if stop == end:
                i, place = i + 1, 0
            else:
                place += stop - begin
        for c in range(count):
            row, partner = rows[c], partners[c]
            left[n], right[n] = row, partner
            n += np.int64(low[row] <= times[partner]) & np.int64(times[partner] <= high[row])
    return i, place, n


@kernel
def _keep_serving(
    left: Any, right: Any, out: Any, first: Any, sets: Any, side_sets: Any, times: Any, known: Any, edges: Any,
    masks: Any,
) -> Any:  # fmt: skip
    """Of the pairs from the first on those that serve a query; `side_sets` are those of their partners."""
    kept: Any = first
    for c in range(side_sets.size):
        row, partner = left[first + c], right[first + c]
        found = side_sets[c] & sets[row] & _mask(times[partner] - known[row], edges, masks)
        left[kept], right[kept], out[kept] = row, partner, found
        kept += np.int64(found != 0)
    return kept


@kernel
def _probe_sorted(
    words: Any, hashes: Any, shift: Any, low: Any, high: Any, sets: Any, known: Any, edges: Any, masks: Any,
    starts: Any, order: Any, side_words: Any, times: Any, side_sets: Any, skipped: Any, allowed: Any,
    i: Any, place: Any, n: Any, left: Any, right: Any, out: Any,
) -> Any:  # fmt: skip
    """The same over rows that are laid out in the order of the index, from the place `skipped` of it on."""
    first = n
    full = False
    while i < words.size and not full:
        word, earliest, latest, serving = words[i], low[i], high[i], sets[i] & allowed
        prefix = np.int64(hashes[i] >> shift)
        begin = np.int64(starts[prefix]) - skipped + place
        end = np.int64(starts[prefix + 1]) - skipped
        stop = min(end, begin + left.size - n)
        # Mostly keys are many and no candidate has the row's: that costs one look at each, and no write.
        some: Any = 0
        for k in range(np.uint64(begin), np.uint64(stop)):
            some += np.int64(side_words[k] == word)
        for k in range(np.uint64(begin), np.uint64(stop if some else begin)):
            found = side_sets[k] & serving
            left[np.uint64(n)], right[np.uint64(n)], out[np.uint64(n)] = i, k, found
            timely = np.int64(earliest <= times[k]) & np.int64(times[k] <= latest)
            n += np.int64(side_words[k] == word) & timely & np.int64(found != 0)
        full = stop < end
        if full:
            place += stop - begin
        else:
            i, place = i + 1, 0
    kept: Any = first
    for c in range(first, n):
        row, k = left[c], right[c]
        found = out[c] & _mask(times[k] - known[row], edges, masks)
        left[kept], right[kept], out[kept] = row, order[k], found
        kept += np.int64(found != 0)
    return i, place, kept


@kernel
def _count_sorted(
    words: Any, hashes: Any, shift: Any, low: Any, high: Any, sets: Any,
    starts: Any, side_words: Any, times: Any, side_sets: Any, skipped: Any, allowed: Any, limit: Any,
) -> Any:  # fmt: skip
    """How many pairs `_probe_sorted` would find, where sets decide nothing later; more than `limit`: it stopped."""
    n = np.int64(0)
    for i in range(words.size):
        word, earliest, latest, serving = words[i], low[i], high[i], sets[i] & allowed
        prefix = np.int64(hashes[i] >> shift)
        begin = np.int64(starts[prefix]) - skipped
        end = np.int64(starts[prefix + 1]) - skipped
        for k in range(np.uint64(begin), np.uint64(end)):
            timely = np.int64(earliest <= times[k]) & np.int64(times[k] <= latest)
            n += np.int64(side_words[k] == word) & timely & np.int64(side_sets[k] & serving != 0)
        if n > limit:
            break
    return n


@kernel
def _sort_side(order: Any, words: Any, times: Any, sets: Any, out_words: Any, out_times: Any, out_sets: Any) -> None:
    # One after the other: as one loop this is three times slower, since stores to one wait for reads of another.
    for k in range(order.size):
        out_words[k] = words[order[k]]
    for k in range(order.size):
        out_times[k] = times[order[k]]
    for k in range(order.size):
        out_sets[k] = sets[order[k]]


@kernel
def _begin(
    order: Any, words: Any, times: Any, sets: Any, first: Any, last: Any, serving: Any, base: Any,
    n: Any, out_rows: Any, out_words: Any, out_times: Any, out_sets: Any,
) -> Any:  # fmt: skip
    for k in range(first, last):
        found = sets[k] & serving
        out_rows[n], out_words[n], out_times[n], out_sets[n] = order[k] + base, words[k], times[k], found
        n += np.int64(found != 0)
    return n


@kernel
def _narrow(sets: Any, differences: Any, edges: Any, masks: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = sets[i] & _mask(differences[i], edges, masks)


class TooMany(Exception):  # noqa: N818 - says what there is
    """A probe found more pairs than it may."""

    def __init__(self, word: int, count: int) -> None:
        super().__init__(word, count)
        self.word = word
        """The key with the most pairs so far."""
        self.count = count
        """All pairs so far."""

    def __str__(self) -> str:
        return f"a probe found more than {self.count - 1} pairs, most of them with key {self.word}"


def _check_masks(edges: Sequence[int] | Array, masks: Sequence[int] | Array) -> None:
    if len(masks) != len(edges) + 1:
        raise ValueError(f"{len(edges)} edges part {len(edges) + 1} ranges, but there are {len(masks)} masks")


@dataclass(frozen=True)
class SortedSide:
    """The rows of a bucket in the order of an index, from one place of it to another."""

    first: int
    last: int
    """Not included."""
    words: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    sets: Sets
    """What each can serve, of all queries of the cohort."""


@dataclass(frozen=True)
class Near:
    """A Check of the plan for a probe: masks[number of edges <= time of the partner - time] of a set remain."""

    times: npt.NDArray[np.int64]
    """Of the rows that probe."""
    edges: npt.NDArray[np.int64]
    masks: Sets

    def __post_init__(self) -> None:
        _check_masks(self.edges, self.masks)


@dataclass(frozen=True)
class Side:
    """The rows of a bucket that are probed."""

    index: KeyIndex
    words: Array
    times: npt.NDArray[np.int64]
    """In microseconds."""
    sets_of: Callable[[Array], Sets]
    """The query sets of rows by their numbers."""
    allowed: int = EVERY_QUERY
    ordered: SortedSide | None = None
    """All rows that can be found, in the order of the index."""


@dataclass(frozen=True)
class Pairs:
    left: npt.NDArray[np.uint32]
    """Ascending positions among the rows that probe."""
    right: npt.NDArray[np.uint32]
    """Row numbers of the side."""
    sets: Sets


def sort_side(index: KeyIndex, words: Array, times: Array, sets: Sets, first: int, last: int) -> SortedSide:
    """The rows of a bucket as `Side` has them, at these places of an index of it."""
    n = last - first
    ordered = SortedSide(
        first, last, np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.uint64)
    )
    inputs = (frozen_view(index.order[first:last]), as_words(words), frozen_view(times), frozen_view(sets))
    _sort_side(*inputs, ordered.words, ordered.times, ordered.sets)
    return ordered


@dataclass(frozen=True)
class Begun:
    """Rows that set out to probe, with what their own index says of them."""

    rows: npt.NDArray[np.int64]
    """Their numbers in the store."""
    words: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    sets: Sets


def begin(index: KeyIndex, ordered: SortedSide, places: Sequence[tuple[int, int]], serving: int, base: int) -> Begun:
    """The rows at these places that serve one of these queries; `base`: the number of the bucket's first row."""
    room = sum(last - first for first, last in places)
    inputs = (index.order[ordered.first : ordered.last], ordered.words, ordered.times, ordered.sets)
    order, their_words, their_times, their_sets = map(frozen_view, inputs)
    rows, words, times = (np.empty(room, dtype=np.int64) for _ in range(3))
    sets: Sets = np.empty(room, dtype=np.uint64)
    n = 0
    for first, last in places:
        n = _begin(
            order, their_words, their_times, their_sets, first - ordered.first, last - ordered.first,
            np.uint64(serving), base, n, rows, words, times, sets,
        )  # fmt: skip
    return Begun(rows[:n], words[:n], times[:n], sets[:n])


def probe(
    words: Array,
    low: Array,
    high: Array,
    sets: Sets,
    side: Side,
    limit: int = PAIR_LIMIT,
    hashes: Array | None = None,
    near: Near | None = None,
) -> Pairs:
    """All (i, s): equal words, low[i] <= time of s <= high[i], a query that both serve and that is `near` enough.

    By i, and by place in the index where i is the same. Raises TooMany instead of finding more than `limit`.
    `hashes` are those of the words, for whoever probes several sides.
    """
    words = frozen_view(as_words(words).astype(np.int64, copy=False))
    hashes = frozen_view(hash_words(words) if hashes is None else hashes)
    near = near or Near(low, _NO_EDGES, _ANY)
    seeking = (words, hashes, np.uint64(64 - side.index.bits), frozen_view(low), frozen_view(high))
    serving = tuple(map(frozen_view, (sets, near.times, near.edges, near.masks)))
    run = _run_as_it_lies(side, seeking, serving) if side.ordered is None else _run_sorted(side, seeking, serving)
    most = limit + 1 + _BLOCK
    room = min(len(words) + _BLOCK, most)
    left, right = np.empty(room, dtype=np.uint32), np.empty(room, dtype=np.uint32)
    found: Sets = np.empty(room, dtype=np.uint64)
    i, place, n = run(0, 0, 0, left, right, found)
    while i < len(words) and n <= limit:
        if 2 * n > room or n + _BLOCK > room:  # otherwise the check has made room
            room = min(2 * room, most)
            left, right, found = (_grown(a, n, room) for a in (left, right, found))
        i, place, n = run(i, place, n, left, right, found)
    if n > limit:
        values, counts = np.unique(words[left[: limit + 1]], return_counts=True)
        raise TooMany(int(values[counts.argmax()]), limit + 1)
    return Pairs(left[:n], right[:n], found[:n])


def count_pairs(
    words: Array, low: Array, high: Array, sets: Sets, side: Side, limit: int, hashes: Array, near: Near | None = None
) -> tuple[int, npt.NDArray[np.int64]]:
    """How many pairs `probe` would find, and how many of them serve each query. Of more than `limit` it is only said
    that there are more."""
    ordered = side.ordered
    if ordered is None or near is not None or side.allowed.bit_count() != 1:
        try:
            pairs = probe(words, low, high, sets, side, limit, hashes, near)
        except TooMany as error:
            return error.count, np.zeros(64, dtype=np.int64)
        return len(pairs.left), count_sets(pairs.sets)
    seeking = (as_words(words).astype(np.int64, copy=False), hashes, low, high, sets)
    words, hashes, *rest = map(frozen_view, seeking)
    laid_out = map(frozen_view, (side.index.starts, ordered.words, ordered.times, ordered.sets))
    among = (*laid_out, ordered.first, np.uint64(side.allowed))
    counted: Callable[..., int] = _count_sorted
    found = counted(words, hashes, np.uint64(64 - side.index.bits), *rest, *among, limit)
    counts = np.zeros(64, dtype=np.int64)
    counts[side.allowed.bit_length() - 1] = found
    return found, counts


def _run_sorted(side: Side, seeking: tuple[Any, ...], serving: tuple[Any, ...]) -> _Run:
    ordered = side.ordered
    assert ordered is not None
    order = frozen_view(side.index.order[ordered.first : ordered.last])
    laid_out = (*map(frozen_view, (ordered.words, ordered.times, ordered.sets)), ordered.first)
    run: _Run = _probe_sorted
    return partial(run, *seeking, *serving, frozen_view(side.index.starts), order, *laid_out, np.uint64(side.allowed))


def _run_as_it_lies(side: Side, seeking: tuple[Any, ...], serving: tuple[Any, ...]) -> _Run:
    sets, *near = serving
    times = frozen_view(side.times)
    lying = map(frozen_view, (side.index.starts, side.index.order, as_words(side.words)))
    looking: Callable[..., tuple[int, int, int]] = _look
    look = partial(looking, *seeking, *lying, times)

    def run(i: int, place: int, n: int, left: Array, right: Array, found: Sets) -> tuple[int, int, int]:
        i, place, last = look(i, place, n, left, right)
        theirs = frozen_view(side.sets_of(right[n:last]) & np.uint64(side.allowed))
        return i, place, _keep_serving(left, right, found, n, sets, theirs, times, *near)

    return run


def _grown(array: Array, filled: int, room: int) -> Array:
    grown = np.empty(room, dtype=array.dtype)
    grown[:filled] = array[:filled]
    return grown


def group_places(index: KeyIndex, ranges: Sequence[tuple[int, int]], groups: int) -> list[tuple[int, int]]:
    """Where the rows of several ranges of key groups are in an index."""
    return [group_range(index, first, last, groups) for first, last in ranges]


def starting(index: KeyIndex, ranges: Sequence[tuple[int, int]], groups: int = KEY_GROUPS) -> npt.NDArray[np.uint32]:
    """The row numbers of several ranges of key groups, each in the order of the index."""
    pieces = [index.order[slice(*place)] for place in group_places(index, ranges, groups)]
    rows = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint32)
    return rows.astype(np.uint32, copy=False)


def narrow(sets: Sets, differences: Array, edges: Sequence[int] | Array, masks: Sequence[int] | Array) -> Sets:
    """sets & masks[number of edges <= difference]: a Check of the plan."""
    _check_masks(edges, masks)
    out = np.empty_like(sets)
    bounds = frozen_view(np.asarray(edges, dtype=np.int64))
    _narrow(frozen_view(sets), frozen_view(differences), bounds, frozen_view(np.asarray(masks, dtype=np.uint64)), out)
    return out


def warm_probes() -> None:
    """Loads every kernel of a join for both widths of a key, in the process that workers are forked from."""
    times = np.zeros(2, dtype=np.int64)
    rows = pa.table({"k": pa.array([1, None], pa.int32()), "x": pa.array([1.0, None], pa.float32())})
    wide = pa.schema({"k": pa.int64(), "x": pa.float64()})
    predicates = PredicateIndex([Predicate("p", (Atom("k", "=", 1), Atom("x", "<", 1.0)))])
    for table in (rows, rows.cast(wide)):
        predicates.find_any(table)
    sets = query_sets(predicates.evaluate(rows), make_lut(1, [(0, 1)]), 1)
    for theirs in (np.int32, np.int64):
        words: Array = np.array([1, 2], dtype=theirs)
        small = build_index(words, np.array([True, False]))
        for index in (small, KeyIndex(small.starts.astype(np.uint32), small.order.astype(np.uint32))):
            side = Side(index, words, times, sets.__getitem__)
            ordered = sort_side(index, words, times, sets, 0, len(index.order))
            begin(index, ordered, [(0, len(index.order))], 1, 0)
            for one in (side, replace(side, ordered=ordered)):
                probe(words, times, times, sets, one)
                count_pairs(words, times, times, sets, replace(one, allowed=1), PAIR_LIMIT, hash_words(words))
        hash_words(words)
    split_sets(narrow(sets, times, (0,), (1, 1)), 1)
