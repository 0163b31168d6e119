"""Putting files where a system looks for them, at their moments."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.paced.schedule import Schedule, Size, at_pace
from benchmarks.workloads.model import Stream, Workload


@dataclass(frozen=True)
class Supply:
    """Files that wait for their release, `<directory>/<stream>/part-00000.parquet`: file i of every stream spans the
    same event time."""

    directory: Path
    streams: tuple[str, ...]
    rows: tuple[int, ...]
    """Of each stream, of every file."""
    lasts_us: tuple[int, ...]
    """The newest event time of every file, of whichever stream."""
    before: int
    """So many files are there before the pace begins; they fill the windows."""

    def schedule(self, rows_per_second: float) -> Schedule:
        rows = [rows * len(self.streams) for rows in self.rows[self.before :]]
        return at_pace(self.lasts_us[self.before - 1], self.lasts_us[self.before :], rows, rows_per_second)

    def put(self, number: int, root: Path) -> None:
        """Makes file `number` of every stream appear under `root`, whole at once."""
        for stream in self.streams:
            name = f"part-{number:05d}.parquet"
            os.link(self.directory / stream / name, root / stream / name)

    def rows_until(self, files: int) -> int:
        """Of all streams, in the first so many files."""
        return sum(self.rows[:files]) * len(self.streams)

    @property
    def all_rows(self) -> int:
        return self.rows_until(len(self.rows))


def make_supply(work: Workload, directory: Path, size: Size, before_rows: int) -> Supply:
    """Cuts the streams of a workload into files of the size, after `before_rows` of each stream in larger files."""
    before = [min(work.rows_per_file, before_rows - start) for start in range(0, before_rows, work.rows_per_file)]
    rows = [*before, *[size.rows_per_file] * size.files]
    lasts = [0] * len(rows)
    for stream in work.streams:
        (directory / stream.name).mkdir(parents=True)
        for number, table in enumerate(_cut(stream, rows)):
            pq.write_table(table, directory / stream.name / f"part-{number:05d}.parquet", compression="snappy")
            newest = pc.max(table.column(stream.time)).cast(pa.int64()).as_py()
            lasts[number] = max(lasts[number], newest)
    return Supply(directory, tuple(s.name for s in work.streams), tuple(rows), tuple(lasts), len(before))


def _cut(stream: Stream, pieces: Sequence[int]) -> Iterator[pa.Table]:
    """The stream's rows in pieces of so many."""
    number, rest = 0, stream.make(0)
    for rows in pieces:
        while rest.num_rows < rows:
            number += 1
            rest = pa.concat_tables([rest, stream.make(number)])
        yield rest.slice(0, rows)
        rest = rest.slice(rows)


def fill(supply: Supply, root: Path, settle: Callable[[int], None], files_per_batch: int) -> None:
    """What is there before the pace begins, so many files at a time; `settle(rows)` waits until so many rows in all
    have been worked through."""
    for start in range(0, supply.before, files_per_batch):
        end = min(start + files_per_batch, supply.before)
        for number in range(start, end):
            supply.put(number, root)
        settle(supply.rows_until(end))


class Feeder(threading.Thread):
    """Releases files on schedule, to every directory that wants them at that moment."""

    def __init__(self, supply: Supply, schedule: Schedule, roots: Callable[[], Sequence[Path]]) -> None:
        super().__init__(name="feeder", daemon=True)
        self.began = 0.0
        """Seconds since the epoch."""
        self.late_seconds = 0.0
        """How far behind schedule a file was released at most; latencies count from the schedule."""
        self.released = 0
        self._supply = supply
        self._schedule = schedule
        self._roots = roots
        self._ended = threading.Event()

    def start(self) -> None:
        self.began = time.time()
        super().start()

    def stop(self) -> None:
        """No further file."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        for number, moment in enumerate(self._schedule.releases.tolist()):
            if self._ended.wait(max(0.0, self.began + moment - time.time())):
                return
            for root in self._roots():
                self._supply.put(self._supply.before + number, root)
            self.late_seconds = max(self.late_seconds, time.time() - self.began - moment)
            self.released = number + 1
