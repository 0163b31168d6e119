"""Files that match a pattern: a unit is a file, new ones are picked up while the pipeline runs."""

from __future__ import annotations

import glob as globbing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta, Struct

from thalweg import errors
from thalweg.kinds.options import read_options
from thalweg.model.offsets import SourceMark
from thalweg.model.split import CsvOptions, KeptFiles, Split, weigh
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.observe import log
from thalweg.source.chunks import Chunk, SplitReading
from thalweg.source.contract import Source, SourceKind, Units
from thalweg.source.cut import check_units, cut_groups, cut_range, rows_per_split
from thalweg.source.file_formats import read_file
from thalweg.source.listing import COMPRESSIONS, check_directory, list_files
from thalweg.source.log import FILES as FILES_LOG
from thalweg.source.log import File, Log
from thalweg.source.read import read
from thalweg.source.schema import schema_of_file
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
_BYTES_PER_SPLIT = 64 << 20
_WATCHED, _MOST_WATCHED = 60.0, 100
"""Seconds for which a file that was read is looked at again; how many are."""
_ALIASES = {"sep": "delimiter", "multiLine": "multiline", "nullValue": "null_value"}
Given = Mapping[str, object]
"""Options as a user has written them: names and what they should be."""
_Text = Annotated[str, Meta(min_length=1)]
_OneCharacter = Annotated[str, Meta(min_length=1, max_length=1)]


class FilesSourceOptions(Struct, frozen=True):
    """What users say; `KeptFiles` is what is kept of it."""

    path: Annotated[str, Meta(min_length=1, description="A file, a directory or a pattern with `*`, `?`, `**`.")]
    format: Annotated[_Text, Meta(description="`parquet`, `json`, `csv`, `arrow`; suffixes may tell.")] | None = None
    max_files_per_batch: Annotated[int, Meta(ge=1, description="How many files a batch takes at most.")] | None = None
    missing: Annotated[
        Literal["null", "refuse"],
        Meta(description="A column that a file lacks is NULL, or the file is refused."),
    ] = "null"
    header: Annotated[bool, Meta(description="CSV: whether the first line has the names of columns.")] = True
    delimiter: Annotated[_OneCharacter, Meta(description="CSV: what is between two values; also called `sep`.")] = ","
    quote: Annotated[_OneCharacter, Meta(description="CSV: what is around values with special characters.")] = '"'
    multiline: Annotated[bool, Meta(description="CSV: whether there may be line breaks inside quotes.")] = False
    null_value: Annotated[str, Meta(description="CSV: what stands for NULL.")] = ""


class Files(Source):
    """Files that match a pattern; new ones are picked up while the pipeline runs.

    A file must appear whole (write elsewhere, rename into place) and never change. Names that start with
    `.` or `_` are not looked at.
    """

    def __init__(self, given: FilesSourceOptions, reader: Given) -> None:
        """`reader`: those options of CSV that were given."""
        self._given = given
        self._reader = reader
        self._pattern = _absolute_pattern(given.path)
        said = None if given.format is None else _format_named(given.path, given.format)
        self._said = said or _kind_of(self._pattern)
        """The format, if the program says it; otherwise the first file that is there does."""
        self._kind = self._said or _kind_of(min(list_files(self._pattern), default=""))
        if self._said is not None:
            _check_reader(self._said, given, reader)
        elif self._kind is None and os.path.splitext(self._pattern)[1]:
            raise errors.source_format_unknown(self._pattern, FORMATS)

    def recall(self, known: SourceSpec) -> bool:
        """What a file has told then holds, whichever files are there now: others may be the first."""
        if self._said is None and known.kind == "files":
            self._kind = FILES.options_of(known).format
        return True

    def spec(self) -> SourceSpec:
        kind = self._format()
        reader = _check_reader(kind, self._given, self._reader)
        options = KeptFiles(self._pattern, kind, self._given.max_files_per_batch, reader, self._given.missing)
        return SourceSpec("files", msgspec.to_builtins(options))

    def schema(self) -> Schema | None:
        kind, paths = self._format(), list_files(self._pattern)
        options = msgspec.convert(_check_reader(kind, self._given, self._reader), CsvOptions)
        return schema_of_file(min(paths), kind, options) if paths else None

    def check_there(self) -> None:
        check_directory(self._pattern)

    def first_misfit(self, schema: Schema, time: str) -> str | None:
        """The first line whose value in the column is no time, as people read it."""
        kind, paths = self._format(), list_files(self._pattern)
        if kind not in ("csv", "json") or not paths:
            return None
        options = _csv_options(self._given) if kind == "csv" else CsvOptions()
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


class FilesUnits(Units):
    """A unit is a file. The order of discovery is the order of the log, not of the directory."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._options = FILES.options_of(stream.source)
        self._log = Log(storage, self.place, FILES_LOG)
        self._known = {file.path for file in self._log.entries}
        self._is_gone = False
        self._unseen: set[str] = set()
        """What the last look said of the directory and of files, so that the log says it once."""
        self._read = 0
        self._watched: dict[str, tuple[File, float]] = {}
        """Files that were read a moment ago, and when that was."""

    def available(self) -> int:
        self._look_again()
        fresh = [path for path in self._listed() if path not in self._known]
        found = [file for _, file in sorted(self._look_at(fresh), key=lambda pair: (pair[0], pair[1].path))]
        self._log.append(found)
        self._known.update(file.path for file in found)
        self._log.tidy()
        return len(self._log.entries)

    def limit(self, start: int, end: int) -> int:
        most = self._options.max_files_per_batch
        return end if most is None else min(end, start + most)

    def weights(self, start: int, end: int) -> list[int]:
        return [weigh(file.rows, file.size) for file in self._log.entries[start:end]]

    def release(self, end: int) -> None:
        """The newest of the files that were read are watched: who writes them may not be done."""
        now = time.monotonic()
        for file in self._log.entries[max(self._read, end - _MOST_WATCHED) : end]:
            self._watched[file.path] = file, now
        while len(self._watched) > _MOST_WATCHED:
            self._watched.pop(next(iter(self._watched)))
        self._read = end

    def _look_again(self) -> None:
        """At files that were read. What has come since is never read: it is said, once."""
        now = time.monotonic()
        for path, (file, since) in list(self._watched.items()):
            with suppress(OSError):  # gone
                status = os.stat(path)
                if (status.st_size, status.st_mtime_ns) == (file.size, file.modified_ns) and now - since < _WATCHED:
                    continue
                if (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns):
                    log.warning(
                        "source", "file_changed_after_it_was_read",
                        stream=self.stream, file=path, bytes_read=file.size, bytes_now=status.st_size,
                    )  # fmt: skip
            del self._watched[path]

    def mark(self, consumed: int) -> SourceMark:
        return self._log.mark()

    def check(self, mark: SourceMark) -> None:
        self._log.check(mark)

    def _listed(self) -> list[str]:
        try:
            listed = list_files(self._options.glob)
        except errors.SourceError as error:
            if not self._is_gone:
                log.warning("source", "directory_gone", stream=self.stream, error=error.message)
            self._is_gone = True
            return []  # a directory that is taken away has nothing new; the other streams go on
        if self._is_gone:
            log.info("source", "directory_back", stream=self.stream)
        self._is_gone = False
        return listed

    def _look_at(self, paths: Sequence[str]) -> list[tuple[int, File]]:
        found = []
        for path in paths:
            try:
                status = os.stat(path)
            except OSError as error:
                if path not in self._unseen:
                    log.warning("source", "file_not_seen", stream=self.stream, file=path, error=error.strerror)
                self._unseen.add(path)
                continue  # gone again, or not to be seen: it is new once it can be
            self._unseen.discard(path)
            if os.path.isfile(path):
                _check_name(path, self.stream)
                rows, groups = self._count(path)
                seen = File(path, status.st_size, rows, groups, status.st_mtime_ns)
                found.append((seen.modified_ns, seen))
        return found

    def _count(self, path: str) -> tuple[int, int]:
        if self._options.format != "parquet":
            return 0, 0
        try:
            footer = pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            # Kept as a unit all the same: reading it sets it aside with the reason.
            return 0, 0
        return footer.num_rows, footer.num_row_groups

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        check_units(self.stream, end, len(self._log.entries))
        files = self._log.entries[start:end]
        rows = rows_per_split(sum(file.rows for file in files), parts)
        return [self._as_seen(split, file) for file in files for split in self._cut(file, rows)]

    def _as_seen(self, split: Split, file: File) -> Split:
        return msgspec.structs.replace(
            split,
            size=file.size,
            modified_ns=file.modified_ns,
            refuses_missing=self._options.missing == "refuse",
        )

    def _cut(self, file: File, rows_per_split: int) -> list[Split]:
        kind = self._options.format
        if kind == "parquet" and file.groups:
            return cut_groups(self.stream, file.path, file, rows_per_split)
        csv = msgspec.convert(self._options.reader, CsvOptions)
        is_text = kind in ("json", "csv")
        is_one_piece = not is_text or csv.multiline or file.path.lower().endswith(COMPRESSIONS)
        if is_one_piece or file.size <= _BYTES_PER_SPLIT:
            return [Split(self.stream, kind, file.path, 0, -1, file.rows, file.size, csv)]
        cuts = cut_range(0, file.size, _BYTES_PER_SPLIT)
        return [Split(self.stream, kind, file.path, low, high, 0, high - low, csv) for low, high in cuts]


class FilesSourceKind(SourceKind[Any]):
    """Files that match a pattern; new ones are picked up while the pipeline runs."""

    name = "files"
    options = FilesSourceOptions
    changeable = frozenset({"max_files_per_batch", "missing"})
    sets_aside = True

    def make(self, stream: str, given: Mapping[str, object], schema: Schema | None = None) -> Files:
        tabbed = {name: "\t" if value == "\\t" else value for name, value in given.items()}
        options = read_options(FilesSourceOptions, tabbed, self.refuse, _ALIASES)
        named = {_ALIASES.get(name, name): name for name, value in given.items() if value is not None}
        return Files(options, {name: named[name] for name in CsvOptions.__struct_fields__ if name in named})

    def options_of(self, spec: SourceSpec) -> KeptFiles:
        return msgspec.convert(spec.options, KeptFiles)

    def written(self, spec: SourceSpec) -> dict[str, object]:
        kept = self.options_of(spec)
        own = {"path": kept.glob, "format": kept.format, "max_files_per_batch": kept.max_files_per_batch}
        found = {**own, "missing": kept.missing, **msgspec.to_builtins(kept.reader)}
        return {name: value for name, value in found.items() if value is not None}

    def trouble(self, options: KeptFiles) -> str | None:
        try:
            check_directory(options.glob)
        except errors.SourceError as error:
            return error.message
        return None

    def units(self, stream: Stream, storage: Storage) -> FilesUnits:
        return FilesUnits(stream, storage)

    def read(self, asked: SplitReading, storage: Storage | None) -> Iterator[Chunk]:
        return read_file(asked)


FILES = FilesSourceKind()


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
    JSON is NULL; a line that has none of the columns is set aside.

    Reader options, for CSV: header (true), delimiter, quote, null_value (empty), multiline (false: a line
    break inside quotes is a fault). Times in CSV and JSON are ISO-8601 text, with a zone or in UTC.
    """
    keywords = {"format": format, "max_files_per_batch": max_files_per_batch, "missing": missing, **reader_options}
    return FILES.make("", {"path": glob, **keywords})


def _absolute_pattern(pattern: str) -> str:
    if "://" in os.fspath(pattern):
        raise errors.source_url(os.fspath(pattern))
    path = os.path.abspath(os.path.expanduser(os.fspath(pattern)))
    return os.path.join(globbing.escape(path), "*") if os.path.isdir(path) else path


def _kind_of(path: str) -> str | None:
    """The format that the suffix of a file or a pattern stands for."""
    stem, suffix = os.path.splitext(path.lower())
    return _SUFFIXES.get(os.path.splitext(stem)[1] if suffix in COMPRESSIONS else suffix)


def _format_named(path: str, format_: str) -> str:
    found = _SUFFIXES.get("." + format_.lower(), format_.lower())
    if found not in FORMATS:
        raise errors.source_format_unknown(path, FORMATS)
    return found


def _check_reader(format_: str, options: FilesSourceOptions, given: Given) -> dict[str, str | bool]:
    """All options of the reader, given or not."""
    if format_ == "csv":
        return msgspec.structs.asdict(_csv_options(options))
    for name in given.values():
        raise errors.source_option_invalid("files", str(name), f"is of CSV: format {format_} has no such option")
    return {}


def _csv_options(options: FilesSourceOptions) -> CsvOptions:
    return CsvOptions(**{name: getattr(options, name) for name in CsvOptions.__struct_fields__})


def _check_name(path: str, stream: str) -> None:
    """A name of other bytes could neither be kept nor sent to a task."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise errors.source_name_unusable(ascii(path), stream) from None
