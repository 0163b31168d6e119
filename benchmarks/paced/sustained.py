"""What a system is fed with: how fast it can go with everything there at once, and the files for a share of that."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.measure import DATA, run_side, side
from benchmarks.paced.feed import Supply, make_supply
from benchmarks.paced.latencies import reach_seconds
from benchmarks.paced.schedule import size_for
from benchmarks.workloads.model import Query, Workload


@dataclass(frozen=True)
class Pace:
    """How a pace is come to."""

    rate: float | None
    """Rows a second, of all streams; None: a share of what the system sustains."""
    share: float
    files: int
    """To measure what it sustains, of each stream."""
    files_per_batch: int
    seconds: float
    """At least: a slow system is fed for longer, until some windows have closed."""
    most_rows: int
    """Of each stream: a fast system is fed for fewer seconds."""


def rates(system: str, work: Workload, pace: Pace) -> tuple[float | None, float]:
    """Rows a second that the system sustains (None: not measured) and at which it is fed.

    Measured in a process of its own: what it leaves in memory is not there when the pace begins.
    """
    if pace.rate is not None:
        return None, pace.rate
    found = run_side(side(system, work.name, pace.files, files_per_batch=pace.files_per_batch))
    sustained = float(found["rows_per_second"])
    return sustained, sustained * pace.share


def event_rate(work: Workload) -> float:
    """Rows of each stream per second of event time."""
    stream = work.streams[0]
    times = stream.make(0).column(stream.time).cast(pa.int64()).to_numpy()
    return float((len(times) - 1) / (np.ptp(times) / 1e6))


@dataclass(frozen=True)
class Place:
    """Directories of one run."""

    supply: Supply
    root: Path
    """What the system reads."""
    state: Path

    def new_root(self, name: str) -> Path:
        """For a query that reads only what comes from now on."""
        root = self.root.with_name(name)
        for stream in self.supply.streams:
            (root / stream).mkdir(parents=True)
        return root


@contextmanager
def prepared(work: Workload, rate: float, pace: Pace) -> Iterator[Place]:
    """Files for the pace, after as many as fill the windows of all queries."""
    size = size_for(rate / len(work.streams), pace.seconds, pace.most_rows)
    before = round(reach_seconds(work) * event_rate(work))
    DATA.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="paced-", dir=DATA))
    try:
        place = Place(make_supply(work, directory / "supply", size, before), directory / "in", directory / "state")
        place.new_root("in")
        place.state.mkdir()
        yield place
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def expected_rows(queries: Sequence[Query], work: Workload, supply: Supply) -> int | None:
    """Result rows over all files, counted by DuckDB; None: some query has no text for it."""
    if any(query.batch is None for query in queries):
        return None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream in work.streams:
            rows = f"read_parquet('{supply.directory}/{stream.name}/*.parquet')"
            connection.execute(f"CREATE VIEW {stream.name} AS FROM {rows}")
        delay = max(stream.delay_seconds for stream in work.streams)
        watermark = supply.lasts_us[-1] // 1000 * 1000 - round(delay * 1e6)
        total = 0
        for query in queries:
            closed = (query.closed or "true").replace("$watermark", f"make_timestamptz({watermark})")
            found = connection.execute(f"SELECT count(*) FROM ({query.batch}) WHERE {closed}").fetchall()
            total += int(found[0][0])
    return total
