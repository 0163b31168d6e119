"""SLOT: what came for a slot is merged with its state; windows close, joins are probed, buckets are written.

Once a batch, and once more for every step of a join over another key. Functions as those of `batch/ingest_stage`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from thalweg import faults
from thalweg.batch.cells import CellKind, Cells, cells_of, cut, make_cell
from thalweg.batch.reports import error_report, learned, results, shipped
from thalweg.batch.slices import keep_local, staying, stored_buckets
from thalweg.batch.stores import (
    merged_rows,
    new_intermediates,
    open_tables,
    open_views,
    rows_to_compact,
    stage_plan,
)
from thalweg.batch.work import Work
from thalweg.errors import ThalwegError
from thalweg.model.address import Address, NodeTuples, Partials, QueryRows, WholeRows
from thalweg.model.bucket import NewRows, RowBucket
from thalweg.model.message import decode, encode
from thalweg.model.plan import Plan
from thalweg.model.report import SlotReport
from thalweg.observe.stopwatch import DECODE, OPERATE, ROUTE, STATE_WRITE, Stopwatch
from thalweg.operate import duck
from thalweg.operate.consume import consume
from thalweg.operate.materialise import Materialising
from thalweg.operate.outbox import Outbox
from thalweg.operate.own import define
from thalweg.operate.partitioners import Partitioners
from thalweg.operate.probe_tree import Probing
from thalweg.operate.slot import SlotResult, run_slot
from thalweg.operate.store import Views
from thalweg.route.bucket import pack, unpack
from thalweg.sink.outlet import Outlet

faults.register("task.slot", "task.bucket")


def run_slots(plan: Plan, work: Work, batches: Iterable[pa.RecordBatch], task: int) -> Cells:
    """Cells of this task's slots -> results, cells for the next stage, and reports. Other cells pass through."""
    inbox, watch = _Inbox(), Stopwatch(work.now)
    duck.allow(work.budget)
    if plan.functions:
        define(plan)
    for batch in batches:
        for slot, kind, payload in cells_of(batch):
            with watch.during(DECODE):
                taken = inbox.put(slot, kind, payload, work.is_last)
            if not taken:
                yield make_cell(slot, kind, payload.as_py())
    if inbox.stored and not work.is_last:
        yield make_cell(task, CellKind.STORED, encode(inbox.stored))
    with watch.during(OPERATE):
        views = open_views(plan, work, inbox.stored)
    for slot in range(task, plan.slots, work.tasks):
        yield from _run_slot(plan, work, slot, inbox, views, watch)


@dataclass
class _Inbox:
    """What has come for the slots of one task."""

    grouped: dict[int, dict[Address, list[pa.Table]]] = field(default_factory=dict)
    tuples: dict[int, list[tuple[NodeTuples, pa.Table]]] = field(default_factory=dict)
    stored: list[RowBucket] = field(default_factory=list)

    def put(self, slot: int, kind: CellKind, payload: pa.Scalar, is_last: bool) -> bool:
        """False for what is not for this stage."""
        if kind == CellKind.GROUPED or (kind == CellKind.JOINED and is_last):
            tables = self.grouped.setdefault(slot, {})
            for address, table in unpack(payload.as_buffer()):
                tables.setdefault(address, []).append(table)
        elif kind == CellKind.TUPLES:
            came = self.tuples.setdefault(slot, [])
            came += [(a, table) for a, table in unpack(payload.as_buffer()) if isinstance(a, NodeTuples)]
        elif kind == CellKind.STORED:
            self.stored += decode(payload.as_py(), list[RowBucket])
        else:
            return False
        return True


def _run_slot(plan: Plan, work: Work, slot: int, inbox: _Inbox, views: Views, watch: Stopwatch) -> Cells:
    began = watch.read()
    report = SlotReport(slot, work.stage, slot % work.tasks)
    outbox = Outbox(partitioners=Partitioners(work.policies, slot), watch=watch)
    outlet = Outlet(work.storage, work.clock.batch, slot, watch, work.unique, work.uncollected, work.sinks)
    try:
        with watch.during(OPERATE):
            found = _join(plan, work, slot, inbox, views, outbox, outlet)
            probed = watch.read()
            result = _aggregate(plan, work, slot, inbox, report)
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
        yield from results(slot, outlet)
        report.counted = dict(outlet.counted)
        yield from _to_next_stage(work, outbox, intermediates)
    except BaseException as error:
        outlet.abandon()
        if not isinstance(error, ThalwegError):
            raise
        report.error = error_report(error)
    report.seconds, report.time = watch.read() - began, watch.take()
    yield make_cell(slot, CellKind.SLOT, encode(report))


def _join(
    plan: Plan, work: Work, slot: int, inbox: _Inbox, views: Views, outbox: Outbox, outlet: Outlet
) -> list[NewRows]:
    """The slot's part of the joins in this stage; new rows of intermediates. Results leave as they are made: there
    can be more of them than fit in memory."""
    if not plan.joins.groups or work.stage > plan.joins.stages:
        return []
    tables = open_tables(plan, work)
    probing = Probing(plan, slot, views, outbox)
    joined = Materialising(plan, views, tables, outbox.failures)
    for address, table in joined.run(probing, work.clock, work.stage == 1, inbox.tuples.pop(slot, [])):
        match address:
            case QueryRows(query):
                outlet.add(query, table)
            case WholeRows(stream):
                consume(plan, stream, table, work.clock, outbox, tables)
        for query, emitted in outbox.emitted:
            outlet.add(query, emitted)
        outbox.emitted.clear()
    return new_intermediates(plan, work, slot, probing)


def _to_next_stage(work: Work, outbox: Outbox, intermediates: list[RowBucket]) -> Cells:
    if intermediates and not work.is_last:
        news = encode(intermediates)
        for task in range(work.tasks):
            yield make_cell(task, CellKind.STORED, news)
    for kind in (CellKind.TUPLES, CellKind.JOINED):
        for to, sent in outbox.sent.items():
            mine = [one for one in sent if isinstance(one[0], NodeTuples) == (kind == CellKind.TUPLES)]
            for portion in cut(mine):
                if portion:
                    with outbox.watch.during(ROUTE):
                        cell = make_cell(to, kind, pack(portion, compressed=kind == CellKind.JOINED))
                    yield cell


def _aggregate(plan: Plan, work: Work, slot: int, inbox: _Inbox, report: SlotReport) -> SlotResult:
    part = stage_plan(plan, work.stage, work.stages)
    if not part.groupings:
        return SlotResult()
    came = inbox.grouped.pop(slot, {})
    report.merged = {a.grouping: sum(t.num_rows for t in came[a]) for a in came if isinstance(a, Partials)}
    result = run_slot(part, work.clock, came, *stored_buckets(part, work, slot), work.nodes)
    report.served = result.served
    return result
