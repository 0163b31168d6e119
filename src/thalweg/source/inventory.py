"""What a stream's source has to offer: a numbered list of units that only grows and is never forgotten.

A batch is a range of units per stream. Manifests keep the ranges; the inventory makes sure that number n means
the same input after every restart, by writing down a discovery before anyone hears of it.
"""

from __future__ import annotations

import os
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thalweg import errors
from thalweg.model.generator import Generator
from thalweg.model.offsets import SourceMark
from thalweg.model.split import CsvOptions, FilesOptions, Split
from thalweg.model.stream import Stream
from thalweg.observe import log
from thalweg.source.listing import COMPRESSIONS, list_files
from thalweg.source.log import FILES, LANDED, File, Landed, Log, folder_of
from thalweg.source.memory_units import MemoryUnits
from thalweg.state.durable import delete_tree
from thalweg.state.reader import StateReader
from thalweg.state.sealed import create_value, is_sealed, unseal
from thalweg.state.storage import Storage

ENDLESS = 1 << 62
"""The units of a generator without an end."""
_ROWS_PER_SPLIT = 750_000
_LEAST_ROWS_PER_SPLIT = 50_000
_BYTES_PER_SPLIT = 64 << 20


class Units(ABC):
    """The contract: how one kind of source numbers what it has."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        self.stream = stream.name
        self.storage = storage
        most = stream.source.options.get("max_files_per_batch")
        self._most: int | None = most

    @abstractmethod
    def available(self) -> int:
        """How many there are by now; each of them is durably known when this returns."""

    def limit(self, start: int, end: int) -> int:
        return end if self._most is None else min(end, start + self._most)

    @abstractmethod
    def splits(self, start: int, end: int, parts: int) -> list[Split]: ...

    @abstractmethod
    def mark(self, consumed: int) -> SourceMark:
        """By which a later run can tell whether the units are still the same."""

    @abstractmethod
    def check(self, mark: SourceMark) -> None:
        """A StateError if something is missing that was there when the mark was made."""

    def release(self, end: int) -> None:  # noqa: B027 - most sources keep nothing of their own
        """Units before `end` will never be read again."""


class Inventory:
    """The units of one stream, for the one loop that plans its batches: only one may have it open."""

    def __init__(self, stream: Stream, storage: Storage, mark: SourceMark | None = None) -> None:
        """`mark`: of the newest batch that was committed."""
        self.stream = stream
        self._units = _KINDS[stream.source.kind](stream, storage)
        if mark is not None:
            self._units.check(mark)

    def available(self) -> int:
        """How many units there are by now; each of them is durably known when this returns."""
        return self._units.available()

    def limit(self, start: int, end: int) -> int:
        """How far a batch that starts at `start` may go, if `end` units are there."""
        return self._units.limit(start, end)

    def splits(self, start: int, end: int, parts: int = 2) -> list[Split]:
        """The units start..end-1 as splits in order, cut so that `parts` tasks can share them evenly."""
        return self._units.splits(start, end, parts)

    def release(self, end: int) -> None:
        """Units before `end` will never be read again: give back what they occupy."""
        self._units.release(end)

    def mark(self, consumed: int) -> SourceMark:
        """What is known of the source, of which `consumed` units have been read."""
        return self._units.mark(consumed)


class _Files(Units):
    """A unit is a file. The order of discovery is the order of the log, not of the directory."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._options = msgspec.convert(stream.source.options, FilesOptions)
        self._log = Log(storage, self.stream, FILES)
        self._known = {file.path for file in self._log.entries}
        self._is_gone = False
        self._unseen: set[str] = set()
        """What the last look said of the directory and of files, so that the log is told once."""

    def available(self) -> int:
        fresh = [path for path in self._listed() if path not in self._known]
        found = [file for _, file in sorted(self._look_at(fresh), key=lambda pair: (pair[0], pair[1].path))]
        self._log.append(found)
        self._known.update(file.path for file in found)
        self._log.tidy()
        return len(self._log.entries)

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
        _check_units(self.stream, end, len(self._log.entries))
        files = self._log.entries[start:end]
        rows = _rows_per_split(sum(file.rows for file in files), parts)
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
            return _cut_groups(self.stream, file.path, file, rows_per_split)
        csv = msgspec.convert(self._options.reader, CsvOptions)
        is_text = kind in ("json", "csv")
        is_one_piece = not is_text or csv.multiline or file.path.lower().endswith(COMPRESSIONS)
        if is_one_piece or file.size <= _BYTES_PER_SPLIT:
            return [Split(self.stream, kind, file.path, 0, -1, file.rows, file.size, csv)]
        cuts = _cut_range(0, file.size, _BYTES_PER_SPLIT)
        return [Split(self.stream, kind, file.path, low, high, 0, high - low, csv) for low, high in cuts]


class _Memory(Units):
    """A unit is an appended table: the object of that number."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._units = MemoryUnits(storage, self.stream)
        self._first = self._units.first()
        self._stamp = self._units.stamp()
        self._count = self._units.count()

    def available(self) -> int:
        stamp = self._units.stamp()
        if stamp != self._stamp:
            self._count, self._stamp = self._units.count(), stamp
        return self._count

    def mark(self, consumed: int) -> SourceMark:
        return SourceMark(self._count, 0)

    def check(self, mark: SourceMark) -> None:
        if self._count < mark.units:
            raise errors.missing_file(self.storage.locate(self._units.name(mark.units - 1)))

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        _check_units(self.stream, end, self.available())
        return [split for number in range(start, end) for split in self._cut(self._units.name(number), parts)]

    def _cut(self, name: str, parts: int) -> list[Split]:
        rows = StateReader(self.storage).rows_of_unit(name)
        cuts = _cut_range(0, rows, _rows_per_split(rows, parts))
        return [Split(self.stream, "unit", name, low, high, high - low) for low, high in cuts]

    def release(self, end: int) -> None:
        last = end - 1  # kept: that the newest is there can be checked whatever has been read
        for number in range(self._first, last):
            self._units.delete(number)
        self._first = max(self._first, last)


class _Spark(Units):
    """A unit is a micro-batch of a streaming DataFrame, landed as Parquet files and then logged."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._log = Log(storage, self.stream, LANDED)
        self._released = 0

    def available(self) -> int:
        if self._log.read_new():
            self._log.tidy()
        return len(self._log.entries)

    def mark(self, consumed: int) -> SourceMark:
        return self._log.mark()

    def check(self, mark: SourceMark) -> None:
        self._log.check(mark)

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        _check_units(self.stream, end, self.available())
        files = [(path, file) for batch in self._log.entries[start:end] for path, file in self._files_of(batch)]
        rows = _rows_per_split(sum(file.rows for _, file in files), parts)
        return [split for path, file in files for split in _cut_groups(self.stream, path, file, rows)]

    def release(self, end: int) -> None:
        for batch in self._log.entries[self._released : end]:
            for directory in {os.path.dirname(path) for path, _ in self._files_of(batch)}:
                delete_tree(directory)
        self._released = max(self._released, end)

    def _files_of(self, batch: Landed) -> list[tuple[str, File]]:
        directory = batch.directory or self.storage.locate(folder_of(self.stream))
        return [(os.path.join(directory, file.path), file) for file in batch.files]


class _Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: str
    first_seen: float
    """The wall-clock time of row 0."""


class _OldPace(msgspec.Struct):
    first_seen: float


class _Generate(Units):
    """A unit is a row."""

    clock: Callable[[], float] = staticmethod(time.time)

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._name = f"{folder_of(self.stream)}pace.json"
        self._generator: Generator = msgspec.convert(stream.source.options, Generator)
        self._pace = self._generator.pace
        self._first_seen = None if self._pace is None else self._find()

    def available(self) -> int:
        rows = self._generator.rows
        total = ENDLESS if rows is None else rows
        if self._pace is None:
            return total
        first_seen = self._first_seen = self._first_seen or self._begin() or self.clock()
        return min(total, int((self.clock() - first_seen) * self._pace))

    def mark(self, consumed: int) -> SourceMark:
        return SourceMark(consumed, self._crc())

    def check(self, mark: SourceMark) -> None:
        """The rows are made up and cannot be lost; since when they come at their pace can."""
        if self._pace is None or not mark.units:
            return
        if self._first_seen is None:
            raise errors.missing_file(self.storage.locate(self._name))
        if self._crc() != mark.crc:
            raise errors.corrupt_file(self.storage.locate(self._name), "the pace that rows came at", "another one")

    def _begin(self) -> float | None:
        """The pace goes on from there after a restart."""
        pace = _Pace(self.stream, self.clock())
        # It is there if an attempt has failed that had made it.
        return pace.first_seen if create_value(self.storage, self._name, "pace", pace) else self._find()

    def _find(self) -> float | None:
        data, place = self.storage.find(self._name), self.storage.locate(self._name)
        if data is None:
            return None
        if not is_sealed(data):
            return _read_old_pace(place, data)
        pace = unseal(place, "pace", data, _Pace)
        if pace.stream != self.stream:
            raise errors.corrupt_file(place, f"the pace of {self.stream}", f"that of {pace.stream}")
        return pace.first_seen

    def _crc(self) -> int:
        return 0 if self._first_seen is None else zlib.crc32(msgspec.json.encode(self._first_seen))

    def limit(self, start: int, end: int) -> int:
        return min(end, start + self._generator.rows_per_batch)

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        cuts = _cut_range(start, end, _rows_per_split(end - start, parts))
        of = self._generator
        return [Split(self.stream, "generate", "", low, high, high - low, generator=of) for low, high in cuts]


_KINDS: dict[str, type[Units]] = {
    "files": _Files,
    "memory": _Memory,
    "spark": _Spark,
    "generate": _Generate,
}


def _read_old_pace(place: str, data: bytes) -> float:
    try:
        return msgspec.json.decode(data, type=_OldPace).first_seen
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.corrupt_file(place, "a pace", str(error)) from error


def _cut_groups(stream: str, path: str, file: File, rows_per_split: int) -> list[Split]:
    """A Parquet file as ranges of row groups."""
    rows_per_group = max(1, file.rows / file.groups)
    cuts = _cut_range(0, file.groups, max(1, round(rows_per_split / rows_per_group)))
    return [
        Split(
            stream,
            "parquet",
            path,
            low,
            high,
            rows=file.rows * high // file.groups - file.rows * low // file.groups,
            bytes=file.size * (high - low) // file.groups,
        )
        for low, high in cuts
    ]


def _rows_per_split(rows: int, parts: int) -> int:
    """Small enough that `parts` tasks get some each, large enough that a split is worth its overhead."""
    return min(_ROWS_PER_SPLIT, max(_LEAST_ROWS_PER_SPLIT, -(-rows // max(1, parts))))


def _cut_range(start: int, end: int, step: int) -> list[tuple[int, int]]:
    """[start, end) as pieces of about `step`, all of nearly the same length."""
    pieces = max(1, round((end - start) / step)) if end > start else 0
    bounds = [start + (end - start) * i // pieces for i in range(pieces + 1)] if pieces else []
    return list(pairwise(bounds))


def _check_name(path: str, stream: str) -> None:
    """A name of other bytes could neither be kept nor sent to a task."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise errors.source_name_unusable(ascii(path), stream) from None


def _check_units(stream: str, wanted: int, found: int) -> None:
    if wanted > found:
        raise errors.source_units_missing(stream, wanted, found)
