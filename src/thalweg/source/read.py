"""From a split to Arrow tables: only the columns that are needed, in the data path's types.

What cannot be read is set aside with its reason and the rest goes on: a row with a value of the wrong type,
a broken line, a file that is not what its name says. Only a file that has vanished, or that the system does not
give out, is an error, because the rows in it are lost. Columns that no query needs are not looked at, so a fault in
them is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from thalweg import errors
from thalweg.model.split import Split
from thalweg.model.stream import Schema, Stream
from thalweg.source.conform import REJECTED_SCHEMA, conform, match_names
from thalweg.source.generate import generate_rows
from thalweg.source.text import read_csv, read_json
from thalweg.state.reader import StateReader
from thalweg.state.storage import Storage

_ROWS_PER_CHUNK = 1_000_000


@dataclass(frozen=True)
class Chunk:
    table: pa.Table
    """Rows in `Schema.to_inner_arrow()` types, restricted to the columns asked for."""
    rejected: pa.Table | None
    """reason, row: what could not be read."""
    rows: int
    """Rows read, those set aside included."""


@dataclass(frozen=True)
class _Piece:
    """A part of a file as it is, before its types are made to fit."""

    table: pa.Table
    rows: int


def read(split: Split, stream: Stream, columns: Sequence[str], storage: Storage) -> Iterator[Chunk]:
    """The rows of the split, about a million at a time. `storage`: where units of the source itself lie."""
    # A line of text is a row only if something can be read from it; the time always has to be there.
    wanted = columns or ((stream.time,) if split.kind in ("json", "csv") else ())
    try:
        for chunk in _open(split, stream.schema, wanted, storage):
            yield chunk if wanted == columns else replace(chunk, table=chunk.table.select(list(columns)))
    except FileNotFoundError:
        raise errors.source_file_vanished(split.path, stream.name) from None
    except (errors.ThalwegError, MemoryError, duckdb.OutOfMemoryException):
        raise
    except Exception as failure:  # whatever a file makes a reader raise, it does not stop the other streams
        if isinstance(failure, OSError) and failure.errno:
            # The system refuses (permissions, a dead disk): the rows may be fine and must not be given up.
            raise errors.source_file_unreadable(split.path, stream.name, str(failure)) from failure
        yield _set_aside(split, stream.schema, columns, failure)


def _open(split: Split, schema: Schema, columns: Sequence[str], storage: Storage) -> Iterator[Chunk]:
    if split.kind == "unit":
        return _read_unit(split, schema, columns, storage)
    return _READERS[split.kind](split, schema, columns)


def _set_aside(split: Split, schema: Schema, columns: Sequence[str], failure: Exception) -> Chunk:
    told = isinstance(failure, pa.ArrowException | OSError | ValueError)  # of the others the kind says more
    reason = f"{split.kind} file cannot be read: {failure if told else repr(failure)}"
    rejected = pa.table({"reason": [reason], "row": [split.path]}, schema=REJECTED_SCHEMA)
    empty = pa.schema([schema.to_inner_arrow().field(name) for name in columns]).empty_table()
    return Chunk(empty, rejected, 1)


def _read_parquet(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    # Plain reads beat a memory map and pre-buffering on one core, and a file cut short is no bus error.
    with pq.ParquetFile(split.path, memory_map=False, pre_buffer=False) as file:
        end = file.num_row_groups if split.end < 0 else split.end
        names = list(match_names(file.schema_arrow.names, columns).values())
        for groups in _runs_of_groups(file, split.start, end):
            try:
                table = file.read_row_groups(groups, columns=names, use_threads=False)
            except (pa.ArrowException, OSError) as failure:
                if isinstance(failure, MemoryError) or (isinstance(failure, OSError) and failure.errno):
                    raise  # it is not the rows' fault: see `read`
                where = OSError(f"row groups {groups[0]} to {groups[-1]}: {failure}")
                yield _set_aside(split, schema, columns, where)
                continue
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            yield from _chunks(_Piece(table, rows), schema, columns)


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


def _read_unit(split: Split, schema: Schema, columns: Sequence[str], storage: Storage) -> Iterator[Chunk]:
    """Damage of it is the state's, and nothing that could be set aside."""
    rows = StateReader(storage).read_unit(split.path).slice(split.start, split.end - split.start)
    yield from _chunks(_Piece(rows, rows.num_rows), schema, columns)


def _read_arrow(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    with pa.OSFile(split.path) as source:
        for batches in _runs_of_batches(source, split, columns):
            rows = sum(batch.num_rows for batch in batches)
            yield from _chunks(_Piece(pa.Table.from_batches(batches), rows), schema, columns)


def _runs_of_batches(source: pa.NativeFile, split: Split, columns: Sequence[str]) -> Iterator[list[pa.RecordBatch]]:
    run: list[pa.RecordBatch] = []
    rows = 0
    for batch in _batches(source, split, columns):
        run.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_PER_CHUNK // 2:
            yield run
            run, rows = [], 0
    if run:
        yield run


def _batches(source: pa.NativeFile, split: Split, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """From a file with a footer, or from a stream that was saved as it came."""
    try:
        reader = pa_ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa_ipc.open_stream(source)
        return
    names = match_names(reader.schema.names, columns)
    fields = sorted(reader.schema.get_field_index(name) for name in names.values())
    if fields:
        source.seek(0)
        reader = pa_ipc.open_file(source, options=pa_ipc.IpcReadOptions(included_fields=fields, use_threads=False))
    end = reader.num_record_batches if split.end < 0 else split.end
    for number in range(split.start, end):
        yield reader.get_batch(number)


def _read_generated(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    for start in range(split.start, split.end, _ROWS_PER_CHUNK):
        end = min(split.end, start + _ROWS_PER_CHUNK)
        yield from _chunks(_Piece(generate_rows(split.generator, start, end, columns), end - start), schema, columns)


def _read_json(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    for result, rows in read_json(split, schema, columns):
        yield Chunk(result.table, result.rejected, rows)


def _read_csv(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    for result, rows in read_csv(split, schema, columns):
        yield Chunk(result.table, result.rejected, rows)


_READERS: dict[str, Callable[[Split, Schema, Sequence[str]], Iterator[Chunk]]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "json": _read_json,
    "csv": _read_csv,
    "generate": _read_generated,
}


def _chunks(piece: _Piece, schema: Schema, columns: Sequence[str]) -> Iterator[Chunk]:
    """The piece in the stream's types; one larger than a chunk is cut without copying."""
    for start in range(0, piece.rows, _ROWS_PER_CHUNK):
        rows = min(_ROWS_PER_CHUNK, piece.rows - start)
        part = piece.table.slice(start, rows) if piece.rows > rows else piece.table
        result = conform(part, schema, columns)
        yield Chunk(result.table, result.rejected, rows)
