"""The sources that users name: `files`, `memory`, `generate`. Each is a spec (plain data) and a schema."""

from __future__ import annotations

import glob as globbing
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from thalweg import errors
from thalweg.model.split import CsvOptions, FilesOptions, Split
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.source import generate as generators
from thalweg.source.conform import conform
from thalweg.source.listing import COMPRESSIONS, list_files
from thalweg.source.memory_units import MemoryUnits
from thalweg.source.read import read
from thalweg.source.schema import as_schema, schema_of_file
from thalweg.state.storage import Storage

FORMATS = ("parquet", "json", "csv", "arrow")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
Given = Mapping[str, object]
"""Options as a user has written them: names and what they should be."""
_OPTION_ALIASES = {"sep": "delimiter", "multiLine": "multiline", "nullValue": "null_value"}


class Source(Protocol):
    """What a stream can be made of."""

    def spec(self) -> SourceSpec: ...

    def schema(self) -> Schema | None:
        """None: not known yet; the columns of the stream must be given."""
        ...


class Files:
    """Files that match a pattern; new ones are picked up while the pipeline runs.

    A file must appear whole (write elsewhere, rename into place) and never change. Names that start with
    `.` or `_` are not looked at.
    """

    def __init__(
        self, pattern: str, kind: str | None, max_files_per_batch: int | None, missing: str, options: Given
    ) -> None:
        if missing not in ("null", "refuse"):
            raise errors.source_option_invalid("files", "missing", f"{missing!r} is neither 'null' nor 'refuse'")
        self._missing = missing
        self._pattern = _absolute_pattern(pattern)
        self._limit = _positive("files", "max_files_per_batch", max_files_per_batch)
        self._options = options
        self._said = kind or _kind_of(self._pattern)
        """The format, if the program says it; otherwise the first file that is there does."""
        self._kind = self._said or _kind_of(min(list_files(self._pattern), default=""))
        if self._said is not None:
            _check_reader(self._said, options)
        elif self._kind is None and os.path.splitext(self._pattern)[1]:
            raise errors.source_format_unknown(self._pattern, FORMATS)

    def recall(self, known: SourceSpec) -> None:
        """After a restart: what a file has told then holds, whichever files are there now."""
        if self._said is None and known.kind == "files":
            self._kind = msgspec.convert(known.options, FilesOptions).format

    def spec(self) -> SourceSpec:
        kind = self._format()
        reader = _check_reader(kind, self._options)
        options = FilesOptions(self._pattern, kind, self._limit, reader, self._missing)
        return SourceSpec("files", msgspec.to_builtins(options))

    def schema(self) -> Schema | None:
        kind, paths = self._format(), list_files(self._pattern)
        options = msgspec.convert(_check_reader(kind, self._options), CsvOptions)
        return schema_of_file(min(paths), kind, options) if paths else None

    def first_misfit(self, schema: Schema, time: str) -> str | None:
        """The first line whose value in the column is no time, as people read it."""
        kind, paths = self._format(), list_files(self._pattern)
        if kind not in ("csv", "json") or not paths:
            return None
        options = _csv_options(self._options) if kind == "csv" else CsvOptions()
        split = Split("", kind, min(paths), 0, -1, csv=options)
        for chunk in read(split, Stream("", schema, time, 0, self.spec()), [time], None):
            if chunk.rejected is not None:
                first = chunk.rejected.slice(0, 1).to_pylist()[0]
                return f"what line {first['line']} of {split.path} says: {first['row'][:200]}"
        return None

    def _format(self) -> str:
        if self._kind is None:
            raise errors.source_format_unknown(self._pattern, FORMATS)
        return self._kind


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


class Memory:
    """Arrow tables that the program appends.

    Until the source is bound to a stream the tables wait in this process; from then on each append is durable before
    it returns, until the session stops.
    """

    def __init__(self, schema: Schema, max_files_per_batch: int | None) -> None:
        self._schema = schema
        self._limit = _positive("memory", "max_files_per_batch", max_files_per_batch)
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
        return SourceSpec("memory", {"max_files_per_batch": self._limit})

    def schema(self) -> Schema:
        return self._schema

    def append(self, rows: Any) -> None:
        """Add rows, cast to the schema: an Arrow table or record batch, a pandas DataFrame, or dictionaries, in which
        a key that one of them lacks is NULL. One call is one unit: it is never divided over two batches."""
        table = self._cast(_as_table(rows, self._schema))
        with self._lock:
            if self._stopped is not None:
                raise errors.source_unbound(self._stopped)
            if self._units is None:
                self._waiting.append(table)
            else:
                self._write(self._units, table)
            tell = self._tell
        tell()

    def bind(self, storage: Storage, stream: str, tell: Callable[[], None] = _nobody) -> None:
        """Keep everything as units of the stream from now on, after those that earlier runs left. `tell` is called
        after every append."""
        with self._lock:
            self._stream, self._tell, self._stopped = stream, tell, None
            self._units, self._next = MemoryUnits(storage, stream), None
            self._next = self._units.settle()
            while self._waiting:
                self._write(self._units, self._waiting[0])
                del self._waiting[0]

    def unbind(self) -> None:
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


class Generate:
    """Rows that are made up, the same ones for the same seed."""

    def __init__(self, name: str, options: Given) -> None:
        self._generator = generators.check_options(name, options)

    def spec(self) -> SourceSpec:
        return SourceSpec("generate", msgspec.to_builtins(self._generator))

    def schema(self) -> Schema:
        return generators.schema_of(self._generator)


def files(
    glob: str,
    format: str | None = None,
    max_files_per_batch: int | None = None,
    missing: str = "null",
    **reader_options: Any,
) -> Files:
    """Parquet, JSON lines, CSV or Arrow IPC files; `format` is taken from the suffix if not given.

    `missing`: what becomes of a file without some columns of the stream. "null": they are NULL, and the file is
    counted; "refuse": the file is set aside. Without the event time it always is. A field that is not in a line of
    JSON is NULL.

    Reader options, for CSV: header (true), delimiter, quote, null_value (empty), multiline (false: a line
    break inside quotes is a fault). Times in CSV and JSON are ISO-8601 text, with a zone or in UTC.
    """
    if format is not None:
        format = _SUFFIXES.get("." + format.lower(), format.lower())
        if format not in FORMATS:
            raise errors.source_format_unknown(glob, FORMATS)
    return Files(glob, format, max_files_per_batch, missing, reader_options)


def memory(schema: Schema | pa.Schema | str, max_files_per_batch: int | None = None) -> Memory:
    """A source that the program itself feeds with `.append(table)`."""
    return Memory(as_schema(schema), max_files_per_batch)


def generate(name: str, **options: Any) -> Generate:
    """Made-up rows of the generator `name`: purchases, ads, ajoin or facts. The same seed gives the same rows.

    rows: how many (None: no end). rows_per_second (1000): of event time, so it does not say how fast they come; pace
    does: rows a second of real time (None: as fast as they are read). rows_per_batch (1,000,000). start: the first
    event time. out_of_order: seconds by which a row may come late. seed. zipf: skew of the keys (0: none).
    Of purchases and ads also users, packs, packs_per_user; of ajoin keys, stream; of facts keys, many: how many
    different values there are.
    """
    return Generate(name, options)


def _absolute_pattern(pattern: str) -> str:
    if "://" in os.fspath(pattern):
        raise errors.source_url(os.fspath(pattern))
    path = os.path.abspath(os.path.expanduser(os.fspath(pattern)))
    return os.path.join(globbing.escape(path), "*") if os.path.isdir(path) else path


def _kind_of(path: str) -> str | None:
    """The format that the suffix of a file or a pattern stands for."""
    stem, suffix = os.path.splitext(path.lower())
    return _SUFFIXES.get(os.path.splitext(stem)[1] if suffix in COMPRESSIONS else suffix)


def _positive(source: str, option: str, value: int | None) -> int | None:
    try:
        number = None if value is None else int(value)
    except ValueError:
        number = 0
    if number is not None and number < 1:
        raise errors.source_option_invalid(source, option, f"{value!r} is not a number above 0")
    return number


def _check_reader(kind: str, options: Given) -> dict[str, str | bool]:
    """All options of the reader, given or not."""
    if kind == "csv":
        return msgspec.structs.asdict(_csv_options(options))
    for name in options:
        raise errors.source_option_invalid("files", name, f"Format {kind} has no such option.")
    return {}


def _csv_options(options: Given) -> CsvOptions:
    result = CsvOptions()
    for given, value in options.items():
        name = _OPTION_ALIASES.get(given, given)
        if name not in CsvOptions.__struct_fields__:
            known = ", ".join(CsvOptions.__struct_fields__)
            raise errors.source_option_invalid("files", given, f"CSV has {known}.")
        read = _boolean(name, value) if isinstance(getattr(result, name), bool) else _text(name, str(value))
        result = msgspec.structs.replace(result, **{name: read})
    return result


def _text(name: str, value: str) -> str:
    if name not in ("delimiter", "quote"):
        return value
    value = "\t" if value == "\\t" else value
    if len(value) != 1:
        raise errors.source_option_invalid("files", name, "It must be one character.")
    return value


def _boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise errors.source_option_invalid("files", name, f"{value!r} is neither true nor false")
    return text == "true"
