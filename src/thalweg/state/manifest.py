"""The manifest: the committed list of live buckets, watermarks and counters after a batch.

What no manifest names does not exist. Each is a file of its own, written whole and renamed into place:

    manifests/000000000041.json     {"format": 4, "crc": ..., "length": ...} newline, the body
    intents/000000000042.json       the same outline: what batch 42 ran with

A batch's intent is written before its sinks are called, its manifest after them. The last two of each are kept: Spark
may repeat the newest batch, which starts from the manifest before it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thalweg.errors import corrupt_file, wrong_state_format
from thalweg.model.bucket import Bucket, StoreBucket
from thalweg.state.durable import delete, make_directory, read_bytes, sync_directory, write_atomic

FORMAT = 4
"""1 kept whole rows for percentiles; in 2 every index of a store had row numbers; in 3 partials of joined rows had
other names."""
READ = (2, 3, 4)
"""A directory of each is frozen in the tests; `tests/recovery/freeze.py` makes those of a new one."""
_KEPT = 2


@dataclass(frozen=True)
class StreamProgress:
    """What a stream has shown so far."""

    max_time_us: int | None = None
    """The greatest event time seen; None before the first row."""
    rows: int = 0
    late: int = 0
    rejected: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "max_time_us": self.max_time_us,
            "rows": self.rows,
            "late": self.late,
            "rejected": self.rejected,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamProgress:
        return cls(value["max_time_us"], value["rows"], value["late"], value["rejected"])


@dataclass(frozen=True)
class Manifest:
    batch: int
    groups: int
    """G, the number of key groups: part of state, unlike the number of slots."""
    hash: str
    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    buckets: tuple[Bucket, ...] = ()
    stores: tuple[StoreBucket, ...] = ()
    queries: Mapping[str, Any] = field(default_factory=dict)
    lanes: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """queries, lanes and extra are the engine's: JSON values that state keeps and does not read."""
    format: int = field(default=FORMAT, compare=False)
    """In which it was written."""

    def files(self) -> frozenset[str]:
        """The files it names, each once."""
        files = frozenset(bucket.section.file for bucket in self.buckets)
        return files | {bucket.section.file for bucket in self.stores}

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "groups": self.groups,
            "hash": self.hash,
            "streams": {name: progress.to_json() for name, progress in self.streams.items()},
            "buckets": [bucket.to_json() for bucket in self.buckets],
            "stores": [bucket.to_json() for bucket in self.stores],
            "queries": dict(self.queries),
            "lanes": dict(self.lanes),
            "extra": dict(self.extra),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        return cls(
            batch=value["batch"],
            groups=value["groups"],
            hash=value["hash"],
            streams={name: StreamProgress.from_json(p) for name, p in value["streams"].items()},
            buckets=tuple(Bucket.from_json(b) for b in value["buckets"]),
            stores=tuple(StoreBucket.from_json(b) for b in value.get("stores", ())),
            queries=value["queries"],
            lanes=value["lanes"],
            extra=value["extra"],
        )


def write_manifest(state_dir: Path | str, manifest: Manifest) -> Path:
    """Commit a batch: once this returns, a crash cannot undo it."""
    return _write(Path(state_dir) / "manifests", manifest.batch, manifest.to_json())


def read_manifest(state_dir: Path | str, batch: int) -> Manifest:
    return _parse_manifest(_place(Path(state_dir) / "manifests", batch))


def latest_manifest(state_dir: Path | str) -> Manifest | None:
    """The newest manifest, None in a directory without any. It is durable, even if who wrote it died before that.

    A newest one that cannot be read is an error, never passed over: names appear by rename, so a torn file
    is damage, and going back a batch would repeat results that were given out.
    """
    batches = manifest_batches(state_dir)
    if not batches:
        return None
    sync_directory(Path(state_dir) / "manifests")
    return read_manifest(state_dir, batches[-1])


def manifest_batches(state_dir: Path | str) -> list[int]:
    """The batches whose manifests are kept, in order."""
    return _batches(Path(state_dir) / "manifests")


def write_intent(state_dir: Path | str, batch: int, intent: Mapping[str, Any]) -> Path:
    """Persist what a batch ran with, so that a repeat does the same."""
    return _write(Path(state_dir) / "intents", batch, dict(intent))


def read_intent(state_dir: Path | str, batch: int) -> dict[str, Any] | None:
    """The intent of a batch, durable; None where it never got as far."""
    path = _place(Path(state_dir) / "intents", batch)
    if not path.exists():
        return None
    sync_directory(path.parent)
    return _read(path)[1]


def _place(directory: Path, batch: int) -> Path:
    return directory / f"{batch:012d}.json"


def _batches(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.json") if path.stem.isdigit())


def _write(directory: Path, batch: int, value: dict[str, Any]) -> Path:
    body = json.dumps(value, separators=(",", ":")).encode()
    header = {"format": FORMAT, "crc": zlib.crc32(body), "length": len(body)}
    path = _place(make_directory(directory), batch)
    write_atomic(path, json.dumps(header).encode() + b"\n" + body + b"\n")
    _prune(directory, batch)
    return path


def prune(state_dir: Path | str) -> None:
    """Deletes again what a power cut has brought back."""
    for directory in (Path(state_dir) / "manifests", Path(state_dir) / "intents"):
        _prune(directory, max(_batches(directory), default=-1))


def _prune(directory: Path, newest: int) -> None:
    for batch in [b for b in _batches(directory) if b <= newest][:-_KEPT]:
        delete(_place(directory, batch))


def _parse_manifest(path: Path) -> Manifest:
    try:
        found_format, value = _read(path)
        return replace(Manifest.from_json(value), format=found_format)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise corrupt_file(path, "a manifest", f"{type(error).__name__}: {error}") from error


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    """The format and the body."""
    head, _, rest = read_bytes(path).partition(b"\n")
    try:
        header = json.loads(head)
        found_format, crc, length = header["format"], header["crc"], header["length"]
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt_file(path, "a header line", repr(head[:80])) from error
    if found_format not in READ:
        raise wrong_state_format(path, found_format, READ)
    body = rest[:-1]
    if len(body) != length or zlib.crc32(body) != crc:
        raise corrupt_file(
            path,
            f"{length} bytes with checksum {crc:08x}",
            f"{len(body)} bytes with checksum {zlib.crc32(body):08x}",
        )
    return int(found_format), json.loads(body)
