"""Rows of a stream run through the plan: computed columns, plain queries, joins, partials.

One way for all rows, whether a source brought them or a join made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from thalweg.model.failure import OfQuery
from thalweg.model.plan import Plan, Selection, StreamPlan
from thalweg.model.probe import Store
from thalweg.model.times import BatchTimes, joint_time
from thalweg.model.types import to_inner_arrow
from thalweg.observe.stopwatch import PREDICATES
from thalweg.operate import duck
from thalweg.operate.compute import add_computed
from thalweg.operate.look_up import alone
from thalweg.operate.outbox import Outbox, count
from thalweg.operate.pre_aggregate import event_times, pre_aggregate
from thalweg.operate.store import Sampled, choose_rows


def consume(
    plan: Plan, name: str, rows: pa.Table, clock: BatchTimes, outbox: Outbox, tables: Mapping[str, pa.Table]
) -> None:
    """Runs rows of the stream `name`, base or derived, through the plan. `tables`: the static ones."""
    stream, joined = plan.streams[name], plan.joins.joined.get(name)
    with outbox.watch.during(PREDICATES):
        if joined is None:
            count(outbox.rows, name, rows.num_rows)
            if rows.num_rows:
                rows = _compute(plan, stream, rows, outbox)
                _feed_joins(plan, stream, rows, clock, outbox, tables)
                count(outbox.late, name, pre_aggregate(plan, stream, rows, clock, outbox))
            return
        try:
            rows = _compute(plan, stream, rows, outbox)
            pre_aggregate(plan, stream, rows, clock, outbox)  # what is late now was on time as its parts
        except duck.Error as error:
            queries = [query for query, _ in joined.alone] or [*joined.leaders.values()]
            outbox.failures.update((OfQuery(query), duck.reason(error)) for query in queries)


def _compute(plan: Plan, stream: StreamPlan, rows: pa.Table, outbox: Outbox) -> pa.Table:
    """The rows with their computed columns; plain queries have theirs."""
    later = frozenset(stream.later)
    computed = [c for c in stream.computed if c.name not in later]
    rows = add_computed(rows, stream.stream.name, computed, outbox.failures)
    for selection in _selections(plan, stream):
        outbox.emit(selection.query, select(rows, selection))
    return rows


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
    times, valid = event_times(rows, stream)
    untimed = len(times) - int(np.count_nonzero(valid))
    _note_max(outbox, name, times[valid] if untimed else times)
    count(outbox.untimed, name, untimed)
    if name in plan.joins.stores:
        _store(plan.joins.stores[name], rows, times, valid, clock.closed_us, outbox, counted=not stream.groupings)
    for joined in plan.joins.joined.values():
        if joined.alone and joined.relations[0][1] == name:
            try:
                found = alone(plan, joined.stream, rows, tables, outbox.failures)
            except duck.Error as error:
                outbox.failures.update((OfQuery(query), duck.reason(error)) for query, _ in joined.alone)
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
        count(outbox.late, store.stream, int(np.count_nonzero(late & valid)))
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


def _note_max(outbox: Outbox, name: str, times: np.ndarray) -> None:
    if len(times):
        outbox.max_time_us[name] = max(outbox.max_time_us.get(name, -(2**63)), int(times.max()))
