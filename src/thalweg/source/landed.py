"""Streaming DataFrames, landed by the engine (`engine/landing`) as Parquet files: what there is to read of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from thalweg.kinds.options import NoOptions
from thalweg.model.offsets import SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.chunks import Chunk, SplitReading
from thalweg.source.contract import SourceKind, Units
from thalweg.source.cut import check_units, cut_groups, rows_per_split
from thalweg.source.file_formats import read_file
from thalweg.source.log import LANDED, File, Landed, Log, folder_of
from thalweg.state.durable import delete_tree
from thalweg.state.storage import Storage


class LandedUnits(Units):
    """A unit is a micro-batch of a streaming DataFrame, landed as Parquet files and then logged."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._log = Log(storage, self.place, LANDED)
        self._released = 0

    def available(self) -> int:
        if self._log.read_new():
            self._log.tidy()
        return len(self._log.entries)

    def mark(self, consumed: int) -> SourceMark:
        return self._log.mark()

    def check(self, mark: SourceMark) -> None:
        self._log.check(mark)

    def weights(self, start: int, end: int) -> list[int]:
        return [sum(file.rows for file in batch.files) for batch in self._log.entries[start:end]]

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        check_units(self.stream, end, self.available())
        files = [(path, file) for batch in self._log.entries[start:end] for path, file in self._files_of(batch)]
        rows = rows_per_split(sum(file.rows for _, file in files), parts)
        return [split for path, file in files for split in cut_groups(self.stream, path, file, rows)]

    def release(self, end: int) -> None:
        for batch in self._log.entries[self._released : end]:
            for directory in {os.path.dirname(path) for path, _ in self._files_of(batch)}:
                delete_tree(directory)
        self._released = max(self._released, end)

    def _files_of(self, batch: Landed) -> list[tuple[str, File]]:
        directory = batch.directory or self.storage.locate(folder_of(self.place))
        return [(os.path.join(directory, file.path), file) for file in batch.files]


class LandedSourceKind(SourceKind[NoOptions]):
    """A streaming DataFrame, given in Python."""

    name = "spark"
    options = NoOptions
    in_sql = False
    sets_aside = True

    def units(self, stream: Stream, storage: Storage) -> LandedUnits:
        return LandedUnits(stream, storage)

    def give_back(self, stream: Stream, storage: Storage) -> None:
        """Also what Spark keeps beside the rows, which may lie elsewhere than the state."""
        directories = {entry.directory for entry in Log(storage, stream.place, LANDED).entries}
        for directory in {found or storage.locate(folder_of(stream.place)) for found in directories}:
            delete_tree(directory)

    def read(self, asked: SplitReading, storage: Storage | None) -> Iterator[Chunk]:
        return read_file(asked)


SPARK = LandedSourceKind()
