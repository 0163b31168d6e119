"""Static tables that streams are joined with: read whole when they are created or replaced, kept in the state.

    tables.json                     name -> schema and the version in force
    tables/<name>-<unique>.arrow    the rows of one version

A batch's intent names the versions it ran with, so a repeat sees the same rows once a sink may have seen results.
Versions that are not in force any more are deleted after the last batch that used them has happened.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from thalweg.errors import bad_table
from thalweg.model.bucket import Section
from thalweg.model.stream import Field, Schema
from thalweg.source.conform import conform
from thalweg.state.container import ContainerWriter, forget_file
from thalweg.state.durable import delete, is_temporary, make_directory, write_atomic

_VERSION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*-[0-9a-f]{12}\.arrow")


@dataclass(frozen=True)
class Table:
    name: str
    schema: Schema
    version: Section

    def to_json(self) -> dict[str, Any]:
        return {"schema": [[f.name, f.type] for f in self.schema.fields], "version": self.version.to_json()}

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Table:
        return cls(name, Schema(tuple(Field(*f) for f in value["schema"])), Section.from_json(value["version"]))


Tables = Mapping[str, Table]


def store_table(state_dir: Path, name: str, rows: pa.Table, schema: Schema) -> Table:
    """Writes a version. The table is what `save_tables` makes durable."""
    conformed = conform(rows, schema, schema.names)
    if conformed.rejected is not None and conformed.rejected.num_rows:
        reason = conformed.rejected.column("reason")[0].as_py()
        raise bad_table(name, f"{conformed.rejected.num_rows} rows do not fit its columns: {reason}", None)
    path = state_dir / "tables" / f"{name}-{secrets.token_hex(6)}.arrow"
    make_directory(path.parent)
    with ContainerWriter(path, root=state_dir) as writer:
        section = writer.add(name, conformed.table.combine_chunks())
        writer.close()
    return Table(name, schema, section)


def save_tables(state_dir: Path, tables: Tables) -> None:
    write_atomic(state_dir / "tables.json", json.dumps({t.name: t.to_json() for t in tables.values()}).encode())


def load_tables(state_dir: Path) -> dict[str, Table]:
    path = state_dir / "tables.json"
    if not path.exists():
        return {}
    return {name: Table.from_json(name, value) for name, value in json.loads(path.read_bytes()).items()}


def forget_versions(state_dir: Path, used: dict[str, Table], current: Tables) -> None:
    """Deletes, and takes out of `used`, what batches were joined with and is not in force any more."""
    named = {table.version.file for table in current.values()}
    for file in [file for file in list(used) if file not in named]:  # a copy: other threads add to it
        del used[file]
        forget_file(state_dir / file)
        delete(state_dir / file)


def clean_tables(state_dir: Path, current: Tables, pending: Mapping[str, Any]) -> None:
    """At the start: deletes what neither the catalog nor the batch that may be repeated names."""
    named = {table.version.file for table in current.values()} | {t["version"]["file"] for t in pending.values()}
    for path in (state_dir / "tables").glob("*"):
        is_ours = _VERSION.fullmatch(path.name) is not None or is_temporary(path)
        if is_ours and path.is_file() and path.relative_to(state_dir).as_posix() not in named:
            delete(path)
