"""Columns of lists of a fixed size as NumPy tables, rows by places in a list.

Arrow's own taking of such rows looks at every value by itself where any is NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, kernel

Values = npt.NDArray[Any]
Valid = npt.NDArray[np.bool_]
EVERY_VALUE: Valid = np.empty((0, 0), dtype=np.bool_)
"""Instead of a table that says of all values that they are not NULL."""


@kernel
def _gather(values: Any, order: Any, out: Any) -> None:
    for i in range(order.size):
        row = order[i]
        for k in range(values.shape[1]):
            out[i, k] = values[row, k]


@kernel
def _interleave(lines: Any, out: Any) -> None:
    for i in range(lines.shape[1]):
        for k in range(lines.shape[0]):
            out[i, k] = lines[k, i]


def number_type(kind: pa.DataType) -> np.dtype[Any]:
    """What values of a type are in memory."""
    if pa.types.is_temporal(kind):
        return np.dtype(f"i{kind.bit_width // 8}")
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def read_lists(chunk: pa.FixedSizeListArray) -> tuple[Values, Valid]:
    """The values, and which are not NULL; views of the column where that is possible."""
    rows, size = len(chunk), chunk.type.list_size
    flat = chunk.values.slice(chunk.offset * size, rows * size)
    if not len(flat):
        return np.empty((0, size), number_type(flat.type)), EVERY_VALUE
    bits, data = flat.buffers()
    first, last = flat.offset, flat.offset + len(flat)
    values = np.frombuffer(data, number_type(flat.type), count=last)[first:].reshape(rows, size)
    if bits is None or not flat.null_count:
        return values, EVERY_VALUE
    start = first // 8
    known = np.unpackbits(np.frombuffer(bits, np.uint8)[start:], count=last - start * 8, bitorder="little")
    return values, known[first - start * 8 :].reshape(rows, size).view(np.bool_)


def make_lists(values: Values, valid: Valid, kind: pa.DataType) -> pa.Array:
    """The reverse; `kind` is the type of a value."""
    rows, size = values.shape
    child = flat_array(in_rows(values), in_rows(valid) if valid.size else valid, kind)
    return pa.Array.from_buffers(pa.list_(kind, size), rows, [None], children=[child])


def flat_array(values: Values, valid: Valid, kind: pa.DataType) -> pa.Array:
    """All values one after the other, of tables that lie so in memory."""
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if valid.size else None
    return pa.Array.from_buffers(kind, values.size, [bits, pa.py_buffer(values)])


def in_rows(values: Values) -> Values:
    """The table row after row in memory."""
    if values.flags.c_contiguous:
        return values
    if not values.flags.f_contiguous:
        return np.ascontiguousarray(values)
    out = np.empty(values.shape, values.dtype)
    _interleave(frozen_view(values.T), out)
    return out


def take_lists(chunk: pa.FixedSizeListArray, order: npt.NDArray[np.uint32]) -> pa.Array:
    """The rows with these numbers."""
    values, valid = read_lists(chunk)
    unsigned = f"u{values.dtype.itemsize}"
    found = _taken(values.view(unsigned), order).view(values.dtype)
    return make_lists(
        found, _taken(valid.view(np.uint8), order).view(bool) if valid.size else valid, chunk.type.value_type
    )


def _taken(values: Values, order: npt.NDArray[np.uint32]) -> Values:
    out = np.empty((len(order), values.shape[1]), values.dtype)
    _gather(frozen_view(values), frozen_view(order), out)
    return out
