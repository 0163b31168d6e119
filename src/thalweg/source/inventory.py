"""What a stream's source has to offer: a numbered list of units that only grows and is never forgotten.

A batch is a range of units per stream. Manifests keep the ranges; the inventory makes sure that number n means
the same input after every restart, by writing down a discovery before anyone hears of it.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from thalweg import errors
from thalweg.model.stream import Stream
from thalweg.source.listing import COMPRESSIONS, count_memory_units, first_memory_unit, list_files, memory_unit
from thalweg.source.log import Log
from thalweg.source.registry import source_dir
from thalweg.source.split import Split
from thalweg.state.durable import delete, delete_tree, make_directory, sync_directory, write_json

ENDLESS = 1 << 62
"""The units of a generator without an end."""
FILES_LOG = "files.log"
LANDED_LOG = "landed.log"
_ROWS_PER_SPLIT = 750_000
_LEAST_ROWS_PER_SPLIT = 50_000
_BYTES_PER_SPLIT = 64 << 20


class Units(ABC):
    """The contract: how one kind of source numbers what it has."""

    def __init__(self, stream: Stream, directory: Path) -> None:
        self.stream = stream.name
        self.directory = directory
        self.options = stream.source.options

    @abstractmethod
    def available(self) -> int:
        """How many there are by now; each of them is durably known when this returns."""

    def limit(self, start: int, end: int) -> int:
        most = self.options.get("max_files_per_batch")
        return end if most is None else min(end, start + most)

    @abstractmethod
    def splits(self, start: int, end: int, parts: int) -> list[Split]: ...

    def release(self, end: int) -> None:  # noqa: B027 - most sources keep nothing of their own
        """Units before `end` will never be read again."""


class Inventory:
    """The units of one stream, for the one loop that plans its batches: only one may have it open."""

    def __init__(self, stream: Stream, state_dir: str | Path) -> None:
        self.stream = stream
        self._units = _KINDS[stream.source.kind](stream, source_dir(state_dir, stream.name))

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


@dataclass(frozen=True)
class _File:
    path: str
    size: int
    rows: int = 0
    groups: int = 0
    """Parquet row groups; 0: not Parquet, or not readable."""


class _Files(Units):
    """A unit is a file. The order of discovery is the order of the log, not of the directory."""

    def __init__(self, stream: Stream, directory: Path) -> None:
        super().__init__(stream, make_directory(directory))
        self._log = Log(self.directory / FILES_LOG)
        self._files = [_File(**entry) for entry in self._log.read_new()]
        self._known = {file.path for file in self._files}

    def available(self) -> int:
        fresh = [path for path in self._listed() if path not in self._known]
        found = [file for _, file in sorted(self._look_at(fresh), key=lambda pair: (pair[0], pair[1].path))]
        self._log.append([vars(file) for file in found])
        self._files += found
        self._known.update(file.path for file in found)
        return len(self._files)

    def _listed(self) -> list[str]:
        try:
            return list_files(self.options["glob"])
        except errors.SourceError:
            return []  # a directory that is taken away has nothing new; the other streams go on

    def _look_at(self, paths: Sequence[str]) -> list[tuple[int, _File]]:
        found = []
        for path in paths:
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone again, or not to be seen: it is new once it can be
            if os.path.isfile(path):
                rows, groups = self._count(path)
                found.append((status.st_mtime_ns, _File(path, status.st_size, rows, groups)))
        return found

    def _count(self, path: str) -> tuple[int, int]:
        if self.options["format"] != "parquet":
            return 0, 0
        try:
            footer = pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            # Kept as a unit all the same: reading it sets it aside with the reason.
            return 0, 0
        return footer.num_rows, footer.num_row_groups

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        _check_units(self.stream, end, len(self._files))
        files = self._files[start:end]
        rows = _rows_per_split(sum(file.rows for file in files), parts)
        return [split for file in files for split in self._cut(file, rows, parts)]

    def _cut(self, file: _File, rows_per_split: int, parts: int) -> list[Split]:
        kind, reader = self.options["format"], self.options["reader"]
        if kind == "parquet" and file.groups:
            return _cut_groups(self.stream, file, rows_per_split)
        whole = Split(self.stream, kind, file.path, 0, -1, file.rows, file.size, reader)
        is_one_piece = (
            kind not in ("json", "csv") or reader.get("multiline") or file.path.lower().endswith(COMPRESSIONS)
        )
        if is_one_piece or file.size <= _BYTES_PER_SPLIT:
            return [whole]
        cuts = _cut_range(0, file.size, _BYTES_PER_SPLIT)
        return [Split(self.stream, kind, file.path, low, high, 0, high - low, reader) for low, high in cuts]


class _Memory(Units):
    """A unit is an appended table: the file of that number."""

    def __init__(self, stream: Stream, directory: Path) -> None:
        super().__init__(stream, directory)
        self._count = 0
        self._first = first_memory_unit(directory)

    def available(self) -> int:
        count = count_memory_units(self.directory, self._count)
        if count > self._count:
            sync_directory(self.directory)  # a unit has its name before `append` has made that durable
        self._count = count
        return count

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        _check_units(self.stream, end, count_memory_units(self.directory, max(start, self._count)))
        return [split for number in range(start, end) for split in self._cut(number, parts)]

    def _cut(self, number: int, parts: int) -> list[Split]:
        try:
            return cut_arrow(self.stream, memory_unit(self.directory, number), parts)
        except FileNotFoundError:  # the newest is there and says that this one was
            raise errors.source_units_missing(self.stream, number + 1, number) from None

    def release(self, end: int) -> None:
        last = end - 1  # kept: it says how many there were
        for number in range(self._first, last):
            delete(memory_unit(self.directory, number))
        self._first = max(self._first, last)


class _Spark(Units):
    """A unit is a micro-batch of a streaming DataFrame, landed as Parquet files and then logged."""

    def __init__(self, stream: Stream, directory: Path) -> None:
        super().__init__(stream, directory)
        self._log = Log(self.directory / LANDED_LOG)
        self._batches: list[list[_File]] = []
        self._released = 0

    def available(self) -> int:
        for entry in self._log.read_new():
            files = [
                _File(str(self.directory / name), size, rows, groups) for name, rows, size, groups in entry["files"]
            ]
            self._batches.append(files)
        return len(self._batches)

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        _check_units(self.stream, end, self.available())
        files = [file for batch in self._batches[start:end] for file in batch]
        rows = _rows_per_split(sum(file.rows for file in files), parts)
        return [split for file in files for split in _cut_groups(self.stream, file, rows)]

    def release(self, end: int) -> None:
        for batch in self._batches[self._released : end]:
            for directory in {os.path.dirname(file.path) for file in batch}:
                delete_tree(Path(directory))
        self._released = max(self._released, end)


class _Generate(Units):
    """A unit is a row."""

    clock: Callable[[], float] = staticmethod(time.time)

    def available(self) -> int:
        rows = self.options["rows"]
        total = ENDLESS if rows is None else int(rows)
        pace = self.options["pace"]
        return total if pace is None else min(total, int((self.clock() - self._first_seen()) * pace))

    def _first_seen(self) -> float:
        """The wall-clock time of row 0; the pace goes on from there after a restart."""
        path = self.directory / "pace.json"
        try:
            return float(json.loads(path.read_bytes())["first_seen"])
        except FileNotFoundError:
            make_directory(self.directory)
            first_seen = self.clock()
            write_json(path, {"first_seen": first_seen})
            return first_seen

    def limit(self, start: int, end: int) -> int:
        return min(end, start + int(self.options["rows_per_batch"]))

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        cuts = _cut_range(start, end, _rows_per_split(end - start, parts))
        return [
            Split(self.stream, "generate", "", low, high, rows=high - low, options=self.options) for low, high in cuts
        ]


_KINDS: dict[str, type[Units]] = {
    "files": _Files,
    "memory": _Memory,
    "spark": _Spark,
    "generate": _Generate,
}


def _cut_groups(stream: str, file: _File, rows_per_split: int) -> list[Split]:
    """A Parquet file as ranges of row groups."""
    rows_per_group = max(1, file.rows / file.groups)
    cuts = _cut_range(0, file.groups, max(1, round(rows_per_split / rows_per_group)))
    return [
        Split(
            stream,
            "parquet",
            file.path,
            low,
            high,
            rows=file.rows * high // file.groups - file.rows * low // file.groups,
            bytes=file.size * (high - low) // file.groups,
        )
        for low, high in cuts
    ]


def cut_arrow(stream: str, path: Path, parts: int) -> list[Split]:
    """An Arrow file of ours, cut between record batches where it is large."""
    with pa.memory_map(str(path)) as file:
        reader = pa_ipc.open_file(file)
        batches = reader.num_record_batches
        rows = sum(reader.get_batch(i).num_rows for i in range(batches))
    size = path.stat().st_size
    per_batch = max(1, rows / max(1, batches))
    cuts = _cut_range(0, batches, max(1, round(_rows_per_split(rows, parts) / per_batch)))
    return [
        Split(
            stream,
            "arrow",
            str(path),
            low,
            high,
            rows=rows * high // batches - rows * low // batches,
            bytes=size * (high - low) // batches,
            options={"own": True},
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


def _check_units(stream: str, wanted: int, found: int) -> None:
    if wanted > found:
        raise errors.source_units_missing(stream, wanted, found)
