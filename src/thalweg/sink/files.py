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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
from thalweg.model.query import Query, SinkSpec
from thalweg.model.shown import shown
from thalweg.model.types import to_arrow
from thalweg.sink.base import SinkContext
from thalweg.sink.text import csv_lines, flatten_structs, json_lines
from thalweg.state.durable import (
    Writer,
    delete,
    delete_tree,
    is_temporary,
    link,
    make_directories,
    publish,
    sync_directory,
    write_atomic,
)

_OWNER = ".thalweg-owner.json"
_PART = re.compile(r"part-(\d{12,})(\.[a-z]+)?")
_HIDDEN = re.compile(r"\.part-\d{12,}(-\d+)?-[0-9a-f]{12}(\.[a-z]+)?")
_HALF = (".part-", "..part-", f".{_OWNER}.")
"""How temporary names of files begin: those of earlier releases, of prepared ones, of the owner's."""


class Owner(Struct, frozen=True):
    """Who writes into a directory."""

    query: str
    owner: str
    """The timeline of the state; up to the first releases, its path."""
    batch: int = -1
    """The newest batch that was committed."""
    term: str = ""
    """The session that committed it."""
    number: int = 0
    """Which session of its state that was."""


@dataclass(frozen=True)
class FilesInTasks:
    """Files of results that are too many for the driver: each task writes its own."""

    query: str
    path: str
    format: str
    header: bool
    columns: tuple[tuple[str, str], ...]
    """(name, Spark's type) of the results."""

    kind = "files"

    @classmethod
    def of(cls, query: Query) -> FilesInTasks:
        options = dict(query.sink.options)
        columns = tuple((o.name, o.expr.type) for o in query.outputs)
        return cls(query.name, options["path"], options["format"], options.get("header", True), columns)

    def open_part(self, batch_id: int, place: int, unique: str) -> FilePart:
        return FilePart(self, f".part-{batch_id:012d}-{place}-{unique}.{self.format}")


class FilePart:
    def __init__(self, sink: FilesInTasks, name: str) -> None:
        self._sink = sink
        self._name = name
        self._schema = pa.schema([pa.field(name, to_arrow(kind)) for name, kind in sink.columns])
        self._file = Writer(Path(sink.path) / name)
        self._parquet: pq.ParquetWriter | None = None
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        table = shown(table, self._schema)
        if self._sink.format == "parquet":
            if self._parquet is None:
                self._parquet = pq.ParquetWriter(self._file, self._schema)
            self._parquet.write_table(table)
        else:
            sink = self._sink
            header = sink.header and self.rows == 0
            self._file.write(encode(sink.query, Path(sink.path), sink.format, header, table))
        self.rows += table.num_rows

    def finish(self) -> str:
        if self._parquet is not None:
            self._parquet.close()
        self._file.finish()
        return self._name

    def abandon(self) -> None:
        if self._parquet is not None:
            self._parquet.is_open = False  # else it writes its end when it is let go
        self._file.abandon()


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

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        name = f".part-{batch_id:012d}-{secrets.token_hex(6)}"
        token = name if parts else f"{name}.{self._format}"
        try:
            self._sweep(keep={*self._context.pending, *parts})
            if parts:
                self._gather(self._path / token, table, parts)
            elif table is not None:
                write_atomic(self._path / token, encode(self._query, self._path, self._format, self._header, table))
            self._waiting = token
        except OSError as error:
            raise failed_sink(self._query, self._path / token, error) from error
        return token

    def _gather(self, directory: Path, table: pa.Table | None, parts: Sequence[str]) -> None:
        """What tasks have written, and the rest, in one directory: it is seen at once, as a whole."""
        make_directories(directory)
        for number, part in enumerate(parts):
            link(self._path / part, directory / f"{number:05d}.{self._format}")
        if table is not None:
            rest = directory / f"{len(parts):05d}.{self._format}"
            write_atomic(rest, encode(self._query, self._path, self._format, self._header, table))
        sync_directory(directory)
        for part in parts:
            delete(self._path / part)

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        name = f"part-{batch_id:012d}"
        hidden = self._path / token
        place = self._path / (f"{name}.{self._format}" if hidden.suffix else name)
        try:
            self._claim(batch_id)
            if hidden.exists() or not place.exists():  # else it was committed before a crash
                publish(hidden, place)
            self._waiting = ""
            self._is_swept &= bool(hidden.suffix)
            self._sweep(keep=self._context.pending)
        except OSError as error:
            raise failed_sink(self._query, place, error) from error

    def _sweep(self, keep: Collection[str]) -> None:
        """Once, and when there is reason to: what was prepared for batches that did not come to be, or by attempts of
        tasks that did not count, or was left half-written."""
        if self._is_swept and not self._waiting:
            return
        self._is_swept, self._waiting = True, ""
        for path in self._path.glob(".*"):
            is_half = path.name.startswith(_HALF) and is_temporary(path)
            if is_half or (_HIDDEN.fullmatch(path.name) and path.name not in keep):
                if path.is_dir():
                    delete_tree(path)
                else:
                    delete(path)

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
        is_known = found.term in (context.term, *context.known_terms) or found.number < context.first_known
        if found.term and not is_known:
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
        owner = Owner(self._query, self._context.timeline, batch_id, self._context.term, self._context.number)
        write_atomic(self._path / _OWNER, msgspec.json.encode(owner), private=True)
        self._is_mine = True

    def _owner(self) -> Owner | None:
        try:
            return msgspec.json.decode((self._path / _OWNER).read_bytes(), type=Owner)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise sink_directory_taken(self._query, self._path, "another query") from None


def encode(query: str, path: Path, file_format: str, header: bool, table: pa.Table) -> bytes | memoryview:
    """The content of a file."""
    if file_format == "parquet":
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        return buffer.getbuffer()
    try:
        return json_lines(table) if file_format == "json" else csv_lines(table, header)
    except TypeError as error:
        raise _unwritable(query, path, file_format, table, error) from error


def _unwritable(query: str, path: Path, file_format: str, table: pa.Table, error: TypeError) -> SinkError:
    """Names the column whose type the text form refused."""
    for field in flatten_structs(table.slice(0, 0)).schema:
        if str(field.type) == str(error):
            return unwritable_column(query, field.name, field.type, file_format)
    return failed_sink(query, path, error)
