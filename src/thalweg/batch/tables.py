"""Static tables that streams are joined with: read whole when they are created or replaced, kept in the state.

A batch keeps the versions that it began with. One that is not in force any more is deleted after the last batch that
used it has happened."""

from __future__ import annotations

import re
import secrets

import pyarrow as pa

from thalweg.errors import bad_table
from thalweg.model.stream import Schema
from thalweg.source.conform import conform, match_names
from thalweg.state.catalog import Origin, Table, Tables
from thalweg.state.container import ContainerWriter, delete_container
from thalweg.state.storage import Storage

_VERSION = re.compile(r"tables/[A-Za-z_][A-Za-z0-9_]*-[0-9a-f]{12}\.arrow")


def store_table(storage: Storage, name: str, rows: pa.Table, schema: Schema, origin: Origin | None = None) -> Table:
    """Writes a version. The table is what `save_tables` makes durable."""
    fitted = fitting(name, rows, schema)
    with ContainerWriter(storage, f"tables/{name}-{secrets.token_hex(6)}.arrow") as writer:
        section = writer.add(name, fitted.combine_chunks())
        writer.close()
    return Table(name, schema, section, origin)


def fitting(name: str, rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows in the types of their columns; refused where one does not fit."""
    if missing := [column for column in schema.names if column not in match_names(rows.column_names, schema.names)]:
        raise bad_table(name, f"there is no column {', '.join(missing)} in what it is read from", None)
    conformed = conform(rows, schema, schema.names)
    if conformed.rejected is not None and conformed.rejected.num_rows:
        reason = conformed.rejected.column("reason")[0].as_py()
        raise bad_table(name, f"{conformed.rejected.num_rows} rows do not fit its columns: {reason}", None)
    return conformed.table


def forget_versions(storage: Storage, used: dict[str, Table], current: Tables) -> None:
    """Deletes, and takes out of `used`, what batches were joined with and is not in force any more."""
    named = {table.version.file for table in current.values()}
    for file in [file for file in list(used) if file not in named]:  # a copy: other threads add to it
        del used[file]
        delete_container(storage, file)


def clean_tables(storage: Storage, current: Tables, pending: Tables) -> None:
    """At the start: deletes what neither the catalog nor the batch that is repeated names."""
    named = {table.version.file for table in (*current.values(), *pending.values())}
    for name in storage.names("tables/"):
        if _VERSION.fullmatch(name) is not None and name not in named:
            delete_container(storage, name)
