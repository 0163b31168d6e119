"""Thalweg's own 64-bit hash of rows: equal on every platform and in every release.

It decides the key group of every row in stored state, so it may never change: the test vectors pin it. A
row's hash starts from a seed and absorbs one 64-bit *word* per column, in order.

| type | word |
|---|---|
| integers, dates, times, timestamps, booleans | the value as a 64-bit two's complement integer |
| float, double | the bits of the double; -0.0 is 0.0 and every NaN the same one |
| string, binary | a hash of the bytes and their number |
| decimal | the unscaled value, folded to 64 bits where it is wider |
| null | a word of its own |

Bytes are read from Arrow's buffers as they lie, whatever the offset of a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, inlined, kernel

HASH_NAME = "thalweg-1"
"""Recorded in the manifest: state hashed by another function cannot be used."""

MAX_GROUPS = 1 << 16

Hashes = npt.NDArray[np.uint64]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"

_SEED = np.uint64(0x5448414C57454731)
NULL_WORD = np.uint64(0xD1B54A32D192ED03)
_NAN = np.uint64(0x7FF8000000000000)
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_K3 = np.uint64(0xA0761D6478BD642F)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S8, _S16, _S24, _S32 = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
_S40, _S48, _S56 = np.uint64(40), np.uint64(48), np.uint64(56)
_S27, _S29, _S30, _S31, _S35, _S63 = (np.uint64(s) for s in (27, 29, 30, 31, 35, 63))


@inlined
def _mix(h: Any) -> Any:
    """Every input bit reaches every output bit; one to one; 0 stays 0."""
    h = (h ^ (h >> _S30)) * _M1
    h = (h ^ (h >> _S27)) * _M2
    return h ^ (h >> _S31)


@inlined
def _absorb(h: Any, word: Any) -> Any:
    """One to one in `word`: two rows that differ in one integer never share a hash."""
    return _mix((h * _K2) ^ (word * _K1))


@inlined
def _load4(data: Any, p: Any) -> Any:
    return (
        np.uint64(data[p])
        | (np.uint64(data[p + 1]) << _S8)
        | (np.uint64(data[p + 2]) << _S16)
        | (np.uint64(data[p + 3]) << _S24)
    )


@inlined
def _load8(data: Any, p: Any) -> Any:
    return (
        np.uint64(data[p])
        | (np.uint64(data[p + 1]) << _S8)
        | (np.uint64(data[p + 2]) << _S16)
        | (np.uint64(data[p + 3]) << _S24)
        | (np.uint64(data[p + 4]) << _S32)
        | (np.uint64(data[p + 5]) << _S40)
        | (np.uint64(data[p + 6]) << _S48)
        | (np.uint64(data[p + 7]) << _S56)
    )


@inlined
def _fold(h: Any, word: Any) -> Any:
    h = h ^ (word * _K1)
    return ((h << _S29) | (h >> _S35)) * _K2


@inlined
def _hash_bytes(data: Any, start: Any, end: Any) -> Any:
    """Eight bytes at a time; the last, partial step reads bytes again rather than past the end."""
    n = end - start
    h = np.uint64(n) * _K3
    if n >= 8:
        p = start
        while p + 8 < end:
            h = _fold(h, _load8(data, p))
            p += 8
        h = _fold(h, _load8(data, end - 8))
    elif n >= 4:
        h = _fold(h, _load4(data, start) | (_load4(data, end - 4) << _S32))
    elif n > 0:
        word = np.uint64(data[start]) | (np.uint64(data[start + (n >> 1)]) << _S8)
        h = _fold(h, word | (np.uint64(data[end - 1]) << _S16))
    return _mix(h)


@inlined
def _is_valid(validity: Any, bit: Any) -> Any:
    return (validity[bit >> 3] >> (bit & 7)) & 1


@kernel
def _absorb_words(out: Any, words: Any, validity: Any, bit: Any) -> None:
    if validity.size == 0:
        for i in range(out.size):
            out[i] = _absorb(out[i], words[i])
    else:
        for i in range(out.size):
            out[i] = _absorb(out[i], words[i] if _is_valid(validity, bit + i) else NULL_WORD)


@kernel
def _absorb_bytes(out: Any, data: Any, offsets: Any, validity: Any, bit: Any) -> None:
    nullable = validity.size > 0
    for i in range(out.size):
        if nullable and not _is_valid(validity, bit + i):
            word = NULL_WORD
        else:
            word = _hash_bytes(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))
        out[i] = _absorb(out[i], word)


@kernel
def _fold_wide(out: Any, pairs: Any) -> None:
    """128-bit integers to words; one that fits in 64 bits is its own word."""
    for i in range(out.size):
        low, high = pairs[2 * i], pairs[2 * i + 1]
        sign = np.uint64(0) - (low >> _S63)
        out[i] = low ^ _mix(high ^ sign)


@kernel
def _scale(out: Any, hashes: Any, groups: Any) -> None:
    for i in range(out.size):
        out[i] = ((hashes[i] >> _S32) * groups) >> _S32


def hash_rows(columns: Sequence[Column], rows: int | None = None) -> Hashes:
    """The hash of every row over `columns`, in order. Without columns, `rows` zeros."""
    if not columns:
        return np.zeros(rows or 0, dtype=np.uint64)
    out = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column in columns:
        start = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
            _absorb_array(out[start : start + len(chunk)], chunk)
            start += len(chunk)
    return out


def key_groups(hashes: Hashes, groups: int) -> npt.NDArray[np.uint16]:
    """The key group of every hash: its high half scaled to `groups`, without division."""
    if not 1 <= groups <= MAX_GROUPS:
        raise ValueError(f"the number of key groups must be 1 to {MAX_GROUPS}, not {groups}")
    out = np.zeros(len(hashes), dtype=np.uint16)
    if groups > 1:
        _scale(out, frozen_view(hashes), np.uint64(groups))
    return out


def _absorb_array(out: Hashes, array: pa.Array) -> None:
    kind = array.type
    if len(array) == 0:
        return
    if pa.types.is_null(kind):
        _absorb_words(out, frozen_view(np.full(len(array), NULL_WORD)), _NO_BITS, 0)
    elif pa.types.is_dictionary(kind):
        _absorb_array(out, array.dictionary_decode())
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            _absorb_array(out, child)
    elif _is_bytes(kind):
        _absorb_byte_array(out, _plain_bytes(array))
    else:
        validity, bit = _validity(array)
        _absorb_words(out, frozen_view(value_words(array)), validity, bit)


def _absorb_byte_array(out: Hashes, array: pa.Array) -> None:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    all_offsets = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    window = frozen_view(all_offsets[array.offset : array.offset + len(array) + 1])
    raw = frozen_view(np.frombuffer(data, dtype=np.uint8)) if data is not None else _NO_BITS
    validity, bit = _validity(array)
    _absorb_bytes(out, raw, window, validity, bit)


def value_words(array: pa.Array) -> Hashes:
    """A word for each value that is not bytes; what is under a null is arbitrary."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return _values(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
    if pa.types.is_decimal(kind):
        return _decimal_words(array)
    if pa.types.is_floating(kind):
        numpy_type = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width]
        with np.errstate(invalid="ignore"):
            # Adding 0.0 turns -0.0 into 0.0 and leaves every other value alone.
            doubles = _values(array, numpy_type).astype(np.float64) + 0.0
        words: Hashes = doubles.view(np.uint64)
        words[np.isnan(doubles)] = _NAN
        return words
    if pa.types.is_unsigned_integer(kind):
        return _values(array, np.dtype(f"u{kind.bit_width // 8}")).astype(np.uint64, copy=False)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _integer_words(array, kind.bit_width)
    raise TypeError(f"rows cannot be hashed by a column of type {kind}")


def _integer_words(array: pa.Array, bit_width: int) -> Hashes:
    values = _values(array, np.dtype(f"i{bit_width // 8}"))
    return values.astype(np.int64, copy=False).view(np.uint64)


def _decimal_words(array: pa.Array) -> Hashes:
    if array.type.bit_width < 128:
        return _integer_words(array, array.type.bit_width)
    if array.type.bit_width > 128:
        array = array.cast(pa.decimal128(38, array.type.scale))
    pairs = np.frombuffer(array.buffers()[1], dtype=np.uint64)[2 * array.offset :]
    words = np.empty(len(array), dtype=np.uint64)
    _fold_wide(words, frozen_view(pairs))
    return words


def _values(array: pa.Array, numpy_type: Any) -> npt.NDArray[Any]:
    """The value buffer as it lies; what is under a null is arbitrary and never looked at."""
    whole = np.frombuffer(array.buffers()[1], dtype=numpy_type, count=array.offset + len(array))
    return whole[array.offset :]


_NO_BITS = frozen_view(np.empty(0, dtype=np.uint8))


def _validity(array: pa.Array) -> tuple[npt.NDArray[np.uint8], int]:
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return _NO_BITS, 0
    return frozen_view(np.frombuffer(bitmap, dtype=np.uint8)), array.offset


_BYTE_TYPES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def _is_bytes(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _BYTE_TYPES)


def _plain_bytes(array: pa.Array) -> pa.Array:
    """Views and fixed-size values hash as the plain ones they stand for."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type) or pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.large_binary())
    return array
