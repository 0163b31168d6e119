"""Processor time of a batch as windowed aggregations become many, without Spark: planning, INGEST, SLOT, manifest.

    thalweg bench many [--queries N ...] [--batches N] [--check]

One process runs everything that the driver and its tasks do, one after the other; only Spark is left out. The rows
have eight keys of 50 values. A query groups by one or two of them in one of four windows, and most have a predicate
over a number. Batches span ten seconds; after as many as asked comes one without rows that closes windows.

`--check` keeps all results instead of dropping them and prints a digest of every row: two versions of the source with
the same digest give the same results, to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import add_columns, new_table, out
from thalweg.batch.assemble import assemble
from thalweg.batch.local_runner import Attempt, Cells, LocalRunner, Orderly
from thalweg.batch.made import Made
from thalweg.batch.pending import PendingRequests
from thalweg.batch.planning import Planning
from thalweg.batch.prepare import Preparation, Preparing
from thalweg.engine.local_engine import LocalEngine
from thalweg.frontend.bind import bind
from thalweg.model.entry import Entry
from thalweg.model.offsets import Offsets
from thalweg.model.query import Query, SinkSpec
from thalweg.model.split import Split, dump_splits
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.state.places import open_storage
from thalweg.state.requests import CreateQuery, RequestLog
from thalweg.state.term import take_term

MINUTES = (0.5, 1)
ROWS = 20_000
SECOND_US = 1_000_000
SPAN_US = 10 * SECOND_US
START_US = 1_700_000_000 * SECOND_US
KEYS = tuple("abcdefgh")
KEY_SETS = (*((key,) for key in KEYS), *itertools.combinations(KEYS, 2))
WINDOWS = ("'10 seconds'", "'20 seconds'", "'30 seconds'", "'30 seconds', '10 seconds'")
AGGREGATES = {
    "count(*)": "bigint",
    "sum(v)": "bigint",
    "min(v)": "int",
    "max(v)": "int",
    "avg(v)": "double",
    "sum(x)": "double",
    "avg(x)": "double",
}
PREDICATES = ("", "v > {n}", "v >= {n}", "v < {n}", "u > {n}", "u <= {n}", "x > {n}.5")
FIELDS = (Field("ts", "timestamp"), *(Field(key, "int") for key in KEYS))
FIELDS += (Field("u", "int"), Field("v", "int"), Field("x", "double"))
STREAM = Stream("s", Schema(FIELDS), "ts", 0, SourceSpec("files", {"path": "*.parquet", "format": "parquet"}))
SLOTS = 2
CHECKED = (80, 5)
"""Queries and batches whose results are compared in full."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench many", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 queries only")
    parser.add_argument("--queries", nargs="*", type=int, help="how many; 100, 1,000 and 2,000 unless given")
    parser.add_argument("--batches", type=int, default=4, help="with rows; 4 unless given")
    parser.add_argument("--check", action="store_true", help="digest of all results of 80 queries over 5 batches")
    options = parser.parse_args(arguments)
    if options.check:
        _show_digest()
        return 0
    table = new_table(f"{ROWS:,} rows a batch, CPU s", "queries")
    add_columns(table, "batch", "all", "INGEST", "SLOT", "driver", "emitted")
    for queries in options.queries or ((100, 1000) if options.quick else (100, 1000, 2000)):
        for number, spent in enumerate(measure(queries, options.batches)):
            shown = (spent.total, spent.ingest, spent.slots, spent.total - spent.ingest - spent.slots)
            table.add_row(str(queries), str(number), *(f"{seconds:.2f}" for seconds in shown), f"{spent.emitted:,}")
    out.print(table)
    return 0


@dataclass
class Spent:
    """CPU seconds of one batch."""

    total: float = 0.0
    ingest: float = 0.0
    slots: float = 0.0
    emitted: int = 0


def measure(queries: int, batches: int) -> list[Spent]:
    """Every batch with rows, and one without."""
    return list(run(queries, batches, "noop"))


def _show_digest() -> None:
    queries, batches = CHECKED
    found, rows = hashlib.blake2b(digest_size=16), 0

    def take(batch: int, results: Mapping[str, Made]) -> None:
        nonlocal rows
        for query, made in sorted(results.items()):
            assert made.table is not None
            table = made.table
            table = table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()
            rows += table.num_rows
            found.update(f"{batch} {query} {table.schema}".encode())
            for column in table.columns:
                found.update(repr(column.to_pylist()).encode())

    emitted = [spent.emitted for spent in run(queries, batches, "memory", take)]
    out.print(f"{queries} queries, rows a batch {emitted}, {rows} in all: {found.hexdigest()}", highlight=False)


def run(
    queries: int,
    batches: int,
    sink: str,
    take: Callable[[int, Mapping[str, Made]], None] = lambda batch, results: None,
) -> Iterator[Spent]:
    """`take` is shown the results of every batch."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        storage = open_storage(directory / "state")
        storage.claim()
        requests = RequestLog(storage, 0)
        for query in make_queries(queries, sink):
            requests.append(CreateQuery(query))
        watch = _Watch()
        tasks, term = LocalRunner(1, watch), take_term(storage)
        engine: Any = LocalEngine(None, tasks)  # type: ignore[arg-type]  # nothing is analysed
        planning = Planning(PendingRequests(requests, lambda: {STREAM.name: STREAM}), dict)
        runner = assemble(tasks, engine, storage, term, planning, slots=SLOTS)
        runner.results.preparing = _Shown(take, storage, runner.offers.delivery)
        for number in range(batches + 1):
            splits = [_split(directory, number)] if number < batches else []
            began = time.process_time()
            runner.run([dump_splits(splits)], Offsets(number))
            watch.spent.total = time.process_time() - began
            watch.spent.emitted = runner.reports[-1].emitted
            yield watch.spent
        requests.close()


def make_queries(count: int, sink: str) -> list[Query]:
    """The first of an endless list: those of fewer are among those of more."""
    rng = random.Random(22)
    return [_query(f"q{i}", rng, sink) for i in range(count)]


def _query(name: str, rng: random.Random, sink: str) -> Query:
    keys, window = rng.choice(KEY_SETS), rng.choice(WINDOWS)
    aggregates = rng.sample(sorted(AGGREGATES), rng.choice((1, 2, 2, 3)))
    where = rng.choice(PREDICATES).format(n=rng.randrange(1000))
    columns = [("start", "timestamp"), *((key, "int") for key in keys)]
    columns += [(f"x{i}", AGGREGATES[aggregate]) for i, aggregate in enumerate(aggregates)]
    listed = ", ".join(["window.start AS start", *keys, *(f"{a} AS x{i}" for i, a in enumerate(aggregates))])
    condition = f" WHERE {where}" if where else ""
    text = f"SELECT {listed} FROM s{condition} GROUP BY {', '.join(keys)}, window(ts, {window})"
    answers: Any = SimpleNamespace(analyze=lambda sql: columns, learned={})
    return bind(name, text, {STREAM.name: STREAM}, answers, sink=SinkSpec(sink))


def _split(directory: Path, number: int) -> Split:
    """The rows of a batch."""
    rng = np.random.default_rng(number)
    times = START_US + number * SPAN_US + np.arange(ROWS) * (SPAN_US // ROWS)
    columns = {"ts": pa.array(times, pa.timestamp("us", tz="UTC"))}
    columns |= {key: pa.array(rng.integers(0, 50, ROWS, dtype=np.int32)) for key in KEYS}
    columns |= {name: pa.array(rng.integers(0, 1000, ROWS, dtype=np.int32)) for name in ("u", "v")}
    # Quarters, so that sums do not depend on their order.
    columns["x"] = pa.array(rng.integers(0, 4000, ROWS) / 4)
    path = directory / f"{number}.parquet"
    pq.write_table(pa.table(columns), path)
    return Split(STREAM.name, "parquet", str(path), 0, -1, ROWS)


class _Shown(Preparing):
    """Shows what it is given."""

    def __init__(self, take: Callable[[int, Mapping[str, Made]], None], *given: Any) -> None:
        super().__init__(*given)
        self._take = take

    def prepare(self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]) -> Preparation:
        self._take(batch, results)
        return super().prepare(batch, results, live)


class _Watch(Orderly):
    """Measures the tasks of a batch: the first is INGEST, those after it are SLOT."""

    def __init__(self) -> None:
        self.spent = Spent()
        self._is_ingest = True

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        self.spent, self._is_ingest = Spent(), True
        return splits

    def attempt(self, begin: Attempt) -> Cells:
        began = time.process_time()
        made = list(begin())
        took = time.process_time() - began
        if self._is_ingest:
            self.spent.ingest += took
        else:
            self.spent.slots += took
        self._is_ingest = False
        return made
