"""Static tables that streams are joined with: read whole when they are created or replaced, kept in the state.

    tables.json                     name -> schema and the version in force
    tables/<name>-<unique>.arrow    the rows of one version

A batch's intent names the versions it ran with, so a repeat sees the same rows once a sink may have seen results.
Versions that are not in force any more are deleted after the last batch that used them has happened.
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
from thalweg.model.stream import Field, Schema
from thalweg.state.container import ContainerWriter, Section, forget_file
from thalweg.state.durable import write_atomic

FORMATS = ("parquet", "csv", "json", "orc")


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


def read_rows(spark: SparkSession, name: str, source: Any, schema: Schema | None, kind: str | None) -> pa.Table:
    """The rows of a DataFrame, an Arrow table or a file, as Arrow."""
    if isinstance(source, DataFrame):
        if source.isStreaming:
            raise bad_table(name, "it is a streaming DataFrame", "create a stream from it")
        try:
            return source.toArrow()
        except PySparkException as error:
            raise bad_table(name, f"its DataFrame cannot be read: {str(error).splitlines()[0]}", None) from None
    if isinstance(source, pa.Table):
        return source
    if not isinstance(source, str | Path) or not str(source):
        raise bad_table(name, f"{source!r} is not a DataFrame, an Arrow table or a path", None)
    kind = kind or Path(str(source)).suffix.lstrip(".") or "parquet"
    if kind not in FORMATS:
        raise bad_table(name, f"{kind!r} is not one of {', '.join(FORMATS)}", "say format = '...'")
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", str(schema is None).lower())
    try:
        if schema is not None:
            reader = reader.schema(", ".join(f"`{f.name}` {f.type}" for f in schema.fields))
        return reader.load(str(source)).toArrow()
    except PySparkException as error:
        raise bad_table(name, f"{source} cannot be read as {kind}: {str(error).splitlines()[0]}", None) from None


def store_table(state_dir: Path, name: str, rows: pa.Table, schema: Schema) -> Table:
    """Writes a version. The table is what `save_tables` makes durable."""
    conformed = conform(rows, schema, schema.names)
    if conformed.rejected is not None and conformed.rejected.num_rows:
        reason = conformed.rejected.column("reason")[0].as_py()
        raise bad_table(name, f"{conformed.rejected.num_rows} rows do not fit its columns: {reason}", None)
    path = state_dir / "tables" / f"{name}-{secrets.token_hex(6)}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
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
    for file in [file for file in used if file not in named]:
        del used[file]
        forget_file(state_dir / file)
        (state_dir / file).unlink(missing_ok=True)


def clean_tables(state_dir: Path, current: Tables, pending: Mapping[str, Any]) -> None:
    """At the start: deletes what neither the catalog nor the batch that may be repeated names."""
    named = {table.version.file for table in current.values()} | {t["version"]["file"] for t in pending.values()}
    for path in (state_dir / "tables").glob("*"):
        if path.relative_to(state_dir).as_posix() not in named:
            path.unlink(missing_ok=True)
