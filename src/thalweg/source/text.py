"""JSON lines and CSV: blocks of whole lines, parsed at full speed while nothing is wrong with them.

A block that the fast parser refuses is cut into smaller ones; only the small ones that still fail are looked
at line by line, and even that by DuckDB, not in Python. The slow way accepts all that the fast way accepts,
with the same values, so what a row becomes does not depend on its neighbours.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.split import Split
from thalweg.model.stream import Schema
from thalweg.source.conform import (
    NOT_UTF8,
    REJECTED_SCHEMA,
    Admission,
    Conformed,
    connection,
    convert,
)

BLOCK = 16 << 20
_SMALL_BLOCK = 1 << 20
MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs put before UTF-8."""

Result = tuple[Conformed, int]


@dataclass(frozen=True)
class WantedText:
    """What is read from a file of text."""

    schema: Schema
    columns: Sequence[str]
    admission: Admission | None = None
    until: int | None = None
    """TextLines that do not end within this many bytes are left out; None: the last one may lack its end."""


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file."""

    position: int
    """Bytes before them."""
    data: bytes


def parse(
    part: LineBlock,
    fast: Callable[[bytes], Result | None],
    examine: Callable[[bytes], Result],
    lines: LineNumbers,
) -> Iterator[Result]:
    """Fast if possible; otherwise in smaller parts, so that one bad line slows down few others."""
    if not part.data.strip():
        return
    result = fast(part.data)
    if result is None and len(part.data) > _SMALL_BLOCK:
        for smaller in _cut_lines(part):
            yield from parse(smaller, fast, examine, lines)
        return
    found, rows = result or examine(part.data)
    if found.rejected is not None:
        at = found.rejected.schema.get_field_index("line")
        placed = pc.add(found.rejected.column(at), lines.before(part.position) + 1)
        found = Conformed(found.table, found.rejected.set_column(at, "line", placed))
    yield found, rows


class LineNumbers:
    """How many lines end before a place of a file: it is only asked where something is set aside."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.BufferedReader | None = None
        self._position = self._lines = 0

    def before(self, position: int) -> int:
        if self._file is None or position < self._position:
            self._file, self._position, self._lines = open_file(self._path), 0, 0
        while self._position < position:
            block = self._file.read(min(_SMALL_BLOCK, position - self._position))
            if not block:
                break
            self._position += len(block)
            self._lines += block.count(b"\n")
        return self._lines


def _cut_lines(part: LineBlock) -> Iterator[LineBlock]:
    block = part.data
    step = max(_SMALL_BLOCK // 2, len(block) // 8)
    start = 0
    while start < len(block):
        end = block.find(b"\n", min(len(block), start + step)) + 1 or len(block)
        yield LineBlock(part.position + start, block[start:end])
        start = end


def line_blocks(split: Split, header_bytes: int, until: int | None) -> Iterator[tuple[int, bytes]]:
    """The lines that begin inside the split's byte range, in blocks, each with the bytes before it.

    A line belongs to the range in which its first byte lies: a range that does not begin at the start of
    the file leaves out everything up to the first line end at or after the byte before it.
    """
    with open_file(split.path) as file:
        position = split.start
        if position > header_bytes:
            file.seek(position - 1)
            position += len(file.readline()) - 1
        else:
            # The first line may be a header, or carry the mark; a stream that is unpacked cannot seek.
            file.read(header_bytes)
            position = header_bytes
        while (split.end < 0 or position < split.end) and (until is None or position < until):
            wanted = BLOCK if split.end < 0 else min(BLOCK, split.end - position)
            block = file.read(wanted)
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            after = position + len(block)
            if until is not None and (after > until or not block.endswith(b"\n")):
                block = block[: block.rfind(b"\n", 0, max(0, until - position)) + 1]
            marked = position == 0 and block.startswith(MARK)
            yield (len(MARK), block[len(MARK) :]) if marked else (position, block)
            position = after


def open_file(path: str) -> io.BufferedReader:
    return io.BufferedReader(pa.input_stream(path, compression="detect"), 1 << 16)


@dataclass(frozen=True)
class TextLines:
    """Some lines of a block, and which these are, from 0 on."""

    text: pa.Array
    numbers: np.ndarray

    def pick(self, which: np.ndarray) -> TextLines:
        return TextLines(self.text.filter(pa.array(which)), self.numbers[which])

    def rejected(self, kind: str, reason: str) -> pa.Table:
        count = len(self.numbers)
        parts = ([kind] * count, [reason] * count, self.numbers, self.text)
        return pa.Table.from_arrays(
            [pa.array(p, f.type) for p, f in zip(parts, REJECTED_SCHEMA, strict=True)], schema=REJECTED_SCHEMA
        )

    def shown(self, which: np.ndarray) -> pa.Table:
        """As `conform` shows rows."""
        return pa.table({"line": pa.array(self.numbers[which], pa.int64()), "row": self.text.take(pa.array(which))})


def all_lines(block: bytes) -> pa.Array:
    """The lines of the block, without copying them one by one."""
    if not block.endswith(b"\n"):
        block += b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])


def lines_of(block: bytes) -> TextLines:
    """Those that are not blank, as bytes."""
    lines = all_lines(block)
    full = np.asarray(pc.greater(pc.binary_length(_trim(lines)), 0))
    return TextLines(lines.filter(pa.array(full)), np.flatnonzero(full))


def _trim(lines: pa.Array) -> pa.Array:
    """Without the white space around each line; works on bytes that may not be UTF-8."""
    text = lines.view(pa.string())
    return pc.ascii_trim_whitespace(text)


def readable_lines(block: bytes) -> tuple[TextLines, pa.Table | None]:
    """The lines as text, and those that are no UTF-8 set aside."""
    lines = lines_of(block)
    text, bad = convert(pa.chunked_array([lines.text]), "string")
    whole = TextLines(pc.utf8_rtrim(text.combine_chunks(), "\r\n"), lines.numbers)
    if bad is None:
        return whole, None
    which = np.asarray(bad)
    escaped = connection().from_arrow(pa.table({"x": lines.text.filter(bad)})).project("x::VARCHAR AS y")
    rows = escaped.to_arrow_table().column(0).cast(pa.string()).combine_chunks()
    return whole.pick(~which), TextLines(rows, lines.numbers[which]).rejected(NOT_UTF8, "not UTF-8")


def is_utf8(block: bytes) -> bool:
    """All of it, also what nobody reads: what is set aside must not depend on where the input is cut."""
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(block)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    given = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(given) if given else None


def counted(result: Conformed, other: pa.Table | None, rows: int) -> Result:
    """Adds what was set aside before the types were looked at; `rows` counts all lines."""
    return Conformed(result.table, together([other, result.rejected])), rows


def length(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


def has_infinite(table: pa.Table) -> bool:
    """A number beyond its type is read as that: the slow way tells it from one that the text names so."""
    floating = (column for column in table.columns if pa.types.is_floating(column.type))
    return any(pc.any(pc.is_inf(column)).as_py() for column in floating)
