"""The formats of files: Parquet, Arrow IPC, and text by `source/json_lines` and `source/csv_lines`.

What comes from outside is checked here, once: that text is UTF-8, that the buffers of Arrow are what they say, that
pages of Parquet have their checksums (where the writer made them; Arrow IPC has none), that times are of the years 1
to 9999 and not too far ahead, that no number becomes another one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from thalweg.model.split import Split
from thalweg.source.chunks import ROWS_PER_CHUNK, Chunk, Piece, SplitReading, chunks
from thalweg.source.conform import match_names
from thalweg.source.csv_lines import csv_header, read_csv
from thalweg.source.json_lines import read_json
from thalweg.source.listing import COMPRESSIONS
from thalweg.source.text import WantedText

UNREADABLE, COLUMNS, CHANGED = "unreadable", "columns", "changed"
_ASKED = re.compile(r"of size (\d+)")


class RefusedError(Exception):
    """The columns of a file are not those of the stream."""


def is_systems(failure: Exception) -> bool:
    """Whether it is not the fault of what the file holds. One that asks for more memory than there is, is damaged."""
    if isinstance(failure, MemoryError):
        size = _ASKED.search(str(failure))
        if size is None or int(size[1]) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise failure
        return False
    return isinstance(failure, OSError) and bool(failure.errno)


def reason_of(kind: str, failure: Exception) -> str:
    told = isinstance(failure, pa.ArrowException | OSError | ValueError)  # of the others the kind says more
    return f"{kind} file cannot be read: {failure if told else repr(failure)}"


def read_file(asked: SplitReading) -> Iterator[Chunk]:
    # A line of text is a row only if something can be read from it; the time always has to be there.
    if asked.columns or asked.split.kind not in ("json", "csv"):
        yield from _read_as_seen(asked)
        return
    for chunk in _read_as_seen(replace(asked, columns=(asked.stream.time,))):
        yield replace(chunk, table=chunk.table.select([]))


def _read_as_seen(asked: SplitReading) -> Iterator[Chunk]:
    """A file must be what it was when it was seen. Of text that has only grown, the lines are read that were whole
    then; any other change sets it aside."""
    split = asked.split
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


def _missing(asked: SplitReading, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of the stream that a file with these does not have."""
    stream = asked.stream
    found = match_names(names, stream.schema.names)
    if stream.time in stream.schema and stream.time not in found:
        raise RefusedError(
            f"it has no column {stream.time}, the event time; its columns: {', '.join(names) or 'none'}"
        )
    missing = tuple(name for name in stream.schema.names if name not in found)
    if missing and asked.split.refuses_missing:
        raise RefusedError(f"it has no column {', '.join(missing)}; its columns: {', '.join(names)}")
    return missing if asked.split.start == 0 else ()


def _noting(missing: tuple[str, ...], chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The first chunk says what the file does not have."""
    for chunk in chunks:
        yield replace(chunk, missing=missing)
        missing = ()


def _read_parquet(asked: SplitReading) -> Iterator[Chunk]:
    # Plain reads beat a memory map and pre-buffering on one core, and a file cut short is no bus error.
    with pq.ParquetFile(
        asked.split.path, memory_map=False, pre_buffer=False, page_checksum_verification=True
    ) as file:
        yield from _noting(_missing(asked, file.schema_arrow.names), _read_groups(asked, file))


def _read_groups(asked: SplitReading, file: pq.ParquetFile) -> Iterator[Chunk]:
    end = file.num_row_groups if asked.split.end < 0 else asked.split.end
    names = list(match_names(file.schema_arrow.names, asked.columns).values())
    first = sum(file.metadata.row_group(group).num_rows for group in range(asked.split.start))
    runs = [[*run] for run in _runs_of_groups(file, asked.split.start, end)]
    while runs:
        groups = runs.pop(0)
        try:
            table = file.read_row_groups(groups, columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as failure:
            if is_systems(failure):
                raise  # it is not the rows' fault: see `read`
            if len(groups) > 1:  # the others of them may be whole
                runs[:0] = [[group] for group in groups]
                continue
            first += file.metadata.row_group(groups[0]).num_rows
            yield asked.set_aside(UNREADABLE, reason_of("parquet", OSError(f"row group {groups[0]}: {failure}")))
            continue
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        yield from chunks(Piece(table, rows, first), asked)
        first += rows


def _runs_of_groups(file: pq.ParquetFile, start: int, end: int) -> Iterator[list[int]]:
    """Neighbouring row groups that make up a chunk together; a large one stands alone."""
    run: list[int] = []
    rows = 0
    for group in range(start, end):
        size = file.metadata.row_group(group).num_rows
        if run and rows + size > ROWS_PER_CHUNK:
            yield run
            run, rows = [], 0
        run.append(group)
        rows += size
    if run:
        yield run


def _read_arrow(asked: SplitReading) -> Iterator[Chunk]:
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


def _read_batches(asked: SplitReading, source: pa.NativeFile, reader: Any) -> Iterator[Chunk]:
    run: list[pa.RecordBatch] = []
    first = rows = 0
    for number, batch in _batches(source, reader, asked):
        fault = _broken(batch, number)
        if fault is None:
            run.append(batch)
            rows += batch.num_rows
            if rows < ROWS_PER_CHUNK // 2:
                continue
        yield from _of_batches(run, first, asked)
        first, run, rows = first + rows, [], 0
        if fault is not None:
            first += batch.num_rows
            yield asked.set_aside(UNREADABLE, reason_of("arrow", ValueError(fault)))
    yield from _of_batches(run, first, asked)


def _of_batches(run: Sequence[pa.RecordBatch], first: int, asked: SplitReading) -> Iterator[Chunk]:
    rows = sum(batch.num_rows for batch in run)
    if run:
        place = None if asked.split.start else first
        yield from chunks(Piece(pa.Table.from_batches(run), rows, place), asked)


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


def _batches(source: pa.NativeFile, reader: Any, asked: SplitReading) -> Iterator[tuple[int, pa.RecordBatch]]:
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


def _read_json(asked: SplitReading) -> Iterator[Chunk]:
    wanted = WantedText(asked.stream.schema, asked.columns, asked.admission, asked.until)
    for result, rows in read_json(asked.split, wanted):
        yield Chunk(result.table, result.rejected, rows)


def _read_csv(asked: SplitReading) -> Iterator[Chunk]:
    names, header_bytes = csv_header(asked.split, asked.stream.schema)
    missing = _missing(asked, names)
    wanted = WantedText(asked.stream.schema, asked.columns, asked.admission, asked.until)
    found = read_csv(asked.split, wanted, names, header_bytes)
    yield from _noting(missing, (Chunk(result.table, result.rejected, rows) for result, rows in found))


_READERS: dict[str, Callable[[SplitReading], Iterator[Chunk]]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "json": _read_json,
    "csv": _read_csv,
}
