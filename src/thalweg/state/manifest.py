"""The manifest: the one commit point of a batch. It is created exactly once, and what no manifest names does not
exist.

    manifests/000000000041     what batch 41 left: live buckets, watermarks, offsets, decisions, prepared results
    parts/<content>            its longer parts, named by their content: the list of queries, the history of slices
    queries/<content>          the definition of a query

A part that did not change is not written again, so a manifest costs what changed, not how many queries there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from thalweg.errors import corrupt_file, lost_manifest
from thalweg.model.bucket import Bucket, RowBucket, SliceBucket
from thalweg.model.entry import Entry
from thalweg.model.history import RowHistory, SliceHistory
from thalweg.model.manifest import Manifest, Prepared, ResultFile, StreamProgress
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.query import Query, query_from_json
from thalweg.state.migrate import read_old_manifest
from thalweg.state.sealed import read_value, seal, unseal
from thalweg.state.storage import Storage

_KEPT = 2


class _Stored(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A manifest as it is written."""

    batch: int
    groups: int
    hash: str
    timeline: str
    term: int
    clock_us: int
    reached: Offsets
    marks: dict[str, SourceMark] = {}
    through: int = 0
    closed: dict[str, int] = {}
    streams: dict[str, StreamProgress] = {}
    buckets: tuple[Bucket, ...] = ()
    queries: str
    """The part with the entries."""
    emitted: tuple[int, ...] = ()
    """Of each entry, in the order of the part."""
    lanes: str
    held_from: dict[str, int] = {}
    choices: dict[str, tuple[RowHistory, ...]] | None = None
    measured: dict[str, msgspec.Raw] = {}
    results: tuple[ResultFile, ...] = ()
    undelivered: tuple[Prepared, ...] = ()


class _StoredEntry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    query: str
    """The content of its definition."""
    state: str = "running"
    error: str | None = None
    created: int = 0
    fence: tuple[int, int] | None = None
    complete_from: int | None = None


class Manifests:
    """Those of one storage, for the session that writes them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._durable: set[str] = set()
        """Names of parts and definitions that are there."""
        self._named: dict[int, frozenset[str]] = {}
        """batch -> the parts and definitions that its manifest names."""
        self._definitions: dict[int, tuple[Query, str]] = {}
        """By identity of the query: what it is called in the storage."""

    def newest(self) -> Manifest | None:
        """None in a place without any. One that cannot be read is an error, never passed over: going back a batch
        would repeat results that were given out."""
        batches = manifest_batches(self._storage)
        return self.read(batches[-1]) if batches else None

    def read(self, batch: int) -> Manifest:
        manifest, named = read_manifest(self._storage, batch)
        self._named[batch] = named
        self._durable |= named
        return manifest

    def create(self, manifest: Manifest) -> None:
        """Commits a batch. Raises if another session has committed it, whose results then count."""
        entries = {id_: self._definition(entry.query) for id_, entry in manifest.queries.items()}
        self._definitions = {id(e.query): (e.query, entries[id_]) for id_, e in manifest.queries.items()}
        queries = self._part("queries", [_stored_entry(e, entries[id_]) for id_, e in manifest.queries.items()])
        lanes = self._part("lanes", dict(manifest.lanes))
        self._named[manifest.batch] = frozenset({*entries.values(), queries, lanes})
        data = seal("manifest", _stored(manifest, queries, lanes))
        name = manifest_name(manifest.batch)
        if not self._storage.create(name, data) and self._storage.read(name) != data:
            raise lost_manifest(self._storage.locate(name), manifest.batch)

    def _definition(self, query: Query) -> str:
        known = self._definitions.get(id(query))
        if known is not None and known[1] in self._durable:
            return known[1]
        return self._keep("queries/", "query", query.json)

    def _part(self, kind: str, value: object) -> str:
        return self._keep("parts/", kind, value)

    def _keep(self, prefix: str, kind: str, value: object) -> str:
        data = seal(kind, value)
        name = prefix + hashlib.blake2b(data, digest_size=16).hexdigest()
        if name not in self._durable:
            self._storage.create(name, data)
            self._durable.add(name)
        return name

    def prune(self) -> None:
        """Forgets manifests but the newest, and what only those named that are gone."""
        batches = manifest_batches(self._storage)
        for batch in batches[:-_KEPT]:
            self._storage.delete(manifest_name(batch))
            self._named.pop(batch, None)
        for batch in batches[-_KEPT:]:
            if batch not in self._named:
                self.read(batch)
        named = frozenset[str]().union(*(self._named[batch] for batch in batches[-_KEPT:]))
        unnamed = sorted(self._durable - named)
        self._durable &= named  # first: one that cannot be deleted must not keep others for durable that were
        for name in unnamed:
            self._storage.delete(name)

    def sweep(self) -> None:
        """At the start: parts and definitions that no manifest came to name."""
        self._durable |= {*self._storage.names("parts/"), *self._storage.names("queries/")}
        self.prune()


def manifest_name(batch: int) -> str:
    return f"manifests/{batch:012d}"


def manifest_batches(storage: Storage) -> list[int]:
    """The batches whose manifests are kept, in order. Earlier releases gave the names a suffix."""
    found = (name.rpartition("/")[2].partition(".")[0] for name in storage.names("manifests/"))
    return sorted({int(number) for number in found if number.isdigit()})


def latest_manifest(storage: Storage) -> Manifest | None:
    """For who only looks."""
    return Manifests(storage).newest()


def read_manifest(storage: Storage, batch: int) -> tuple[Manifest, frozenset[str]]:
    """The manifest, and the parts and definitions that it names."""
    name = manifest_name(batch)
    data = storage.find(name)
    if data is None:
        return read_old_manifest(storage, batch), frozenset()
    stored = unseal(storage.locate(name), "manifest", data, _Stored)
    entries = read_value(storage, stored.queries, "queries", list[_StoredEntry])
    if len(entries) != len(stored.emitted):
        raise corrupt_file(storage.locate(name), f"counts of {len(entries)} queries", f"{len(stored.emitted)}")
    queries = {e.id: _entry(storage, e, n) for e, n in zip(entries, stored.emitted, strict=True)}
    named = frozenset({stored.queries, stored.lanes, *(e.query for e in entries)})
    return _manifest(storage, stored, queries), named


def _entry(storage: Storage, stored: _StoredEntry, emitted: int) -> Entry:
    query = read_query(storage, stored.query)
    e = stored
    return Entry(e.id, query, e.state, e.error, e.created, e.fence, emitted, e.complete_from)


def read_query(storage: Storage, name: str) -> Query:
    value = read_value(storage, name, "query", dict[str, Any])
    try:
        return query_from_json(value)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise corrupt_file(storage.locate(name), "a query", f"{type(error).__name__}: {error}") from error


def _manifest(storage: Storage, stored: _Stored, queries: Mapping[str, Entry]) -> Manifest:
    return Manifest(
        batch=stored.batch,
        groups=stored.groups,
        hash=stored.hash,
        timeline=stored.timeline,
        term=stored.term,
        clock_us=stored.clock_us,
        reached=stored.reached,
        marks=stored.marks,
        through=stored.through,
        closed=stored.closed,
        streams=stored.streams,
        buckets=tuple(b for b in stored.buckets if isinstance(b, SliceBucket)),
        stores=tuple(b for b in stored.buckets if isinstance(b, RowBucket)),
        queries=queries,
        lanes=read_value(storage, stored.lanes, "lanes", dict[str, SliceHistory]),
        held_from=stored.held_from,
        choices=stored.choices,
        measured=_measurements(stored.measured),
        results=stored.results,
        undelivered=stored.undelivered,
    )


def _stored(manifest: Manifest, queries: str, lanes: str) -> _Stored:
    return _Stored(
        batch=manifest.batch,
        groups=manifest.groups,
        hash=manifest.hash,
        timeline=manifest.timeline,
        term=manifest.term,
        clock_us=manifest.clock_us,
        reached=manifest.reached,
        marks=dict(manifest.marks),
        through=manifest.through,
        closed=dict(manifest.closed),
        streams=dict(manifest.streams),
        buckets=(*manifest.buckets, *manifest.stores),
        queries=queries,
        emitted=tuple(entry.emitted for entry in manifest.queries.values()),
        lanes=lanes,
        held_from=dict(manifest.held_from),
        choices=None if manifest.choices is None else dict(manifest.choices),
        measured={name: msgspec.Raw(msgspec.json.encode(part)) for name, part in _sections(manifest.measured)},
        results=manifest.results,
        undelivered=manifest.undelivered,
    )


def _stored_entry(entry: Entry, definition: str) -> _StoredEntry:
    e = entry
    return _StoredEntry(e.id, definition, e.state, e.error, e.created, e.fence, e.complete_from)


def _sections(measured: Measurements) -> list[tuple[str, Any]]:
    return [(name, getattr(measured, name)) for name in Measurements.__struct_fields__]


def _measurements(stored: Mapping[str, msgspec.Raw]) -> Measurements:
    """A section that this release does not know, or not in this form, begins anew."""
    found = {}
    for name, empty in _sections(Measurements()):
        try:
            section = msgspec.json.decode(stored[name], type=type(empty)) if name in stored else empty
        except msgspec.DecodeError:
            section = empty
        found[name] = section if section.version == empty.version else empty
    return Measurements(**found)
