"""Results as files: one per batch in a directory that readers may list at any time.

    part-000000000041.parquet     the results of batch 41, whole
    .thalweg-owner.json           which query of which pipeline writes here

A file gets its name when it is complete, and a repeated batch replaces it by the same content.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from thalweg.errors import SinkError, failed_sink, sink_directory_taken, unwritable_column, unwritable_sink
from thalweg.model.query import SinkSpec
from thalweg.sink.base import SinkContext
from thalweg.sink.text import csv_lines, flatten_structs, json_lines
from thalweg.state.durable import make_directories, write_atomic

_OWNER = ".thalweg-owner.json"


class FilesSink:
    kind = "files"

    def __init__(self, context: SinkContext, path: Path, file_format: str, header: bool = True) -> None:
        self._query = context.query
        self._path = path
        self._format = file_format
        self._header = header
        try:
            make_directories(path)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(f"no permission to write into {path}")
            self._claim(context)
        except OSError as error:
            raise unwritable_sink(self._query, path, error) from error

    @classmethod
    def open(cls, spec: SinkSpec, context: SinkContext) -> FilesSink:
        options = dict(spec.options)
        return cls(context, Path(options["path"]), options["format"], options.get("header", True))

    def commit(self, batch_id: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        data = self._encode(table)
        place = self._path / f"part-{batch_id:012d}.{self._format}"
        try:
            write_atomic(place, data)
        except OSError as error:
            raise failed_sink(self._query, place, error) from error

    def _encode(self, table: pa.Table) -> bytes | memoryview:
        if self._format == "parquet":
            buffer = io.BytesIO()
            pq.write_table(table, buffer)
            return buffer.getbuffer()
        try:
            return json_lines(table) if self._format == "json" else csv_lines(table, self._header)
        except TypeError as error:
            raise self._unwritable(table, error) from error

    def _unwritable(self, table: pa.Table, error: TypeError) -> SinkError:
        """Names the column whose type the text form refused."""
        for field in flatten_structs(table.slice(0, 0)).schema:
            if str(field.type) == str(error):
                return unwritable_column(self._query, field.name, field.type, self._format)
        return failed_sink(self._query, self._path, error)

    def _claim(self, context: SinkContext) -> None:
        """Files are named by batch id alone, so a directory belongs to one query of one pipeline."""
        marker = self._path / _OWNER
        claim = {"query": context.query, "owner": context.owner}
        try:
            found = json.loads(marker.read_bytes())
        except FileNotFoundError:
            write_atomic(marker, json.dumps(claim).encode())
            return
        except ValueError:
            found = {}
        if found == {**claim, "owner": context.place}:
            write_atomic(marker, json.dumps(claim).encode())
        elif found != claim:
            query = found.get("query", "another query") if isinstance(found, dict) else "another query"
            raise sink_directory_taken(context.query, self._path, f"query {query}")
