"""Checksums of blocks: so that a part of a section can be read and checked without the rest."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 1 << 16
"""Bytes. A section of no more has its own checksum alone."""
_ONES = [1 << bit for bit in range(32)]


def check_blocks(data: Any) -> tuple[int, bytes]:
    """The crc32 of the whole, and those of its blocks, four bytes each; none where there is but one."""
    view = memoryview(data).cast("B")
    if len(view) <= BLOCK:
        return zlib.crc32(view), b""
    sums = [zlib.crc32(view[at : at + BLOCK]) for at in range(0, len(view), BLOCK)]
    crc, whole = 0, len(view) // BLOCK
    for found in sums[:whole]:
        crc = _behind_a_block(crc) ^ found
    return zlib.crc32(view[whole * BLOCK :], crc), np.array(sums, dtype="<u4").tobytes()


def block_sums(packed: bytes) -> npt.NDArray[np.uint32]:
    return np.frombuffer(packed, dtype="<u4")


class Blocks:
    """Those of one section, and which of them were found to be right."""

    def __init__(self, sums: npt.NDArray[np.uint32], length: int) -> None:
        self._sums = sums
        self._length = length
        self._right = np.zeros(len(sums), dtype=bool)

    def unread(self, spans: Iterable[tuple[int, int]]) -> list[int]:
        """The blocks that these bytes lie in, from and to, and that nobody has looked at; in order."""
        wanted = np.zeros(len(self._right), dtype=bool)
        for low, high in spans:
            wanted[low // BLOCK : -(-high // BLOCK)] = True
        found: list[int] = np.flatnonzero(wanted & ~self._right).tolist()
        return found

    def is_right(self, body: Any, number: int) -> bool:
        """Whether a block of the section's bytes is what was written. What was right once is not looked at again."""
        if not self._right[number]:
            low, high = self._span(number)
            self._right[number] = zlib.crc32(memoryview(body)[low:high]) == self._sums[number]
        return bool(self._right[number])

    @property
    def are_right(self) -> bool:
        return bool(self._right.all())

    def runs(self, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """The bytes of blocks, from and to; those of neighbours in one."""
        found: list[tuple[int, int]] = []
        for number in numbers:
            low, high = self._span(number)
            if found and found[-1][1] == low:
                low = found.pop()[0]
            found.append((low, high))
        return found

    def _span(self, number: int) -> tuple[int, int]:
        return number * BLOCK, min((number + 1) * BLOCK, self._length)


def _behind_a_block(crc: int) -> int:
    """What a checksum adds to that of the whole when a block follows: it is linear in the bits (zlib's combine)."""
    a, b, c, d = _tables(BLOCK)
    return a[crc & 0xFF] ^ b[crc >> 8 & 0xFF] ^ c[crc >> 16 & 0xFF] ^ d[crc >> 24]


@cache
def _tables(length: int) -> tuple[list[int], ...]:
    zeros = bytes(length)
    none = zlib.crc32(zeros)
    bits = [zlib.crc32(zeros, one) ^ none for one in _ONES]
    return tuple([_sum(bits[at : at + 8], byte) for byte in range(256)] for at in range(0, 32, 8))


def _sum(bits: list[int], chosen: int) -> int:
    total = 0
    for number, bit in enumerate(bits):
        if chosen >> number & 1:
            total ^= bit
    return total
