"""Rows that are the state of their groupings: INGEST keeps them as they are, slots group them when windows close.

They are kept once for all groupings of a stream, in one bucket for each task. They belong to no key group, so every
slot reads them, and groups what is its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.columns import GROUP, START, key
from thalweg.model.failure import Failures
from thalweg.model.plan import Computed, Grouping, Plan, StreamPlan
from thalweg.model.window import Stretch
from thalweg.operate import dense
from thalweg.operate.classes import Cuts
from thalweg.operate.combine import Slices, make
from thalweg.operate.comparison import Ranges, ranges_of
from thalweg.operate.compute import add_computed
from thalweg.operate.grouping_state import GroupingState, of_starts
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
    failures: Failures
    _views: dict[int, RowView] = field(default_factory=dict)
    """First batch that counts -> the rows that were read."""

    def stretches(self, batch_from: int) -> set[Stretch]:
        return self.state.stretches(batch_from)

    def view(self, stretches: Set[Stretch], batch_from: int) -> RowView:
        """At least the rows of these stretches."""
        view = self._views.get(batch_from)
        if view is None or not stretches <= view.stretches:
            wanted = {*stretches, *(view.stretches if view is not None else ())}
            found = self.state.tables(wanted, batch_from)
            parts = []
            for part in found:
                starts = tuple(s for s in part.starts if (s, part.span) in wanted)
                parts.append(SliceTable(of_starts(part.table, starts), part.span, starts, False))
            view = self._views[batch_from] = RowView(self.stream, wanted, parts, self.failures)
        return view

    def owns(
        self, grouping: Grouping, keys: Sequence[pa.Array | pa.ChunkedArray], rows: int
    ) -> npt.NDArray[np.bool_]:
        """Which of some groups are the slot's."""
        groups = key_groups(hash_rows(keys, rows=rows), self.plan.groups)
        mine: npt.NDArray[np.bool_] = routing_table(self.plan, grouping.route_key).owners[groups] == self.slot
        return mine

    def partials(self, grouping: Grouping, stretches: Set[Stretch], batch_from: int) -> SliceTable:
        """Of one grouping, by slice: those that are the slot's."""
        view, starts = self.view(stretches, batch_from), sorted({start for start, _ in stretches})
        slices, unit = _slices(view.rows.column(START).to_numpy())
        apart = replace(grouping, slice_us=unit, slice_start_us=slices.first % unit, finer=None, extra=())
        rows = view.with_computed(_read_by(grouping))
        table = make(rows, dense.Columns(rows), slices, apart, self.failures)
        keys = [table.column(key(i)) for i in range(len(grouping.keys))]
        groups = key_groups(hash_rows(keys, rows=table.num_rows), self.plan.groups)
        mine = routing_table(self.plan, grouping.route_key).owners[groups] == self.slot
        table = table.append_column(GROUP, pa.array(groups)).filter(pa.array(mine))
        return SliceTable(of_starts(table, starts), OF_ROWS, tuple(starts), False)


def _read_by(grouping: Grouping) -> list[str]:
    return [*grouping.keys, *grouping.values, *sorted({c for p in grouping.partials for c in p.reads})]


def _slices(starts: npt.NDArray[np.int64]) -> tuple[Slices, int]:
    """Of rows that know theirs, whatever the grid was when they came; and how far apart they are at least."""
    low = int(starts.min())
    unit = math.gcd(*(np.unique(starts) - low).tolist()) or 1
    numbers = (starts - low) // unit
    return Slices(starts, low, dense.Key(numbers, 0, int(numbers.max()) + 1, pa.int64())), unit


@dataclass
class RowView:
    """Kept rows that were read, and what was worked out of them, each once for all that ask."""

    stream: StreamPlan
    stretches: set[Stretch]
    parts: Sequence[SliceTable]
    failures: Failures
    _columns: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    _values: dict[str, tuple[dense.Array, dense.Array] | None] = field(default_factory=dict)
    _filters: dict[str, dense.Array] = field(default_factory=dict)
    _cuts: dict[str, Cuts] = field(default_factory=dict)
    _grouped: dict[tuple[str, ...], GroupedRows | None] = field(default_factory=dict)

    @cached_property
    def rows(self) -> pa.Table:
        """As they were kept."""
        return pa.concat_tables([part.table for part in self.parts], promote_options="default").combine_chunks()

    @cached_property
    def at(self) -> tuple[list[Stretch], npt.NDArray[np.int32]]:
        """The stretches, and the number of each row's."""
        known = sorted(self.stretches)
        numbers = {stretch: i for i, stretch in enumerate(known)}
        found = []
        for part in self.parts:
            starts = np.sort(np.asarray(part.starts, dtype=np.int64))
            of_starts_ = np.array([numbers[int(start), part.span] for start in starts], dtype=np.int32)
            found.append(of_starts_[np.searchsorted(starts, part.table.column(START).to_numpy())])
        return known, np.concatenate(found)

    @cached_property
    def computed(self) -> dict[str, Computed]:
        return {c.name: c for c in self.stream.computed}

    # -- columns

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self.computed:
            return self.rows.column(name)
        if name not in self._columns:
            self.compute([name])
        return self._columns[name]

    def with_computed(self, names: Iterable[str]) -> pa.Table:
        """The rows, with at least these of what is computed of the stream."""
        self.compute([*names])
        base = self.rows.drop_columns([START, GROUP])
        made = {name: column for name, column in self._columns.items() if name in self.computed}
        return pa.Table.from_arrays([*base.columns, *made.values()], names=[*base.column_names, *made])

    def compute(self, names: Sequence[str]) -> None:
        """With all that these read."""
        waiting, needed = [n for n in names if n in self.computed], dict[str, None]()
        while waiting:
            needed.update(dict.fromkeys(waiting))
            read = {column for name in waiting for column in self.computed[name].expr.columns}
            waiting = [name for name in sorted(read) if name in self.computed and name not in needed]
        todo = [c for c in self.stream.computed if c.name in needed and c.name not in self._columns]
        if todo:
            known = pa.Table.from_arrays(
                [*self.rows.columns, *self._columns.values()], names=[*self.rows.column_names, *self._columns]
            )
            made = add_computed(known, self.stream.stream.name, todo, self.failures)
            self._columns.update({c.name: made.column(c.name) for c in todo})

    def values(self, name: str) -> tuple[dense.Array, dense.Array] | None:
        if name not in self._values:
            self._values[name] = dense.as_values(self.column(name))
        return self._values[name]

    def filter(self, name: str) -> dense.Array:
        if name not in self._filters:
            self._filters[name] = dense.as_filter(self.column(name))
        return self._filters[name]

    # -- groups

    def grouped(self, kept: KeptRows, grouping: Grouping) -> GroupedRows | None:
        """By the grouping's keys, what is the slot's; None where they do not lend themselves."""
        if grouping.keys not in self._grouped:
            self._grouped[grouping.keys] = _group(self, kept, grouping)
        return self._grouped[grouping.keys]

    # -- comparisons

    def ranges(self, name: str) -> Ranges | None:
        """What a computed column admits, where it compares a column that came with the rows."""
        computed = self.computed.get(name)
        found = None if computed is None else ranges_of(computed.expr.sql)
        if found is None or found.column in self.computed:
            return None
        at = self.rows.schema.get_field_index(found.column)
        return found if at >= 0 and self.rows.schema.field(at).type in found.kinds else None

    def cuts(self, column: str) -> Cuts:
        """By all that the stream's queries compare the column with."""
        if column not in self._cuts:
            self._cuts[column] = Cuts.of(self.rows.column(column), self._ranges_by_column.get(column, ()))
        return self._cuts[column]

    def place_of(self, filters: Iterable[str | None]) -> tuple[str, float]:
        """By which filters over the same column stand together, in the order of its values."""
        found = [r for name in filters if name is not None and (r := self.ranges(name)) is not None]
        return min(((r.column, float(r.within[0][0] or r.within[0][1] or 0)) for r in found), default=("", 0.0))

    @cached_property
    def _ranges_by_column(self) -> dict[str, list[Ranges]]:
        found: dict[str, list[Ranges]] = {}
        for name in self.computed:
            ranges = self.ranges(name)
            if ranges is not None:
                found.setdefault(ranges.column, []).append(ranges)
        return found


@dataclass(frozen=True)
class GroupedRows:
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


def _group(view: RowView, kept: KeptRows, grouping: Grouping) -> GroupedRows | None:
    coded = [c for c in (_coded(view.column(name)) for name in grouping.keys) if c is not None]
    count, width = view.rows.num_rows, math.prod(c.width for c in coded)
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
    return GroupedRows(rows, group[rows], view.at[1][rows], found, int(np.count_nonzero(mine)))


def _coded(column: pa.ChunkedArray) -> _Coded | None:
    known = dense.as_key(column)
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
