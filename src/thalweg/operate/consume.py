"""Rows of a stream run through the plan: computed columns, plain queries, partials, routing to slots.

One way for all rows, whether a source brought them or a join made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.address import Partials, WholeRows
from thalweg.model.columns import GROUP, START, key
from thalweg.model.failure import OfQuery
from thalweg.model.plan import Grouping, Plan, Selection, StreamPlan, shipped_keys, updated_groupings
from thalweg.model.probe import Store
from thalweg.model.times import BatchTimes, joint_time
from thalweg.model.types import to_inner_arrow
from thalweg.observe.stopwatch import PRE_AGGREGATE, PREDICATES, ROUTE
from thalweg.operate import dense, duck
from thalweg.operate.combine import Slices, admitted, make, roll_up
from thalweg.operate.compute import add_computed
from thalweg.operate.materialise import alone
from thalweg.operate.outbox import Outbox
from thalweg.operate.shipment import Shipment
from thalweg.operate.shipping import ship
from thalweg.operate.store import Sampled, choose_rows
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import deal, routing_table

STAYING_FROM = 1 << 20
"""Partials of a chunk from so many bytes on do not travel before a window needs them: the task that made them puts
them into the state, where the slot would have put them. On its way to a slot the JVM copies every byte several times.
Smaller ones travel, so that a slot keeps one bucket of them and not one for each task."""


def consume(
    plan: Plan, name: str, rows: pa.Table, clock: BatchTimes, outbox: Outbox, tables: Mapping[str, pa.Table]
) -> None:
    """Runs rows of the stream `name`, base or derived, through the plan. `tables`: the static ones."""
    stream, joined = plan.streams[name], plan.joins.joined.get(name)
    with outbox.watch.during(PREDICATES):
        if joined is None:
            _count(outbox.rows, name, rows.num_rows)
            if rows.num_rows:
                rows = _compute(plan, stream, rows, outbox)
                _feed_joins(plan, stream, rows, clock, outbox, tables)
                _count(outbox.late, name, _group_on_time(plan, stream, rows, clock, outbox))
            return
        try:
            rows = _compute(plan, stream, rows, outbox)
            _group_on_time(plan, stream, rows, clock, outbox)  # what is late now was on time as its parts
        except duck.Error as error:
            queries = [query for query, _ in joined.alone] or [*joined.leaders.values()]
            outbox.failures.update((OfQuery(query), str(error)) for query in queries)


def _compute(plan: Plan, stream: StreamPlan, rows: pa.Table, outbox: Outbox) -> pa.Table:
    """The rows with their computed columns; plain queries have theirs."""
    rows = add_computed(rows, stream.stream.name, stream.computed, outbox.failures)
    for selection in _selections(plan, stream):
        outbox.emit(selection.query, select(rows, selection))
    return rows


def _group_on_time(plan: Plan, stream: StreamPlan, rows: pa.Table, clock: BatchTimes, outbox: Outbox) -> int:
    """How many rows were late for all windows."""
    if not stream.groupings:
        return 0
    rows, times, late = on_time(rows, plan, stream, clock.closed_us[stream.stream.name])
    if rows.num_rows:
        _group(plan, stream, rows, times, clock, outbox)
    return late


def _selections(plan: Plan, stream: StreamPlan) -> Sequence[Selection]:
    """Of a joined stream those that need more than a choice of columns; the others have theirs from the stores."""
    joined = plan.joins.joined.get(stream.stream.name)
    if joined is None:
        return stream.selections
    flagged = {query for query, _ in joined.flags}
    return [selection for selection in stream.selections if selection.query in flagged]


def _feed_joins(
    plan: Plan, stream: StreamPlan, rows: pa.Table, clock: BatchTimes, outbox: Outbox, tables: Mapping[str, pa.Table]
) -> None:
    """Rows of a base stream are kept for its joins, or joined at once where there is nothing to wait for."""
    name = stream.stream.name
    times, valid = _times(rows, stream)
    _note_max(outbox, name, times[valid])
    _count(outbox.untimed, name, int(np.count_nonzero(~valid)))
    if name in plan.joins.stores:
        _store(plan.joins.stores[name], rows, times, valid, clock.closed_us, outbox, counted=not stream.groupings)
    for joined in plan.joins.joined.values():
        if joined.alone and joined.relations[0][1] == name:
            try:
                found = alone(plan, joined.stream, rows, tables, outbox.failures)
            except duck.Error as error:
                outbox.failures.update((OfQuery(query), str(error)) for query, _ in joined.alone)
            else:
                consume(plan, joined.stream, found, clock, outbox, tables)


def _store(
    store: Store,
    rows: pa.Table,
    times: np.ndarray,
    valid: np.ndarray,
    closed_us: Mapping[str, int],
    outbox: Outbox,
    counted: bool,
) -> None:
    """Sets the rows aside that joins may need. At the watermark is late, as in Spark's joins."""
    threshold = min(joint_time(closed_us, streams) for streams, _ in store.needs)
    late = times <= threshold
    if counted:
        _count(outbox.late, store.stream, int(np.count_nonzero(late & valid)))
    kept = valid & ~late
    sample = outbox.samples.setdefault(store.stream, Sampled())
    chosen = choose_rows(store, rows if kept.all() else rows.filter(pa.array(kept)), sample)
    if chosen.num_rows:
        outbox.rows_for_joins.setdefault(store.stream, []).append(chosen)


def select(rows: pa.Table, selection: Selection) -> pa.Table:
    """A plain query's rows, columns numbered in order."""
    table = pa.Table.from_arrays(
        [
            rows.column(column).cast(to_inner_arrow(kind))
            for column, kind in zip(selection.columns, selection.types, strict=True)
        ],
        names=[str(i) for i in range(len(selection.columns))],
    )
    return table if selection.where is None else table.filter(rows.column(selection.where))


def on_time(rows: pa.Table, plan: Plan, stream: StreamPlan, closed_us: int) -> tuple[pa.Table, np.ndarray, int]:
    """The rows for which some window is still open, their event times, and how many were late. Rows without a time
    have no window."""
    times, valid = _times(rows, stream)
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


def _times(rows: pa.Table, stream: StreamPlan) -> tuple[np.ndarray, np.ndarray]:
    column = rows.column(stream.stream.time)
    times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    valid = np.ones(len(times), bool) if column.null_count == 0 else pc.is_valid(column).to_numpy()
    return times, valid


def _note_max(outbox: Outbox, name: str, times: np.ndarray) -> None:
    if len(times):
        outbox.max_time_us[name] = max(outbox.max_time_us.get(name, -(2**63)), int(times.max()))


def _group(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, clock: BatchTimes, outbox: Outbox
) -> None:
    grids: dict[tuple[int, int], Slices] = {}
    columns = dense.Columns(rows)
    made: dict[str, pa.Table] = {}
    may_stay, closing_us = staying_groupings(plan, stream), clock.closing_us[stream.stream.name]
    for id_ in stream.groupings:
        if id_ in stream.shipped:
            continue
        grouping = plan.groupings[id_]
        with outbox.watch.during(PRE_AGGREGATE):
            if grouping.finer is not None:
                table = _roll_up(made[grouping.finer], grouping, plan.groupings[grouping.finer])
            else:
                table = None
            if table is None:
                grid = (grouping.slice_us, grouping.slice_start_us)
                if grid not in grids:
                    grids[grid] = Slices.of(times, grouping)
                table = make(rows, columns, grids[grid], grouping, outbox.failures)
        made[id_] = table
        _count(outbox.groups, id_, table.num_rows)
        mask = admitted(rows, grouping.partials)
        _count(outbox.passed, id_, rows.num_rows if mask is None else int(np.count_nonzero(mask)))
        extra = [p.name for p in grouping.extra]
        with outbox.watch.during(ROUTE):
            table = with_groups(plan, grouping, table.drop_columns(extra) if extra else table)
            if id_ in may_stay and table.nbytes >= STAYING_FROM:
                table = stay(plan, grouping, table, closing_us, outbox)
            route(plan, grouping, table, outbox)
    if stream.shipped:
        with outbox.watch.during(ROUTE):
            _ship(plan, stream, rows, times, clock, outbox)


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


def with_groups(plan: Plan, grouping: Grouping, table: pa.Table) -> pa.Table:
    """A grouping's partials with the key group of each."""
    columns = [table.column(key(i)) for i in range(len(grouping.keys))]
    groups = key_groups(hash_rows(columns, rows=table.num_rows), plan.groups)
    return table.append_column(GROUP, pa.array(groups))


def staying_groupings(plan: Plan, stream: StreamPlan) -> set[str]:
    """The groupings whose partials need not travel at once.

    Another attempt of the task must decide alike, or slots would lose or double what it made. Its chunks are the
    same, but joined rows come in any order, and states of own aggregates are not of the same size every time.
    """
    if stream.stream.name in plan.joins.joined:
        return set()
    own = {id_ for id_ in stream.groupings if any(p.own is not None for p in plan.groupings[id_].partials)}
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


def _count(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n
