"""From a split to Arrow tables: only the columns that are needed, in the data path's types.

What cannot be read is set aside with its reason and the rest goes on: a row with a value of the wrong type,
a broken line, a file that is not what its name says. Only a file that has vanished, or that the system does not
give out, is an error, because the rows in it are lost. Columns that no query needs are not looked at, so a fault in
them is none.

What comes from outside is checked here, once: that text is UTF-8, that the buffers of Arrow are what they say, that
pages of Parquet have their checksums (where the writer made them; Arrow IPC has none), that times are of the years 1
to 9999 and not too far ahead, that no number becomes another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from thalweg import errors
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.conform import REJECTED_SCHEMA, Admission, conform, forget_connection, match_names
from thalweg.source.generate import generate_rows
from thalweg.source.listing import COMPRESSIONS
from thalweg.source.text import Wanted, csv_header, read_csv, read_json
from thalweg.state.reader import StateReader
from thalweg.state.storage import Storage

_ROWS_PER_CHUNK = 1_000_000
UNREADABLE, COLUMNS, CHANGED = "unreadable", "columns", "changed"
_ASKED = re.compile(r"of size (\d+)")


@dataclass(frozen=True)
class Chunk:
    table: pa.Table
    """Rows in `Schema.to_inner_arrow()` types, restricted to the columns asked for."""
    rejected: pa.Table | None
    """What could not be read, as `REJECTED_SCHEMA` has it."""
    rows: int
    """Rows read, those set aside included."""
    missing: tuple[str, ...] = ()
    """Columns that the file does not have, said once of each file: they are null."""


@dataclass(frozen=True)
class _Piece:
    """A part of a file as it is, before its types are made to fit."""

    table: pa.Table
    rows: int
    first: int | None = 0
    """The number of its first row in the file."""


@dataclass(frozen=True)
class _Asked:
    """What is wanted of a split."""

    split: Split
    stream: Stream
    columns: Sequence[str]
    admission: Admission
    until: int | None = None
    """See `source/text`."""

    def set_aside(self, kind: str, reason: str) -> Chunk:
        """The whole file, or the part of it that the reason names."""
        rejected = pa.table(
            {"kind": [kind], "reason": [reason], "line": [None], "row": [self.split.path]}, schema=REJECTED_SCHEMA
        )
        inner = self.stream.schema.to_inner_arrow()
        return Chunk(pa.schema([inner.field(name) for name in self.columns]).empty_table(), rejected, 1)


class _RefusedError(Exception):
    """The columns of a file are not those of the stream."""


def read(
    split: Split, stream: Stream, columns: Sequence[str], storage: Storage | None, clock_us: int | None = None
) -> Iterator[Chunk]:
    """The rows of the split, about a million at a time. `storage`: where units of the source itself lie, if there are
    any. `clock_us`: the wall clock of the batch, beyond which rows may be only so far ahead."""
    # A line of text is a row only if something can be read from it; the time always has to be there.
    wanted = columns or ((stream.time,) if split.kind in ("json", "csv") else ())
    ahead_us = stream.max_ahead_us
    latest = None if ahead_us is None or clock_us is None else clock_us + ahead_us
    asked = _Asked(split, stream, wanted, Admission(stream.time, latest))
    try:
        for chunk in _read_as_seen(asked, storage):
            yield chunk if wanted == columns else replace(chunk, table=chunk.table.select(list(columns)))
    except FileNotFoundError:
        raise errors.source_file_vanished(split.path, stream.name) from None
    except _RefusedError as refused:
        if split.start == 0:  # once of each file
            yield replace(asked, columns=columns).set_aside(COLUMNS, str(refused))
    except (errors.ThalwegError, duckdb.OutOfMemoryException):
        raise
    except Exception as failure:  # whatever a file makes a reader raise, it does not stop the other streams
        if _is_systems(failure):
            # The system refuses (permissions, a dead disk): the rows may be fine and must not be given up.
            raise errors.source_file_unreadable(split.path, stream.name, str(failure)) from failure
        forget_connection(failure)
        yield replace(asked, columns=columns).set_aside(UNREADABLE, _reason(split.kind, failure))


def _is_systems(failure: Exception) -> bool:
    """Whether it is not the fault of what the file holds. One that asks for more memory than there is, is damaged."""
    if isinstance(failure, MemoryError):
        size = _ASKED.search(str(failure))
        if size is None or int(size[1]) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise failure
        return False
    return isinstance(failure, OSError) and bool(failure.errno)


def _reason(kind: str, failure: Exception) -> str:
    told = isinstance(failure, pa.ArrowException | OSError | ValueError)  # of the others the kind says more
    return f"{kind} file cannot be read: {failure if told else repr(failure)}"


def _read_as_seen(asked: _Asked, storage: Storage | None) -> Iterator[Chunk]:
    """A file must be what it was when it was seen. Of text that has only grown, the lines are read that were whole
    then; any other change sets it aside."""
    split = asked.split
    if split.kind == "unit" and storage is not None:
        yield from _read_unit(asked, storage)
        return
    if split.kind == "generate":
        yield from _read_generated(asked)
        return
    change = _change(split)
    if change is not None and not _has_grown(split):
        yield asked.set_aside(CHANGED, f"the file is not the one that was seen: {change}")
        return
    if change is None and os.path.getsize(split.path) == 0:
        raise ValueError("it is empty")
    yield from _READERS[split.kind](asked if change is None else replace(asked, until=split.size))
    if change is not None and not 0 <= split.end < split.size:  # said with the last part of it
        yield asked.set_aside(CHANGED, f"the file has grown since it was seen: {change}; what came later is not read")
    elif change is None and (later := _change(split)) is not None:
        yield asked.set_aside(CHANGED, f"the file has changed while it was read: {later}; what was read is kept")


def _change(split: Split) -> str | None:
    """How the file differs from the one that was seen."""
    if not split.modified_ns:
        return None
    status = os.stat(split.path)
    if status.st_size != split.size:
        return f"it had {split.size} bytes and has {status.st_size}"
    return None if status.st_mtime_ns == split.modified_ns else "it was written again"


def _has_grown(split: Split) -> bool:
    """Whether what was seen may still be there, before what came later."""
    is_plain = split.kind in ("json", "csv") and not split.path.lower().endswith(COMPRESSIONS)
    return is_plain and not split.csv.multiline and os.stat(split.path).st_size > split.size


def _missing(asked: _Asked, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of the stream that a file with these does not have."""
    stream = asked.stream
    found = match_names(names, stream.schema.names)
    if stream.time in stream.schema and stream.time not in found:
        raise _RefusedError(
            f"it has no column {stream.time}, the event time; its columns: {', '.join(names) or 'none'}"
        )
    missing = tuple(name for name in stream.schema.names if name not in found)
    if missing and asked.split.refuses_missing:
        raise _RefusedError(f"it has no column {', '.join(missing)}; its columns: {', '.join(names)}")
    return missing if asked.split.start == 0 else ()


def _noting(missing: tuple[str, ...], chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The first chunk says what the file does not have."""
    for chunk in chunks:
        yield replace(chunk, missing=missing)
        missing = ()


def _read_parquet(asked: _Asked) -> Iterator[Chunk]:
    # Plain reads beat a memory map and pre-buffering on one core, and a file cut short is no bus error.
    with pq.ParquetFile(
        asked.split.path, memory_map=False, pre_buffer=False, page_checksum_verification=True
    ) as file:
        yield from _noting(_missing(asked, file.schema_arrow.names), _read_groups(asked, file))


def _read_groups(asked: _Asked, file: pq.ParquetFile) -> Iterator[Chunk]:
    end = file.num_row_groups if asked.split.end < 0 else asked.split.end
    names = list(match_names(file.schema_arrow.names, asked.columns).values())
    first = sum(file.metadata.row_group(group).num_rows for group in range(asked.split.start))
    runs = [[*run] for run in _runs_of_groups(file, asked.split.start, end)]
    while runs:
        groups = runs.pop(0)
        try:
            table = file.read_row_groups(groups, columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as failure:
            if _is_systems(failure):
                raise  # it is not the rows' fault: see `read`
            if len(groups) > 1:  # the others of them may be whole
                runs[:0] = [[group] for group in groups]
                continue
            first += file.metadata.row_group(groups[0]).num_rows
            yield asked.set_aside(UNREADABLE, _reason("parquet", OSError(f"row group {groups[0]}: {failure}")))
            continue
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        yield from _chunks(_Piece(table, rows, first), asked)
        first += rows


def _runs_of_groups(file: pq.ParquetFile, start: int, end: int) -> Iterator[list[int]]:
    """Neighbouring row groups that make up a chunk together; a large one stands alone."""
    run: list[int] = []
    rows = 0
    for group in range(start, end):
        size = file.metadata.row_group(group).num_rows
        if run and rows + size > _ROWS_PER_CHUNK:
            yield run
            run, rows = [], 0
        run.append(group)
        rows += size
    if run:
        yield run


def _read_unit(asked: _Asked, storage: Storage) -> Iterator[Chunk]:
    """Damage of it is the state's, and nothing that could be set aside. Its values were checked when they came."""
    split = asked.split
    rows = StateReader(storage).read_unit(split.path).slice(split.start, split.end - split.start)
    yield from _chunks(_Piece(rows, rows.num_rows, split.start), asked, trusted=True)


def _read_arrow(asked: _Asked) -> Iterator[Chunk]:
    with pa.OSFile(asked.split.path) as source:
        reader = _open_arrow(source)
        names = reader.schema.names
        doubled = [name for name in match_names(names, asked.columns).values() if names.count(name) > 1]
        if doubled:
            raise ValueError(f"column {doubled[0]} is there twice")
        yield from _noting(_missing(asked, names), _read_batches(asked, source, reader))


def _open_arrow(source: pa.NativeFile) -> pa_ipc.RecordBatchFileReader | pa_ipc.RecordBatchStreamReader:
    """A file with a footer, or a stream that was saved as it came."""
    try:
        return pa_ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa_ipc.open_stream(source)


def _read_batches(asked: _Asked, source: pa.NativeFile, reader: Any) -> Iterator[Chunk]:
    run: list[pa.RecordBatch] = []
    first = rows = 0
    for number, batch in _batches(source, reader, asked):
        fault = _broken(batch, number)
        if fault is None:
            run.append(batch)
            rows += batch.num_rows
            if rows < _ROWS_PER_CHUNK // 2:
                continue
        yield from _of_batches(run, first, asked)
        first, run, rows = first + rows, [], 0
        if fault is not None:
            first += batch.num_rows
            yield asked.set_aside(UNREADABLE, _reason("arrow", ValueError(fault)))
    yield from _of_batches(run, first, asked)


def _of_batches(run: Sequence[pa.RecordBatch], first: int, asked: _Asked) -> Iterator[Chunk]:
    rows = sum(batch.num_rows for batch in run)
    if run:
        place = None if asked.split.start else first
        yield from _chunks(_Piece(pa.Table.from_batches(run), rows, place), asked)


def _broken(batch: pa.RecordBatch, number: int) -> str | None:
    """What is wrong with a batch in itself: nothing of it could be read without harm. Whether text is UTF-8 is looked
    at row by row, later."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            _without_text(column).validate(full=True)
        except pa.ArrowException as failure:
            return f"record batch {number}, column {name}: {failure}"
    return None


def _without_text(array: pa.Array) -> pa.Array:
    """The same buffers as bytes."""
    if isinstance(array, pa.DictionaryArray):
        array.validate()  # its indices are looked at with the rest
        return pa.DictionaryArray.from_arrays(array.indices, _without_text(array.dictionary), safe=False)
    if array.type == pa.string_view():
        return array.view(pa.binary_view())
    bytes_of = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(array.type)
    return array if bytes_of is None else array.view(bytes_of)


def _batches(source: pa.NativeFile, reader: Any, asked: _Asked) -> Iterator[tuple[int, pa.RecordBatch]]:
    names = match_names(reader.schema.names, asked.columns)
    if isinstance(reader, pa_ipc.RecordBatchStreamReader):
        for number, batch in enumerate(reader):
            yield number, batch.select(list(names.values())) if names else batch
        if source.tell() < source.size():
            raise ValueError(f"the stream ends at byte {source.tell()} of {source.size()}")
        return
    fields = sorted(reader.schema.get_field_index(name) for name in names.values())
    if fields:
        source.seek(0)
        reader = pa_ipc.open_file(source, options=pa_ipc.IpcReadOptions(included_fields=fields, use_threads=False))
    end = reader.num_record_batches if asked.split.end < 0 else asked.split.end
    for number in range(asked.split.start, end):
        yield number, reader.get_batch(number)


def _read_generated(asked: _Asked) -> Iterator[Chunk]:
    split = asked.split
    for start in range(split.start, split.end, _ROWS_PER_CHUNK):
        end = min(split.end, start + _ROWS_PER_CHUNK)
        assert split.generator is not None
        rows = generate_rows(split.generator, start, end, asked.columns)
        yield from _chunks(_Piece(rows, end - start, start), asked, trusted=True)


def _read_json(asked: _Asked) -> Iterator[Chunk]:
    wanted = Wanted(asked.stream.schema, asked.columns, asked.admission, asked.until)
    for result, rows in read_json(asked.split, wanted):
        yield Chunk(result.table, result.rejected, rows)


def _read_csv(asked: _Asked) -> Iterator[Chunk]:
    names, header_bytes = csv_header(asked.split, asked.stream.schema)
    missing = _missing(asked, names)
    wanted = Wanted(asked.stream.schema, asked.columns, asked.admission, asked.until)
    found = read_csv(asked.split, wanted, names, header_bytes)
    yield from _noting(missing, (Chunk(result.table, result.rejected, rows) for result, rows in found))


_READERS: dict[str, Callable[[_Asked], Iterator[Chunk]]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "json": _read_json,
    "csv": _read_csv,
}


def _chunks(piece: _Piece, asked: _Asked, trusted: bool = False) -> Iterator[Chunk]:
    """The piece in the stream's types; one larger than a chunk is cut without copying."""
    for start in range(0, piece.rows, _ROWS_PER_CHUNK):
        rows = min(_ROWS_PER_CHUNK, piece.rows - start)
        part = piece.table.slice(start, rows) if piece.rows > rows else piece.table
        result = conform(
            part, asked.stream.schema, asked.columns, asked.admission,
            first=None if piece.first is None else piece.first + start, trusted=trusted,
        )  # fmt: skip
        yield Chunk(result.table, result.rejected, rows)
