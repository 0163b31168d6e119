"""The manifest: the one commit point of a batch. It is created exactly once, and what no manifest names does not
exist.

    manifests/000000000041     what batch 41 left: live buckets, watermarks, offsets, decisions, prepared results
    parts/<content>            its longer parts, named by their content: the list of queries, the history of slices,
                               what waits for sinks
    queries/<content>          the definition of a query, or those of all that came with one batch

A part that did not change is not written again, so a manifest costs what changed, not how many queries there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from thalweg.errors import corrupt_file, lost_manifest, missing_file
from thalweg.model.bucket import Bucket, RowBucket, SliceBucket
from thalweg.model.entry import Entry, Gap
from thalweg.model.history import History, RowHistory, SliceHistory, WantedRows
from thalweg.model.manifest import MANIFEST_FORMAT, Manifest, Prepared, ResultFile, StreamProgress
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.query import Query
from thalweg.state.migrate import read_old_manifest
from thalweg.state.sealed import seal, unseal
from thalweg.state.storage import Storage

T = TypeVar("T")
_KEPT = 2
_INLINE = 32
"""Of what earlier batches have left for sinks, so much is in the manifest itself."""
_BLOCK = 64
"""Batches whose leftovers are one part, once they are all over; those of the newest batches have one each."""


class _StoredManifest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
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
    """The part with the history of slices, by grouping."""
    held_from: dict[str, int] = {}
    """The history of rows: `held_from` by store,"""
    choices: dict[str, tuple[WantedRows, ...]] = {}
    """and what each has wanted."""
    measured: dict[str, msgspec.Raw] = {}
    results: tuple[ResultFile, ...] = ()
    undelivered: tuple[Prepared, ...] = ()
    """Those of this batch, and of earlier ones while they are few."""
    waiting: tuple[str, ...] = ()
    """The parts with the others, older batches first."""


class _StoredEntry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    query: str
    """The content of its definition, or of several."""
    state: str = "running"
    error: str | None = None
    created: int = 0
    fence: tuple[int, int] | None = None
    complete_from: int | None = None
    paused: str | None = None
    gap: Gap | None = None
    place: int | None = None
    """Of its definition, among several."""


class _Definition(NamedTuple):
    """Where the definition of a query is."""

    name: str
    place: int | None = None


class Manifests:
    """Those of one storage, for the session that writes them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._durable: set[str] = set()
        """Names of parts and definitions that are there."""
        self._named: dict[int, frozenset[str]] = {}
        """batch -> the parts and definitions that its manifest names."""
        self._definitions: dict[int, tuple[Query, _Definition]] = {}
        """By identity of the query: where it is in the storage."""
        self._backlog: dict[tuple[int, int], tuple[list[Prepared], str]] = {}
        """(block of batches, batch or -1 for the whole block) -> what waits for sinks, and the part that says so."""

    def newest(self) -> Manifest | None:
        """None in a place without any. One that cannot be read is an error, never passed over: going back a batch
        would repeat results that were given out."""
        batches = manifest_batches(self._storage)
        return self.read(batches[-1]) if batches else None

    def read(self, batch: int) -> Manifest:
        manifest, named, definitions = _read_manifest(self._storage, batch)
        self._definitions = {
            id(e.query): (e.query, definitions[id_]) for id_, e in manifest.queries.items() if definitions
        }
        self._named[batch] = named
        self._durable |= named
        return manifest

    def create(self, manifest: Manifest) -> None:
        """Commits a batch. Raises if another session has committed it, whose results then count."""
        entries = self._define({id_: entry.query for id_, entry in manifest.queries.items()})
        self._definitions = {id(e.query): (e.query, entries[id_]) for id_, e in manifest.queries.items()}
        queries = self._part("queries", [_stored_entry(e, entries[id_]) for id_, e in manifest.queries.items()])
        lanes = self._part("lanes", dict(manifest.history.slices))
        waiting, undelivered = self._waiting(manifest)
        self._named[manifest.batch] = frozenset({*(d.name for d in entries.values()), queries, lanes, *waiting})
        data = seal("manifest", _stored(manifest, queries, lanes, waiting, undelivered), MANIFEST_FORMAT)
        name = manifest_name(manifest.batch)
        if not self._storage.create(name, data) and self._storage.read(name) != data:
            raise lost_manifest(self._storage.locate(name), manifest.batch)

    def _waiting(self, manifest: Manifest) -> tuple[tuple[str, ...], tuple[Prepared, ...]]:
        """What sinks have not been given, as parts that change only where something is given, and the rest."""
        older = [p for p in manifest.undelivered if p.batch < manifest.batch]
        if len(older) <= _INLINE:
            self._backlog = {}
            return (), manifest.undelivered
        found: dict[tuple[int, int], list[Prepared]] = {}
        for p in older:
            is_recent = p.batch // _BLOCK == manifest.batch // _BLOCK
            found.setdefault((p.batch // _BLOCK, p.batch if is_recent else -1), []).append(p)
        before, self._backlog = self._backlog, {}
        for key, items in found.items():
            known = before.get(key)
            same = known is not None and known[0] == items
            self._backlog[key] = known if known is not None and same else (items, self._part("waiting", items))
        names = tuple(self._backlog[key][1] for key in sorted(found))
        return names, tuple(p for p in manifest.undelivered if p.batch == manifest.batch)

    def _define(self, queries: Mapping[str, Query]) -> dict[str, _Definition]:
        """Where the definition of each is. Those that are new are one object: it costs a sync, however many."""
        found = {id_: self._definitions.get(id(query)) for id_, query in queries.items()}
        known = {
            id_: there[1] for id_, there in found.items() if there is not None and there[1].name in self._durable
        }
        new = {id_: query for id_, query in queries.items() if id_ not in known}
        if len(new) == 1:
            defined = {id_: _Definition(self._keep("queries/", "query", query)) for id_, query in new.items()}
        else:
            name = self._keep("queries/", "definitions", list(new.values())) if new else ""
            defined = {id_: _Definition(name, place) for place, id_ in enumerate(new)}
        return {id_: known.get(id_) or defined[id_] for id_ in queries}

    def _part(self, kind: str, value: object) -> str:
        return self._keep("parts/", kind, value)

    def _keep(self, prefix: str, kind: str, value: object) -> str:
        data = seal(kind, value)
        name = prefix + _digest(data)
        if name not in self._durable:
            self._storage.create(name, data)
            self._durable.add(name)
        return name

    def prune(self) -> None:
        """Forgets manifests but the newest, and what only those named that are gone."""
        kept = self.forget_older()
        for batch in kept:
            if batch not in self._named:
                self.read(batch)
        named = frozenset[str]().union(*(self._named[batch] for batch in kept))
        unnamed = sorted(self._durable - named)
        self._durable &= named  # first: one that cannot be deleted must not keep others for durable that were
        for name in unnamed:
            self._storage.delete(name)

    def forget_older(self) -> list[int]:
        """Manifests that newer ones replaced, and that a power cut may have brought back. The batches that stay."""
        batches = manifest_batches(self._storage)
        for batch in batches[:-_KEPT]:
            self._storage.delete(manifest_name(batch))
            self._named.pop(batch, None)
        return batches[-_KEPT:]

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
    return _read_manifest(storage, batch)[:2]


def _read_manifest(storage: Storage, batch: int) -> tuple[Manifest, frozenset[str], dict[str, _Definition]]:
    """The same, and where the definitions of its queries are."""
    name = manifest_name(batch)
    data = storage.find(name)
    if data is None:
        return read_old_manifest(storage, batch), frozenset(), {}
    stored = unseal(storage.locate(name), "manifest", data, _StoredManifest)
    if stored.batch != batch:
        raise corrupt_file(storage.locate(name), f"the manifest of batch {batch}", f"that of batch {stored.batch}")
    entries = _read_content(storage, stored.queries, "queries", list[_StoredEntry])
    if len(entries) != len(stored.emitted):
        raise corrupt_file(storage.locate(name), f"counts of {len(entries)} queries", f"{len(stored.emitted)}")
    several = {e.query for e in entries if e.place is not None}
    listed = {name: _read_content(storage, name, "definitions", list[Query]) for name in sorted(several)}
    queries = {e.id: _entry(storage, e, n, listed) for e, n in zip(entries, stored.emitted, strict=True)}
    named = frozenset({stored.queries, stored.lanes, *stored.waiting, *(e.query for e in entries)})
    definitions = {e.id: _Definition(e.query, e.place) for e in entries}
    return _manifest(storage, stored, queries), named, definitions


def _read_content(storage: Storage, name: str, kind: str, value: type[T]) -> T:
    """What is named by its content, and is that."""
    place, data = storage.locate(name), storage.find(name)
    if data is None:
        raise missing_file(place)
    found = unseal(place, kind, data, value)
    if not name.endswith(_digest(data)):
        raise corrupt_file(place, "what it is named by", f"{_digest(data)}, another {kind}")
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _entry(storage: Storage, stored: _StoredEntry, emitted: int, listed: Mapping[str, list[Query]]) -> Entry:
    """`listed`: definitions that are several in one object."""
    e = stored
    query = read_query(storage, e.query) if e.place is None else _in_place(storage, e.query, e.place, listed[e.query])
    return Entry(e.id, query, e.state, e.error, e.created, e.fence, emitted, e.complete_from, e.paused, e.gap)


def _in_place(storage: Storage, name: str, place: int, queries: list[Query]) -> Query:
    if not 0 <= place < len(queries):
        raise corrupt_file(storage.locate(name), f"more than {place} definitions", f"{len(queries)}")
    return queries[place]


def read_query(storage: Storage, name: str) -> Query:
    return _read_content(storage, name, "query", Query)


def _manifest(storage: Storage, stored: _StoredManifest, queries: Mapping[str, Entry]) -> Manifest:
    older = [p for name in stored.waiting for p in _read_content(storage, name, "waiting", list[Prepared])]
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
        history=History(
            _read_content(storage, stored.lanes, "lanes", dict[str, SliceHistory]),
            {name: RowHistory(us, stored.choices.get(name)) for name, us in stored.held_from.items()},
        ),
        measured=_measurements(stored.measured),
        results=stored.results,
        undelivered=(*older, *stored.undelivered),
    )


def _stored(
    manifest: Manifest, queries: str, lanes: str, waiting: tuple[str, ...], undelivered: tuple[Prepared, ...]
) -> _StoredManifest:
    return _StoredManifest(
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
        held_from={name: of.held_from for name, of in manifest.history.rows.items()},
        choices={name: of.wanted for name, of in manifest.history.rows.items() if of.wanted is not None},
        measured={name: msgspec.Raw(msgspec.json.encode(part)) for name, part in _sections(manifest.measured)},
        results=manifest.results,
        undelivered=undelivered,
        waiting=waiting,
    )


def _stored_entry(entry: Entry, at: _Definition) -> _StoredEntry:
    e = entry
    return _StoredEntry(
        e.id, at.name, e.state, e.error, e.created, e.fence, e.complete_from, e.paused, e.gap, at.place
    )


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
