"""Results as files: one per batch in a directory that readers may list at any time.

.part-000000000041-<unique>.parquet     the results of batch 41, prepared
part-000000000041.parquet               committed
.thalweg-owner.json                     which query of which pipeline writes here, and its newest batch
"""

from __future__ import annotations

import io
import os
import re
import secrets
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from thalweg.errors import (
    SinkError,
    failed_sink,
    sink_ahead,
    sink_directory_taken,
    sink_of_a_copy,
    unwritable_column,
    unwritable_sink,
)
from thalweg.model.query import SinkSpec
from thalweg.sink.base import SinkContext
from thalweg.sink.text import csv_lines, flatten_structs, json_lines
from thalweg.state.durable import delete, is_temporary, make_directories, publish, write_atomic

_OWNER = ".thalweg-owner.json"
_PART = re.compile(r"part-(\d{12,})\.[a-z]+")
_HIDDEN = re.compile(r"\.part-\d{12,}-[0-9a-f]{12}\.[a-z]+")
_OURS = (".part-", "..part-", f".{_OWNER}.")
"""How names begin that a crash may leave: results that were prepared, and temporaries of all that is written."""


class Owner(Struct, frozen=True):
    """Who writes into a directory."""

    query: str
    owner: str
    """The timeline of the state; up to the first releases, its path."""
    batch: int = -1
    """The newest batch that was committed."""
    term: str = ""
    """The session that committed it."""


class FilesSink:
    kind = "files"

    def __init__(self, context: SinkContext, path: Path, file_format: str, header: bool = True) -> None:
        self._context = context
        self._query = context.query
        self._path = path
        self._format = file_format
        self._header = header
        self._is_mine = False
        """Whether this session has committed here."""
        self._is_swept = False
        self._waiting = ""
        """What was prepared last and is not committed."""
        try:
            make_directories(path)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(f"no permission to write into {path}")
            self._check_owner()
        except OSError as error:
            raise unwritable_sink(self._query, path, error) from error

    @classmethod
    def open(cls, spec: SinkSpec, context: SinkContext) -> FilesSink:
        options = dict(spec.options)
        return cls(context, Path(options["path"]), options["format"], options.get("header", True))

    def prepare(self, batch_id: int, table: pa.Table) -> str:
        token = f".part-{batch_id:012d}-{secrets.token_hex(6)}.{self._format}"
        data = self._encode(table)
        try:
            self._sweep()
            if self._waiting:  # of a batch that did not come to be
                delete(self._path / self._waiting)
            write_atomic(self._path / token, data)
            self._waiting = token
        except OSError as error:
            raise failed_sink(self._query, self._path / token, error) from error
        return token

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        hidden, place = self._path / token, self._path / f"part-{batch_id:012d}.{self._format}"
        try:
            self._claim(batch_id)
            self._sweep()
            if hidden.exists() or not place.exists():  # else it was committed before a crash
                publish(hidden, place)
            self._waiting = ""
        except OSError as error:
            raise failed_sink(self._query, place, error) from error

    def _sweep(self) -> None:
        """Once: what was prepared for batches that did not come to be, or was left half-written."""
        if self._is_swept:
            return
        for path in self._path.iterdir():
            is_left = path.name.startswith(_OURS) and (_HIDDEN.fullmatch(path.name) or is_temporary(path))
            if is_left and path.name not in self._context.pending:
                delete(path)
        self._is_swept = True

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

    def _check_owner(self) -> None:
        """Files are named by batch alone, so a directory belongs to one query of one timeline, and to its newest
        batches."""
        found = self._owner()
        if found is None:
            if any(_PART.fullmatch(path.name) for path in self._path.glob("part-*")):
                raise sink_directory_taken(self._query, self._path, "somebody else")
            return
        context = self._context
        if found.query != context.query or found.owner not in (context.timeline, context.place):
            raise sink_directory_taken(self._query, self._path, f"query {found.query}")
        if found.term and found.term != context.term and found.term not in context.known_terms:
            raise sink_of_a_copy(self._query, self._path)
        parts = (_PART.fullmatch(path.name) for path in self._path.glob("part-*"))
        newest = max([found.batch, *(int(part[1]) for part in parts if part)])
        if not self._is_mine and newest > context.newest:
            raise sink_ahead(self._query, self._path, context.newest, newest)

    def _claim(self, batch_id: int) -> None:
        """Before a batch is to be seen: from then on no older state may write here."""
        if self._is_mine:
            found = self._owner()
            if found is None or found.term != self._context.term:
                raise sink_of_a_copy(self._query, self._path)
        else:
            self._check_owner()
        owner = Owner(self._query, self._context.timeline, batch_id, self._context.term)
        write_atomic(self._path / _OWNER, msgspec.json.encode(owner), private=True)
        self._is_mine = True

    def _owner(self) -> Owner | None:
        try:
            return msgspec.json.decode((self._path / _OWNER).read_bytes(), type=Owner)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise sink_directory_taken(self._query, self._path, "another query") from None
