"""SLOT: what came for a slot is merged with its state; windows close, joins are probed, buckets are written.

Once a batch, and once more for every step of a join over another key. Functions as those of `batch/ingest_stage`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa

from thalweg import faults
from thalweg.batch.cells import (
    CellKind,
    Cells,
    cells_of,
    make_cell,
    next_stage_cells,
    report_cell,
    stored_cell,
    stored_cells,
)
from thalweg.batch.inbox import Inbox
from thalweg.batch.reports import error_report, learned, shipped
from thalweg.batch.slices import aggregate, keep_local, staying
from thalweg.batch.slot_joins import SlotJoins
from thalweg.batch.stores import merged_rows, rows_to_compact
from thalweg.batch.task import open_outbox, open_outlet, result_cells, start_task
from thalweg.batch.work import Work
from thalweg.errors import ThalwegError
from thalweg.model.plan import Plan
from thalweg.model.report import SlotReport
from thalweg.observe.stopwatch import DECODE, OPERATE, STATE_WRITE, Stopwatch

faults.register("task.slot", "task.bucket")


def run_slots(plan: Plan, work: Work, batches: Iterable[pa.RecordBatch], task: int) -> Cells:
    """Cells of this task's slots -> results, cells for the next stage, and reports. Other cells pass through."""
    inbox, watch = Inbox(), Stopwatch(work.now)
    start_task(plan, work)
    for batch in batches:
        for slot, kind, payload in cells_of(batch):
            with watch.during(DECODE):
                taken = inbox.put(slot, kind, payload, work.is_last)
            if not taken:
                yield make_cell(slot, kind, payload.as_py())
    if inbox.stored and not work.is_last:
        yield stored_cell(task, inbox.stored)
    with watch.during(OPERATE):
        joins = SlotJoins.open(plan, work, inbox)
    for slot in range(task, plan.slots, work.tasks):
        yield from _run_slot(plan, work, slot, inbox, joins, watch)


def _run_slot(plan: Plan, work: Work, slot: int, inbox: Inbox, joins: SlotJoins, watch: Stopwatch) -> Cells:
    began = watch.read()
    report = SlotReport(slot, work.stage, slot % work.tasks)
    outbox = open_outbox(work, slot, watch)
    outlet = open_outlet(work, slot, watch)
    try:
        with watch.during(OPERATE):
            found = joins.run(slot, inbox, outbox, outlet)
            probed = watch.read()
            result = aggregate(plan, work, slot, inbox, report, watch.read)
        faults.point("task.slot")
        with watch.during(STATE_WRITE):
            stay = keep_local(plan, work, staying(outbox.shipments))
            runs = rows_to_compact(plan, work, slot)
            merged = (merged_rows(work, store, run) for store, run in runs)
            report.kept, report.stores = work.keep(plan, slot, chain(found, result.kept, stay, merged))
        faults.point("task.bucket")
        intermediates = report.stores[: len(found)]
        report.replaced = [*result.replaced, *(bucket.name for _, run in runs for bucket in run)]
        report.failures = {**result.failures, **outbox.failures}
        report.probes = outbox.probes
        report.shipped, report.learned = shipped(outbox.shipments), learned(outbox.partitioners)
        report.work_seconds = watch.read() - probed
        for query, table in result.results:
            outlet.add(query, table)
        outlet.counted.update(result.counted)
        yield from result_cells(slot, outlet)
        report.counted = dict(outlet.counted)
        if intermediates and not work.is_last:
            yield from stored_cells(intermediates, work.tasks)
        yield from next_stage_cells(outbox.sent, watch)
    except BaseException as error:
        outlet.abandon()
        if not isinstance(error, ThalwegError):
            raise
        report.error = error_report(error)
    report.seconds, report.time = watch.read() - began, watch.take()
    yield report_cell(slot, CellKind.SLOT, report)
