"""Query sets: which of the 64 queries of a cohort a row or a tuple can serve, as bits of a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import frozen_view, inlined, kernel

Array = npt.NDArray[Any]
Sets = npt.NDArray[np.uint64]

EVERY_QUERY = (1 << 64) - 1
_ONE, _S58 = np.uint64(1), np.uint64(58)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_NUMBER: Array = np.empty(64, dtype=np.int64)
_BIT_NUMBER[[((0x03F79D71B4CB0A89 << b) & EVERY_QUERY) >> 58 for b in range(64)]] = range(64)


@kernel
def _query_sets(bits: Any, lut: Any, always: Any, out: Any) -> None:
    for i in range(out.size):
        found = always
        for b in range(lut.shape[0]):
            found |= lut[b, bits[i, b]]
        out[i] = found


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


def make_lut(nb: int, masks: Sequence[tuple[int, int]]) -> Sets:
    """Byte by byte, the queries that a row's predicates admit; `masks`: (bit of a predicate, its queries)."""
    lut: Sets = np.zeros((nb, 256), dtype=np.uint64)
    values = np.arange(256)
    for bit, queries in masks:
        lut[bit // 8, (values >> (bit % 8)) & 1 == 1] |= np.uint64(queries)
    return lut


def query_sets(side_bits: Array, lut: Sets, always: int) -> Sets:
    """The query set of every row."""
    out: Sets = np.empty(len(side_bits), dtype=np.uint64)
    _query_sets(frozen_view(side_bits), frozen_view(lut), np.uint64(always), out)
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


def count_sets(sets: Sets) -> npt.NDArray[np.int64]:
    """How many of the sets have each bit."""
    offsets = np.zeros(65, dtype=np.int64)
    _count_bits(frozen_view(sets), np.uint64(EVERY_QUERY), offsets)
    return np.diff(offsets)
