"""Processor time of a batch as queries become many, without Spark: planning, INGEST, SLOT, manifest.

    thalweg bench many [--narrow | --joins] [--queries N ...] [--batches N] [--rows N] [--sink KIND]
                       [--check] [--planning]

One process runs everything that the driver and its tasks do, one after the other; only Spark is left out. The rows
of aggregations have eight keys of 50 values. A query groups by one or two of them in one of four windows, and most
have a predicate over a number. Batches span ten seconds; after as many as asked comes one without rows that closes
windows. With `--narrow` all group by the same one of these keys: groups are few, and partials are kept instead of
rows. Joins (`--joins`) are AJoin's over two streams, 75 % similar. `--sink` says where results of aggregations go:
nowhere (`noop`), to `memory`, or to `files`, in a directory for each query.

`--planning` runs no batch: it shows what one query more or less costs beside so many, to plan and to send to workers.

`--check` keeps all results instead of dropping them and prints a digest of every row: two versions of the source with
the same digest give the same results, to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import many_joins, many_plans
from benchmarks.local_batches import Load, Spent, Take, run_load, show_nobody
from benchmarks.tables import add_columns, new_table, out
from thalweg.frontend.bind import bind
from thalweg.model.query import Query, SinkSpec
from thalweg.model.split import Split
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.sink.files import to_files

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
SINKS = ("noop", "memory", "files")
CHECKED = (80, 5)
"""Queries, unless other numbers are given, and batches whose results are compared in full."""
JOINED_ROWS = 5_000
"""Of each stream a batch."""


class Work(NamedTuple):
    """What aggregations work on."""

    narrow: bool = False
    """Whether all group by the same key."""
    rows: int = ROWS
    """A batch."""

    @property
    def key_sets(self) -> Sequence[tuple[str, ...]]:
        return KEY_SETS[:1] if self.narrow else KEY_SETS


USUAL = Work()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench many", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 queries only")
    parser.add_argument("--narrow", action="store_true", help="aggregations by one key of 50 values")
    parser.add_argument("--joins", action="store_true", help="joins instead of aggregations")
    parser.add_argument("--queries", nargs="*", type=int, help="how many; 100, 1,000 and 2,000 unless given")
    parser.add_argument("--batches", type=int, default=4, help="with rows; 4 unless given")
    parser.add_argument("--rows", type=int, help="a batch; 20,000 unless given, of joins 5,000 of each stream")
    parser.add_argument(
        "--check", action="store_true", help="digest of all results over 5 batches; 80 queries unless given"
    )
    parser.add_argument("--sink", choices=SINKS, default="noop", help="of aggregations; noop unless given")
    parser.add_argument("--planning", action="store_true", help="what one query more or less costs to plan and send")
    options = parser.parse_args(arguments)
    numbers = options.queries or ((100, 1000) if options.quick else (100, 1000, 2000))
    work = Work(options.narrow, options.rows or ROWS)
    if options.planning:
        _show_planning(options.queries or ((20, 500) if options.joins else (20, 2000)), options.joins)
    elif options.check:
        for queries in options.queries or CHECKED[:1]:
            joined = many_joins.load(queries, "memory", options.rows or JOINED_ROWS) if options.joins else None
            _show_digest(joined or load(queries, "memory", work=work))
    elif options.joins:
        _show_joins(numbers, options.batches, options.rows or JOINED_ROWS)
    else:
        _show(numbers, options.batches, options.sink, work)
    return 0


def _show(numbers: Iterable[int], batches: int, sink: str, work: Work) -> None:
    table = new_table(f"{work.rows:,} rows a batch, results to {sink}, CPU s, MB", "queries")
    add_columns(table, "batch", "all", "INGEST", "SLOT", "driver", "emitted", "cells", "state")
    for queries in numbers:
        for number, spent in enumerate(measure(queries, batches, sink, work)):
            table.add_row(str(queries), str(number), *_shown(spent), f"{spent.sent / 1e6:.2f}", _state(spent))
    out.print(table)


def _state(spent: Spent) -> str:
    assert spent.manifest is not None
    return f"{sum(bucket.nbytes for bucket in spent.manifest.buckets) / 1e6:.2f}"


def _show_joins(numbers: Iterable[int], batches: int, rows: int) -> None:
    table = new_table(f"{rows:,} rows of each of two streams a batch, CPU s", "joins")
    add_columns(table, "batch", "all", "INGEST", "SLOT", "driver", "emitted", "state over rows")
    for queries in numbers:
        for number, (spent, held) in enumerate(many_joins.measure(queries, batches, rows)):
            table.add_row(str(queries), str(number), *_shown(spent), f"{held:.2f}")
    out.print(table)


def _show_planning(numbers: Iterable[int], joins: bool) -> None:
    table = new_table("CPU ms and bytes sent, median", "joins" if joins else "aggregations")
    add_columns(table, "", "plan", "driver sends", "worker opens", "bytes")
    for queries in numbers:
        count = queries + many_plans.TIMES
        change = many_plans.measure(many_joins.load(count, "noop", 0) if joins else load(count, "noop"), queries)
        for what, cost in (("one more", change.more), ("one less", change.less), ("all of them", change.all)):
            spent = (f"{ms:.2f}" for ms in (cost.plan, cost.cut, cost.open))
            table.add_row(str(queries), what, *spent, f"{cost.sent:,.0f}")
    out.print(table)


def _shown(spent: Spent) -> tuple[str, ...]:
    seconds = (spent.total, spent.ingest, spent.slots, spent.driver)
    return (*(f"{s:.2f}" for s in seconds), f"{spent.emitted:,}")


def measure(queries: int, batches: int, sink: str = "noop", work: Work = USUAL) -> list[Spent]:
    """Every batch with rows, and one without."""
    with tempfile.TemporaryDirectory() as directory:
        return list(run_load(load(queries, sink, Path(directory), work), batches))


def _show_digest(load: Load) -> None:
    found, rows = hashlib.blake2b(digest_size=16), 0

    def take(batch: int, results: Mapping[str, pa.Table]) -> None:
        nonlocal rows
        for query, table in sorted(results.items()):
            table = table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()
            rows += table.num_rows
            found.update(f"{batch} {query} {table.schema}".encode())
            for column in table.columns:
                found.update(repr(column.to_pylist()).encode())

    emitted = [spent.emitted for spent in run_load(load, CHECKED[1], take)]
    out.print(
        f"{len(load.queries)} queries, rows a batch {emitted}, {rows} in all: {found.hexdigest()}", highlight=False
    )


def run(queries: int, batches: int, sink: str, take: Take = show_nobody) -> Iterator[Spent]:
    """`take` is shown the results of every batch."""
    return run_load(load(queries, sink), batches, take)


def load(queries: int, sink: str, into: Path = Path(), work: Work = USUAL) -> Load:
    """`into`: where files of results go, a directory for each query."""
    asked = make_queries(queries, sink, into, work.key_sets)
    return Load((STREAM,), asked, lambda directory, number: [_split(directory, number, work.rows)])


def make_queries(
    count: int, sink: str, into: Path = Path(), key_sets: Sequence[tuple[str, ...]] = KEY_SETS
) -> list[Query]:
    """The first of an endless list: those of fewer are among those of more."""
    rng = random.Random(22)
    return [_query(name, rng, _sink(sink, into / name), key_sets) for name in (f"q{i}" for i in range(count))]


def _sink(kind: str, into: Path) -> SinkSpec:
    return to_files(into) if kind == "files" else SinkSpec(kind)


def _query(name: str, rng: random.Random, sink: SinkSpec, key_sets: Sequence[tuple[str, ...]]) -> Query:
    keys, window = rng.choice(key_sets), rng.choice(WINDOWS)
    aggregates = rng.sample(sorted(AGGREGATES), rng.choice((1, 2, 2, 3)))
    where = rng.choice(PREDICATES).format(n=rng.randrange(1000))
    columns = [("start", "timestamp"), *((key, "int") for key in keys)]
    columns += [(f"x{i}", AGGREGATES[aggregate]) for i, aggregate in enumerate(aggregates)]
    listed = ", ".join(["window.start AS start", *keys, *(f"{a} AS x{i}" for i, a in enumerate(aggregates))])
    condition = f" WHERE {where}" if where else ""
    text = f"SELECT {listed} FROM s{condition} GROUP BY {', '.join(keys)}, window(ts, {window})"
    answers: Any = SimpleNamespace(analyze=lambda sql: columns, learned={})
    return bind(name, text, {STREAM.name: STREAM}, answers, sink=sink)


def _split(directory: Path, number: int, count: int) -> Split:
    """The rows of a batch."""
    rng = np.random.default_rng(number)
    times = START_US + number * SPAN_US + np.arange(count) * (SPAN_US // count)
    columns = {"ts": pa.array(times, pa.timestamp("us", tz="UTC"))}
    columns |= {key: pa.array(rng.integers(0, 50, count, dtype=np.int32)) for key in KEYS}
    columns |= {name: pa.array(rng.integers(0, 1000, count, dtype=np.int32)) for name in ("u", "v")}
    # Quarters, so that sums do not depend on their order.
    columns["x"] = pa.array(rng.integers(0, 4000, count) / 4)
    path = directory / f"{number}.parquet"
    pq.write_table(pa.table(columns), path)
    return Split(STREAM.name, "parquet", str(path), 0, -1, count)
