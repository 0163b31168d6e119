"""Rows that are the state of their groupings: INGEST keeps them as they are, slots make partials of them when windows
close.

They are kept once for all groupings of a stream, in one bucket for each task. They belong to no key group, so every
slot reads them, and makes what is its own.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.columns import GROUP, START, key
from thalweg.model.failure import Failures
from thalweg.model.plan import Grouping, Plan, StreamPlan
from thalweg.model.window import Stretch
from thalweg.operate import dense
from thalweg.operate.combine import Slices, make
from thalweg.operate.compute import add_computed
from thalweg.operate.grouping_state import GroupingState, of_starts
from thalweg.operate.merge_slices import SliceTable
from thalweg.operate.outbox import Outbox, count
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import routing_table

COUNTED = 4
"""Groupings whose groups a task counts in a batch, one batch after the other: what tells when partials are fewer."""
OF_ROWS = 0
"""The span of partials that are made of kept rows: no slice and no node has it."""


def keep_rows(
    plan: Plan,
    stream: StreamPlan,
    kept: Grouping,
    rows: pa.Table,
    times: npt.NDArray[np.int64],
    batch: int,
    outbox: Outbox,
) -> None:
    """Sets the rows aside for the state."""
    starts = Slices.of(times, kept).starts
    groups = key_groups(hash_rows([], rows=rows.num_rows), plan.groups)
    table = rows.select(kept.values).append_column(START, pa.array(starts)).append_column(GROUP, pa.array(groups))
    outbox.partials.setdefault(kept.id, []).append(table)
    _count_groups(plan, stream, rows, times, batch, outbox)


def _count_groups(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: npt.NDArray[np.int64], batch: int, outbox: Outbox
) -> None:
    """Of some groupings: the groups that would have been made at once. Of others what is known goes on."""
    turns = -(-len(stream.groupings) // COUNTED)
    columns = dense.Columns(rows)
    for id_ in stream.groupings[batch % turns :: turns]:
        grouping = plan.groupings[id_]
        names = [c for c in (*grouping.keys, *grouping.values) if c in rows.column_names]
        found = [k for k in (columns.key(name) for name in names) if k is not None]
        slices = Slices.of(times, grouping)
        places = dense.place([slices.key.values], slices.key, found, rows.num_rows)
        if places is not None and len(found) == len((*grouping.keys, *grouping.values)):
            count(outbox.groups, id_, int(np.count_nonzero(np.bincount(places.rounds[0]))))
            count(outbox.passed, id_, rows.num_rows)


@dataclass
class KeptRows:
    """The kept rows of a stream, as one slot sees them in one batch."""

    plan: Plan
    stream: StreamPlan
    state: GroupingState
    slot: int
    failures: Failures
    _read: dict[int, tuple[set[Stretch], pa.Table]] = field(default_factory=dict)
    """First batch that counts -> the stretches that are there, and the rows."""

    def stretches(self, batch_from: int) -> set[Stretch]:
        return self.state.stretches(batch_from)

    def read(self, stretches: Set[Stretch], batch_from: int) -> pa.Table:
        """At least the rows of these stretches, with all that is computed of them."""
        wanted, rows = self._read.get(batch_from, (set[Stretch](), pa.table({})))
        if not stretches <= wanted:
            wanted = {*wanted, *stretches}
            tables = [
                of_starts(part.table, [s for s, span in wanted if span == part.span])
                for part in self.state.tables(wanted, batch_from)
            ]
            rows = pa.concat_tables(tables, promote_options="default")
            rows = add_computed(rows, self.stream.stream.name, self.stream.computed, self.failures)
            self._read[batch_from] = wanted, rows
        return rows

    def partials(self, grouping: Grouping, stretches: Set[Stretch], batch_from: int) -> SliceTable:
        """Of one grouping, by slice: those that are the slot's."""
        starts = sorted({start for start, _ in stretches})
        rows = of_starts(self.read(stretches, batch_from), starts)
        slices, unit = _slices(rows.column(START).to_numpy())
        apart = replace(grouping, slice_us=unit, slice_start_us=slices.first % unit, finer=None, extra=())
        table = make(rows.drop_columns([START, GROUP]), dense.Columns(rows), slices, apart, self.failures)
        keys = [table.column(key(i)) for i in range(len(grouping.keys))]
        groups = key_groups(hash_rows(keys, rows=table.num_rows), self.plan.groups)
        mine = routing_table(self.plan, grouping.route_key).owners[groups] == self.slot
        table = table.append_column(GROUP, pa.array(groups)).filter(pa.array(mine))
        return SliceTable(table, OF_ROWS, tuple(starts), False)


def _slices(starts: npt.NDArray[np.int64]) -> tuple[Slices, int]:
    """Of rows that know theirs, whatever the grid was when they came; and how far apart they are at least."""
    low = int(starts.min())
    unit = math.gcd(*(np.unique(starts) - low).tolist()) or 1
    numbers = (starts - low) // unit
    return Slices(starts, low, dense.Key(numbers, 0, int(numbers.max()) + 1, pa.int64())), unit
