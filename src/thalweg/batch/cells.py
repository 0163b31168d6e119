"""What travels between stages, and to the driver: a few binary rows `(slot, kind, payload)`.

| kind | payload | for |
|---|---|---|
| GROUPED | partials, and whole rows, of streams | SLOT, first stage |
| STORED | where rows lie that joins may need, or groupings are made of | SLOT, every stage |
| TUPLES | tuples of row numbers that look for further partners | SLOT, next stage |
| JOINED | partials, and whole rows, of joined streams | SLOT, last stage |
| RESULTS, PREPARED | results, or where they lie | the driver |
| INGESTED, SLOT | reports | the driver |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import pyarrow as pa
from msgspec import Struct

from thalweg.model.address import Address, NodeTuples
from thalweg.model.bucket import Bucket
from thalweg.model.message import encode
from thalweg.observe.stopwatch import ROUTE, Stopwatch
from thalweg.route.bucket import pack

CELLS = pa.schema([("slot", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())])
CELL_BYTES = 128 << 20
"""What goes into one cell at most: the JVM copies cells whole."""

Cells = Iterator[pa.RecordBatch]
"""Cells as tasks take and give them: batches of CELLS."""


class CellKind(StrEnum):
    GROUPED = "grouped"
    STORED = "stored"
    TUPLES = "tuples"
    JOINED = "joined"
    RESULTS = "results"
    PREPARED = "prepared"
    INGESTED = "ingested"
    SLOT = "slot"


def make_cell(slot: int, kind: CellKind, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([slot], pa.int32()), pa.array([kind]), pa.array([payload], pa.binary())], schema=CELLS
    )


def cells_of(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, CellKind, pa.Scalar]]:
    """(slot, kind, payload) of each; a payload is not copied."""
    for slot, kind, payload in zip(*(batch.column(i) for i in range(3)), strict=True):
        yield slot.as_py(), CellKind(kind.as_py()), payload


def cut(tables: Sequence[tuple[Address, pa.Table]]) -> Iterator[list[tuple[Address, pa.Table]]]:
    """The tables in portions that a cell can hold; one portion at least, so that every slot hears of the batch."""
    portion: list[tuple[Address, pa.Table]] = []
    size = 0
    for address, table in tables:
        if portion and size + table.nbytes > CELL_BYTES:
            yield portion
            portion, size = [], 0
        portion.append((address, table))
        size += table.nbytes
    yield portion


Sent = Mapping[int, Sequence[tuple[Address, pa.Table]]]
"""slot -> what goes there."""


def grouped_cells(slot: int, tables: Sequence[tuple[Address, pa.Table]], watch: Stopwatch) -> Cells:
    """What INGEST has for a slot, one cell at least."""
    for portion in cut(tables):
        with watch.during(ROUTE):
            cell = make_cell(slot, CellKind.GROUPED, pack(portion))
        yield cell


def next_stage_cells(sent: Sent, watch: Stopwatch) -> Cells:
    """What a stage of SLOT has for the slots of a later one: tuples for the next, joined rows for the last."""
    for kind in (CellKind.TUPLES, CellKind.JOINED):
        for slot, tables in sent.items():
            mine = [one for one in tables if isinstance(one[0], NodeTuples) == (kind == CellKind.TUPLES)]
            for portion in cut(mine):
                if portion:
                    with watch.during(ROUTE):
                        cell = make_cell(slot, kind, pack(portion, compressed=kind == CellKind.JOINED))
                    yield cell


def stored_cell(task: int, buckets: Sequence[Bucket]) -> pa.RecordBatch:
    return make_cell(task, CellKind.STORED, encode(buckets))


def stored_cells(buckets: Sequence[Bucket], tasks: int) -> Cells:
    """News for every task of where rows lie that it may need."""
    news = encode(buckets)
    for task in range(tasks):
        yield make_cell(task, CellKind.STORED, news)


def report_cell(slot: int, kind: CellKind, report: Struct) -> pa.RecordBatch:
    return make_cell(slot, kind, encode(report))


def payload_size(cell: pa.RecordBatch) -> int:
    return len(cell.column(2)[0].as_buffer())
