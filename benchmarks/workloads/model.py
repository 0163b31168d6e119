"""What is run and compared: streams as Parquet files and the queries over them, in the words of every system.

A workload lies in a directory: `<stream>/part-0000.parquet`, ... for every stream, `<table>.parquet` for every static
table. All streams have as many files, file i of each spans the same event time, and event times rise from file to
file, so that a batch is the next few files of every stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Stream:
    name: str
    schema: pa.Schema
    time: str
    """The event-time column, `timestamp[us, UTC]`."""
    delay_seconds: float
    """Of the watermark."""
    make: Callable[[int], pa.Table]
    """Rows of file i; a function of i alone, so that files are the same however many there are."""


@dataclass(frozen=True)
class Static:
    """A table that does not change while the queries run."""

    name: str
    schema: pa.Schema
    make: Callable[[], pa.Table]


@dataclass(frozen=True)
class Query:
    """One continuous query. Where a system is given no text of its own, `text` is what it runs."""

    name: str
    text: str
    """Thalweg's SQL, and Spark's too unless `spark` is given."""
    spark: str | None = None
    """As one query of Structured Streaming in append mode; "": it cannot say it."""
    flink: str | None = None
    """Flink SQL over views named as the streams; None: none, "": it cannot say it."""
    batch: str | None = None
    """DuckDB's SQL over all rows, giving the same columns; None: none. `closed` keeps the windows that closed."""
    closed: str | None = None
    """A DuckDB condition over result columns and the value `$watermark` (timestamp): the window has closed. A system
    that emits the windows left open at the end of its input (Flink) is compared on these rows only."""
    held_seconds: float = 0.0
    """By how much longer plain Spark keeps a window open: behind a join its watermark waits for all rows that can
    still be joined, whatever their place in the window."""


@dataclass(frozen=True)
class Workload:
    name: str
    streams: tuple[Stream, ...]
    queries: tuple[Query, ...]
    rows_per_file: int
    """Of each stream."""
    files_per_batch: int
    statics: tuple[Static, ...] = ()
    data: str = ""
    """A name of the data alone (seed and sizes in it): workloads that differ in their queries only share files."""


def over_one(stream: Stream, name: str, queries: tuple[Query, ...], rows_per_file: int) -> Workload:
    """All queries over a stream, or (`DATA/QUERY`) one of them; four files are a batch."""
    data, _, only = name.partition("/")
    chosen = tuple(q for q in queries if not only or q.name == only)
    return Workload(name, (stream,), chosen, rows_per_file, files_per_batch=4, data=data)


def make_files(work: Workload, files: int, directory: Path) -> Path:
    """The first files of every stream and all static tables; what is there already is kept."""
    for stream in work.streams:
        (directory / stream.name).mkdir(parents=True, exist_ok=True)
        for number in range(files):
            path = directory / stream.name / f"part-{number:04d}.parquet"
            if not path.exists():
                _write(stream.make(number), path)
    for static in work.statics:
        path = directory / f"{static.name}.parquet"
        if not path.exists():
            _write(static.make(), path)
    return directory


def _write(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, temporary, compression="snappy", row_group_size=max(1, table.num_rows))
    temporary.rename(path)
