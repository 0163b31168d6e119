"""Rows that were read, made to fit the stream: a million at a time, faults set aside with their reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.conform import REJECTED_SCHEMA, Admission, conform

ROWS_PER_CHUNK = 1_000_000


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
class Piece:
    """A part of a split as it is, before its types are made to fit."""

    table: pa.Table
    rows: int
    first: int | None = 0
    """The number of its first row in the file."""


@dataclass(frozen=True)
class SplitReading:
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


def chunks(piece: Piece, asked: SplitReading, trusted: bool = False) -> Iterator[Chunk]:
    """The piece in the stream's types; one larger than a chunk is cut without copying."""
    for start in range(0, piece.rows, ROWS_PER_CHUNK):
        rows = min(ROWS_PER_CHUNK, piece.rows - start)
        part = piece.table.slice(start, rows) if piece.rows > rows else piece.table
        result = conform(
            part, asked.stream.schema, asked.columns, asked.admission,
            first=None if piece.first is None else piece.first + start, trusted=trusted,
        )  # fmt: skip
        yield Chunk(result.table, result.rejected, rows)
