"""Finds the rows of a bucket by a 64-bit word: a directory over the leading bits of the word's hash.

The hash is the one that decides key groups (`route.hash`, of a row with that one whole number), so the rows of a
key group are one range of the index and a slot that owns some groups reads only theirs. Nothing is stored but row
numbers: an index costs two bytes a row and half of one for its directory, twice that above 65,535 rows. The first
index of a store needs none: the rows lie in its order (`store.in_key_order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import frozen_view, kernel
from thalweg.route.hash import key_groups

Array = npt.NDArray[Any]

SMALL = 0xFFFF
"""Rows that 16 bits can number."""
KEY_GROUPS = 256
MIN_BITS = 8
"""A prefix never spans two of 256 key groups."""
MAX_BITS = 22
"""A directory of 16 MB: beyond it, reading the directory misses more than longer runs do."""

# The state of route.hash before its only word, and its multipliers; a test holds the two against each other.
_START = np.uint64((0x5448414C57454731 * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFFFFFF)
_K1 = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def _hash(words: Any, shift: Any, out: Any) -> None:
    """The hash of each word, without its lowest `shift` bits."""
    for i in range(out.size):
        h = _START ^ (np.uint64(np.int64(words[i])) * _K1)
        h = (h ^ (h >> _S30)) * _M1
        h = (h ^ (h >> _S27)) * _M2
        out[i] = (h ^ (h >> _S31)) >> shift


@kernel
def _count(prefixes: Any, valid: Any, starts: Any) -> None:
    if valid.size == 0:
        for prefix in prefixes:
            starts[np.int64(prefix) + 1] += 1
    else:
        for i in range(prefixes.size):
            starts[np.int64(prefixes[i]) + 1] += np.uint32(valid[i])
    for p in range(1, starts.size):
        starts[p] += starts[p - 1]


@kernel
def _place(prefixes: Any, valid: Any, starts: Any, order: Any) -> None:
    """Counting sort: rows of a prefix keep their order, so an index is a function of its rows alone."""
    free = starts.copy()
    every = valid.size == 0
    for row in range(prefixes.size):
        if every or valid[row]:
            prefix = prefixes[row]
            order[free[prefix]] = row
            free[prefix] += 1


@dataclass(frozen=True)
class KeyIndex:
    starts: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    """2**m + 1 of them: the rows whose hash begins with the m bits p are order[starts[p] : starts[p + 1]]."""
    order: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    """Row numbers. Both are 16 bits wide where that is enough."""

    @property
    def bits(self) -> int:
        """m, the length of a prefix."""
        return (len(self.starts) - 1).bit_length() - 1


def build_index(words: Array, valid: Array | None = None) -> KeyIndex:
    """An index of all rows, or of those that are `valid`."""
    if len(words) > np.iinfo(np.uint32).max:
        raise ValueError(f"{len(words)} rows are more than an index can number")
    admitted = np.empty(0, dtype=np.bool_) if valid is None or valid.all() else valid
    count = int(np.count_nonzero(admitted)) if admitted.size else len(words)
    bits = min(max((count >> 1).bit_length() - 1, MIN_BITS), MAX_BITS)
    prefixes, admitted = frozen_view(hash_prefixes(words, bits)), frozen_view(admitted)
    kind = np.uint16 if len(words) <= SMALL else np.uint32
    starts: Array = np.zeros((1 << bits) + 1, dtype=kind)
    order: Array = np.empty(count, dtype=kind)
    _count(prefixes, admitted, starts)
    _place(prefixes, admitted, frozen_view(starts), order)
    return KeyIndex(starts, order)


def group_range(index: KeyIndex, first_group: int, last_group: int, groups: int = KEY_GROUPS) -> tuple[int, int]:
    """The places in `order` of the key groups from the first up to, not including, the last."""
    if groups & (groups - 1) or not 1 <= groups < len(index.starts):
        raise ValueError(f"{groups} key groups are not ranges of an index over {index.bits} bits")
    if not 0 <= first_group <= last_group <= groups:
        raise ValueError(f"key groups {first_group} to {last_group} are outside 0 to {groups}")
    width = (len(index.starts) - 1) // groups
    return int(index.starts[first_group * width]), int(index.starts[last_group * width])


def hash_range(index: KeyIndex, least: int, most: int) -> tuple[int, int]:
    """The places in `order` of all keys whose hashes are between the two."""
    shift = 64 - index.bits
    return int(index.starts[least >> shift]), int(index.starts[(most >> shift) + 1])


def hash_words(words: Array) -> npt.NDArray[np.uint64]:
    """What `route.hash.hash_rows` gives for rows of this one column."""
    out = np.empty(len(words), dtype=np.uint64)
    _hash(as_words(words), np.uint64(0), out)
    return out


def hash_prefixes(words: Array, bits: int) -> npt.NDArray[np.uint32]:
    """The first `bits` of each hash, 1 to 32."""
    out = np.empty(len(words), dtype=np.uint32)
    _hash(as_words(words), np.uint64(64 - bits), out)
    return out


def word_groups(words: Array, groups: int) -> npt.NDArray[np.uint16]:
    """The key group of each word."""
    return key_groups(hash_words(words), groups)


def as_words(words: Array) -> Array:
    """Whole numbers as kernels read them: int32 or int64. 64 unsigned bits are read as signed ones."""
    if words.dtype.kind not in "iu":
        raise TypeError(f"keys are whole numbers, not {words.dtype}")
    if words.dtype == np.uint64:
        words = words.view(np.int64)
    elif words.dtype == np.uint32:
        words = words.astype(np.int64)
    elif words.dtype.itemsize < 4:
        words = words.astype(np.int32)
    return frozen_view(words)
