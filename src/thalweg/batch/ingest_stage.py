"""INGEST: splits are read to Arrow, worked on once for all queries, and dealt out to slots.

A function of a plan, the batch's work, what came in and the number of the task; who runs it is up to a runner
(`batch/contract`). A task never fails for what a user did: it reports, and the driver decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from thalweg import faults
from thalweg.batch.cells import CellKind, Cells, cut, make_cell
from thalweg.batch.reports import error_report, learned, results, shipped
from thalweg.batch.slices import keep_local, staying
from thalweg.batch.stores import new_rows, open_tables, probing_rows, sampled
from thalweg.batch.work import Work
from thalweg.errors import ThalwegError
from thalweg.model.canonical import named
from thalweg.model.message import encode
from thalweg.model.plan import Plan, StreamPlan
from thalweg.model.report import IngestReport, Lacking, SetAside
from thalweg.model.split import Split, parse_splits
from thalweg.model.trouble import consuming, reading
from thalweg.observe.stopwatch import READ, ROUTE, STATE_WRITE, Stopwatch
from thalweg.operate import duck
from thalweg.operate.consume import consume
from thalweg.operate.outbox import Outbox
from thalweg.operate.own import define
from thalweg.operate.partitioners import Partitioners
from thalweg.route.bucket import pack
from thalweg.sink.outlet import Outlet
from thalweg.source.chunks import Chunk
from thalweg.source.read import read
from thalweg.state.rejected import keep_rejected, rejected_name

ROWS_AT_ONCE = 1_000_000
"""Rows that INGEST groups in one go: more per pass means fewer partials, this many bounds its memory."""

faults.register("task.ingest", "task.stored")


def ingest(plan: Plan, work: Work, texts: Iterable[str], task: int) -> Cells:
    """Texts of splits -> one cell per slot that has rows, the results of plain queries, and a report."""
    outbox = Outbox(partitioners=Partitioners(work.policies, task), watch=Stopwatch(work.now))
    started = outbox.watch.read()
    report = IngestReport(task)
    duck.allow(work.budget)
    if plan.functions:
        define(plan)
    try:
        for text in texts:
            with outbox.watch.during(READ):
                _ingest(plan, work, text, outbox, report)
    except ThalwegError as error:
        report.error = error_report(error)
    faults.point("task.ingest")
    yield from _cells(plan, work, outbox, report)
    report.seconds, report.time = outbox.watch.read() - started, outbox.watch.take()
    yield make_cell(0, CellKind.INGESTED, encode(report))


def _ingest(plan: Plan, work: Work, text: str, outbox: Outbox, report: IngestReport) -> None:
    waiting: dict[str, list[pa.Table]] = {}
    for split in parse_splits(text):
        stream = plan.streams.get(split.stream)
        if stream is None:
            continue
        for number, chunk in enumerate(_chunks(split, stream, work)):
            if chunk.rejected is not None and chunk.rejected.num_rows:
                place = named("part", split.path, split.start, split.end, number)
                _set_aside(work, split, place, chunk.rejected, report)
            if chunk.missing:
                report.lacking.append(Lacking(split.stream, split.path, chunk.missing))
            tables = waiting.setdefault(split.stream, [])
            tables.append(chunk.table)
            if sum(t.num_rows for t in tables) >= ROWS_AT_ONCE:
                _flush(plan, work, split.stream, waiting.pop(split.stream), outbox)
    for name, tables in waiting.items():
        _flush(plan, work, name, tables, outbox)


def _chunks(split: Split, stream: StreamPlan, work: Work) -> Iterator[Chunk]:
    with reading(split.path, split.stream):
        yield from read(split, stream.stream, stream.columns, work.storage, work.clock.wall_us, work.sources)


def _flush(plan: Plan, work: Work, name: str, tables: Sequence[pa.Table], outbox: Outbox) -> None:
    with consuming(name):
        consume(plan, name, pa.concat_tables(tables), work.clock, outbox, open_tables(plan, work))


def _set_aside(work: Work, split: Split, part: str, rejected: pa.Table, report: IngestReport) -> None:
    """Rows that are not let in are kept with their reasons."""
    stream, file = split.stream, split.file
    name = rejected_name(stream, work.clock.batch, part)
    size = keep_rejected(work.storage, name, stream, rejected, file, work.clock.wall_us)
    known = {(aside.stream, aside.kind): aside for aside in report.set_aside}
    for kind in pc.unique(rejected["kind"]).to_pylist():
        of = rejected.filter(pc.equal(rejected["kind"], kind))
        more = SetAside(stream, kind, of.num_rows, size, file, of["reason"][0].as_py())
        known[stream, kind] = known[stream, kind] + more if (stream, kind) in known else more
        size = 0  # of all kinds of the object together
    report.set_aside = [*known.values()]


def _cells(plan: Plan, work: Work, outbox: Outbox, report: IngestReport) -> Cells:
    """What the task has made, on its way to slots, state and driver; the report is filled on the way."""
    yield from _to_slots(plan, outbox, report)
    outlet = Outlet(work.storage, work.clock.batch, 0, outbox.watch, work.unique, work.uncollected, work.sinks)
    for query, table in outbox.emitted:
        outlet.add(query, table)
    yield from results(0, outlet)
    report.counted = dict(outlet.counted)
    with outbox.watch.during(STATE_WRITE):
        stay = keep_local(plan, work, [outbox.partials, *staying(outbox.shipments)])
        rows = new_rows(plan, work, report.task, outbox.rows_for_joins)
        report.kept, report.stored = work.keep(plan, report.task % plan.slots, chain(rows, stay))
    faults.point("task.stored")
    if plan.joins.stores:
        news = encode(report.stored)
        for other in range(work.tasks):
            yield make_cell(other, CellKind.STORED, news)
    with outbox.watch.during(ROUTE):
        report.samples = sampled(plan, outbox, report.stored)
        report.probing = probing_rows(plan, outbox.rows_for_joins)
        report.stayed = {id_: by_slot.tolist() for id_, by_slot in outbox.partials_by_slot.items()}
        report.shipped = shipped(outbox.shipments)
        report.learned = learned(outbox.partitioners)
    report.rows, report.late, report.max_time_us = outbox.rows, outbox.late, outbox.max_time_us
    report.untimed = outbox.untimed
    report.groups, report.passed, report.failures = outbox.groups, outbox.passed, outbox.failures


def _to_slots(plan: Plan, outbox: Outbox, report: IngestReport) -> Cells:
    began = outbox.watch.read()
    for slot in range(plan.slots):
        for tables in cut(outbox.sent.pop(slot, [])):
            with outbox.watch.during(ROUTE):
                payload = pack(tables)
                cell = make_cell(slot, CellKind.GROUPED, payload)
            report.sent_bytes += len(payload)
            yield cell
    report.ship_seconds = outbox.ship_seconds + outbox.watch.read() - began
