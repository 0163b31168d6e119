"""The work of INGEST on one chunk of a stream: computed columns, plain queries, partials, routing to slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.plan import Grouping, Plan, Selection, StreamPlan
from thalweg.model.probe import Joined, Store
from thalweg.model.types import to_inner_arrow
from thalweg.operate import dense, duck
from thalweg.operate.columns import GROUP, START, key
from thalweg.operate.combine import Slices, carry, combine, combine_dense, roll_up
from thalweg.operate.compute import Failures, add_computed
from thalweg.operate.joined import alone
from thalweg.operate.store import Sampled, choose_rows
from thalweg.route.bucket import order_by_group, slice_groups
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import RoutingTable


@dataclass
class Ingested:
    """What an INGEST task has made so far: tables for slots, results of plain queries, counts."""

    cells: dict[int, list[tuple[str, pa.Table]]] = field(default_factory=dict)
    """slot -> (grouping, bucket) in the order of arrival."""
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    max_time_us: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """grouping -> partials made."""
    passed: dict[str, int] = field(default_factory=dict)
    """grouping -> rows it was made from."""
    stored: dict[str, list[pa.Table]] = field(default_factory=dict)
    """stream -> rows that joins may need."""
    samples: dict[str, Sampled] = field(default_factory=dict)


def ingest_chunk(
    plan: Plan,
    name: str,
    chunk: pa.Table,
    closed_us: Mapping[str, int],
    done: Ingested,
    tables: Mapping[str, pa.Table] | None = None,
) -> None:
    """Runs one chunk of the stream `name` through the plan. `closed_us`: windows up to there have closed."""
    stream = plan.streams[name]
    _count(done.rows, name, chunk.num_rows)
    if chunk.num_rows == 0:
        return
    rows = add_computed(chunk, stream.computed, done.failures)
    times, valid = _times(rows, stream)
    _note_max(done, name, times[valid])
    for selection in stream.selections:
        done.results.append((selection.query, select(rows, selection)))
    if name in plan.joins.stores:
        _store(plan.joins.stores[name], rows, times, valid, closed_us, done, counted=not stream.groupings)
    for joined in plan.joins.joined.values():
        if joined.alone and joined.relations[0][1] == name:
            _join_tables(plan, joined, rows, closed_us, done, tables or {})
    if stream.groupings:
        rows, times = on_time(rows, plan, stream, closed_us[name], done)
        if rows.num_rows:
            _group(plan, stream, rows, times, done)


def ingest_joined(plan: Plan, name: str, rows: pa.Table, closed_us: int, done: Ingested) -> None:
    """Runs rows of a joined stream through the plan, as those of any stream."""
    stream = plan.streams[name]
    rows = add_computed(rows, stream.computed, done.failures)
    flagged = {query for query, _ in plan.joins.joined[name].flags}
    for selection in stream.selections:
        if selection.query in flagged:
            done.results.append((selection.query, select(rows, selection)))
    if stream.groupings:
        rows, times = on_time(rows, plan, stream, closed_us, Ingested())
        if rows.num_rows:
            _group(plan, stream, rows, times, done)


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
    closed_us: Mapping[str, int],
    done: Ingested,
    tables: Mapping[str, pa.Table],
) -> None:
    try:
        ingest_joined(plan, joined.stream, alone(plan, joined.stream, rows, tables), closed_us[joined.stream], done)
    except duck.Error as error:
        done.failures.update((query, str(error)) for query, _ in joined.alone)


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


def _group(plan: Plan, stream: StreamPlan, rows: pa.Table, times: np.ndarray, done: Ingested) -> None:
    grids: dict[tuple[int, int], Slices] = {}
    columns = dense.Columns(rows)
    made: dict[str, pa.Table] = {}
    for id_ in stream.groupings:
        grouping = plan.groupings[id_]
        if grouping.finer is not None:
            table = _roll_up(made[grouping.finer], grouping, plan.groupings[grouping.finer])
        else:
            table = None
        if table is None:
            grid = (grouping.slice_us, grouping.slice_start_us)
            if grid not in grids:
                grids[grid] = Slices.of(times, grouping)
            table = _make(rows, columns, grids[grid], grouping, done)
        made[id_] = table
        _count(done.groups, id_, table.num_rows)
        _count(done.passed, id_, rows.num_rows)
        extra = [p.name for p in grouping.extra]
        route(plan, grouping, table.drop_columns(extra) if extra else table, done)


def _roll_up(finer: pa.Table, grouping: Grouping, source: Grouping) -> pa.Table | None:
    """None where a sum overflows on the way: made from the rows, it is blamed on its query alone."""
    try:
        return roll_up(finer, grouping, source)
    except duck.Error:
        return None


def _make(rows: pa.Table, columns: dense.Columns, slices: Slices, grouping: Grouping, done: Ingested) -> pa.Table:
    """A grouping from the rows: by direct address, by DuckDB, or as raw rows."""
    if grouping.kind == "combine":
        names = (*grouping.keys, *grouping.values)
        table = combine_dense(columns, slices, grouping, names, merging=False)
        if table is not None:
            return table
    sliced = rows.append_column(START, pa.array(slices.starts))
    return combine(sliced, grouping, done.failures) if grouping.kind == "combine" else carry(sliced, grouping)


def route(plan: Plan, grouping: Grouping, table: pa.Table, done: Ingested) -> None:
    """Orders a grouping's rows by key group and deals them out to the slots."""
    if table.num_rows == 0:
        return
    columns = [table.column(key(i)) for i in range(len(grouping.keys))]
    groups = key_groups(hash_rows(columns, rows=table.num_rows), plan.groups)
    ordered, offsets = order_by_group(table.append_column(GROUP, pa.array(groups)), groups, plan.groups)
    routing = routing_table(plan, grouping)
    for slot in range(plan.slots):
        piece = slice_groups(ordered, offsets, routing.slot_ranges(slot))
        if piece.num_rows:
            done.cells.setdefault(slot, []).append((grouping.id, piece))


def route_key(grouping: Grouping) -> str:
    return f"{grouping.stream}({', '.join(grouping.keys)})"


def routing_table(plan: Plan, grouping: Grouping) -> RoutingTable:
    assignment = plan.assignment.get(route_key(grouping))
    if assignment is None:
        return RoutingTable.hashed(plan.groups, plan.slots)
    return RoutingTable(plan.groups, plan.slots, assignment)


def _count(counts: dict[str, int], name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n
