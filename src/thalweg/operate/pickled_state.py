"""States of users' aggregates that earlier releases pickled: read without running code that a pickle may ask for.

Only plain values, NumPy's and a few of Arrow's are made. What makes them is named below, and nothing else is found.
NumPy's own functions believe what a pickle says of a dtype, down to where its objects lie: ours take their place.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from thalweg.model.aggregate_state import make_array, read_array, read_batch

FIRST = b"\x80"
"""What the pickles of earlier releases begin with."""


class RefusedPickleError(pickle.UnpicklingError):
    """A pickle asks for something that is no plain value."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found} is not read from a pickle")
        self.found = found


def read_pickled(data: bytes) -> Any:
    return _with_arrays(_StateReader(io.BytesIO(data)).load())


class _StateReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module.replace("numpy.core", "numpy._core"), name))
        if found is None:
            raise RefusedPickleError(f"{module}.{name}")
        return found


def _counter(counts: dict[Any, int]) -> Counter[Any]:
    return Counter(counts)


def _zone(key: str, from_cache: bool) -> ZoneInfo:
    return ZoneInfo(key)


def _attribute(owner: Any, name: str) -> Any:
    """Instead of getattr, by which time zones are found."""
    if owner is not _zone or name != "_unpickle":
        raise RefusedPickleError("builtins.getattr")
    return _zone


# -- NumPy

_SIMPLE = re.compile(r"[biufcSUVMm][0-9]*\Z")


class _Dtype:
    """Instead of numpy.dtype."""

    def __init__(self, text: str) -> None:
        if not _SIMPLE.match(text):
            raise RefusedPickleError(f"numpy.dtype({text!r})")
        self.found: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, part, names, fields, size = state[:6]
        if part is not None:
            self.found = np.dtype((part[0].found, part[1]))
        elif names is not None:
            formats, offsets = [fields[n][0].found for n in names], [fields[n][1] for n in names]
            self.found = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
        elif self.found.kind in "mM":
            unit, count = state[8][1][:2]
            self.found = np.dtype(f"{self.found.kind}8" + ("" if unit == b"generic" else f"[{count}{unit.decode()}]"))
        if order in ("<", ">"):
            self.found = self.found.newbyteorder(order)


class _Array:
    """Instead of an array that gets its contents later. `_with_arrays` puts the array in its place."""

    __hash__ = None  # type: ignore[assignment]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, data = state
        self.found = _from_buffer(data, dtype, shape, "F" if by_columns else "C")


def _dtype(text: str, *_: Any) -> _Dtype:
    return _Dtype(text)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _from_buffer(data: bytes, dtype: _Dtype, shape: Any, order: str, axes: Any = None) -> Any:
    if order == "F":
        return make_array(dtype.found, shape[::-1], data).T
    array = make_array(dtype.found, shape, data)
    return array if axes is None else array.transpose(axes)


def _scalar(dtype: _Dtype, data: bytes) -> Any:
    return make_array(dtype.found, (), data)[()]


def _with_arrays(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.found
    if type(value) in (list, tuple):
        return type(value)(map(_with_arrays, value))
    if isinstance(value, deque):
        return deque(map(_with_arrays, value), value.maxlen)
    if isinstance(value, dict):
        for key in value:
            value[key] = _with_arrays(value[key])
    return value


_ALLOWED: dict[tuple[str, str], Any] = {
    # A pickle may set attributes of what it finds: here are functions of ours, and types that cannot be changed.
    **{("builtins", kind.__name__): kind for kind in (bool, int, float, complex, str, list, tuple, dict, set)},
    ("builtins", "getattr"): _attribute,
    **{("datetime", kind.__name__): kind for kind in (date, datetime, time, timedelta, timezone)},
    ("zoneinfo", "ZoneInfo"): _zone,
    ("decimal", "Decimal"): Decimal,
    ("collections", "Counter"): _counter,
    **{("collections", kind.__name__): kind for kind in (OrderedDict, defaultdict, deque)},
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    # How earlier releases pickled Arrow's arrays and batches; then what Arrow says of chunks and scalars.
    ("thalweg.operate.own", "_read_array"): read_array,
    ("thalweg.operate.own", "_read_batch"): read_batch,
    ("pyarrow.lib", "chunked_array"): pa.chunked_array,
    ("pyarrow.lib", "scalar"): pa.scalar,
    ("pyarrow.lib", "type_for_alias"): pa.type_for_alias,
}
