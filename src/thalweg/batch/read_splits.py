"""The splits of a task, read to portions of rows; what is not let in is set aside and reported."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.batch.work import Work
from thalweg.model.canonical import named
from thalweg.model.plan import Plan, StreamPlan
from thalweg.model.report import IngestReport, Lacking, SetAside
from thalweg.model.split import Split, parse_splits
from thalweg.model.stream import Stream
from thalweg.model.trouble import reading
from thalweg.source.chunks import Chunk
from thalweg.source.read import read
from thalweg.state.rejected import keep_rejected, rejected_name

ROWS_AT_ONCE = 1_000_000
"""Rows that INGEST groups in one go: more per pass means fewer partials, this many bounds its memory."""


def read_splits(plan: Plan, work: Work, text: str, report: IngestReport) -> Iterator[tuple[str, pa.Table]]:
    """(stream, rows) of the splits that the text names, chunks of one stream together."""
    waiting: dict[str, list[pa.Table]] = {}
    for split in parse_splits(text):
        stream = plan.streams.get(split.stream)
        if stream is None:
            continue
        for number, chunk in enumerate(_chunks(split, stream, work)):
            if chunk.rejected is not None and chunk.rejected.num_rows:
                part = named("part", split.path, split.start, split.end, number)
                _set_aside(work, split, stream.stream, part, chunk.rejected, report)
            if chunk.missing:
                report.lacking.append(Lacking(split.stream, split.path, chunk.missing))
            tables = waiting.setdefault(split.stream, [])
            tables.append(chunk.table)
            if sum(t.num_rows for t in tables) >= ROWS_AT_ONCE:
                yield split.stream, pa.concat_tables(waiting.pop(split.stream))
    for name, tables in waiting.items():
        yield name, pa.concat_tables(tables)


def _chunks(split: Split, stream: StreamPlan, work: Work) -> Iterator[Chunk]:
    with reading(split.path, split.stream):
        yield from read(split, stream.stream, stream.columns, work.storage, work.clock.wall_us, work.sources)


def _set_aside(work: Work, split: Split, of: Stream, part: str, rejected: pa.Table, report: IngestReport) -> None:
    """Rows that are not let in are kept with their reasons."""
    stream, file = split.stream, split.file
    name = rejected_name(of.place, work.clock.batch, part)
    size = keep_rejected(work.storage, name, stream, rejected, file, work.clock.wall_us)
    known = {(aside.stream, aside.kind): aside for aside in report.set_aside}
    kinds = rejected.column("kind")
    for kind in pc.unique(kinds).to_pylist():
        rows = rejected.filter(pc.equal(kinds, kind))
        more = SetAside(stream, kind, rows.num_rows, size, file, rows.column("reason")[0].as_py())
        known[stream, kind] = known[stream, kind] + more if (stream, kind) in known else more
        size = 0  # of all kinds of the object together
    report.set_aside = [*known.values()]
