"""The work of INGEST on one chunk of a stream: computed columns, plain queries, partials, routing to slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.address import Address, Partials, WholeRows
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Grouping, Plan, Selection, StreamPlan, shipped_keys, updated_groupings
from thalweg.model.probe import Joined, Store
from thalweg.model.types import to_inner_arrow
from thalweg.observe.stopwatch import PRE_AGGREGATE, PREDICATES, ROUTE, Stopwatch
from thalweg.operate import dense, duck
from thalweg.operate.columns import GROUP, START, key
from thalweg.operate.combine import Slices, admitted, make, roll_up
from thalweg.operate.compute import add_computed
from thalweg.operate.joined import alone
from thalweg.operate.partitioners import Partitioners
from thalweg.operate.shipment import Shipment
from thalweg.operate.shipping import ship
from thalweg.operate.slot import Clock
from thalweg.operate.store import Sampled, choose_rows
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import deal, routing_table

STAYING_FROM = 1 << 20
"""Partials of a chunk from so many bytes on do not travel before a window needs them: the task that made them puts
them into the state, where the slot would have put them. On its way to a slot the JVM copies every byte several times.
Smaller ones travel, so that a slot keeps one bucket of them and not one for each task."""


@dataclass
class Ingested:
    """What an INGEST task has made so far: tables for slots, results of plain queries, counts."""

    cells: dict[int, list[tuple[Address, pa.Table]]] = field(default_factory=dict)
    """slot -> what goes there, in the order of arrival."""
    staying: dict[str, list[pa.Table]] = field(default_factory=dict)
    """grouping -> partials for the state."""
    stayed: dict[str, np.ndarray] = field(default_factory=dict)
    """grouping -> how many these are, by the slot that they belong to."""
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    max_time_us: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """grouping -> partials made."""
    passed: dict[str, int] = field(default_factory=dict)
    """grouping -> rows that it admitted."""
    stored: dict[str, list[pa.Table]] = field(default_factory=dict)
    """stream -> rows that joins may need."""
    samples: dict[str, Sampled] = field(default_factory=dict)
    shipments: dict[str, Shipment] = field(default_factory=dict)
    """stream -> what was shipped of it."""
    partitioners: Partitioners = field(default_factory=Partitioners)
    ship_seconds: float = 0.0
    watch: Stopwatch = field(default_factory=Stopwatch)


def ingest_chunk(
    plan: Plan,
    name: str,
    chunk: pa.Table,
    clock: Clock,
    done: Ingested,
    tables: Mapping[str, pa.Table] | None = None,
) -> None:
    """Runs one chunk of the stream `name` through the plan."""
    _count(done.rows, name, chunk.num_rows)
    if chunk.num_rows == 0:
        return
    with done.watch.during(PREDICATES):
        _ingest(plan, name, chunk, clock, done, tables or {})


def _ingest(
    plan: Plan, name: str, chunk: pa.Table, clock: Clock, done: Ingested, tables: Mapping[str, pa.Table]
) -> None:
    stream = plan.streams[name]
    rows = add_computed(chunk, name, stream.computed, done.failures)
    times, valid = _times(rows, stream)
    _note_max(done, name, times[valid])
    for selection in stream.selections:
        done.results.append((selection.query, select(rows, selection)))
    if name in plan.joins.stores:
        _store(plan.joins.stores[name], rows, times, valid, clock.closed_us, done, counted=not stream.groupings)
    for joined in plan.joins.joined.values():
        if joined.alone and joined.relations[0][1] == name:
            _join_tables(plan, joined, rows, clock, done, tables)
    if stream.groupings:
        rows, times = on_time(rows, plan, stream, clock.closed_us[name], done)
        if rows.num_rows:
            _group(plan, stream, rows, times, clock, done)


def ingest_joined(plan: Plan, name: str, rows: pa.Table, clock: Clock, done: Ingested) -> None:
    """Runs rows of a joined stream through the plan, as those of any stream."""
    with done.watch.during(PREDICATES):
        _ingest_joined(plan, name, rows, clock, done)


def _ingest_joined(plan: Plan, name: str, rows: pa.Table, clock: Clock, done: Ingested) -> None:
    stream = plan.streams[name]
    rows = add_computed(rows, name, stream.computed, done.failures)
    flagged = {query for query, _ in plan.joins.joined[name].flags}
    for selection in stream.selections:
        if selection.query in flagged:
            done.results.append((selection.query, select(rows, selection)))
    if stream.groupings:
        rows, times = on_time(rows, plan, stream, clock.closed_us[name], Ingested())
        if rows.num_rows:
            _group(plan, stream, rows, times, clock, done)


def _store(
    store: Store,
    rows: pa.Table,
    times: np.ndarray,
    valid: np.ndarray,
    closed_us: Mapping[str, int],
    done: Ingested,
    counted: bool,
) -> None:
    """Sets the rows aside that joins may need. At the watermark is late, as in Spark's joins."""
    threshold = min(min(closed_us[s] for s in streams) for streams, _ in store.needs)
    late = times <= threshold
    if counted:
        _count(done.late, store.stream, int(np.count_nonzero(late & valid)))
    kept = valid & ~late
    sample = done.samples.setdefault(store.stream, Sampled())
    chosen = choose_rows(store, rows if kept.all() else rows.filter(pa.array(kept)), sample)
    if chosen.num_rows:
        done.stored.setdefault(store.stream, []).append(chosen)


def _join_tables(
    plan: Plan,
    joined: Joined,
    rows: pa.Table,
    clock: Clock,
    done: Ingested,
    tables: Mapping[str, pa.Table],
) -> None:
    try:
        found = alone(plan, joined.stream, rows, tables, done.failures)
        ingest_joined(plan, joined.stream, found, clock, done)
    except duck.Error as error:
        done.failures.update((OfQuery(query), str(error)) for query, _ in joined.alone)


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


def on_time(
    rows: pa.Table, plan: Plan, stream: StreamPlan, closed_us: int, done: Ingested
) -> tuple[pa.Table, np.ndarray]:
    """The rows for which some window is still open, and their event times. Rows without a time have none."""
    times, valid = _times(rows, stream)
    if not valid.all():
        rows = rows.filter(pa.array(valid))
        times = times[valid]
    if len(times) == 0 or int(times.min()) > closed_us:
        return rows, times
    open_ = np.zeros(len(times), dtype=bool)
    for window in {w for id_ in stream.groupings for w in plan.groupings[id_].windows}:
        last = np.floor_divide(times - window.start_us, window.slide_us) * window.slide_us + window.start_us
        open_ |= last + window.range_us > closed_us
    _count(done.late, stream.stream.name, int(len(times) - open_.sum()))
    return (rows, times) if open_.all() else (rows.filter(pa.array(open_)), times[open_])


def _times(rows: pa.Table, stream: StreamPlan) -> tuple[np.ndarray, np.ndarray]:
    column = rows.column(stream.stream.time)
    times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    valid = np.ones(len(times), bool) if column.null_count == 0 else pc.is_valid(column).to_numpy()
    return times, valid


def _note_max(done: Ingested, name: str, times: np.ndarray) -> None:
    if len(times):
        done.max_time_us[name] = max(done.max_time_us.get(name, -(2**63)), int(times.max()))


def _group(plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, clock: Clock, done: Ingested) -> None:
    grids: dict[tuple[int, int], Slices] = {}
    columns = dense.Columns(rows)
    made: dict[str, pa.Table] = {}
    may_stay, closing_us = staying_groupings(plan, stream), clock.closing_us[stream.stream.name]
    for id_ in stream.groupings:
        if id_ in stream.shipped:
            continue
        grouping = plan.groupings[id_]
        with done.watch.during(PRE_AGGREGATE):
            if grouping.finer is not None:
                table = _roll_up(made[grouping.finer], grouping, plan.groupings[grouping.finer])
            else:
                table = None
            if table is None:
                grid = (grouping.slice_us, grouping.slice_start_us)
                if grid not in grids:
                    grids[grid] = Slices.of(times, grouping)
                table = make(rows, columns, grids[grid], grouping, done.failures)
        made[id_] = table
        _count(done.groups, id_, table.num_rows)
        mask = admitted(rows, grouping.partials)
        _count(done.passed, id_, rows.num_rows if mask is None else int(np.count_nonzero(mask)))
        extra = [p.name for p in grouping.extra]
        with done.watch.during(ROUTE):
            table = with_groups(plan, grouping, table.drop_columns(extra) if extra else table)
            if id_ in may_stay and table.nbytes >= STAYING_FROM:
                table = stay(plan, grouping, table, closing_us, done)
            route(plan, grouping, table, done)
    if stream.shipped:
        with done.watch.during(ROUTE):
            _ship(plan, stream, rows, times, clock, done)


def _ship(plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, clock: Clock, done: Ingested) -> None:
    began = done.watch.read()
    name = stream.stream.name
    routed = tuple(by for by in shipped_keys(plan, stream) if by not in plan.partitioners)
    shipment = done.shipments.setdefault(name, Shipment(routed))
    pieces = ship(plan, stream, rows, times, clock.closing_us[name], shipment, done.partitioners, done.failures)
    for slot, piece in enumerate(pieces):
        if piece.num_rows:
            done.cells.setdefault(slot, []).append((WholeRows(name), piece))
    done.ship_seconds += done.watch.read() - began


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


def stay(plan: Plan, grouping: Grouping, table: pa.Table, closing_us: int, done: Ingested) -> pa.Table:
    """Sets the partials aside that no window of this batch needs, for the state; the others. All windows of a slice
    that begins at the watermark or later are open until a later batch."""
    due = table.column(START).to_numpy() < closing_us
    staying = table.filter(pa.array(~due)) if due.any() else table
    if staying.num_rows:
        done.staying.setdefault(grouping.id, []).append(staying)
        owners = routing_table(plan, grouping.route_key).owners[staying.column(GROUP).to_numpy()]
        done.stayed[grouping.id] = done.stayed.get(grouping.id, 0) + np.bincount(owners, minlength=plan.slots)
    return table.filter(pa.array(due))


def route(plan: Plan, grouping: Grouping, table: pa.Table, done: Ingested) -> None:
    """Deals a grouping's rows out to the slots of their keys."""
    if table.num_rows == 0:
        return
    groups = table.column(GROUP).to_numpy()
    for slot, piece in deal(table, groups, routing_table(plan, grouping.route_key)):
        done.cells.setdefault(slot, []).append((Partials(grouping.id), piece))


def _count(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n
