"""Fetching the values of many rows of a store by their numbers.

Arrow's take looks up the chunk of every row. Where a column has no nulls and a value is 1 to 8 bytes wide, a plain
loop over one piece of memory is several times faster. Several columns of the same rows go into one allocation: above
4 MB NumPy asks for huge pages, and a new page costs more than the values that are written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, kernel

Array = npt.NDArray[Any]
WORTH = 8
"""Copying a column costs about this much less per value than looking its chunk up does."""
SMALL = 1 << 22
"""Columns of up to this many rows are copied in any case: it takes a few milliseconds."""
_ALIGNMENT = 64
_WIDTHS = (8, 16, 32, 64)


@kernel
def _gather(values: Any, numbers: Any, out: Any) -> None:
    for i in range(numbers.size):
        out[i] = values[numbers[i]]


@kernel
def _ends(numbers: Any, bases: Any, first: Any, last: Any) -> None:
    bucket = 0
    for number in numbers:
        if number < bases[bucket] or number >= bases[bucket + 1]:
            bucket = np.searchsorted(bases, number, side="right") - 1
        row = number - bases[bucket]
        first[bucket] = min(first[bucket], row)
        last[bucket] = max(last[bucket], row)


def ends_by_bucket(numbers: Array, bases: Array) -> tuple[Array, Array]:
    """The first and the last row of each bucket among rows of a store; a bucket without one ends before it begins."""
    first = np.full(len(bases) - 1, np.iinfo(np.int64).max, dtype=np.int64)
    last = np.full(len(bases) - 1, -1, dtype=np.int64)
    _ends(frozen_view(numbers), frozen_view(bases), first, last)
    return first, last


def _there(numbers: Array) -> bool:
    """All rows are."""
    return True


class StoreColumn:
    """One column over all buckets of a store."""

    def __init__(self, chunks: pa.ChunkedArray, read: Callable[[Array], bool] = _there) -> None:
        """`read`: called with the rows that are to be taken; says whether all others are there, too."""
        self._chunks = chunks
        self._read = read
        self._asked = 0
        self._whole: Array | None = None
        kind = chunks.type
        plain = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind)
        self._is_plain = plain and kind.bit_width in _WIDTHS and chunks.null_count == 0

    @property
    def width(self) -> int:
        """Bytes of a value; 0 where that does not say how to copy one."""
        return self._chunks.type.bit_width // 8 if self._is_plain else 0

    def take(self, numbers: Array, room: Array | None = None) -> pa.Array:
        """The values of the rows, in `room` where given. The column is copied into one piece once that pays."""
        self._asked += len(numbers)
        is_there = self._read(numbers)
        if self._is_plain and (self._chunks.num_chunks < 2 or (is_there and self._may_copy())):
            return self._gather(numbers, room)
        taken = self._chunks.take(pa.array(numbers))
        if taken.num_chunks == 1:
            return taken.chunk(0)
        return pa.concat_arrays(taken.chunks) if taken.num_chunks else pa.array([], taken.type)

    def _may_copy(self) -> bool:
        return self._whole is not None or len(self._chunks) <= SMALL or self._asked * WORTH >= len(self._chunks)

    def _gather(self, numbers: Array, room: Array | None) -> pa.Array:
        kind = self._chunks.type
        if self._whole is None:
            pieces = [_values(chunk) for chunk in self._chunks.chunks]
            self._whole = frozen_view(pieces[0] if len(pieces) == 1 else np.concatenate(pieces)) if pieces else _NONE
        out = np.empty(len(numbers), self._whole.dtype) if room is None else room.view(self._whole.dtype)
        if len(numbers):
            _gather(self._whole, frozen_view(numbers), out)
        return pa.Array.from_buffers(kind, len(out), [None, pa.py_buffer(out)])


def take_columns(wanted: Sequence[tuple[StoreColumn, Array]]) -> list[pa.Array]:
    """Several columns of as many rows each."""
    rows = len(wanted[0][1]) if wanted else 0
    sizes = [-(-rows * column.width // _ALIGNMENT) * _ALIGNMENT for column, _ in wanted]
    memory = np.empty(sum(sizes), dtype=np.uint8)
    arrays, at = [], 0
    for (column, numbers), size in zip(wanted, sizes, strict=True):
        arrays.append(column.take(numbers, memory[at : at + rows * column.width] if size else None))
        at += size
    return arrays


_NONE = frozen_view(np.empty(0, dtype=np.uint64))


def _values(chunk: pa.Array) -> Array:
    kind = np.dtype(f"u{chunk.type.bit_width // 8}")
    if len(chunk) == 0:
        return np.empty(0, dtype=kind)
    return np.frombuffer(chunk.buffers()[1], dtype=kind, count=chunk.offset + len(chunk))[chunk.offset :]


def warm_gather() -> None:
    for width in _WIDTHS:
        chunk = pa.chunked_array([pa.array([1, 2], f"uint{width}")])
        StoreColumn(chunk).take(np.array([0, 1], dtype=np.int64))
    ends_by_bucket(np.array([0, 1], dtype=np.int64), np.array([0, 1, 2], dtype=np.int64))
