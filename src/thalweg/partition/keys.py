"""Columns as 64-bit keys. Equal rows have equal keys, whatever the layout; null equals null, as in GROUP BY.

Each column gives a *word* per row: the value itself where it is a whole number, else a hash of it. A single column of
whole numbers is its own key, not even copied. All else absorbs the words in turn. Rows that differ may share a
key, rarely: a partitioner then takes them for one group, which costs balance, not results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.errors import partitioner_option
from thalweg.kernel import frozen_view, inlined, kernel
from thalweg.route.hash import NULL_WORD, value_words

Words = npt.NDArray[np.uint64]

_SEED = np.uint64(0x6B65797374686C77)
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S8, _S27, _S30, _S31 = np.uint64(8), np.uint64(27), np.uint64(30), np.uint64(31)


@inlined
def _absorb(h: Any, word: Any) -> Any:
    """One to one in `word`."""
    h = (h * _K2) ^ (word * _K1)
    h = (h ^ (h >> _S30)) * _M1
    h = (h ^ (h >> _S27)) * _M2
    return h ^ (h >> _S31)


@kernel
def _absorb_words(out: Any, words: Any) -> None:
    for row in range(out.size):
        out[row] = _absorb(out[row], words[row])


@kernel
def _hash_bytes(out: Any, data: Any, offsets: Any) -> None:
    """Eight bytes at a time, little end first; the length is part of the hash."""
    for row in range(out.size):
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        h = np.uint64(end - start) * _K1
        while start < end:
            word = np.uint64(0)
            for i in range(min(start + 8, end) - 1, start - 1, -1):
                word = word << _S8 | np.uint64(data[i])
            h = _absorb(h, word)
            start += 8
        out[row] = h


def keys_of(columns: Sequence[Any]) -> npt.NDArray[np.int64]:
    """The key of every row. Columns: NumPy arrays, Arrow arrays, chunked arrays, or lists of plain values."""
    plain = [part for column in columns for part in _fields(_as_arrow(column))]
    lengths = {len(column) for column in plain}
    if len(lengths) != 1:
        found = f"{len(plain)} columns of {', '.join(map(str, sorted(lengths))) or 'no'} rows"
        raise partitioner_option("keys", "columns", found, "one column or more, all of one length")
    if len(plain) == 1 and _is_whole(plain[0].type):
        return _words(plain[0]).view(np.int64)
    out = np.full(lengths.pop(), _SEED)
    for column in plain:
        _absorb_words(out, frozen_view(_words(column)))
    return out.view(np.int64)


def _as_arrow(column: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return pa.array(column.astype(np.float64, copy=False), from_pandas=False)
    try:
        return pa.array(column)
    except (pa.ArrowException, TypeError, ValueError) as refused:
        found = getattr(column, "dtype", type(column).__name__)
        raise partitioner_option("keys", "column", str(found), "values of one type that Arrow knows") from refused


def _fields(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array | pa.ChunkedArray]:
    """A struct is its fields; a null one has null fields."""
    if isinstance(column, pa.ExtensionArray):
        yield from _fields(column.storage)
    elif isinstance(column.type, pa.BaseExtensionType):
        yield from _fields(column.cast(column.type.storage_type))
    elif pa.types.is_struct(column.type):
        for field in column.flatten():
            yield from _fields(field)
    else:
        yield column


def _is_whole(kind: pa.DataType) -> bool:
    """Whether a value is its own word: a whole number of at most 64 bits, or what is kept as one."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _is_whole(kind.value_type)
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    return whole or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _words(column: pa.Array | pa.ChunkedArray) -> Words:
    if isinstance(column, pa.ChunkedArray):
        parts = [_words(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if pa.types.is_run_end_encoded(column.type):
        return _words(pc.run_end_decode(column))
    if pa.types.is_dictionary(column.type):
        # Each value is hashed once; the last word is for rows without a value.
        values = np.append(_words(column.dictionary), NULL_WORD)
        missing = len(column.dictionary)
        places = column.indices.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False)
        words: Words = values[places]
        return words
    if len(column) == 0 or pa.types.is_null(column.type):
        return np.full(len(column), NULL_WORD)
    words = _value_words(column)
    if column.null_count:
        words = np.where(column.is_null().to_numpy(zero_copy_only=False), NULL_WORD, words)
    return words


def _value_words(array: pa.Array) -> Words:
    """A word for each value; what is under a null does not matter."""
    kind = array.type
    if pa.types.is_decimal(kind) and kind.bit_width > 64:
        return _decimal_words(array)
    if _is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return value_words(array)
    if any(test(kind) for test in _BYTES):
        return _byte_words(array)
    raise partitioner_option("keys", "column", str(kind), "numbers, strings, bytes, booleans, dates or times")


def _decimal_words(array: pa.Array) -> Words:
    """Of decimals that take several words."""
    bits = array.type.bit_width
    whole: npt.NDArray[Any] = np.frombuffer(
        array.buffers()[1], np.dtype((np.uint64, bits // 64)), count=array.offset + len(array)
    )
    limbs = whole[array.offset :]
    words: Words = limbs[:, 0].copy()
    for limb in range(1, limbs.shape[1]):
        _absorb_words(words, frozen_view(limbs[:, limb]))
    return words


_BYTES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def _byte_words(array: pa.Array) -> Words:
    kind = array.type
    if pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    words = np.empty(len(array), np.uint64)
    _hash_bytes(words, frozen_view(raw), frozen_view(places))
    return words
