"""The streams and tables that a state knows by name.

catalog.json                    streams
tables.json                     tables: schema, and the version of the rows in force
tables/<name>-<unique>.arrow    the rows of one version
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from thalweg.errors import missing_file
from thalweg.model.bucket import Section
from thalweg.model.manifest import Manifest
from thalweg.model.stream import Schema, Stream
from thalweg.state.migrate import find_old_streams, find_old_tables
from thalweg.state.sealed import is_sealed, unseal, write_value
from thalweg.state.storage import Storage

T = TypeVar("T")
_STREAMS, _TABLES = "catalog.json", "tables.json"


@dataclass(frozen=True)
class Origin:
    """The file that a table was read from."""

    path: str
    format: str = ""
    """As it was given; empty: what the path says."""

    @classmethod
    def of(cls, source: object, format: str | None) -> Origin | None:
        return cls(os.fspath(source), format or "") if isinstance(source, str | os.PathLike) else None


@dataclass(frozen=True, repr=False)
class Table:
    """A static table that streams can be joined with."""

    name: str
    schema: Schema
    version: Section
    origin: Origin | None = None
    """None: the program has given its rows, or an earlier release has not kept it."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema.fields)
        return f"<table {self.name} ({columns}), {self.version.rows:,} rows>"


Tables = Mapping[str, Table]


def save_streams(storage: Storage, streams: Mapping[str, Stream]) -> None:
    write_value(storage, _STREAMS, "catalog", list(streams.values()))


def load_streams(storage: Storage) -> dict[str, Stream]:
    found = _load(storage, _STREAMS, "catalog", list[Stream], lambda: find_old_streams(storage, _STREAMS))
    return {stream.name: stream for stream in found or ()}


def save_tables(storage: Storage, tables: Tables) -> None:
    write_value(storage, _TABLES, "tables", list(tables.values()))


def load_tables(storage: Storage) -> dict[str, Table]:
    return {t.name: t for t in _load(storage, _TABLES, "tables", list[Table], lambda: _old_tables(storage)) or ()}


def check_catalog(storage: Storage, manifest: Manifest, streams: Mapping[str, Stream], tables: Tables) -> None:
    """What queries read must be there."""
    joins = [entry.query.join for entry in manifest.queries.values()]
    read = {stream for entry in manifest.queries.values() for stream in entry.query.streams}
    if not read <= {*streams}:
        raise missing_file(storage.locate(_STREAMS))
    if not {t.table for join in joins if join is not None for t in join.tables} <= {*tables}:
        raise missing_file(storage.locate(_TABLES))


def _load(storage: Storage, name: str, kind: str, of: type[T], old: Callable[[], T | None]) -> T | None:
    data = storage.find(name)
    if data is None:
        return None
    return unseal(storage.locate(name), kind, data, of) if is_sealed(data) else old()


def _old_tables(storage: Storage) -> list[Table] | None:
    found = find_old_tables(storage, _TABLES)
    return None if found is None else [Table(name, schema, version) for name, (schema, version) in found.items()]
