"""Rows of a stream that are on time become partials of its groupings, or travel whole; both are routed to slots."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.address import Partials, WholeRows
from thalweg.model.columns import GROUP, START
from thalweg.model.plan import Grouping, Plan, StreamPlan, shipped_keys, updated_groupings
from thalweg.model.times import BatchTimes
from thalweg.observe.stopwatch import PRE_AGGREGATE, ROUTE
from thalweg.operate import duck
from thalweg.operate.columns import Columns
from thalweg.operate.combine import Slices, admitted, make, roll_up, with_groups
from thalweg.operate.kept_rows import keep_rows
from thalweg.operate.lanes import without_extra
from thalweg.operate.outbox import Outbox, count
from thalweg.operate.shipment import Shipment
from thalweg.operate.shipping import ship
from thalweg.route.table import deal, routing_table

STAYING_FROM = 1 << 20
"""Partials of a chunk with this many bytes or more do not travel before a window needs them: the task that made them
puts them into the state, where the slot would have put them. On its way to a slot the JVM copies every byte several
times. Smaller ones travel, so that a slot keeps one bucket of them and not one for each task."""


def pre_aggregate(plan: Plan, stream: StreamPlan, rows: pa.Table, clock: BatchTimes, outbox: Outbox) -> int:
    """How many rows were late for all windows."""
    if not stream.groupings:
        return 0
    rows, times, late = on_time(rows, plan, stream, clock.closed_us[stream.stream.name])
    if rows.num_rows and stream.keeps_rows and stream.rows is not None:
        keep_rows(plan, stream, stream.rows, rows, times, clock.batch, outbox)
    elif rows.num_rows:
        _group(plan, stream, rows, times, clock, outbox)
    return late


def on_time(rows: pa.Table, plan: Plan, stream: StreamPlan, closed_us: int) -> tuple[pa.Table, np.ndarray, int]:
    """The rows for which some window is still open, their event times, and how many were late. Rows without a time
    have no window."""
    times, valid = event_times(rows, stream)
    if not valid.all():
        rows = rows.filter(pa.array(valid))
        times = times[valid]
    if len(times) == 0 or int(times.min()) > closed_us:
        return rows, times, 0
    open_ = np.zeros(len(times), dtype=bool)
    for window in {w for id_ in stream.groupings for w in plan.groupings[id_].windows}:
        open_ |= window.closes_at(times) > closed_us
    late = int(len(times) - open_.sum())
    return (rows.filter(pa.array(open_)), times[open_], late) if late else (rows, times, 0)


def event_times(rows: pa.Table, stream: StreamPlan) -> tuple[np.ndarray, np.ndarray]:
    """Of every row, and which rows have one."""
    column = rows.column(stream.stream.time)
    numbers = column.cast(pa.int64())
    if column.null_count == 0:
        return numbers.to_numpy(), np.ones(len(column), bool)
    return pc.fill_null(numbers, 0).to_numpy(), pc.is_valid(column).to_numpy()


def _group(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, clock: BatchTimes, outbox: Outbox
) -> None:
    grids: dict[tuple[int, int], Slices] = {}
    computed = {c.name: c for c in stream.computed}
    columns = Columns(rows, stream.stream.name, computed, outbox.failures)
    columns.compute_expressions()
    made: dict[str, pa.Table] = {}
    may_stay, closing_us = staying_groupings(plan, stream), clock.closing_us[stream.stream.name]
    for id_ in stream.groupings:
        if id_ in stream.shipped:
            continue
        grouping = plan.groupings[id_]
        began = outbox.watch.read() if grouping.calls_users else 0.0
        with outbox.watch.during(PRE_AGGREGATE):
            if grouping.rolled_up_from is not None:
                table = _roll_up(made[grouping.rolled_up_from], grouping, plan.groupings[grouping.rolled_up_from])
            else:
                table = None
            if table is None:
                grid = (grouping.slice_us, grouping.slice_start_us)
                if grid not in grids:
                    grids[grid] = Slices.of(times, grouping)
                table = make(columns, grids[grid], grouping, outbox.failures)
        made[id_] = table
        if grouping.calls_users:
            outbox.making[id_] = outbox.making.get(id_, 0.0) + outbox.watch.read() - began
        count(outbox.groups, id_, table.num_rows)
        mask = admitted(columns, grouping.partials)
        count(outbox.passed, id_, rows.num_rows if mask is None else int(np.count_nonzero(mask)))
        with outbox.watch.during(ROUTE):
            table = with_groups(plan, grouping, without_extra(table, grouping.partials_for_others))
            if id_ in may_stay and table.nbytes >= STAYING_FROM:
                table = stay(plan, grouping, table, closing_us, outbox)
            route(plan, grouping, table, outbox)
    if stream.shipped:
        with outbox.watch.during(ROUTE):
            _ship(plan, stream, columns.with_computed(stream.shipped_columns), times, clock, outbox)


def _ship(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, clock: BatchTimes, outbox: Outbox
) -> None:
    began = outbox.watch.read()
    name = stream.stream.name
    routed = tuple(by for by in shipped_keys(plan, stream) if by not in plan.partitioners)
    shipment = outbox.shipments.setdefault(name, Shipment(routed))
    pieces = ship(plan, stream, rows, times, clock.closing_us[name], shipment, outbox.partitioners, outbox.failures)
    for slot, piece in enumerate(pieces):
        if piece.num_rows:
            outbox.send(slot, WholeRows(name), piece)
    outbox.ship_seconds += outbox.watch.read() - began


def _roll_up(finer: pa.Table, grouping: Grouping, source: Grouping) -> pa.Table | None:
    """None where a sum overflows on the way: made from the rows, it is blamed on its query alone."""
    try:
        return roll_up(finer, grouping, source)
    except duck.Error:
        return None


def staying_groupings(plan: Plan, stream: StreamPlan) -> set[str]:
    """The groupings whose partials need not travel at once.

    Another attempt of the task must decide alike, or slots would lose or double what it made. Its chunks are the
    same, but joined rows come in any order, and states of own aggregates are not of the same size every time.
    """
    if stream.stream.name in plan.joins.joined:
        return set()
    own = {id_ for id_ in stream.groupings if plan.groupings[id_].calls_users}
    return set(stream.groupings) - updated_groupings(plan) - own


def stay(plan: Plan, grouping: Grouping, table: pa.Table, closing_us: int, outbox: Outbox) -> pa.Table:
    """Sets the partials aside that no window of this batch needs, for the state; the others. All windows of a slice
    that begins at the watermark or later are open until a later batch."""
    due = table.column(START).to_numpy() < closing_us
    staying = table.filter(pa.array(~due)) if due.any() else table
    if staying.num_rows:
        outbox.partials.setdefault(grouping.id, []).append(staying)
        owners = routing_table(plan, grouping.route_key).owners[staying.column(GROUP).to_numpy()]
        counts = np.bincount(owners, minlength=plan.slots)
        outbox.partials_by_slot[grouping.id] = outbox.partials_by_slot.get(grouping.id, 0) + counts
    return table.filter(pa.array(due))


def route(plan: Plan, grouping: Grouping, table: pa.Table, outbox: Outbox) -> None:
    """Deals a grouping's rows out to the slots of their keys."""
    if table.num_rows == 0:
        return
    groups = table.column(GROUP).to_numpy()
    for slot, piece in deal(table, groups, routing_table(plan, grouping.route_key)):
        outbox.send(slot, Partials(grouping.id), piece)
