"""Rows that are the state of their groupings: INGEST keeps them as they are, slots group them when windows close.

They are kept once for all groupings of a stream, in one bucket for each task. They belong to no key group, so every
slot reads them, and groups what is its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.columns import GROUP, START, key
from thalweg.model.failure import Failures
from thalweg.model.plan import Grouping, Plan, StreamPlan
from thalweg.model.times import BatchTimes
from thalweg.model.types import to_inner_arrow
from thalweg.model.window import Stretch
from thalweg.operate import dense
from thalweg.operate.columns import Columns, Key, as_key
from thalweg.operate.combine import Slices, make, with_groups
from thalweg.operate.grouping_state import GroupingState, StoredBucket, grouping_state, of_starts
from thalweg.operate.merge_slices import SliceTable
from thalweg.operate.outbox import Outbox, count
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import routing_table

COUNTED = 4
"""Groupings whose groups a task counts in a batch, one batch after the other: what tells when partials are fewer."""
FEW_CODES = 1 << 16
"""So many places are always affordable."""
MOST_CODES = 1 << 62
OF_ROWS = 0
"""The span of partials that are made of kept rows: no slice and no node has it."""


# -- INGEST


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
    table = with_groups(plan, kept, rows.select(kept.values).append_column(START, pa.array(starts)))
    outbox.partials.setdefault(kept.id, []).append(table)
    _count_groups(plan, stream, rows, times, batch, outbox)


def _count_groups(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: npt.NDArray[np.int64], batch: int, outbox: Outbox
) -> None:
    """Of some groupings: the groups that would have been made at once. Of others what is known goes on."""
    turns = -(-len(stream.groupings) // COUNTED)
    columns = Columns(rows)
    for id_ in stream.groupings[batch % turns :: turns]:
        grouping = plan.groupings[id_]
        names = (*grouping.keys, *grouping.values)
        if not set(names) <= set(rows.column_names):
            continue
        found = [k for k in (columns.key(name) for name in names) if k is not None]
        slices = Slices.of(times, grouping)
        places = dense.place([slices.key.values], slices.key, found, rows.num_rows)
        if places is not None and len(found) == len(names):
            count(outbox.groups, id_, int(np.count_nonzero(np.bincount(places.rounds[0]))))
            count(outbox.passed, id_, rows.num_rows)


# -- SLOT


@dataclass
class KeptRows:
    """The kept rows of a stream, as one slot sees them in one batch."""

    plan: Plan
    stream: StreamPlan
    state: GroupingState
    slot: int
    failures: Failures = field(default_factory=dict)
    """What failed with some of the rows."""
    _wanted: dict[int, set[Stretch]] = field(default_factory=dict)
    _views: dict[int, RowView] = field(default_factory=dict)

    def stretches(self, batch_from: int) -> set[Stretch]:
        return self.state.stretches(batch_from)

    def want(self, stretches: Iterable[Stretch], batch_from: int) -> None:
        """Says what will be looked at, before anything is."""
        self._wanted.setdefault(batch_from, set()).update(stretches)

    def alone(self, stretches: Set[Stretch], batch_from: int) -> KeptRows:
        """The same for those who look at no other rows."""
        found = KeptRows(self.plan, self.stream, self.state, self.slot)
        found.want(stretches, batch_from)
        return found

    def view(self, batch_from: int) -> RowView:
        """The rows that somebody wants, from this batch on."""
        if batch_from not in self._views:
            wanted, parts = self._wanted[batch_from], []
            for part in self.state.tables(wanted, batch_from):
                starts = tuple(s for s in part.starts if (s, part.span) in wanted)
                parts.append(SliceTable(of_starts(part.table, starts), part.span, starts, False))
            self._views[batch_from] = RowView(self.stream, wanted, parts, self.failures)
        return self._views[batch_from]

    def owns(
        self, grouping: Grouping, keys: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> npt.NDArray[np.bool_]:
        """Which of some groups are the slot's."""
        groups = key_groups(hash_rows(keys, rows=rows), self.plan.groups)
        mine: npt.NDArray[np.bool_] = routing_table(self.plan, grouping.route_key).owners[groups] == self.slot
        return mine

    def partials(self, grouping: Grouping, stretches: Set[Stretch], batch_from: int) -> SliceTable:
        """Of one grouping, by slice: those that are the slot's."""
        view, starts = self.view(batch_from), sorted({start for start, _ in stretches})
        slices, unit = _slices(view.starts)
        apart = replace(
            grouping, slice_us=unit, slice_start_us=slices.first % unit, rolled_up_from=None, partials_for_others=()
        )
        table = make(view.columns, slices, apart, self.failures)
        keys = [table.column(key(i)) for i in range(len(grouping.keys))]
        table = table.filter(pa.array(self.owns(grouping, keys, table.num_rows)))
        return SliceTable(of_starts(table, starts), OF_ROWS, tuple(starts), False)


def open_kept_rows(
    plan: Plan, clock: BatchTimes, held: Mapping[str, Sequence[StoredBucket]], slot: int
) -> dict[str, KeptRows]:
    """By stream, where the state holds any."""
    found = {}
    for name, stream in plan.streams.items():
        if stream.rows is not None and stream.rows.id in held:
            state = grouping_state(stream.rows, clock.batch, (), held[stream.rows.id], frozenset())
            found[name] = KeptRows(plan, stream, state, slot)
    return found


def _slices(starts: npt.NDArray[np.int64]) -> tuple[Slices, int]:
    """Of rows that know theirs, whatever the grid was when they came; and how far apart they are at least."""
    low = int(starts.min())
    unit = math.gcd(*(np.unique(starts) - low).tolist()) or 1
    numbers = (starts - low) // unit
    return Slices(low, unit, Key(numbers, 0, int(numbers.max()) + 1, pa.int64())), unit


@dataclass
class RowView:
    """Kept rows that were read, and what was worked out of them, each once for all that ask."""

    stream: StreamPlan
    stretches: set[Stretch]
    parts: Sequence[SliceTable]
    failures: Failures
    _grouped: dict[tuple[str, ...], SlotRows | None] = field(default_factory=dict)

    @cached_property
    def _rows(self) -> pa.Table:
        """Rows that came before a column was wanted have NULL there: nobody who wants it looks at them."""
        rows = pa.concat_tables([part.table for part in self.parts], promote_options="default").combine_chunks()
        types = {f.name: f.type for f in self.stream.stream.schema.fields}
        lacking = set(self.stream.rows.values if self.stream.rows is not None else ()) - set(rows.column_names)
        for name in sorted(lacking):
            rows = rows.append_column(name, pa.nulls(rows.num_rows, to_inner_arrow(types[name])))
        return rows

    @cached_property
    def columns(self) -> Columns:
        computed = {c.name: c for c in self.stream.computed}
        rows = self._rows.drop_columns([START, GROUP])
        return Columns(rows, self.stream.stream.name, computed, self.failures)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Of each row's slice."""
        found: npt.NDArray[np.int64] = self._rows.column(START).to_numpy()
        return found

    @cached_property
    def at(self) -> tuple[list[Stretch], npt.NDArray[np.int32]]:
        """The stretches, and the number of each row's."""
        known = sorted(self.stretches)
        numbers = {stretch: i for i, stretch in enumerate(known)}
        found = []
        for part in self.parts:
            starts = np.sort(np.asarray(part.starts, dtype=np.int64))
            of_start = np.array([numbers[int(start), part.span] for start in starts], dtype=np.int32)
            found.append(of_start[np.searchsorted(starts, part.table.column(START).to_numpy())])
        return known, np.concatenate(found)

    def grouped(self, kept: KeptRows, grouping: Grouping) -> SlotRows | None:
        """By the grouping's keys, what is the slot's; None where they do not lend themselves."""
        if grouping.keys not in self._grouped:
            self._grouped[grouping.keys] = _group(self, kept, grouping)
        return self._grouped[grouping.keys]


@dataclass(frozen=True)
class SlotRows:
    """Those of a view that are the slot's, by the keys of a grouping."""

    rows: npt.NDArray[np.int64]
    """Their numbers in the view."""
    group: npt.NDArray[np.int32]
    """Of each."""
    at: npt.NDArray[np.int32]
    """The number of each one's stretch."""
    keys: Sequence[pa.Array]
    """Of each group."""
    count: int
    """Groups."""


class _Coded(NamedTuple):
    """A key column as whole numbers from 0."""

    codes: npt.NDArray[np.int64]
    width: int
    decode: Callable[[npt.NDArray[np.int64]], pa.Array]


def _group(view: RowView, kept: KeptRows, grouping: Grouping) -> SlotRows | None:
    coded = [c for c in (_coded(view.columns.column(name)) for name in grouping.keys) if c is not None]
    count, width = len(view.starts), math.prod(c.width for c in coded)
    if len(coded) < len(grouping.keys) or width >= MOST_CODES:
        return None
    codes = np.zeros(count, np.int64)
    for c in coded:
        codes = codes * c.width + c.codes
    if width <= max(FEW_CODES, 4 * count):
        places, occupied = codes, np.flatnonzero(np.bincount(codes, minlength=width))
        number = np.full(width, -1, np.int32)
        at = occupied
    else:
        encoded = pa.array(codes).dictionary_encode()
        places, occupied = encoded.indices.to_numpy(), encoded.dictionary.to_numpy()
        number, at = np.full(len(occupied), -1, np.int32), np.arange(len(occupied))
    keys, rest = [], occupied
    for c in reversed(coded):
        rest, digit = np.divmod(rest, c.width)
        keys.append(c.decode(digit))
    keys.reverse()
    mine = kept.owns(grouping, keys, len(occupied))
    number[at[mine]] = np.arange(np.count_nonzero(mine), dtype=np.int32)
    group = number[places]
    rows = np.flatnonzero(group >= 0)
    found = [column.filter(pa.array(mine)) for column in keys]
    return SlotRows(rows, group[rows], view.at[1][rows], found, int(np.count_nonzero(mine)))


def _coded(column: pa.ChunkedArray) -> _Coded | None:
    known = as_key(column)
    if known is not None and known.width <= max(FEW_CODES, 4 * len(column)):
        low, kind = known.low, known.type
        codes = known.values.astype(np.int64) - low
        return _Coded(codes, known.width, lambda digits: dense.restore(digits + low, kind))
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        return None  # -0.0 is 0.0 there, and NaN is NaN
    encoded = pa.chunked_array([column.combine_chunks()]).combine_chunks().dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return _Coded(codes, max(1, len(distinct)), lambda digits: distinct.take(pa.array(digits)))
