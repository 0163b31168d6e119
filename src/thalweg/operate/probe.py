"""Probes: rows find their partners in a bucket, with the queries that each pair serves.

What a row can serve is its query set, a 64-bit word; a pair serves the AND of two. A row keeps the predicates it
satisfies, and every group of queries turns those into its own sets by a table per byte.

A probe works on a few hundred candidates at a time. Word, time and query set are looked at in turn, and each look
writes all candidates and moves on by 0 or 1: there is no branch to mispredict, and the next reads of memory do not
wait for the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from thalweg.operate.predicates import PredicateIndex, any_of

Array = npt.NDArray[Any]
Sets = npt.NDArray[np.uint64]

EVERY_QUERY = (1 << 64) - 1
PAIR_LIMIT = 1 << 26
"""A gigabyte of pairs: a key this hot needs another plan, not more memory."""
_BLOCK = 512
"""Candidates that are looked at together; they stay in the first-level cache."""

_ONE, _S58 = np.uint64(1), np.uint64(58)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_NUMBER: Array = np.empty(64, dtype=np.int64)
_BIT_NUMBER[[((0x03F79D71B4CB0A89 << b) & EVERY_QUERY) >> 58 for b in range(64)]] = range(64)


@inlined
def _query_set(bits: Any, row: Any, lut: Any, always: Any) -> Any:
    found = always
    for b in range(lut.shape[0]):
        found |= lut[b, bits[row, b]]
    return found


@kernel
def _probe(
    words: Any, hashes: Any, shift: Any, low: Any, high: Any, sets: Any,
    starts: Any, order: Any, side_words: Any, times: Any, bits: Any, lut: Any, always: Any, allowed: Any,
    i: Any, place: Any, n: Any, left: Any, right: Any, out: Any,
) -> Any:  # fmt: skip
    """Goes on from row i at a place of its prefix, with n pairs found; (i, place, n) where it ends or needs room."""
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
        timely: Any = 0
        for c in range(count):
            row, partner = rows[c], partners[c]
            rows[timely], partners[timely] = row, partner
            timely += np.int64(low[row] <= times[partner]) & np.int64(times[partner] <= high[row])
        for c in range(timely):
            row, partner = rows[c], partners[c]
            found = _query_set(bits, partner, lut, always) & allowed & sets[row]
            left[n], right[n], out[n] = row, partner, found
            n += np.int64(found != 0)
    return i, place, n


@kernel
def _query_sets(bits: Any, lut: Any, always: Any, every: Any, rows: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = _query_set(bits, np.uint32(i) if every else rows[i], lut, always)


@kernel
def _narrow(sets: Any, differences: Any, edges: Any, masks: Any, out: Any) -> None:
    for i in range(out.size):
        passed, length = 0, edges.size
        while length > 0:
            half = (length + 1) >> 1
            passed += half * np.int64(edges[passed + half - 1] <= differences[i])
            length -= half
        out[i] = sets[i] & masks[passed]


@inlined
def _lowest(word: Any) -> Any:
    """The number of the lowest bit: a De Bruijn product has it in its six highest bits."""
    return _BIT_NUMBER[((word & (~word + _ONE)) * _DE_BRUIJN) >> _S58]


@kernel
def _count_bits(sets: Any, mask: Any, offsets: Any) -> None:
    for i in range(sets.size):
        rest = sets[i] & mask
        while rest:
            offsets[_lowest(rest) + 1] += 1
            rest &= rest - _ONE
    for q in range(1, offsets.size):
        offsets[q] += offsets[q - 1]


@kernel
def _place_bits(sets: Any, mask: Any, offsets: Any, positions: Any) -> None:
    free = offsets.copy()
    for i in range(sets.size):
        rest = sets[i] & mask
        while rest:
            q = _lowest(rest)
            positions[free[q]] = i
            free[q] += 1
            rest &= rest - _ONE


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


@dataclass(frozen=True)
class Side:
    """The rows of a bucket that are probed. A row's query set is (always | its predicates' queries) & allowed."""

    index: KeyIndex
    words: Array
    times: npt.NDArray[np.int64]
    """In microseconds."""
    bits: npt.NDArray[np.uint8]
    """[rows, bytes]: the predicates that each row satisfies."""
    lut: Sets
    """[bytes, 256], of `make_lut`."""
    always: int
    allowed: int = EVERY_QUERY


@dataclass(frozen=True)
class Pairs:
    left: npt.NDArray[np.uint32]
    """Ascending positions among the rows that probe."""
    right: npt.NDArray[np.uint32]
    """Row numbers of the side."""
    sets: Sets


def make_lut(nb: int, masks: Sequence[tuple[int, int]]) -> Sets:
    """Byte by byte, the queries that a row's predicates admit; `masks`: (bit of a predicate, its queries)."""
    lut: Sets = np.zeros((nb, 256), dtype=np.uint64)
    values = np.arange(256)
    for bit, queries in masks:
        lut[bit // 8, (values >> (bit % 8)) & 1 == 1] |= np.uint64(queries)
    return lut


def query_sets(side_bits: Array, lut: Sets, always: int, rows: Array | None = None) -> Sets:
    """The query set of every row, or of the rows of the given numbers."""
    every = rows is None
    numbers = np.empty(0, dtype=np.uint32) if rows is None else rows.astype(np.uint32, copy=False)
    out: Sets = np.empty(len(side_bits) if every else len(numbers), dtype=np.uint64)
    _query_sets(frozen_view(side_bits), frozen_view(lut), np.uint64(always), every, frozen_view(numbers), out)
    return out


def probe(
    words: Array,
    low: Array,
    high: Array,
    sets: Sets,
    side: Side,
    limit: int = PAIR_LIMIT,
    hashes: Array | None = None,
) -> Pairs:
    """All (i, s): equal words, low[i] <= time of s <= high[i], a query that both serve.

    By i, and by place in the index where i is the same. Raises TooMany instead of finding more than `limit`.
    `hashes` are those of the words, for whoever probes several sides.
    """
    words = frozen_view(as_words(words).astype(np.int64, copy=False))
    hashes = hash_words(words) if hashes is None else hashes
    inputs = (
        words, frozen_view(hashes), np.uint64(64 - side.index.bits),
        frozen_view(low), frozen_view(high), frozen_view(sets),
        frozen_view(side.index.starts), frozen_view(side.index.order), as_words(side.words), frozen_view(side.times),
        frozen_view(side.bits), frozen_view(side.lut), np.uint64(side.always), np.uint64(side.allowed),
    )  # fmt: skip
    most = limit + 1 + _BLOCK
    room = min(len(words) + _BLOCK, most)
    left, right = np.empty(room, dtype=np.uint32), np.empty(room, dtype=np.uint32)
    found: Sets = np.empty(room, dtype=np.uint64)
    i, place, n = _probe(*inputs, 0, 0, 0, left, right, found)
    while i < len(words) and n <= limit:
        room = min(2 * room, most)
        left, right, found = (_grown(a, n, room) for a in (left, right, found))
        i, place, n = _probe(*inputs, i, place, n, left, right, found)
    if n > limit:
        values, counts = np.unique(words[left[: limit + 1]], return_counts=True)
        raise TooMany(int(values[counts.argmax()]), limit + 1)
    return Pairs(left[:n], right[:n], found[:n])


def _grown(array: Array, filled: int, room: int) -> Array:
    grown = np.empty(room, dtype=array.dtype)
    grown[:filled] = array[:filled]
    return grown


def starting(index: KeyIndex, ranges: Sequence[tuple[int, int]], groups: int = KEY_GROUPS) -> npt.NDArray[np.uint32]:
    """The row numbers of several ranges of key groups, each in the order of the index."""
    pieces = [index.order[slice(*group_range(index, first, last, groups))] for first, last in ranges]
    rows = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint32)
    return rows.astype(np.uint32, copy=False)


def narrow(sets: Sets, differences: Array, edges: Sequence[int] | Array, masks: Sequence[int] | Array) -> Sets:
    """sets & masks[number of edges <= difference]: a Check of the plan."""
    if len(masks) != len(edges) + 1:
        raise ValueError(f"{len(edges)} edges part {len(edges) + 1} ranges, but there are {len(masks)} masks")
    out = np.empty_like(sets)
    bounds = frozen_view(np.asarray(edges, dtype=np.int64))
    _narrow(frozen_view(sets), frozen_view(differences), bounds, frozen_view(np.asarray(masks, dtype=np.uint64)), out)
    return out


def split_sets(sets: Sets, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """(offsets, positions): the sets that have bit q are those at positions[offsets[q] : offsets[q + 1]]."""
    mask = np.uint64((1 << n) - 1)
    sets = frozen_view(sets)
    offsets = np.zeros(n + 1, dtype=np.int64)
    _count_bits(sets, mask, offsets)
    positions = np.empty(int(offsets[-1]), dtype=np.uint32)
    _place_bits(sets, mask, frozen_view(offsets), positions)
    return offsets, positions


def warm_probes() -> None:
    """Loads every kernel of a join for both widths of a key, in the process that workers are forked from."""
    times = np.zeros(2, dtype=np.int64)
    rows = pa.table({"k": pa.array([1, None], pa.int32()), "x": pa.array([1.0, None], pa.float32())})
    wide = pa.schema({"k": pa.int64(), "x": pa.float64()})
    predicate = Predicate("p", (Atom("k", "=", 1), Atom("x", "<", 1.0)))
    for table in (rows, rows.cast(wide)):
        bits = PredicateIndex([predicate]).evaluate(table)
        any_of(bits)
    sets = query_sets(bits, make_lut(1, [(0, 1)]), 1)
    for theirs in (np.int32, np.int64):
        words: Array = np.array([1, 2], dtype=theirs)
        small = build_index(words, np.array([True, False]))
        for index in (small, KeyIndex(small.starts.astype(np.uint32), small.order.astype(np.uint32))):
            probe(words, times, times, sets, Side(index, words, times, bits, make_lut(1, []), 1))
        hash_words(words)
    split_sets(narrow(sets, times, (0,), (1, 1)), 1)
