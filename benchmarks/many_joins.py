"""AJoin's queries over two streams as a load of batches in one process (`thalweg bench many --joins`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.local_batches import Load, Spent, run_load
from benchmarks.workloads.ajoin import ajoin
from benchmarks.workloads.joins import DELAY_SECONDS, ROWS_PER_FILE, Data, Joins
from benchmarks.workloads.model import Query as Asked
from thalweg.frontend.bind import bind
from thalweg.model.query import Query, SinkSpec
from thalweg.model.split import Split
from thalweg.model.stream import Field, Schema, SourceSpec, Stream

SIMILARITY = 0.75
TYPES = {pa.int32(): "int", pa.timestamp("us", tz="UTC"): "timestamp"}


def measure(queries: int, batches: int, rows: int) -> Iterator[tuple[Spent, float]]:
    """Every batch, of so many rows of each stream, with the state that it left over the rows in the windows."""
    joins = ajoin(queries, SIMILARITY)
    for spent in run_load(load(queries, "noop", rows), batches):
        yield spent, _held(spent, joins)


def load(queries: int, sink: str, rows: int) -> Load:
    joins = ajoin(queries, SIMILARITY)
    streams = {name: _stream(joins.data, name) for name in joins.data.streams}
    asked = joins.workload("").queries
    return Load(
        tuple(streams.values()),
        [_bound(query, streams, sink) for query in asked],
        lambda directory, number: [_split(joins.data, name, directory, number, rows) for name in streams],
    )


def _stream(data: Data, name: str) -> Stream:
    fields = tuple(Field(column.name, TYPES[column.type]) for column in data.schema(name))
    source = SourceSpec("files", {"path": "*.parquet", "format": "parquet"})
    return Stream(name, Schema(fields), f"{name}_ts", DELAY_SECONDS * 1_000_000, source)


def _bound(asked: Asked, streams: dict[str, Stream], sink: str) -> Query:
    columns = [(field.name, field.type) for stream in streams.values() for field in stream.schema.fields]
    answers = SimpleNamespace(analyze=lambda sql: columns, learned={})
    return bind(asked.name, asked.text, streams, answers, sink=SinkSpec(sink))


def _split(data: Data, stream: str, directory: Path, number: int, rows: int) -> Split:
    """The rows of a batch of one stream."""
    first, last = number * rows, (number + 1) * rows
    files = range(first // ROWS_PER_FILE, -(-last // ROWS_PER_FILE))
    table = pa.concat_tables([data.table(stream, file) for file in files])
    path = directory / f"{stream}-{number}.parquet"
    pq.write_table(table.slice(first - files[0] * ROWS_PER_FILE, rows), path)
    return Split(stream, "parquet", str(path), 0, -1, rows)


def _held(spent: Spent, joins: Joins) -> float:
    manifest = spent.manifest
    assert manifest is not None
    newest = max(progress.max_time_us or 0 for progress in manifest.streams.values())
    ahead = max(0, newest - min(manifest.closed[stream] for stream in manifest.streams)) / 1e6
    shown = max(progress.rows for progress in manifest.streams.values())
    return sum(bucket.nbytes for bucket in manifest.stores) / joins.window_bytes(shown, ahead)
