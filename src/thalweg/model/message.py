"""Values as bytes between the parts of a batch: typed on both sides, msgpack in between.

A value that does not have the type it is read as is refused, never guessed at.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

T = TypeVar("T")


def encode(value: object) -> bytes:
    return _ENCODER.encode(value)


def decode(data: bytes | memoryview, kind: type[T]) -> T:
    """The value of this type that `encode` was given."""
    found: T = decoder(cast(Any, kind)).decode(data)
    return found


def _write_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} is no type of a message")


def _read_array(kind: Any, value: Any) -> Any:
    dtype, shape, data = value
    return np.frombuffer(data, dtype).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_write_array)


@cache
def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """For a type that `decode` cannot be given: one of several."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_read_array)
