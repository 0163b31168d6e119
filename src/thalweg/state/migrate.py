"""State of earlier releases, formats 2 to 4, read as what it is now. Nothing writes them any more.

    manifests/N.json, intents/N.json     a header line with checksum and length, then JSON
    changes.log                          requests, a line each with its checksum
    checkpoint/offsets/N                 Spark's record of how far batch N goes, up to the first manifests that say so
    catalog.json, tables.json            JSON without a header
    identity                             the name of the state: now that of its timeline
    results/N.arrow, results/N-M.arrow   results, which no manifest named

A batch whose intent is there without its manifest may have been seen by sinks: it is repeated once, as the intent
says."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from thalweg.errors import ThalwegError, corrupt_file, missing_offsets, unreadable_offsets, wrong_state_format
from thalweg.model.bucket import Section
from thalweg.model.manifest import READABLE, Manifest, ResultFile
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import Offsets
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.state.old_formats import (
    OldCatalog,
    OldHeader,
    OldIntentFile,
    OldManifest,
    OldOffsets,
    OldRequest,
    OldTable,
    old_schema,
)
from thalweg.state.storage import Storage

T = TypeVar("T")
_RESULTS = re.compile(r"results/(\d{12,})(?:-(\d{12,}))?\.arrow")
_LINES = 3


# -- manifests and intents -----------------------------------------------------------------------------------


def read_old_manifest(storage: Storage, batch: int) -> Manifest:
    name = f"manifests/{batch:012d}.json"
    found_format, body = _read(storage, name)
    old = _decode(storage, name, "a manifest", body, OldManifest)
    if old.batch != batch:
        raise corrupt_file(storage.locate(name), f"the manifest of batch {batch}", f"that of {old.batch}")
    return _as(storage, name, "a manifest", lambda: _manifest(storage, found_format, old))


@dataclass(frozen=True)
class OldIntent:
    """What a batch ran with, written down before its sinks saw anything."""

    through: int
    reached: Offsets
    slots: int
    measured: Measurements
    partitioners: Mapping[str, str]
    tables: Mapping[str, tuple[Schema, Section]]


def find_old_intent(storage: Storage, batch: int) -> OldIntent | None:
    """What batch `batch` ran with, if sinks may have seen something of it."""
    name = f"intents/{batch:012d}.json"
    if storage.stamp(name) is None:
        return None
    _, body = _read(storage, name)
    old = _decode(storage, name, "an intent", body, OldIntentFile)
    return OldIntent(
        through=old.through,
        reached=read_old_offsets(storage, batch) if old.reached is None else old.reached.now(),
        slots=old.slots,
        measured=old.measurements(),
        partitioners=old.partitioners,
        tables={table: (old_schema(t.schema), t.version.now()) for table, t in old.tables.items()},
    )


def _read(storage: Storage, name: str) -> tuple[int, bytes]:
    """The format and the body."""
    place = storage.locate(name)
    head, _, rest = storage.read(name).partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=OldHeader)
    except (ValueError, msgspec.DecodeError) as error:
        raise corrupt_file(place, "a header line", repr(head[:80])) from error
    if header.format not in READABLE[:-1]:
        raise wrong_state_format(place, header.format, READABLE)
    body = rest[:-1]
    if rest[-1:] != b"\n" or len(body) != header.length or zlib.crc32(body) != header.crc:
        found = f"{len(body)} bytes with checksum {zlib.crc32(body):08x}"
        raise corrupt_file(place, f"{header.length} bytes with checksum {header.crc:08x}", found)
    return header.format, body


def _as(storage: Storage, name: str, kind: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ThalwegError:
        raise
    except (TypeError, ValueError, msgspec.DecodeError) as error:
        raise corrupt_file(storage.locate(name), kind, f"{type(error).__name__}: {error}") from error


def _decode(storage: Storage, name: str, kind: str, data: bytes, of: type[T]) -> T:
    return _as(storage, name, kind, lambda: msgspec.json.decode(data, type=of))


def _manifest(storage: Storage, found_format: int, old: OldManifest) -> Manifest:
    reached = old.extra.reached
    return Manifest(
        batch=old.batch,
        groups=old.groups,
        hash=old.hash,
        reached=read_old_offsets(storage, old.batch) if reached is None else reached.now(),
        through=old.extra.through,
        closed=old.extra.closed,
        streams=old.streams,
        buckets=tuple(bucket.now() for bucket in old.buckets),
        stores=tuple(bucket.now() for bucket in old.stores),
        queries={id_: entry.now(id_) for id_, entry in old.queries.items()},
        history=old.history(),
        measured=old.extra.measurements(),
        results=_results(storage, old.batch),
        format=found_format,
    )


def _results(storage: Storage, batch: int) -> tuple[ResultFile, ...]:
    """The files of results up to a batch, in order. One inside another's range was merged into it before a crash."""
    ranges = []
    for name in storage.names("results/"):
        if match := _RESULTS.fullmatch(name):
            ranges.append((int(match[1]), int(match[2] or match[1]), name))
    found: list[ResultFile] = []
    for first, last, name in sorted(ranges, key=lambda r: (r[0], -r[1])):
        if last <= batch and (not found or first > found[-1].last):
            found.append(ResultFile(name, first, last, 0 if first == last else 1))
    return tuple(found)


# -- offsets -------------------------------------------------------------------------------------------------


def read_old_offsets(storage: Storage, batch: int) -> Offsets:
    """How far batch `batch` goes, as Spark wrote it down: a line `v1`, a line of Spark's own, and the offset."""
    name = f"checkpoint/offsets/{batch}"
    place, data = storage.locate(name), storage.find(name)
    if data is None:
        raise missing_offsets(place, batch)
    lines = data.decode(errors="replace").splitlines()
    if len(lines) != _LINES or lines[0] != "v1":
        raise unreadable_offsets(place, batch, f"{len(lines)} lines, the first is {''.join(lines[:1])[:20]!r}")
    try:
        return msgspec.json.decode(lines[-1], type=OldOffsets).now()
    except (ValueError, msgspec.DecodeError) as error:
        raise unreadable_offsets(place, batch, f"{type(error).__name__}: {error}") from None


# -- requests ------------------------------------------------------------------------------------------------


def read_old_requests(storage: Storage) -> list[tuple[int, Query | str]]:
    """The requests in `changes.log` by number: a query to create, or the name of one to drop.

    A last line without its end was never acknowledged."""
    name = "changes.log"
    data = storage.find(name)
    found: list[tuple[int, Query | str]] = []
    last = 0
    for number, line in enumerate((data or b"").split(b"\n")[:-1], 1):
        crc, _, body = line.partition(b" ")
        if crc != b"%08x" % zlib.crc32(body):
            place = storage.locate(name)
            raise corrupt_file(place, f"a request in line {number}", f"a wrong checksum: {line[:60]!r}")
        old = _decode(storage, name, "a request", body, OldRequest)
        expected = last + 1 if old.base is None else old.base
        if old.sequence not in (None, expected):
            raise corrupt_file(storage.locate(name), f"request {expected} in line {number}", f"{old.sequence}")
        last = expected
        if old.record is not None:
            found.append((last, _as(storage, name, "a request", old.record.now)))
    return found


# -- the rest ------------------------------------------------------------------------------------------------


def find_old_identity(storage: Storage) -> str | None:
    """What the state was called by; None where nobody had to know it."""
    data = storage.find("identity")
    if data is not None and re.fullmatch(rb"[0-9a-f]{32}", data) is None:
        raise corrupt_file(storage.locate("identity"), "32 hexadecimal digits", repr(data[:40]))
    return None if data is None else data.decode()


def find_old_streams(storage: Storage, name: str) -> list[Stream] | None:
    """The streams of an object without a header."""
    data = storage.find(name)
    if data is None:
        return None
    return [stream.now() for stream in _decode(storage, name, "JSON", data, OldCatalog).streams]


def find_old_tables(storage: Storage, name: str) -> dict[str, tuple[Schema, Section]] | None:
    """The tables of an object without a header."""
    data = storage.find(name)
    if data is None:
        return None
    tables = _decode(storage, name, "JSON", data, dict[str, OldTable])
    return {table: (old_schema(old.schema), old.version.now()) for table, old in tables.items()}


def forget_old(storage: Storage) -> None:
    """What is of no use once a manifest of this release is there. `changes.log` may hold requests that no batch has
    taken up: it is left to the log of requests."""
    for prefix in ("checkpoint/", "intents/"):
        _delete(storage, storage.names(prefix))
    old = [name for name in storage.names("manifests/") if name.endswith(".json")]
    _delete(storage, [*old, "control.json", "streams.json", "identity"])


def _delete(storage: Storage, names: Sequence[str]) -> None:
    for name in names:
        if storage.stamp(name) is not None:
            storage.delete(name)
