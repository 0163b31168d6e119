"""The systems that are measured: a workload run by one of them, in the process that asks.

A module of this package has `run(system, given)`, which gives what it measured (a map that goes into JSON), and
`missing()`, which gives the line that says why it cannot run here, or None. What all of them give:

    rows_per_second          steady: rows after the first batch, over the time from when every query has ended its
                             first batch until the last one has ended its last
    seconds, rows, batches   of that span
    start_seconds            from the start of the process until the first batch begins
    first_batch_seconds
    cpu_seconds_per_million  CPU of the process and all that it started, over that span, for a million rows
    output_rows              of all queries, where the system counts them
    create_seconds           until all queries were accepted

Rows are those of all streams together. With `out`, the results of query i go to `<out>/q<i>/*.parquet`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq

from benchmarks.workloads.model import Workload

SYSTEMS = {
    "thalweg": "Thalweg, reading files",
    "thalweg-frame": "Thalweg, rows from a streaming DataFrame; the JVM has its optimising compiler",
    "thalweg-apart": "Thalweg with sharing off: every query over streams of its own",
    "thalweg-unshared": "Thalweg with sharing off, but rows are read once: every aggregation groups by itself",
    "thalweg-called": "Thalweg, results handed to a callable in the driver instead of being dropped in the tasks",
    "spark": "N independent queries of Structured Streaming",
    "spark-rocksdb": "the same with the RocksDB state store",
    "spark-foreach": "one query of Structured Streaming; foreachBatch caches the batch and runs N aggregations",
    "flink": "Flink SQL, one StatementSet",
    "flink-scan": "Flink reading and parsing the same files, nothing else",
    "duckdb": "DuckDB over all rows as one batch, one query after the other",
}
MODULES = {"thalweg": "thalweg", "spark": "spark", "flink": "flink", "duckdb": "duck"}
"""What the name of a system begins with -> its module."""


@dataclass(frozen=True)
class Given:
    """What a system is to run."""

    work: Workload
    directory: Path
    """Where `make_files` has put the streams; there may be more files than are wanted."""
    files: int
    """Of each stream, from the first."""
    out: Path | None = None
    """Where results go; None: they are made and dropped."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """`files_per_batch`, `shuffle`, and what a system knows besides."""

    @property
    def files_per_batch(self) -> int:
        return int(self.settings.get("files_per_batch", self.work.files_per_batch))

    @property
    def batches(self) -> int:
        return -(-self.files // self.files_per_batch)

    @property
    def rows(self) -> int:
        """Of all streams."""
        return self.rows_from(0)

    def rows_from(self, file: int) -> int:
        """Of all streams in this file and those after it, as they say themselves: not all streams have as many."""
        paths = [path for stream in self.work.streams for path in self.paths(stream.name)[file:]]
        return sum(pq.read_metadata(path).num_rows for path in paths)

    def paths(self, stream: str) -> list[Path]:
        return [self.directory / stream / f"part-{number:04d}.parquet" for number in range(self.files)]


@contextmanager
def linked(given: Given) -> Iterator[Path]:
    """A directory with only the files that are wanted, `<stream>/part-0000.parquet`, for what reads whole folders."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for stream in given.work.streams:
            (root / stream.name).mkdir()
            for path in given.paths(stream.name):
                (root / stream.name / path.name).symlink_to(path.resolve())
        for static in given.work.statics:
            (root / f"{static.name}.parquet").symlink_to((given.directory / f"{static.name}.parquet").resolve())
        yield root


def missing(system: str) -> str | None:
    """Why a system cannot run here."""
    reason: str | None = _module(system).missing()
    return reason


def run(system: str, given: Given) -> dict[str, Any]:
    found: dict[str, Any] = _module(system).run(system, given)
    return found


def _module(system: str) -> ModuleType:
    return import_module(f"{__name__}.{MODULES[system.split('-')[0]]}")
