"""States of users' aggregates as bytes: values of known types only, so that reading them runs nobody's code.

MARK, then msgpack. A type that msgpack does not know, or would give back as another, is an extension: the code of the
type, and in msgpack again what its value is made of.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.msgpack import Ext

MARK = b"\x01"
"""What an encoded state begins with. A pickle begins with 0x80."""


class UnfitStateError(TypeError):
    """A state holds something that has no encoding."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found} cannot be encoded")
        self.found = found


def encode(value: Any) -> bytes:
    try:
        return MARK + _ENCODER.encode(_QUICK.write(value))
    except OverflowError:  # an integer of more than 64 bits, somewhere
        return MARK + _ENCODER.encode(_THOROUGH.write(value))


def decode(data: bytes) -> Any:
    """The value that `encode` was given: equal, of the same types, and free to be changed."""
    if data[:1] != MARK:
        raise ValueError(f"a state begins with {MARK!r}, not {data[:1]!r}")
    return _DECODER.decode(memoryview(data)[1:])


class _Writer:
    """Says values in what msgpack knows. A list of plain values costs no Python for each of them."""

    def __init__(self, plain: frozenset[type]) -> None:
        self._plain = plain

    def write(self, value: Any) -> Any:
        kind = type(value)
        if kind in self._plain or (kind is int and -(1 << 63) <= value < 1 << 64):
            return value
        if kind is list:
            return self._write_list(value)
        if kind is dict and self._plain.issuperset(map(type, value)):
            return dict(zip(value, self._write_list(list(value.values())), strict=True))
        encoding = _encoding_of(kind)
        return Ext(encoding.code, _ENCODER.encode(self.write(encoding.take_apart(value))))

    def _write_list(self, values: list[Any]) -> list[Any]:
        return values if self._plain.issuperset(map(type, values)) else [self.write(value) for value in values]


_THOROUGH = _Writer(frozenset({type(None), bool, float, str, bytes}))
_QUICK = _Writer(frozenset({type(None), bool, float, str, bytes, int}))
"""Takes for granted that integers have 64 bits; msgspec raises where they have more."""


def _read(code: int, data: memoryview) -> Any:
    return _BY_CODE[code].put_together(_DECODER.decode(data))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ext_hook=_read)


# -- plain values


def _bytes_of(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _int_of(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _parts_of_datetime(value: datetime) -> list[Any]:
    day, clock = [value.year, value.month, value.day], [value.hour, value.minute, value.second, value.microsecond]
    return [*day, *clock, value.tzinfo, value.fold]


def _datetime_of(parts: list[Any]) -> datetime:
    return datetime(*parts[:-1], fold=parts[-1])


def _parts_of_time(value: time) -> list[Any]:
    return [value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold]


def _time_of(parts: list[Any]) -> time:
    return time(*parts[:-1], fold=parts[-1])


def _parts_of_timezone(zone: timezone) -> list[Any]:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [offset // timedelta(microseconds=1), *name]


def _timezone_of(parts: list[Any]) -> timezone:
    return timezone(timedelta(microseconds=parts[0]), *parts[1:])


def _key_of(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise UnfitStateError("a time zone without a name")
    return zone.key


_FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (bool, int, float, str, bytes, list, tuple, dict, set)
}


def _parts_of_defaultdict(value: defaultdict[Any, Any]) -> list[Any]:
    name = getattr(value.default_factory, "__name__", None)
    if value.default_factory is not None and _FACTORIES.get(str(name)) is not value.default_factory:
        raise UnfitStateError(f"a defaultdict of {name or type(value.default_factory).__name__}")
    return [name, dict(value)]


def _defaultdict_of(parts: list[Any]) -> defaultdict[Any, Any]:
    name, values = parts
    return defaultdict(None if name is None else _FACTORIES[name], values)


# -- NumPy


def _parts_of_array(value: Any) -> list[Any]:
    """Of an array or a scalar."""
    return [_description_of(value.dtype), list(value.shape), value.tobytes()]


@lru_cache(maxsize=256)
def _description_of(dtype: np.dtype[Any]) -> Any:
    """Objects are left out for good: their bytes are addresses."""
    described = None if dtype.hasobject else np.lib.format.dtype_to_descr(dtype)
    if described is None or np.lib.format.descr_to_dtype(described) != dtype:
        raise UnfitStateError(f"a NumPy array of {dtype}")
    return described


def _array_of(parts: list[Any]) -> Any:
    described, shape, data = parts
    return make_array(np.lib.format.descr_to_dtype(described), shape, data)


def make_array(dtype: np.dtype[Any], shape: Any, data: bytes) -> Any:
    """The array of these bytes, which are copied. Raises for objects."""
    if dtype.hasobject:
        raise ValueError("a NumPy array of objects is never read")
    return np.ndarray(shape, dtype, bytearray(data))


# -- Arrow


def _write_batch(batch: pa.RecordBatch) -> bytes:
    """Of a part of an array, that part only."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def read_batch(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _read_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _write_array(value: pa.Array) -> bytes:
    return _write_batch(pa.RecordBatch.from_arrays([value], names=[""]))


def read_array(data: bytes) -> pa.Array:
    return read_batch(data).column(0)


# -- all types


@dataclass(frozen=True)
class _Encoding:
    """How values of one type are taken apart, and put together again."""

    code: int
    """It is in states that were kept: it stays."""
    type: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]


_ENCODINGS = (
    _Encoding(1, tuple, list, tuple),
    _Encoding(2, set, list, set),
    _Encoding(3, frozenset, list, frozenset),
    _Encoding(4, dict, lambda v: [list(v), list(v.values())], lambda parts: dict(zip(*parts, strict=True))),
    _Encoding(5, int, _bytes_of, _int_of),
    _Encoding(6, complex, lambda v: [v.real, v.imag], lambda parts: complex(*parts)),
    _Encoding(7, bytearray, bytes, bytearray),
    _Encoding(8, Decimal, str, Decimal),
    _Encoding(9, date, date.toordinal, date.fromordinal),
    _Encoding(10, datetime, _parts_of_datetime, _datetime_of),
    _Encoding(11, time, _parts_of_time, _time_of),
    _Encoding(12, timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda parts: timedelta(*parts)),
    _Encoding(13, timezone, _parts_of_timezone, _timezone_of),
    _Encoding(14, ZoneInfo, _key_of, ZoneInfo),
    _Encoding(15, Counter, dict, Counter),
    _Encoding(16, OrderedDict, dict, OrderedDict),
    _Encoding(17, defaultdict, _parts_of_defaultdict, _defaultdict_of),
    _Encoding(18, deque, lambda v: [list(v), v.maxlen], lambda parts: deque(*parts)),
    _Encoding(32, np.ndarray, _parts_of_array, _array_of),
    _Encoding(33, np.generic, _parts_of_array, lambda parts: _array_of(parts)[()]),
    _Encoding(48, pa.RecordBatch, _write_batch, read_batch),
    _Encoding(49, pa.Table, _write_batch, _read_table),
    _Encoding(50, pa.ChunkedArray, lambda v: _write_batch(pa.table([v], [""])), lambda d: _read_table(d).column(0)),
    _Encoding(51, pa.Array, _write_array, read_array),
    _Encoding(52, pa.Scalar, lambda v: _write_array(pa.array([v], v.type)), lambda data: read_array(data)[0]),
)
_BY_CODE = {encoding.code: encoding for encoding in _ENCODINGS}
_BY_TYPE = {encoding.type: encoding for encoding in _ENCODINGS}
_FAMILIES = ((np.generic, "numpy"), (pa.Array, "pyarrow.lib"), (pa.Scalar, "pyarrow.lib"))
"""Types that have one class for every kind of value, and the module of these. Other subclasses would come back as
something else."""


def _encoding_of(kind: type) -> _Encoding:
    found = _BY_TYPE.get(kind)
    if found is not None:
        return found
    for family, module in _FAMILIES:
        if issubclass(kind, family) and kind.__module__ == module:
            return _BY_TYPE[family]
    raise UnfitStateError(f"a value of {kind.__module__}.{kind.__qualname__}")
