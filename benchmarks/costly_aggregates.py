"""Aggregates of users that cost far more than a sum: correlation clustering by a Zipf key, without Spark.

A record is a name with a slip of the pen. Batches are few records in one file or in some, as registries and
tickets come: too few to be read by as many tasks as there are slots. Every task is measured by itself, as if it had a
core of its own, so a batch takes what its busiest task of INGEST and its busiest slot take, one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.local_batches import Load, run_load
from thalweg import clustering
from thalweg.frontend.bind import bind
from thalweg.model.partitioning import AUTO, COMBINE
from thalweg.model.query import SinkSpec
from thalweg.model.split import Split
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.user_aggregates import InUse

CALL = "same_person"
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
EXPONENT = 1.5
BATCHES = 6
"""Four to a window; one more, without rows, closes the last."""
FIELDS = (Field("ts", "timestamp"), Field("zip", "bigint"), Field("id", "bigint"), Field("name", "string"))
STREAM = Stream("s", Schema(FIELDS), "ts", 0, SourceSpec("files", {"path": "*.parquet", "format": "parquet"}))
SELECT = f"SELECT zip, {CALL}(id, name) AS people, window.end AS until FROM s GROUP BY zip, window(ts, '40 seconds')"
COLUMNS = [("zip", "bigint"), ("people", "array<array<bigint>>"), ("until", "timestamp")]


@dataclass(frozen=True)
class Work:
    slots: int
    """Tasks of a stage as well: each has a core of its own."""
    files: int
    """Of a batch: a task reads one at least."""
    rows: int
    """Of a batch."""

    @property
    def name(self) -> str:
        return f"clustering, {self.slots} slots, {self.files} file{'s' if self.files > 1 else ''} a batch"


@dataclass(frozen=True)
class Run:
    """Seconds of the busiest tasks, by batch."""

    arriving: Sequence[float]
    """That close no window."""
    closing: Sequence[float]
    chosen: str
    """What dealt out the rows of the last batch."""
    results: str
    """A digest: the same records in the same groups, however they are clustered there."""
    records: int


def run(work: Work, partitioner: str) -> Run:
    """`partitioner`: what the query asks for; auto for what the engine chooses."""
    clustering.define(CALL)
    own = InUse().offered()
    answers: Any = SimpleNamespace(analyze=lambda sql: COLUMNS, learned={})
    options = [("partitioner", partitioner)]
    query = bind("people", SELECT, {STREAM.name: STREAM}, answers, sink=SinkSpec("memory"), own=own, options=options)
    groups: list[tuple[Any, ...]] = []

    def take(batch: int, results: Mapping[str, pa.Table]) -> None:
        for table in results.values():
            for row in table.to_pylist():
                groups.append((row["until"], row["zip"], sorted(id_ for people in row["people"] for id_ in people)))

    code = {own[CALL].version: own[CALL].code}
    load = Load((STREAM,), (query,), lambda at, n: _splits(work, at, n), code, work.slots, work.slots)
    arriving, closing, chosen = [], [], partitioner
    for spent in run_load(load, BATCHES, take):
        (closing if spent.emitted else arriving).append(spent.busiest)
        if partitioner == AUTO and spent.manifest is not None:
            measured = spent.manifest.measured
            named = [dealing.partitioner for dealing in measured.partitioners.dealing.values()]
            chosen = named[0] if measured.combining.shipped else COMBINE
    digest = hashlib.blake2b(repr(sorted(groups)).encode()).hexdigest()
    return Run(arriving, closing, chosen, digest, sum(len(ids) for *_, ids in groups))


def _splits(work: Work, directory: Path, number: int) -> list[Split]:
    rng = np.random.default_rng(number)
    zips = np.minimum(rng.zipf(EXPONENT, work.rows), 10_000)
    times = START_US + (number * work.rows + np.arange(work.rows)) * (10 * SECOND_US) // work.rows
    people = rng.integers(0, 5_000, work.rows)
    names = [
        _name(int(person), int(slip)) for person, slip in zip(people, rng.integers(0, 24, work.rows), strict=True)
    ]
    ids = number * work.rows + np.arange(work.rows)
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "zip": zips, "id": ids, "name": names})
    found = []
    for i in range(work.files):
        path, part = directory / f"{number}-{i}.parquet", rows.take(np.arange(i, work.rows, work.files))
        pq.write_table(part, path)
        found.append(Split(STREAM.name, "parquet", str(path), 0, -1, part.num_rows))
    return found


def _name(person: int, slip: int) -> str:
    """The name of a person, one time in three with a letter too many."""
    text = hashlib.blake2b(str(person).encode(), digest_size=10).hexdigest()
    return text if slip >= 8 else text[:slip] + "x" + text[slip:]
