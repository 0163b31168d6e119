"""INGEST: splits are read to Arrow, worked on once for all queries, and dealt out to slots.

A function of a plan, the batch's work, what came in and the number of the task; who runs it is up to a runner
(`batch/contract`). A task never fails for what a user did: it reports, and the driver decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from thalweg import faults
from thalweg.batch.cells import CellKind, Cells, grouped_cells, payload_size, report_cell, stored_cells
from thalweg.batch.read_splits import read_splits
from thalweg.batch.reports import error_report, learned, shipped
from thalweg.batch.slices import keep_local, staying
from thalweg.batch.stores import new_rows, open_tables, probing_rows, sampled
from thalweg.batch.task import open_outbox, open_outlet, result_cells, start_task
from thalweg.batch.work import Work
from thalweg.errors import ThalwegError
from thalweg.model.plan import ROWS, Plan
from thalweg.model.report import IngestReport
from thalweg.model.trouble import consuming
from thalweg.observe.stopwatch import READ, ROUTE, STATE_WRITE, Stopwatch
from thalweg.operate.consume import consume
from thalweg.operate.outbox import Outbox

faults.register("task.ingest", "task.stored")


def ingest(plan: Plan, work: Work, texts: Iterable[str], task: int) -> Cells:
    """Texts of splits -> one cell per slot that has rows, the results of plain queries, and a report."""
    outbox = open_outbox(work, task, Stopwatch(work.now))
    started = outbox.watch.read()
    report = IngestReport(task)
    start_task(plan, work)
    try:
        for text in texts:
            with outbox.watch.during(READ):
                for stream, rows in read_splits(plan, work, text, report):
                    with consuming(stream):
                        consume(plan, stream, rows, work.clock, outbox, open_tables(plan, work))
    except ThalwegError as error:
        report.error = error_report(error)
    faults.point("task.ingest")
    yield from _cells(plan, work, outbox, report)
    report.seconds, report.time = outbox.watch.read() - started, outbox.watch.take()
    yield report_cell(0, CellKind.INGESTED, report)


def _cells(plan: Plan, work: Work, outbox: Outbox, report: IngestReport) -> Cells:
    """What the task has made, on its way to slots, state and driver; the report is filled on the way."""
    yield from _to_slots(plan, outbox, report)
    outlet = open_outlet(work, 0, outbox.watch)
    for query, table in outbox.emitted:
        outlet.add(query, table)
    yield from result_cells(0, outlet)
    report.counted = dict(outlet.counted)
    with outbox.watch.during(STATE_WRITE):
        stay = keep_local(plan, work, [outbox.partials, *staying(outbox.shipments)])
        rows = new_rows(plan, work, report.task, outbox.rows_for_joins)
        report.kept, report.stored = work.keep(plan, report.task % plan.slots, chain(rows, stay))
    faults.point("task.stored")
    kept = [bucket for bucket in report.kept if bucket.relation.startswith(ROWS)]
    if plan.joins.stores or kept:
        yield from stored_cells([*report.stored, *kept], work.tasks)
    with outbox.watch.during(ROUTE):
        report.samples = sampled(plan, outbox, report.stored)
        report.probing = probing_rows(plan, outbox.rows_for_joins)
        report.stayed = {id_: by_slot.tolist() for id_, by_slot in outbox.partials_by_slot.items()}
        report.shipped = shipped(outbox.shipments)
        report.learned = learned(outbox.partitioners)
    report.rows, report.late, report.max_time_us = outbox.rows, outbox.late, outbox.max_time_us
    report.untimed = outbox.untimed
    report.groups, report.passed, report.failures = outbox.groups, outbox.passed, outbox.failures
    report.making = outbox.making


def _to_slots(plan: Plan, outbox: Outbox, report: IngestReport) -> Cells:
    began = outbox.watch.read()
    for slot in range(plan.slots):
        for cell in grouped_cells(slot, outbox.sent.pop(slot, []), outbox.watch):
            report.sent_bytes += payload_size(cell)
            yield cell
    report.ship_seconds = outbox.ship_seconds + outbox.watch.read() - began
