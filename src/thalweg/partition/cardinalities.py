"""Which keys went to which worker, and how many different ones: exactly, or by HyperLogLog (Holistic Section 3.2).

Both work in two steps. `place` finds, for a block of keys at once, where the structure holds what it knows of each;
such a loop has no row wait for the one before, so that the processor overlaps its cache misses. The loops of `decide`
then read and mark these places row by row, because every decision depends on the one before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import inlined, kernel
from thalweg.partition.contract import Keys

Counts = npt.NDArray[np.int64]
Estimates = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

FULL = 0.8
"""The share of a table that may be taken before it grows."""
SMALL = 1 << 19
"""A table doubles up to this many lines. Beyond, it grows by three tenths: memory counts for more than the moves."""
LEAST = 8
_KEYS = 7
"""Keys in a line."""
_AHEAD = 64
"""Keys whose lines are fetched together."""

REGISTERS = 4096
REGISTERS_PER_WORD = 3
"""Of 5 bits each in 16: the highest of 31 zeros is not reached before 10^12 keys."""
HIGHEST = 31

_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_S32, _S33, _S52, _S58 = np.uint64(32), np.uint64(33), np.uint64(52), np.uint64(58)
_ZERO = np.uint64(0)
_SKETCH = np.uint64(0x2545F4914F6CDD1D)
"""Keeps the registers apart from the places in the table and from the candidates."""


@inlined
def _mix(h: Any) -> Any:
    """One to one, so that a mixed key stands for the key; not the mix of the candidates."""
    h = (h ^ (h >> _S33)) * _M1
    h = (h ^ (h >> _S33)) * _M2
    return h ^ (h >> _S33)


@inlined
def _in_line(line: Any, h: Any) -> Any:
    """Where `h` stands among the keys of a line, and how many of them are taken. Without branches."""
    at, taken = _KEYS, np.int64(0)
    for i in range(_KEYS):
        held = line[i]
        at = i if held == h else at
        taken += np.int64(held != _ZERO)
    return at, taken


@inlined
def _fetch(keys: Any, lines: Any, mixed: Any, homes: Any, fetched: Any) -> None:
    """Mixes some keys, and reads from the line of each only for the cache: many misses are under way at once."""
    wide = np.uint64(lines.shape[0] - 1)
    for i in range(keys.size):
        h = _mix(np.uint64(keys[i]))
        mixed[i] = h
        homes[i] = ((h >> _S32) * wide) >> _S32
    for i in range(keys.size):
        fetched[i] = lines[homes[i], 0]


@kernel
def _place_exact(keys: Any, lines: Any, used: Any, slots: Any) -> int:
    """The slot of every key in `lines`, which have room for all. Returns how many slots are taken now."""
    last = lines.shape[0] - 1
    mixed, homes, fetched = np.empty(_AHEAD, np.uint64), np.empty(_AHEAD, np.int64), np.empty(_AHEAD, np.uint64)
    for start in range(0, keys.size, _AHEAD):
        stop = min(start + _AHEAD, keys.size)
        _fetch(keys[start:stop], lines, mixed, homes, fetched)
        for row in range(start, stop):
            h, line = mixed[row - start], homes[row - start]
            if h == _ZERO:
                # 0 marks a free slot: the one key that mixes to it has the last line for itself.
                slots[row] = 8 * last
                continue
            at, taken = _in_line(lines[line], h)
            while at == _KEYS:
                if taken < _KEYS:
                    lines[line, taken] = h
                    at = taken
                    used += 1
                else:
                    line = line + 1 if line + 1 < last else 0
                    at, taken = _in_line(lines[line], h)
            slots[row] = 8 * line + at
    return int(used)


@kernel
def _move(lines: Any, wider: Any) -> None:
    """Everything into more lines. Homes are in the order of the mixed keys, so it is one pass over both."""
    last, new_last = lines.shape[0] - 1, wider.shape[0] - 1
    wide = np.uint64(new_last)
    byte = np.uint64(0xFF)
    for old in range(last):
        for i in range(_KEYS):
            h = lines[old, i]
            if h == _ZERO:
                break
            line: Any = np.int64(((h >> _S32) * wide) >> _S32)
            _, at = _in_line(wider[line], h)
            while at == _KEYS:
                line = line + 1 if line + 1 < new_last else 0
                _, at = _in_line(wider[line], h)
            wider[line, at] = h
            for mark in range(_KEYS, lines.shape[1]):
                seen = lines[old, mark] >> np.uint64(8 * i) & byte
                wider[line, mark] |= seen << np.uint64(8 * at)
    wider[new_last] = lines[last]


class ExactCardinalities:
    """All keys; for each key one bit per choice: has this candidate of the key had it?

    A hash table of cache lines. A line holds seven mixed keys and a word of marks in which each of the keys has a
    byte, a bit for each of 8 choices; more choices, more such words. One cache miss finds a key and its marks, and
    with up to 8 choices a slot takes 9.2 bytes, where a set per worker would hold the key once for each.
    """

    def __init__(self, workers: int, choices: int) -> None:
        self.counts: Counts = np.zeros(workers, np.int64)
        """Different keys per worker (Holistic Eq. 5)."""
        self._width = _KEYS + (choices + 7) // 8
        self._used = 0
        self._lines = _cache_lines(LEAST, self._width)

    @property
    def lines(self) -> npt.NDArray[np.uint64]:
        """Slot s is key s % 8 of line s // 8; its marks are byte s % 8 of the words from the eighth on."""
        return self._lines

    @property
    def groups(self) -> int:
        """Different keys in all."""
        return self._used + int(self._lines[-1, _KEYS:].any())

    @property
    def nbytes(self) -> int:
        return self._lines.nbytes + self.counts.nbytes

    def place(self, keys: Keys) -> Slots:
        """The slot of each key, good until the next call."""
        self._make_room(keys.size)
        slots = np.empty(keys.size, np.int64)
        self._used = _place_exact(keys, self._lines, self._used, slots)
        return slots

    def clear(self) -> None:
        """Forgets the keys. A table that was mostly empty is given up for a smaller one."""
        self.counts.fill(0)
        room = self._room()
        if self._used < room // 4:
            self._make(max(LEAST, 2 * self._used // _KEYS))
        else:
            self._lines.fill(0)
            self._used = 0

    def _room(self) -> int:
        return _KEYS * (len(self._lines) - 1)

    def _make(self, lines: int) -> None:
        self._lines = _cache_lines(lines + 1, self._width)
        self._used = 0

    def _make_room(self, rows: int) -> None:
        """As if all rows had new keys: then a block never outgrows the table, and its slots hold."""
        needed = self._used + rows
        if needed <= FULL * self._room():
            return
        lines, used = self._lines, self._used
        grown = len(lines) * 2 if len(lines) < SMALL else len(lines) * 13 // 10
        self._make(max(grown, math.ceil(needed / FULL / _KEYS)))
        _move(lines, self._lines)
        self._used = used


def _cache_lines(lines: int, width: int) -> npt.NDArray[np.uint64]:
    """Zeros, the first at the start of a cache line. Filled rather than asked for as zeros: then NumPy takes large
    pages for large tables, and most of the time of a lookup is spent on finding pages."""
    words = np.empty(lines * width + 8, np.uint64)
    start = -words.ctypes.data % 64 // 8
    table = words[start : start + lines * width].reshape(lines, width)
    table.fill(0)
    return table


def _trailing_zeros_table() -> npt.NDArray[np.uint8]:
    """Where the product of a single bit with the de Bruijn word below points: the number of that bit."""
    table = np.zeros(64, np.uint8)
    for bit in range(64):
        table[((1 << bit) * 0x03F79D71B4CB0A89 % 2**64) >> 58] = bit
    return table


_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_NUMBER = _trailing_zeros_table()


@kernel
def _place_sketched(keys: Any, words: Any, shifts: Any, ranks: Any) -> None:
    """The register of every key, and the rank that it asks for: 1 + the zeros before the first one, 31 at most."""
    per_word = np.uint64(REGISTERS_PER_WORD)
    stop = np.uint64(1 << (HIGHEST - 1))
    for row in range(keys.size):
        h = _mix(np.uint64(keys[row]) ^ _SKETCH)
        register = h >> _S52
        rest = h | stop
        ranks[row] = _BIT_NUMBER[((rest & (_ZERO - rest)) * _DE_BRUIJN) >> _S58] + 1
        words[row] = register // per_word
        shifts[row] = np.uint64(5) * (register % per_word)


class HyperLogLogs:
    """A sketch of 4096 registers for each worker: memory that does not grow with the keys."""

    def __init__(self, workers: int) -> None:
        words = -(-REGISTERS // REGISTERS_PER_WORD)
        self.registers: npt.NDArray[np.uint16] = np.zeros((workers, words), np.uint16)
        self.sums: Counts = np.empty(workers, np.int64)
        """Over a worker's registers r: 2^-r, in units of 2^-31. A whole number, so that it never drifts."""
        self.zeros: Counts = np.empty(workers, np.int64)
        """Registers of a worker that are still 0."""
        self.estimates: Estimates = np.empty(workers, np.float64)
        """Different keys per worker, as estimated."""
        self.clear()

    @property
    def nbytes(self) -> int:
        return self.registers.nbytes + self.sums.nbytes + self.zeros.nbytes + self.estimates.nbytes

    def place(self, keys: Keys) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Each key's register (its word and the shift within) and rank."""
        words, shifts = np.empty(keys.size, np.uint16), np.empty(keys.size, np.uint8)
        ranks = np.empty(keys.size, np.uint8)
        _place_sketched(keys, words, shifts, ranks)
        return words, shifts, ranks

    def clear(self) -> None:
        self.registers.fill(0)
        self.sums.fill(REGISTERS << HIGHEST)
        self.zeros.fill(REGISTERS)
        self.estimates.fill(0.0)


def _linear_counting_table() -> Estimates:
    """Zero registers -> keys (Flajolet et al., the small range). Without a zero register it says nothing."""
    counted = [REGISTERS * math.log(REGISTERS / zeros) for zeros in range(1, REGISTERS + 1)]
    return np.array([math.inf, *counted])


LINEAR_COUNTING = _linear_counting_table()
LINEAR_COUNTING.flags.writeable = False
HARMONIC = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS
"""The estimate is this over the sum of 2^-register."""
