"""Static tables that streams are joined with: read whole when they are created or replaced, kept in the state.

    tables.json                     name -> schema, the version in force and the one before
    tables/<name>-<unique>.arrow    the rows of one version

A batch's intent names the versions it runs with, so a repeat of it sees the same rows. The version before the one
in force is kept for that; older ones are deleted.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from thalweg.errors import bad_table
from thalweg.ingest.conform import conform
from thalweg.ingest.schema import as_schema
from thalweg.model.stream import Field, Schema
from thalweg.state.container import ContainerWriter, Section, forget_file
from thalweg.state.durable import write_atomic

FORMATS = ("parquet", "csv", "json", "orc")


@dataclass(frozen=True)
class Table:
    name: str
    schema: Schema
    version: Section
    before: Section | None = None


Tables = Mapping[str, Table]


def read_rows(spark: SparkSession, name: str, source: Any, schema: Schema | None, kind: str | None) -> pa.Table:
    """The rows of a DataFrame, an Arrow table or a file, as Arrow."""
    if isinstance(source, DataFrame):
        if source.isStreaming:
            raise bad_table(name, "it is a streaming DataFrame", "create a stream from it")
        return source.toArrow()
    if isinstance(source, pa.Table):
        return source
    if not isinstance(source, str | Path) or not str(source):
        raise bad_table(name, f"{source!r} is not a DataFrame, an Arrow table or a path", None)
    kind = kind or Path(str(source)).suffix.lstrip(".") or "parquet"
    if kind not in FORMATS:
        raise bad_table(name, f"{kind!r} is not one of {', '.join(FORMATS)}", "say format = '...'")
    reader = spark.read.format(kind)
    if schema is not None:
        reader = reader.schema(", ".join(f"`{f.name}` {f.type}" for f in schema.fields))
    elif kind == "csv":
        reader = reader.option("inferSchema", "true")
    if kind == "csv":
        reader = reader.option("header", "true")
    try:
        return reader.load(str(source)).toArrow()
    except PySparkException as error:
        raise bad_table(name, f"{source} cannot be read as {kind}: {str(error).splitlines()[0]}", None) from None


def store_table(state_dir: Path, name: str, rows: pa.Table, schema: Schema | None, known: Table | None) -> Table:
    """Writes a version. The table is what `save_tables` makes durable."""
    schema = schema or as_schema(rows.schema)
    conformed = conform(rows, schema, schema.names)
    if conformed.rejected is not None and conformed.rejected.num_rows:
        reason = conformed.rejected.column("reason")[0].as_py()
        raise bad_table(name, f"{conformed.rejected.num_rows} rows do not fit its columns: {reason}", None)
    path = state_dir / "tables" / f"{name}-{secrets.token_hex(6)}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    with ContainerWriter(path, root=state_dir) as writer:
        section = writer.add(name, conformed.table.combine_chunks())
        writer.close()
    return Table(name, schema, section, None if known is None else known.version)


def save_tables(state_dir: Path, tables: Tables) -> None:
    value = {
        t.name: {
            "schema": [[f.name, f.type] for f in t.schema.fields],
            "version": t.version.to_json(),
            "before": None if t.before is None else t.before.to_json(),
        }
        for t in tables.values()
    }
    write_atomic(state_dir / "tables.json", json.dumps(value).encode())
    named = {s.file for t in tables.values() for s in (t.version, t.before) if s is not None}
    for path in (state_dir / "tables").glob("*.arrow"):
        if path.relative_to(state_dir).as_posix() not in named:
            forget_file(path)
            path.unlink(missing_ok=True)


def load_tables(state_dir: Path) -> dict[str, Table]:
    path = state_dir / "tables.json"
    if not path.exists():
        return {}
    return {
        name: Table(
            name,
            Schema(tuple(Field(*f) for f in t["schema"])),
            Section.from_json(t["version"]),
            None if t["before"] is None else Section.from_json(t["before"]),
        )
        for name, t in json.loads(path.read_bytes()).items()
    }
