"""Results as files: one per batch in a directory that readers may list at any time.

.part-000000000041-<unique>.parquet     the results of batch 41, prepared
part-000000000041.parquet               committed
.thalweg-owner.json                     which query of which pipeline writes here, and its newest batch
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, Struct

from thalweg.errors import (
    SinkError,
    array_in_text,
    failed_sink,
    sink_directory_taken,
    unwritable_column,
    unwritable_sink,
)
from thalweg.model.query import Query, SinkSpec
from thalweg.model.shown import shown
from thalweg.model.types import element_type, to_arrow
from thalweg.sink.contract import EXACTLY_ONCE, SinkContext, SinkKind, TaskSink
from thalweg.sink.owner import Owner, check_before_first, check_still_mine, owner_of
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
_OF_BATCH = re.compile(r"\.{1,2}part-(\d{12,})")
"""How hidden names begin: of prepared files, of those half-written, and of those of earlier releases."""


FORMATS = ("parquet", "json", "csv")
_Format = Literal["parquet", "json", "csv"]


class FilesSinkOptions(Struct, frozen=True):
    path: Annotated[str, Meta(min_length=1, description="The directory, of this query alone.")]
    format: Annotated[_Format, Meta(description="Of the files; JSON is one object a line.")] = "parquet"
    header: Annotated[bool, Meta(description="Whether a CSV file begins with the names of its columns.")] = True


class FilesSinkKind(SinkKind[FilesSinkOptions]):
    """One file for every batch with results, in a directory that can be read at any time."""

    name = "files"
    options = FilesSinkOptions
    unique_columns = True

    def pairs(self, given: Mapping[str, object]) -> tuple[tuple[str, Any], ...]:
        options = self.read(given)
        # Absolute, so that a restart from another working directory goes on in the same place.
        kept = (("format", options.format), ("path", os.path.abspath(options.path)))
        return (*kept, ("header", options.header)) if options.format == "csv" else kept

    def delivery(self, options: FilesSinkOptions) -> str:
        return EXACTLY_ONCE

    def check(self, query: Query) -> None:
        """A line of text has no place for an array."""
        format_ = self.options_of(query.sink).format
        for output in query.outputs if format_ != "parquet" else ():
            if element_type(output.expr.type) is not None:
                raise array_in_text(query.name, output.name, format_)

    def open(self, options: FilesSinkOptions, context: SinkContext) -> FilesSink:
        return FilesSink(context, Path(options.path), options.format, options.header)

    def in_tasks(self, query: Query) -> TaskSink | None:
        return FilesInTasks.of(query)

    def meant_by(self, word: str) -> str | None:
        return f"INTO files OPTIONS (format = '{word}', path = '...')" if word in FORMATS else None


FILES = FilesSinkKind()


def to_files(path: str | os.PathLike[str], format: str = "parquet", *, header: bool = True) -> SinkSpec:
    """One file per batch in the directory `path`: `parquet`, `json` (lines) or `csv` (with a header line)."""
    return FILES.spec(path=path, format=format, header=header)


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
        options = FILES.options_of(query.sink)
        columns = tuple((o.name, o.expr.type) for o in query.outputs)
        return cls(query.name, options.path, options.format, options.header, columns)

    def open_part(self, batch_id: int, place: int, unique: str) -> FilePart:
        return FilePart(self, f".part-{batch_id:012d}-{place}-{unique}.{self.format}")


def gathered_name(batch_id: int, parts: Sequence[str]) -> str:
    """The hidden directory of what tasks have written: the same whenever it is made."""
    digest = hashlib.blake2b("/".join(parts).encode(), digest_size=6).hexdigest()
    return f".part-{batch_id:012d}-{digest}"


class FilePart:
    def __init__(self, sink: FilesInTasks, name: str) -> None:
        self._sink = sink
        self._name = name
        self._schema = pa.schema([pa.field(name, to_arrow(kind)) for name, kind in sink.columns])
        self._file = Writer(Path(sink.path) / name)
        self._parquet: pq.ParquetWriter | None = None
        self.rows = 0
        self.nbytes = 0

    def write(self, table: pa.Table) -> None:
        table = shown(table, self._schema)
        self.nbytes += table.nbytes
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
        self._lock = threading.Lock()
        """One batch may be prepared while an earlier one is committed."""
        try:
            if not context.is_trial:
                make_directories(path)
            _check_writable(path)
            self._check_owner()
        except OSError as error:
            raise unwritable_sink(self._query, path, error) from error

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        with self._lock:
            self._sweep(batch_id, parts)
            self._waiting = self._write(batch_id, table, parts)
            return self._waiting

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        with self._lock:
            self._show(batch_id, token or self._write(batch_id, table))

    def commit_parts(self, batch_id: int, table: pa.Table | None, parts: Sequence[str]) -> None:
        with self._lock:
            if not (self._path / f"part-{batch_id:012d}").exists():  # else it was committed before a crash
                self._write(batch_id, table, parts)
            self._show(batch_id, gathered_name(batch_id, parts))

    def _write(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        """Makes results durable, hidden; what they are called."""
        name = f".part-{batch_id:012d}-{secrets.token_hex(6)}.{self._format}"
        token = gathered_name(batch_id, parts) if parts else name
        try:
            if parts:
                self._gather(self._path / token, table, parts)
            elif table is not None:
                write_atomic(self._path / token, self._encode(table))
        except OSError as error:
            raise self._failed(self._path / token, error) from error
        return token

    def _encode(self, table: pa.Table) -> bytes | memoryview:
        return encode(self._query, self._path, self._format, self._header, table)

    def _gather(self, directory: Path, table: pa.Table | None, parts: Sequence[str]) -> None:
        """What tasks have written, and the rest, in one directory: it is seen at once, as a whole. An attempt before
        may have got halfway."""
        make_directories(directory)
        for number, part in enumerate(parts):
            new = directory / f"{number:05d}.{self._format}"
            if not new.exists():
                link(self._path / part, new)
        if table is not None:
            write_atomic(directory / f"{len(parts):05d}.{self._format}", self._encode(table))
        sync_directory(directory)
        for part in parts:
            delete(self._path / part)

    def _show(self, batch_id: int, token: str) -> None:
        name = f"part-{batch_id:012d}"
        hidden = self._path / token
        place = self._path / (f"{name}.{self._format}" if hidden.suffix else name)
        try:
            self._claim(batch_id)
            if hidden.exists() or not place.exists():  # else it was committed before a crash
                publish(hidden, place)
            if token == self._waiting:
                self._waiting = ""
            self._is_swept &= bool(hidden.suffix)
            self._sweep(batch_id)
        except OSError as error:
            raise self._failed(place, error) from error

    def _sweep(self, through: int, parts: Sequence[str] = ()) -> None:
        """Once, and when there is reason to: what was prepared for batches that did not come to be, or by attempts of
        tasks that did not count, or was left half-written. `through`: tasks may be writing for later batches."""
        held = self._context.pending()
        keep = {*parts, *(name for p in held for name in (p.token, *p.parts, gathered_name(p.batch, p.parts)))}
        if self._is_swept and (not self._waiting or self._waiting in keep):
            return
        self._is_swept, is_whole = False, True
        try:
            for path in self._path.glob(".*"):
                of_batch = _OF_BATCH.match(path.name)
                is_old = int(of_batch[1]) <= through if of_batch else path.name.startswith(f".{_OWNER}.")
                is_left = _HIDDEN.fullmatch(path.name) is not None and path.name not in keep
                is_whole &= is_old or of_batch is None
                if is_old and (is_left or is_temporary(path)):
                    if path.is_dir():
                        delete_tree(path)
                    else:
                        delete(path)
        except OSError as error:
            raise self._failed(self._path, error) from error
        self._is_swept, self._waiting = is_whole, ""

    def _failed(self, place: Path, error: OSError) -> SinkError:
        """What this try has written under a name of its own is swept with the next."""
        self._is_swept = False
        return failed_sink(self._query, place, error)

    def _check_owner(self, asked: int = -1) -> None:
        """Files are named by batch alone, so a directory belongs to one query of one timeline, and to its newest
        batches. `asked`: the batch that is to be committed."""
        found = self._owner()
        if found is None:
            if any(_PART.fullmatch(path.name) for path in self._path.glob("part-*")):
                raise sink_directory_taken(self._query, self._path, "somebody else")
            return
        context = self._context
        if found.query != context.query or found.owner not in (context.timeline, context.place):
            raise sink_directory_taken(self._query, self._path, f"query {found.query}")
        parts = (_PART.fullmatch(path.name) for path in self._path.glob("part-*"))
        newest = max([found.batch, *(int(part[1]) for part in parts if part)])
        check_before_first(found, context, str(self._path), newest, asked)

    def _claim(self, batch_id: int) -> None:
        """Before a batch is to be seen: from then on no older state may write here."""
        if self._is_mine:
            check_still_mine(self._owner(), self._context, str(self._path))
        else:
            self._check_owner(batch_id)
        write_atomic(self._path / _OWNER, msgspec.json.encode(owner_of(self._context, batch_id)), private=True)
        self._is_mine = True

    def _owner(self) -> Owner | None:
        try:
            return msgspec.json.decode((self._path / _OWNER).read_bytes(), type=Owner)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise sink_directory_taken(self._query, self._path, "another query") from None


def _check_writable(path: Path) -> None:
    """The directory, or where it would be made."""
    while not path.exists():
        path = path.parent
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"no permission to write into {path}")


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
