"""A table of the state of which only parts are read: rows of some columns.

The table lies in the state as one record batch, column by column, so the rows of a range are a span of bytes in every
buffer of a column. Which spans these are the buffers say themselves: they are views of the section.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from thalweg.model.bucket import Section

Span = tuple[int, int]
"""Bytes of a section, or rows, from and to."""
_PREFIX = struct.Struct("<Ii")
"""Of a message of an Arrow stream: a mark, and the length of what describes the message."""
_MESSAGES = 2
"""The schema, the record batch."""


class _Source(Protocol):
    """A container that is open."""

    @property
    def is_at_hand(self) -> bool: ...

    def slice(self, section: Section) -> pa.Buffer: ...

    def whole(self, section: Section) -> pa.Buffer: ...

    def need(self, section: Section, spans: Iterable[Span]) -> None: ...


class PartlyRead:
    """Rows that `need` was not asked for may be anything."""

    def __init__(self, source: _Source, section: Section) -> None:
        self._source = source
        self._section = section
        self._done: set[str] = set()
        """Columns that are there whole."""
        self._body = source.slice(section)
        self.is_at_hand = source.is_at_hand
        self.table = self._open()

    def need(self, columns: Iterable[str], rows: Sequence[Span]) -> None:
        """Reads and checks these rows, each from the first up to, not including, the last."""
        columns = [name for name in columns if name not in self._done]
        rows = [(first, last) for first, last in rows if first < last]
        if not columns or not rows:
            return
        arrays = [self.table.column(name).chunk(0) for name in columns]
        # Where texts lie their offsets say, which have to be read first.
        self._source.need(self._section, (s for a in arrays for r in rows for s in self._fixed(a, *r)))
        texts = [s for a in arrays if _has_offsets(a.type) for r in rows for s in self._texts(a, *r)]
        self._source.need(self._section, texts)
        if rows == [(0, self._section.rows)]:
            self._done.update(columns)

    def _open(self) -> pa.Table:
        at = 0
        for _ in range(_MESSAGES):
            self._source.need(self._section, [(at, at + _PREFIX.size)])
            _, length = _PREFIX.unpack(self._body[at : at + _PREFIX.size])
            if not self._section.rows or not 0 < length <= self._section.length - at:
                break
            self._source.need(self._section, [(at, at + _PREFIX.size + length)])
            at += _PREFIX.size + length
        else:
            batch = pa.ipc.open_stream(self._body).read_next_batch()
            if batch.num_rows == self._section.rows:
                return pa.Table.from_batches([batch])
        whole = pa.ipc.open_stream(self._source.whole(self._section)).read_all()
        self._done.update(whole.column_names)
        return whole

    def _fixed(self, array: pa.Array, first: int, last: int) -> Iterator[Span]:
        """What holds the rows, but for texts; all of an array whose rows lie in other arrays."""
        buffers = array.buffers()
        if _has_offsets(array.type):
            yield from self._span(buffers[0], first, last, 1)
            yield from self._span(buffers[1], first, last + 1, _offset_type(array.type).itemsize * 8)
        elif pa.types.is_fixed_size_list(array.type):
            yield from self._span(buffers[0], first, last, 1)
            lanes = array.type.list_size
            yield from self._fixed(array.values, first * lanes, last * lanes)
        elif pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type):
            for buffer in buffers:
                yield from self._span(buffer, 0, 0 if buffer is None else buffer.size, 8)
        else:
            yield from self._span(buffers[0], first, last, 1)
            for buffer in buffers[1:]:
                yield from self._span(buffer, first, last, array.type.bit_width)

    def _texts(self, array: pa.Array, first: int, last: int) -> Iterator[Span]:
        _, offsets, texts = array.buffers()
        low, high = np.frombuffer(offsets, dtype=_offset_type(array.type))[[first, last]].tolist()
        yield from self._span(texts, low, high, 8)

    def _span(self, buffer: pa.Buffer | None, first: int, last: int, bits: int) -> Iterator[Span]:
        if buffer is not None and first < last and buffer.size:
            at = buffer.address - self._body.address
            yield at + first * bits // 8, at + min(buffer.size, -(-last * bits // 8))


_OFFSETS = frozenset(kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()))


def _has_offsets(kind: pa.DataType) -> bool:
    return kind.id in _OFFSETS


def _offset_type(kind: pa.DataType) -> np.dtype[np.int32] | np.dtype[np.int64]:
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return np.dtype(np.int64) if is_large else np.dtype(np.int32)
