"""The streams and tables that a state knows by name.

catalog.json                    streams
tables.json                     tables: schema, and the version of the rows in force
tables/<name>-<unique>.arrow    the rows of one version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from thalweg.errors import missing_file
from thalweg.model.bucket import Section
from thalweg.model.manifest import Manifest
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.state.migrate import find_old_json, old_schema, old_section
from thalweg.state.sealed import is_sealed, unseal, write_value
from thalweg.state.storage import Storage

T = TypeVar("T")
_STREAMS, _TABLES = "catalog.json", "tables.json"


@dataclass(frozen=True, repr=False)
class Table:
    """A static table that streams can be joined with."""

    name: str
    schema: Schema
    version: Section

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema.fields)
        return f"<table {self.name} ({columns}), {self.version.rows:,} rows>"


Tables = Mapping[str, Table]


def save_streams(storage: Storage, streams: Mapping[str, Stream]) -> None:
    write_value(storage, _STREAMS, "catalog", list(streams.values()))


def load_streams(storage: Storage) -> dict[str, Stream]:
    return {s.name: s for s in _load(storage, _STREAMS, "catalog", list[Stream], _old_streams) or ()}


def save_tables(storage: Storage, tables: Tables) -> None:
    write_value(storage, _TABLES, "tables", list(tables.values()))


def load_tables(storage: Storage) -> dict[str, Table]:
    return {t.name: t for t in _load(storage, _TABLES, "tables", list[Table], _old_tables) or ()}


def check_catalog(storage: Storage, manifest: Manifest, streams: Mapping[str, Stream], tables: Tables) -> None:
    """What queries read must be there."""
    joins = [entry.query.join for entry in manifest.queries.values()]
    read = {stream for entry in manifest.queries.values() for stream in entry.query.streams}
    if not read <= {*streams}:
        raise missing_file(storage.locate(_STREAMS))
    if not {t.table for join in joins if join is not None for t in join.tables} <= {*tables}:
        raise missing_file(storage.locate(_TABLES))


def _load(storage: Storage, name: str, kind: str, value: type[T], old: Any) -> T | None:
    data = storage.find(name)
    if data is None:
        return None
    if is_sealed(data):
        return unseal(storage.locate(name), kind, data, value)
    found: T | None = find_old_json(storage, name, old)
    return found


def _old_streams(value: Mapping[str, Any]) -> list[Stream]:
    return [
        Stream(
            name=s["name"],
            schema=old_schema(s["schema"]),
            time=s["time"],
            delay_us=s["delay_us"],
            source=SourceSpec(s["source"]["kind"], s["source"]["options"]),
        )
        for s in value["streams"]
    ]


def _old_tables(value: Mapping[str, Any]) -> list[Table]:
    return [Table(name, old_schema(t["schema"]), old_section(t["version"])) for name, t in value.items()]
