"""Values as durable objects: a header line that says what follows, then the value as JSON.

    {"thalweg": "manifest", "format": 5, "length": 1234, "crc": 305419896} newline, the body, newline

Nothing is read as what it is not: another kind, a part, a flipped bit, a field that is not known are refused by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from thalweg.errors import corrupt_file, missing_file, wrong_state_format
from thalweg.model.manifest import FORMAT, MANIFEST_FORMAT, READABLE
from thalweg.state.storage import Storage

T = TypeVar("T")
_WITH_DATACLASSES = ("query", "definitions", "request", "catalog", "tables")
"""Of these msgspec would pass over fields that it does not know."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    thalweg: str
    """The kind of object."""
    format: int
    length: int
    crc: int


def seal(kind: str, value: object, written_in: int = FORMAT) -> bytes:
    body = msgspec.json.encode(value)
    header = Header(kind, written_in, len(body), zlib.crc32(body))
    return msgspec.json.encode(header) + b"\n" + body + b"\n"


def unseal(place: str, kind: str, data: bytes, value: type[T]) -> T:
    """`place`: where it was, for messages."""
    body = _body(place, kind, data)
    try:
        found = msgspec.json.decode(body, type=value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt_file(place, f"a {kind}", str(error)) from error
    if kind in _WITH_DATACLASSES:
        field = _unknown(msgspec.json.decode(body), msgspec.to_builtins(found, str_keys=True))
        if field:
            raise corrupt_file(place, f"a {kind}", f"a field {field} that is not known")
    return found


def _unknown(written: object, known: object) -> str:
    """The first field that is written and not known; empty if there is none."""
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(written, dict) and isinstance(known, dict):
        for name in written:
            if name not in known:
                return str(name)
        pairs = ((value, known[name]) for name, value in written.items())
    elif isinstance(written, list) and isinstance(known, list | tuple):
        pairs = zip(written, known, strict=False)
    return next((found for pair in pairs if (found := _unknown(*pair))), "")


def _body(place: str, kind: str, data: bytes) -> bytes:
    head, _, rest = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt_file(place, "a header line", repr(head[:80])) from error
    if header.thalweg != kind:
        raise corrupt_file(place, f"a {kind}", f"a {header.thalweg}")
    if header.format not in (FORMAT, MANIFEST_FORMAT):
        raise wrong_state_format(place, header.format, (*READABLE, MANIFEST_FORMAT))
    body = rest[:-1]
    if rest[-1:] != b"\n" or len(body) != header.length or zlib.crc32(body) != header.crc:
        raise corrupt_file(
            place,
            f"{header.length} bytes with checksum {header.crc:08x}",
            f"{len(body)} bytes with checksum {zlib.crc32(body):08x}",
        )
    return body


def is_sealed(data: bytes) -> bool:
    """Whether it has such a header, rightly or not: earlier releases wrote most objects without one."""
    return data.startswith(b'{"thalweg":')


def read_value(storage: Storage, name: str, kind: str, value: type[T]) -> T:
    found = find_value(storage, name, kind, value)
    if found is None:
        raise missing_file(storage.locate(name))
    return found


def find_value(storage: Storage, name: str, kind: str, value: type[T]) -> T | None:
    """None where there is none."""
    data = storage.find(name)
    return None if data is None else unseal(storage.locate(name), kind, data, value)


def write_value(storage: Storage, name: str, kind: str, value: object) -> None:
    storage.write(name, seal(kind, value))


def create_value(storage: Storage, name: str, kind: str, value: object) -> bool:
    """False if the name is taken."""
    return storage.create(name, seal(kind, value))
