"""What a slot holds of a grouping, table by table: the rows of part bucket, or those that have just arrived."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.aggregates.quantile import quantiles
from thalweg.model.columns import GROUP, LANES, NEW, SPAN, START, WINDOW, key, value
from thalweg.model.plan import Grouping, Partial, Quantile
from thalweg.operate import dense, duck
from thalweg.operate.columns import Columns, Key
from thalweg.operate.combine import group_columns
from thalweg.operate.lanes import partial_names, unpacked, with_lanes
from thalweg.operate.merge_lanes import merge_lanes

MOST_BETWEEN = 1 << 16
"""Stretches between the first and the last start of a table, up to which each has a place of its own."""
MOST_COUNTED = 1 << 27
"""Rows times the windows that the busiest stretch is in, up to which each has a place, of four bytes. Beyond, where a
watermark jumps over thousands of windows that overlap, DuckDB merges them."""
Cover = Sequence[tuple[int, int, int]]
"""(stretch start, stretch span, window start)"""


@dataclass(frozen=True)
class SliceTable:
    table: pa.Table
    span: int
    """The width of its stretches, negative for nodes."""
    starts: tuple[int, ...]
    """All starts that occur in it."""
    new: bool
    """Whether it has come with this batch."""


def whole(grouping: Grouping, slices: Sequence[SliceTable]) -> pa.Table:
    """One table with SPAN and NEW and every partial: what older buckets lack is NULL, which merges as nothing."""
    wanted = {p.name for p in grouping.partials}
    tables = [_marked(part, wanted) for part in slices]
    table = pa.concat_tables(tables, promote_options="default") if tables else _empty(grouping)
    names = table.column_names  # made anew at every access
    known = set(names)
    missing = [p for p in grouping.partials if p.name not in known]
    nulls = [pa.nulls(table.num_rows, duck.arrow_type(p.type)) for p in missing]
    return pa.Table.from_arrays([*table.columns, *nulls], names=[*names, *(p.name for p in missing)])


def _marked(part: SliceTable, wanted: Set[str]) -> pa.Table:
    n = part.table.num_rows
    table = unpacked(part.table, wanted).append_column(SPAN, pa.repeat(pa.scalar(part.span, pa.int64()), n))
    return table.append_column(NEW, pa.repeat(pa.scalar(part.new), n))


def _empty(grouping: Grouping) -> pa.Table:
    names = [START, SPAN, NEW, GROUP, *group_columns(grouping)]
    types = [pa.int64(), pa.int64(), pa.bool_(), pa.uint16()]
    columns = [pa.array([], t) for t in types] + [pa.array([], pa.null())] * (len(names) - len(types))
    return pa.Table.from_arrays(columns, names=names)


def merge_dense(
    grouping: Grouping, slices: Sequence[SliceTable], cover: Cover, partials: Sequence[Partial]
) -> pa.Table | None:
    """Partials merged per window and key by direct address; None where that is not possible."""
    tables = [part.table for part in slices]
    placed = _PlacedSlices.of(_keys_of(grouping), tables, slices, cover, ())
    done = None if placed is None else merge_lanes(placed.places, tables, partials)
    if placed is None or done is None:
        return None
    return placed.table(done[0], {name: column for lanes in done[1] for name, column in lanes.apart().items()})


def merge_stretches(grouping: Grouping, slices: Sequence[SliceTable], cover: Cover) -> pa.Table | None:
    """All that the slices hold of a grouping, merged under the start that the cover gives in the place of a window's,
    as a bucket has it; None where that is not possible."""
    tables = [part.table for part in slices]
    known = set[str]().union(*map(partial_names, tables))
    placed = _PlacedSlices.of(group_columns(grouping), tables, slices, cover, (GROUP,))
    done = None
    if placed is not None:
        done = merge_lanes(placed.places, tables, [p for p in grouping.partials if p.name in known])
    if placed is None or done is None:
        return None
    occupied, lanes = done
    groups, of_rows = np.zeros(placed.places.count, np.uint16), placed.columns.table.column(GROUP).to_numpy()
    for cells in placed.places.rounds:
        groups[cells[cells >= 0]] = of_rows[cells >= 0]
    merged = placed.table(occupied, {GROUP: pa.array(groups[occupied])})
    merged = merged.rename_columns([START, *merged.column_names[1:]])
    return with_lanes(merged, [of_kind.column(LANES) for of_kind in lanes])


def merge_quantiles(
    grouping: Grouping, slices: Sequence[SliceTable], cover: Cover, wanted: Mapping[str, Quantile]
) -> pa.Table | None:
    """name -> quantile, per window and key by direct address; None where that is not possible."""
    partials = sorted({q.partial for q in wanted.values()})
    tables = [unpacked(part.table, partials) for part in slices]
    placed = _PlacedSlices.of(_keys_of(grouping), tables, slices, cover, [value(0), *partials])
    found = None if placed is None else placed.columns.values(value(0))
    if placed is None or found is None:
        return None
    values, valid = found
    made: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]] = {}
    for partial in partials:
        counted = placed.columns.values(partial)
        if counted is None:
            return None
        seen = counted[0] if not valid.size else counted[0] * valid
        offsets, ordered, times = dense.gather(placed.places, values, seen)
        empty = np.diff(offsets) == 0
        for name, q in wanted.items():
            if q.partial == partial:
                made[name] = (quantiles(offsets, ordered, times, q.share), empty)
    occupied = np.flatnonzero(~np.logical_and.reduce([empty for _, empty in made.values()]))
    columns = {name: pa.array(found[occupied], mask=empty[occupied]) for name, (found, empty) in made.items()}
    return placed.table(occupied, columns)


def _keys_of(grouping: Grouping) -> list[str]:
    return [key(i) for i in range(len(grouping.keys))]


@dataclass(frozen=True)
class _PlacedSlices:
    """The rows of tables, each at its place by window and key."""

    columns: Columns
    places: dense.Places
    windows: list[int]
    keys: Sequence[str]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        tables: Sequence[pa.Table],
        slices: Sequence[SliceTable],
        cover: Cover,
        wanted: Sequence[str],
    ) -> _PlacedSlices | None:
        """None where keys do not lend themselves, or some table lacks a wanted column. `names`: the keys;
        `tables`: of the slices."""
        selected = [*names, *wanted]
        try:
            selections = [table.select(selected) for table in tables]
        except KeyError:
            return None
        if not selections:
            return None
        columns = Columns(pa.concat_tables(selections).combine_chunks())
        found = [k for k in (columns.key(name) for name in names) if k is not None]
        if len(found) < len(names):
            return None
        most = max(Counter((start, span) for start, span, _ in cover).values())
        if most * columns.table.num_rows > MOST_COUNTED:
            return None
        windows = sorted({w for _, _, w in cover})
        rounds = window_rounds(slices, cover, {w: i for i, w in enumerate(windows)})
        first = Key(rounds[0], 0, len(windows), pa.int64())
        places = dense.place(rounds, first, found, columns.table.num_rows)
        return None if places is None else cls(columns, places, windows, names)

    def table(self, occupied: npt.NDArray[np.int64], made: Mapping[str, pa.Array]) -> pa.Table:
        """The given places: their windows and keys, and what was made there."""
        numbers, *decoded = self.places.decode(occupied)
        starts = pa.array(np.asarray(self.windows, dtype=np.int64)[numbers.to_numpy()])
        names = [WINDOW, *self.keys, *made]
        return pa.Table.from_arrays([starts, *decoded, *made.values()], names=names)


def window_rounds(
    slices: Sequence[SliceTable], cover: Cover, number: Mapping[int, int]
) -> list[npt.NDArray[np.int32]]:
    """The windows of every row: as many arrays as the busiest stretch has windows, -1 where there is none."""
    windows: dict[tuple[int, int], list[int]] = {}
    for start, span, w in cover:
        windows.setdefault((start, span), []).append(number[w])
    most = max(len(found) for found in windows.values())
    rounds: list[list[npt.NDArray[np.int32]]] = [[] for _ in range(most)]
    for part in slices:
        starts = np.asarray(part.starts, dtype=np.int64)
        numbers, at = _numbered(starts, part.table.column(START).to_numpy())
        lookup = np.full((most, int(numbers.max()) + 1), -1, dtype=np.int32)
        for start, number_ in zip(part.starts, numbers.tolist(), strict=True):
            for i, n in enumerate(windows.get((start, part.span), ())):
                lookup[i, number_] = n
        for i in range(most):
            rounds[i].append(lookup[i][at])
    return [np.concatenate(parts) for parts in rounds]


def _numbered(
    starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number for each start, and that of each row's: by a division where starts lie close together. One that is
    decades away from the others must not cost memory for all the time between."""
    low = int(starts.min())
    unit = math.gcd(*(starts - low).tolist()) or 1
    if (int(starts.max()) - low) // unit <= MOST_BETWEEN:
        return (starts - low) // unit, np.floor_divide(rows - low, unit)
    ordered = np.sort(starts)
    return np.searchsorted(ordered, starts), np.searchsorted(ordered, rows)
