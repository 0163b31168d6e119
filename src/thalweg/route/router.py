"""Rows that several route keys need: one copy for each slot, with the route keys that the copy serves.

The number of route keys is compiled in, the routing tables are data: a new plan with as many keys compiles nothing.
Rows that a key does not need go to a slot behind the last one, which is cut off in the end. Thus the kernels know
nothing of it, and have no branch to mispredict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import frozen_view, inlined, kernel
from thalweg.route.hash import MAX_GROUPS

Array = npt.NDArray[Any]
Admitted = Sequence[npt.NDArray[np.bool_] | None]
Groups = npt.NDArray[np.uint16]
Rows = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

MAX_KEYS = 64
_WORD_KEYS, _WORD_SLOTS = 8, 255
"""Up to here the slots of a row are the bytes of one word, with a number left for the rows that no key needs."""
_MASK_TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)
_NO_ROW = np.uint32(0xFFFFFFFF)

_ONES = np.uint64(0x0101010101010101)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_TO_HIGH_BYTE = np.uint64(0x0102040810204080)
_S7, _S56 = np.uint64(7), np.uint64(56)


@dataclass(frozen=True)
class Dealt:
    """The copies of rows, slot after slot."""

    rows: Rows
    """Row numbers; inside a slot in the order of the rows."""
    serves: Array
    """Per copy, as unsigned integers as narrow as can be: bit k says that it serves route key k in that slot."""
    offsets: Offsets
    """`slots + 1`: the copies of slot p are rows[offsets[p]:offsets[p + 1]]."""


@inlined
def _equal_bytes(word: Any, slot: Any) -> Any:
    """A 1 in each byte of `word` that is `slot`, and 0 in the others."""
    x = word ^ (np.uint64(slot) * _ONES)
    return ~(((x & _LOW_BITS) + _LOW_BITS) | x | _LOW_BITS) >> _S7


@cache
def _word_kernels(keys: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Kernels for `keys` route keys. They close over the number alone: Numba's cache tells them apart by it."""

    @kernel
    def count(groups: Any, tables: Any, words: Any, counts: Any) -> None:
        """The slots of every row as a word; copies by the first key that needs them, and by slot."""
        for row in range(words.size):
            word = np.uint64(0)
            for k in range(keys):
                word |= np.uint64(tables[k, groups[k][row]]) << np.uint64(8 * k)
            words[row] = word
            for k in range(keys):
                slot = np.uint8(word >> np.uint64(8 * k))
                earlier = _equal_bytes(word, slot) & np.uint64((1 << (8 * k)) - 1)
                counts[k, slot] += earlier == 0

    @kernel
    def fill(words: Any, last: Any, rows: Any, serves: Any) -> None:
        """`last` is where the last copy of each slot lies. A copy that is there already is written again as it is."""
        for row in range(words.size):
            word = np.uint64(words[row])
            for k in range(keys):
                slot = np.uint8(word >> np.uint64(8 * k))
                equal = _equal_bytes(word, slot)
                earlier = equal & np.uint64((1 << (8 * k)) - 1)
                at = last[slot] + np.uint64(earlier == 0)
                last[slot] = at
                rows[at] = row
                # The product moves the lowest bit of byte j to bit 56 + j.
                serves[at] = ((equal * _TO_HIGH_BYTE) >> _S56) & np.uint64((1 << keys) - 1)

    return count, fill


@kernel
def _count(groups: Any, tables: Any, seen: Any, counts: Any) -> None:
    """`seen` is the last row of each slot: it tells whether an earlier key brought this row there."""
    for row in range(groups.shape[1]):
        number = np.uint32(row)
        for k in range(groups.shape[0]):
            slot = tables[k, groups[k, row]]
            counts[slot] += seen[slot] != number
            seen[slot] = number


@kernel
def _fill(groups: Any, tables: Any, bits: Any, seen: Any, last: Any, rows: Any, serves: Any) -> None:
    for row in range(groups.shape[1]):
        number = np.uint32(row)
        for k in range(groups.shape[0]):
            slot = tables[k, groups[k, row]]
            at = last[slot] + np.uint64(seen[slot] != number)
            seen[slot] = number
            last[slot] = at
            rows[at] = number
            serves[at] |= bits[k]


@kernel
def _replace(groups: Any, admitted: Any, nobody: Any, out: Any) -> None:
    """Reads a group before it asks for it: else there is a branch per row to mispredict, as in NumPy's `where`."""
    for row in range(groups.size):
        group = groups[row]
        out[row] = group if admitted[row] else nobody


class Router:
    """One plan's way of dealing out the rows of a stream. Built once per plan and kept: see `router_for`."""

    def __init__(self, tables: Sequence[Sequence[int]], slots: int) -> None:
        """`tables[k][key group]` is the slot under route key k."""
        _check_tables(tables, slots)
        self.keys, self.groups, self.slots = len(tables), len(tables[0]), slots
        self._in_words = self.keys <= _WORD_KEYS and slots <= _WORD_SLOTS
        # One key group more than there are holds the rows that a key does not need.
        routed = np.full((self.keys, self.groups + 1), slots, dtype=_narrowest(slots))
        routed[:, :-1] = tables
        self._tables = frozen_view(routed)

    def deal(self, groups: Sequence[Groups], admitted: Admitted | None = None) -> Dealt:
        """`groups[k]`: every row's key group under route key k; `admitted[k]`: which rows it needs (None: all)."""
        n_rows = self._check(groups, admitted)
        needed = self._needed(groups, admitted)
        return self._deal_words(needed, n_rows) if self._in_words else self._deal_many(needed, n_rows)

    def _deal_words(self, groups: tuple[Array, ...], n_rows: int) -> Dealt:
        count, fill = _word_kernels(self.keys)
        words = np.empty(n_rows, dtype=_narrowest((1 << 8 * self.keys) - 1))
        counts = np.zeros((self.keys, self.slots + 1), dtype=np.int64)
        count(groups, self._tables, words, counts)
        ends = np.cumsum(counts.sum(axis=0))
        rows, serves = np.empty(ends[-1], dtype=np.uint32), np.empty(ends[-1], dtype=np.uint8)
        fill(frozen_view(words), _before_first(ends), rows, serves)
        return _cut(rows, serves, ends)

    def _deal_many(self, groups: tuple[Array, ...], n_rows: int) -> Dealt:
        stacked = frozen_view(np.stack(groups))
        seen = np.full(self.slots + 1, _NO_ROW, dtype=np.uint32)
        counts = np.zeros(self.slots + 1, dtype=np.int64)
        _count(stacked, self._tables, seen, counts)
        ends = np.cumsum(counts)
        mask = _narrowest((1 << self.keys) - 1)
        bits = frozen_view(np.array([1 << k for k in range(self.keys)], dtype=mask))
        rows, serves = np.empty(ends[-1], dtype=np.uint32), np.zeros(ends[-1], dtype=mask)
        seen.fill(_NO_ROW)
        _fill(stacked, self._tables, bits, seen, _before_first(ends), rows, serves)
        return _cut(rows, serves, ends)

    def _needed(self, groups: Sequence[Groups], admitted: Admitted | None) -> tuple[Array, ...]:
        """The key groups, with the one behind the last where a key does not need the row."""
        if admitted is None or all(rows is None for rows in admitted):
            return tuple(frozen_view(group) for group in groups)
        kind = np.uint16 if self.groups < MAX_GROUPS else np.uint32
        needed = []
        for group, rows in zip(groups, admitted, strict=True):
            out = group.astype(kind, copy=rows is not None)
            if rows is not None:
                _replace(frozen_view(group), frozen_view(rows), kind(self.groups), out)
            needed.append(frozen_view(out))
        return tuple(needed)

    def _check(self, groups: Sequence[Groups], admitted: Admitted | None) -> int:
        """The number of rows. A key group that is not in the tables would be read from foreign memory."""
        if len(groups) != self.keys or (admitted is not None and len(admitted) != self.keys):
            raise ValueError(f"one array for each of {self.keys} route keys is needed")
        n_rows = _common_length(groups)
        if n_rows >= _NO_ROW:
            raise ValueError(f"{n_rows} rows are more than can be dealt out at once")
        for group in groups:
            if group.dtype != np.uint16:
                raise ValueError(f"key groups must be uint16, not {group.dtype}")
            if n_rows and int(group.max()) >= self.groups:
                raise ValueError(f"key group {group.max()} is outside 0 to {self.groups - 1}")
        if any(rows is not None and (rows.dtype != np.bool_ or rows.shape != (n_rows,)) for rows in admitted or ()):
            raise ValueError(f"the rows that a route key needs must be given as {n_rows} booleans")
        return n_rows


@lru_cache(maxsize=8)
def router_for(tables: tuple[tuple[int, ...], ...], slots: int) -> Router:
    """The router with these tables. Worker processes live on over plans; a plan in use is not built again."""
    return Router(tables, slots)


def sample_groups(groups: Sequence[Groups], most: int, seed: int) -> Groups:
    """The key groups of at most `most` rows, one line per row: evenly spaced, from a seeded offset on."""
    if most < 1:
        raise ValueError(f"a sample needs at least one row, not {most}")
    n_rows = _common_length(groups)
    if n_rows <= most:
        return np.stack(groups, axis=1)
    offset = int(np.random.default_rng(seed).integers(n_rows))
    chosen = (np.arange(most) * n_rows + offset) // most
    return np.stack([group[chosen] for group in groups], axis=1)


def warm() -> None:
    """Runs the kernels of few route keys on a few rows."""
    for keys in range(1, 5):
        groups = [np.array([0, 1, 1], dtype=np.uint16)] * keys
        Router([(0, 1)] * keys, 2).deal(groups, [np.array([True, True, False])] * keys)


def _check_tables(tables: Sequence[Sequence[int]], slots: int) -> None:
    if not 1 <= len(tables) <= MAX_KEYS:
        raise ValueError(f"rows are dealt out by 1 to {MAX_KEYS} route keys, not {len(tables)}")
    if not 1 <= len(tables[0]) <= MAX_GROUPS:
        raise ValueError(f"the number of key groups must be 1 to {MAX_GROUPS}, not {len(tables[0])}")
    if any(len(table) != len(tables[0]) for table in tables):
        raise ValueError("the routing tables differ in their number of key groups")
    if any(min(table) < 0 or max(table) >= slots for table in tables):
        raise ValueError(f"a key group is assigned to a slot outside 0 to {slots - 1}")


def _common_length(groups: Sequence[Groups]) -> int:
    lengths = {len(group) for group in groups}
    if len(lengths) != 1:
        raise ValueError(f"the route keys have different numbers of rows: {sorted(lengths)}")
    return lengths.pop()


def _narrowest(largest: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest type that holds 0 to `largest`."""
    return next(kind for kind in _MASK_TYPES if largest <= np.iinfo(kind).max)


def _before_first(ends: Offsets) -> npt.NDArray[np.uint64]:
    """The place before each slot's first copy. Unsigned, so that Numba need not look for negative indices."""
    starts = np.concatenate(([0], ends[:-1]))
    return (starts - 1).view(np.uint64)


def _cut(rows: Rows, serves: Array, ends: Offsets) -> Dealt:
    """Without the slot behind the last, where the rows are that no key needs."""
    offsets = np.concatenate(([0], ends[:-1]))
    return Dealt(rows[: offsets[-1]], serves[: offsets[-1]], offsets)
