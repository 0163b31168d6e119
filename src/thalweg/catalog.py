"""What a session knows by name: streams, tables and queries, as one value that is replaced as a whole."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from thalweg import errors
from thalweg.handle import QueryHandle
from thalweg.model.manifest import Manifest
from thalweg.model.stream import Stream
from thalweg.state.catalog import Table, check_catalog, load_streams, load_tables, save_streams
from thalweg.state.requests import RequestLog, StreamRequest
from thalweg.state.storage import Storage
from thalweg.state.stream_changes import note_drop, streams_through

V = TypeVar("V")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Catalog:
    """Whoever holds one sees no change of it: a verb makes another, and puts it in its place."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    queries: Mapping[str, QueryHandle] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    """Name of a query in small letters -> as it is written."""
    restored: frozenset[str] = frozenset()
    """Streams and tables that the state holds and the program has not named again yet."""

    # -- by name

    def stream(self, name: str) -> Stream:
        return _found("stream", name, self.streams)

    def table(self, name: str) -> Table:
        return _found("table", name, self.tables)

    def query(self, name: str) -> QueryHandle:
        return _found("query", name, self.queries)

    def check_case(self, query: str) -> None:
        """Of a query that is new: SQL's SELECT does not tell names by case."""
        name = self.spelled.get(query.lower(), query)
        if name != query:
            raise errors.name_differs_by_case("query", name)

    def readers_of(self, stream: str) -> tuple[str, ...]:
        """The queries that read it."""
        return tuple(sorted(name for name, h in self.queries.items() if stream in h.definition.streams))

    def joined_with(self, table: str) -> tuple[str, ...]:
        """The queries that join rows with it."""
        joins = ((name, h.definition.join) for name, h in self.queries.items())
        return tuple(sorted(n for n, join in joins if join and any(t.table == table for t in join.tables)))

    # -- another one

    def with_stream(self, stream: Stream) -> Catalog:
        streams = {**self.streams, stream.name: stream}
        return replace(self, streams=streams, restored=self.restored - {stream.name})

    def with_altered(self, stream: Stream) -> Catalog:
        """Still to be named by the program, if it was before."""
        return replace(self, streams={**self.streams, stream.name: stream})

    def without_stream(self, name: str) -> Catalog:
        return replace(self, streams=_without(self.streams, name), restored=self.restored - {name})

    def with_table(self, table: Table) -> Catalog:
        return replace(self, tables={**self.tables, table.name: table}, restored=self.restored - {table.name})

    def without_table(self, name: str) -> Catalog:
        return replace(self, tables=_without(self.tables, name), restored=self.restored - {name})

    def with_queries(self, handles: Iterable[QueryHandle]) -> Catalog:
        more = {h.name: h for h in handles}
        spelled = {**self.spelled, **{name.lower(): name for name in more}}
        return replace(self, queries={**self.queries, **more}, spelled=spelled)

    def without_query(self, name: str) -> Catalog:
        queries = _without(self.queries, name)
        # Anew: states of earlier releases may hold others that differ by case.
        return replace(self, queries=queries, spelled={other.lower(): other for other in queries})


def load_catalog(storage: Storage, newest: Manifest | None, requests: RequestLog) -> Catalog:
    """Streams and tables, as a state holds them. Its queries are in its manifest and its requests."""
    through = 0 if newest is None else newest.through
    saved, tables, waiting = load_streams(storage), load_tables(storage), requests.read_after(through)
    streams = streams_through(saved, waiting, requests.last)
    if streams != saved:  # a crash came between the request and the catalog
        save_streams(storage, streams)
        for number, request in waiting:
            if isinstance(request, StreamRequest) and request.is_drop:
                note_drop(storage, request.name, number)
    if newest is not None:
        check_catalog(storage, newest, streams_through(streams, waiting, through), tables)
    return Catalog(streams, tables, restored=frozenset({*streams, *tables}))


def check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise errors.bad_name(kind, name)


def _found(kind: str, name: str, known: Mapping[str, V]) -> V:
    if name not in known:
        raise errors.unknown_name(kind, name, difflib.get_close_matches(name, list(known), n=3), known)
    return known[name]


def _without(known: Mapping[str, V], name: str) -> dict[str, V]:
    return {other: value for other, value in known.items() if other != name}
