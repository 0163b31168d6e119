"""Tables that the program appends: each call is a unit, durable when it returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from thalweg import errors
from thalweg.model.offsets import SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Schema, SourceSpec, Stream, name_in
from thalweg.source.chunks import Chunk, Piece, SplitReading, chunks
from thalweg.source.conform import conform
from thalweg.source.contract import Source, SourceKind, Units
from thalweg.source.cut import check_units, cut_range, rows_per_split
from thalweg.source.memory_units import MemoryUnits
from thalweg.source.schema import as_schema
from thalweg.state.reader import StateReader
from thalweg.state.storage import Storage


class MemoryOptions(Struct, frozen=True):
    max_files_per_batch: (
        Annotated[int, Meta(ge=1, description="How many appended tables a batch takes at most.")] | None
    ) = None


def _as_table(rows: Any, schema: Schema) -> pa.Table:
    """Rows in any of the forms that a program may have them in."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    try:
        if type(rows).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(rows, preserve_index=False)
        listed = list(rows)
        if not all(isinstance(row, Mapping) for row in listed) or isinstance(rows, Mapping):
            raise TypeError(f"{type(rows).__name__} is not a table, a DataFrame or a list of dictionaries")
        names = [*dict.fromkeys(name for row in listed for name in row)] or [*schema.names]
        return pa.table({name: pa.array([row.get(name) for row in listed]) for name in names})
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as failure:
        raise errors.source_append_mismatch(str(failure)) from None


def _nobody() -> None:
    """Waits for rows."""


class Memory(Source):
    """Arrow tables that the program appends.

    Until the source is bound to a stream the tables wait in this process; from then on each append is durable before
    it returns, until the session stops.
    """

    def __init__(self, schema: Schema, options: MemoryOptions) -> None:
        self._schema = schema
        self._options = options
        self._lock = threading.Lock()
        self._waiting: list[pa.Table] = []
        self._units: MemoryUnits | None = None
        self._next: int | None = None
        """The number of the next unit; None: it has to be looked up."""
        self._stopped: str | None = None
        """The stream that it was bound to, once the session has stopped."""
        self._stream = ""
        self._tell: Callable[[], None] = _nobody

    def spec(self) -> SourceSpec:
        return SourceSpec("memory", msgspec.to_builtins(self._options))

    def schema(self) -> Schema:
        return self._schema

    def append(self, rows: Any) -> None:
        """Add rows, cast to the schema: an Arrow table or record batch, a pandas DataFrame, or dictionaries, in which
        a key that one of them lacks is NULL. One call is one unit: it is never divided over two batches."""
        table = self._cast(_as_table(rows, self._schema))
        with self._lock:
            if self._stopped is not None:
                raise errors.source_unbound(name_in(self._stopped))
            if self._units is None:
                self._waiting.append(table)
            else:
                self._write(self._units, table)
            tell = self._tell
        tell()

    def attach(self, storage: Storage, stream: str, tell: Callable[[], None] = _nobody) -> None:
        """Keep everything as units of the stream from now on, after those that earlier runs left. `tell` is called
        after every append."""
        with self._lock:
            self._stream, self._tell, self._stopped = stream, tell, None
            self._units, self._next = MemoryUnits(storage, stream), None
            self._next = self._units.settle()
            while self._waiting:
                self._write(self._units, self._waiting[0])
                del self._waiting[0]

    def detach(self) -> None:
        """The session stops: from now on an append is refused, until another one takes the source."""
        with self._lock:
            if self._units is not None:
                self._stopped, self._units, self._tell = self._stream, None, _nobody

    def _cast(self, table: pa.Table) -> pa.Table:
        unknown = [name for name in table.column_names if name not in self._schema]
        if unknown:
            raise errors.source_append_mismatch(f"There is no column {', '.join(unknown)}.")
        if missing := [name for name in self._schema.names if name not in table.column_names]:
            raise errors.source_append_mismatch(f"They have no column {', '.join(missing)}.")
        result = conform(table, self._schema, self._schema.names)
        if result.rejected is not None:
            first = result.rejected.slice(0, 1).to_pylist()[0]
            raise errors.source_append_mismatch(f"{first['reason']}, in row {first['line']}: {first['row']}")
        return result.table

    def _write(self, units: MemoryUnits, table: pa.Table) -> None:
        number = units.settle() if self._next is None else self._next
        self._next = None  # until this has gone well
        units.add(number, table)
        self._next = number + 1


class MemorySourceUnits(Units):
    """A unit is an appended table: the object of that number."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._most = MEMORY.options_of(stream.source).max_files_per_batch
        self._units = MemoryUnits(storage, self.place)
        self._first = self._units.first()
        self._stamp = self._units.stamp()
        self._count = self._units.count()

    def available(self) -> int:
        stamp = self._units.stamp()
        if stamp != self._stamp:
            self._count, self._stamp = self._units.count(), stamp
        return self._count

    def limit(self, start: int, end: int) -> int:
        return end if self._most is None else min(end, start + self._most)

    def mark(self, consumed: int) -> SourceMark:
        return SourceMark(self._count, 0)

    def check(self, mark: SourceMark) -> None:
        if self._count < mark.units:
            raise errors.missing_file(self.storage.locate(self._units.name(mark.units - 1)))

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        check_units(self.stream, end, self.available())
        return [split for number in range(start, end) for split in self._cut(self._units.name(number), parts)]

    def _cut(self, name: str, parts: int) -> list[Split]:
        rows = StateReader(self.storage).rows_of_unit(name)
        cuts = cut_range(0, rows, rows_per_split(rows, parts))
        return [Split(self.stream, "unit", name, low, high, high - low, is_file=False) for low, high in cuts]

    def release(self, end: int) -> None:
        last = end - 1  # kept: that the newest is there can be checked whatever has been read
        for number in range(self._first, last):
            self._units.delete(number)
        self._first = max(self._first, last)


class MemorySourceKind(SourceKind[MemoryOptions]):
    """Rows that the program appends. In SQL the columns have to be named."""

    name = "memory"
    options = MemoryOptions
    changeable = frozenset({"max_files_per_batch"})

    def make(self, stream: str, given: Mapping[str, object], schema: Schema | None = None) -> Memory:
        if schema is None:
            raise errors.unknown_schema(stream)
        return Memory(schema, self.read_options(given))

    def units(self, stream: Stream, storage: Storage) -> MemorySourceUnits:
        return MemorySourceUnits(stream, storage)

    def read(self, asked: SplitReading, storage: Storage | None) -> Iterator[Chunk]:
        """Damage of it is the state's, and nothing that could be set aside. Values were checked when they came."""
        assert storage is not None
        split = asked.split
        rows = StateReader(storage).read_unit(split.path).slice(split.start, split.end - split.start)
        yield from chunks(Piece(rows, rows.num_rows, split.start), asked, trusted=True)


MEMORY = MemorySourceKind()


def memory(schema: Schema | pa.Schema | str, max_files_per_batch: int | None = None) -> Memory:
    """A source that the program itself feeds with `.append(table)`."""
    return Memory(as_schema(schema), MEMORY.read_options({"max_files_per_batch": max_files_per_batch}))
