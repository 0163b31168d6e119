"""Windows finished from kept rows: every row is added up once for each window, aggregate and column of predicates,
however many queries there are.

Rows have a place by window and group, and a class by what predicates over one column admit (`operate/classes`). Each
query's aggregate is then a lane: that of its classes together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view
from thalweg.model.columns import WINDOW, key
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Grouping, Partial, Plan, WindowedQuery
from thalweg.operate import dense, duck
from thalweg.operate.classes import MOST_FILTERS, Classes, by_filters, everyone
from thalweg.operate.columns import Array, Columns
from thalweg.operate.finish import Closing, finish_merged, partials_of, wanted_of
from thalweg.operate.gather_results import Lane, Places, Wanted, gather_results
from thalweg.operate.kept_rows import OF_ROWS, KeptRows, RowView, SlotRows
from thalweg.operate.merge_slices import SliceTable

MOST_CELLS = 1 << 22
"""Places of all classes that are added up at the same time: queries beyond are finished after others."""
MOST_UNLIKE = 8 * MOST_FILTERS
"""Filters that are added up at the same time and are no comparisons of a column with a constant."""
SMALLEST_LIMIT = 1 << 16
"""So many places are always affordable."""


_Need = tuple[WindowedQuery, list[Partial]]
"""A member, and the partials that it is finished from."""


@dataclass
class Finished:
    results: list[tuple[WindowedQuery, pa.Table]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """query -> how many rows it has, where nobody takes them."""
    left: tuple[WindowedQuery, ...] = ()
    """Members that are finished from partials."""


def finish_rows(
    closing: Closing,
    grouping: Grouping,
    kept: KeptRows,
    batch_from: int,
    uncollected: Collection[str],
    failures: Failures,
) -> Finished:
    """The rows of the members' results; of queries that nobody collects, how many they are."""
    finished, known = Finished(left=closing.members), {p.name: p for p in grouping.partials}
    needs = [(m, n) for m in closing.members if (n := _needed(m, known)) is not None]
    placed = _PlacedRows.of(closing, grouping, kept, batch_from) if needs else None
    if placed is None:
        return finished
    left = {id(member) for member in closing.members}
    for portion in _portions(needs, placed):
        merged = _MergedRows.of(placed, portion)
        lanes = merged.lanes.keys()
        there = [(member, partials) for member, partials in portion if all(p.name in lanes for p in partials)]
        left -= {id(member) for member, _ in there}
        taken = []
        for member, partials in there:
            if member.query in uncollected and member.having is None:
                finished.counted[member.query] += int(np.count_nonzero(merged.lanes[member.present].values))
            else:
                taken.append((member, partials))
        _finish(closing, grouping, merged, taken, finished, failures)
    finished.left = tuple(m for m in closing.members if id(m) in left)
    return finished


def add_partials(
    plan: Plan, closing: Closing, rows: KeptRows, batch_from: int, slices: Mapping[str, list[SliceTable]]
) -> Closing:
    """Makes partials of the rows that the closing's windows hold, and says of which windows they are."""
    made = tuple(dict.fromkeys((start, OF_ROWS, window) for start, _, window in closing.cover_of_rows))
    cover = dict(closing.cover)
    for id_ in closing.cover:
        slices[id_].append(rows.partials(plan.groupings[id_], closing.stretches_of_rows, batch_from))
        cover[id_] = (*cover[id_], *made)
    return replace(closing, cover=cover)


def _needed(member: WindowedQuery, known: Mapping[str, Partial]) -> list[Partial] | None:
    """The partials that the member is finished from; None where they are not lanes."""
    if member.further or member.updates:
        return None
    needed = [known[name] for name in sorted(partials_of(member)) if name in known]
    return needed if all(p.op for p in needed) else None


def _finish(
    closing: Closing,
    grouping: Grouping,
    merged: _MergedRows,
    needs: Sequence[_Need],
    finished: Finished,
    failures: Failures,
) -> None:
    """Most are gathered together; those for which more is to be done are finished one by one."""
    wanted: dict[int, Wanted] = {}
    for member, _ in needs:
        if (found := wanted_of(member, grouping.keys)) is not None:
            wanted[id(member)] = found
    gathered = dict(zip(wanted, gather_results([*wanted.values()], merged), strict=True))
    for member, partials in needs:
        table = gathered.get(id(member))
        if table is None:
            table = _finish_one(
                replace(closing, members=(member,)), grouping, merged.table(member, partials), failures
            )
        if table is not None:
            finished.results.append((member, table))


def _finish_one(closing: Closing, grouping: Grouping, merged: pa.Table, failures: Failures) -> pa.Table | None:
    """Of the only member."""
    (member,) = closing.members
    try:
        return finish_merged(closing, {grouping.id: grouping}, merged)[member.query] if merged.num_rows else None
    except duck.Error as error:
        failures[OfQuery(member.query)] = duck.reason(error)
        return None


def _portions(needs: Sequence[_Need], placed: _PlacedRows) -> Iterator[Sequence[_Need]]:
    """So many together that memory is bounded; those with predicates over the same column together."""
    most, columns = _most_filters(placed), placed.view.columns
    if len({p.filter for _, partials in needs for p in partials}) > min(most, MOST_UNLIKE):
        needs = sorted(needs, key=lambda need: _place_of(columns, {p.filter for p in need[1]}))
    portion: list[tuple[WindowedQuery, list[Partial]]] = []
    filters, unlike = set[str | None](), 0
    for need in needs:
        new = {p.filter for p in need[1]} - filters
        more = sum(name is not None and columns.ranges(name) is None for name in new)
        if portion and (len(filters) + len(new) > most or unlike + more > MOST_UNLIKE):
            yield portion
            portion, filters, unlike = [], set(), 0
        portion.append(need)
        filters |= new
        unlike += more
    yield portion


def _most_filters(placed: _PlacedRows) -> int:
    """Of comparisons with constants: each makes two classes at most."""
    return max(1, MOST_CELLS // max(1, placed.places.count) // 2)


def _place_of(columns: Columns, filters: Iterable[str | None]) -> tuple[str, float]:
    """By which those with filters over the same column stand together, in the order of its values."""
    found = [r for name in filters if name is not None and (r := columns.ranges(name)) is not None]
    return min(((r.column, float(r.within[0][0] or r.within[0][1] or 0)) for r in found), default=("", 0.0))


@dataclass(frozen=True)
class _PlacedRows:
    """The rows of a closing, each at its place by window and group."""

    view: RowView
    grouped: SlotRows
    rows: npt.NDArray[np.int64]
    """Their numbers in the view."""
    places: dense.Places
    windows: npt.NDArray[np.int64]
    _values: dict[str, tuple[Array, Array] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, closing: Closing, grouping: Grouping, kept: KeptRows, batch_from: int) -> _PlacedRows | None:
        """None where keys do not lend themselves, or there are too many places."""
        view = kept.view(batch_from)
        grouped = view.grouped(kept, grouping)
        if grouped is None:
            return None
        windows = sorted({w for _, _, w in closing.cover_of_rows})
        lookup = _windows_of(closing, view, windows)
        count = len(windows) * grouped.count
        if count > max(SMALLEST_LIMIT, 4 * len(grouped.rows) * len(lookup)):
            return None
        rounds = [numbers[grouped.at] for numbers in lookup]
        rows, group = grouped.rows, grouped.group
        inside = np.logical_or.reduce([numbers >= 0 for numbers in rounds])
        if not inside.all():
            rows, group, rounds = rows[inside], group[inside], [numbers[inside] for numbers in rounds]
        cells = tuple(
            np.where(numbers < 0, np.int32(-1), numbers * np.int32(grouped.count) + group) for numbers in rounds
        )
        return cls(view, grouped, rows, dense.Places(cells, count, ()), np.array(windows, np.int64))

    def values(self, name: str) -> tuple[Array, Array] | None:
        if name not in self._values:
            found = self.view.columns.values(name)
            if found is not None:
                values, valid = found
                found = frozen_view(values[self.rows]), frozen_view(valid[self.rows]) if valid.size else valid
            self._values[name] = found
        return self._values[name]

    def filter(self, name: str) -> Array:
        return frozen_view(self.view.columns.filter(name)[self.rows])

    def column(self, name: str, places: Places) -> pa.Array | None:
        """The window, or a key, of these places."""
        window, group = np.divmod(places, self.grouped.count)
        if name == WINDOW:
            return pa.array(self.windows[window])
        column = {key(i): column for i, column in enumerate(self.grouped.keys)}.get(name)
        return None if column is None else column.take(pa.array(group))


@dataclass(frozen=True)
class _MergedRows:
    """What was added up of rows that have places."""

    placed: _PlacedRows
    lanes: Mapping[str, Lane]
    """By the name of the partial; without those that are none."""

    @classmethod
    def of(cls, placed: _PlacedRows, needs: Sequence[_Need]) -> _MergedRows:
        partials = {p.name: p for _, of_one in needs for p in of_one}
        blocks = _Blocks(placed, partials.values())
        made = ((p, blocks.run(p)) for p in partials.values())
        return cls(placed, {p.name: _lane(p, *found) for p, found in made if found is not None})

    def admitted(self, name: str) -> Places:
        return np.flatnonzero(self.lanes[name].values)

    def lane(self, name: str) -> Lane | None:
        return self.lanes.get(name)

    def column(self, name: str, places: Places) -> pa.Array | None:
        return self.placed.column(name, places)

    def table(self, member: WindowedQuery, partials: Sequence[Partial]) -> pa.Table:
        """The member's places: their windows and keys, and what was added up there."""
        places = self.admitted(member.present)
        names = [WINDOW, *(key(i) for i in range(len(self.placed.grouped.keys)))]
        columns = {name: self.placed.column(name, places) for name in names}
        return pa.table(columns | {p.name: self.lanes[p.name].column(places) for p in partials})


def _lane(partial: Partial, values: Array, seen: Array) -> Lane:
    """A count of nothing is zero."""
    return Lane(values, None if partial.op == "count" else seen, partial.type)


def _windows_of(closing: Closing, view: RowView, windows: Sequence[int]) -> list[npt.NDArray[np.int32]]:
    """The windows of every stretch, by number: as many arrays as the busiest has windows, -1 where there is none."""
    known, _ = view.at
    place, number = {stretch: i for i, stretch in enumerate(known)}, {w: i for i, w in enumerate(windows)}
    of_stretch: dict[int, list[int]] = {}
    for start, span, w in closing.cover_of_rows:
        of_stretch.setdefault(place[start, span], []).append(number[w])
    lookup = np.full((max(map(len, of_stretch.values())), len(known)), -1, np.int32)
    for at, found in of_stretch.items():
        lookup[: len(found), at] = found
    return list(lookup)


class _Blocks:
    """Aggregates by class and place, for each column of predicates."""

    def __init__(self, placed: _PlacedRows, partials: Iterable[Partial]) -> None:
        self.lanes: dict[str | None, dense.ClassLanes] = {}
        """Filter -> the classes that have its lane."""
        for classes in _classes(placed, dict.fromkeys(p.filter for p in partials)):
            self.lanes.update(dict.fromkeys(classes.spans, dense.ClassLanes(placed.places, placed, classes)))

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        """(aggregate, how many values went into it), by place."""
        return self.lanes[partial.filter].run(partial)


def _classes(placed: _PlacedRows, filters: Iterable[str | None]) -> Iterator[Classes]:
    columns, rows = placed.view.columns, placed.rows
    by_column, rest = columns.compared(filters)
    if None in rest:
        yield everyone(len(rows))
    most = _most_filters(placed)
    for column, ranges in by_column.items():
        several = list(ranges.items())
        for first in range(0, len(several), most):
            yield columns.cuts(column).classes(dict(several[first : first + most])).of(rows)
    others = [name for name in rest if name is not None]
    columns.compute(others)
    for first in range(0, len(others), MOST_FILTERS):
        yield from _by_filters(placed, tuple(others[first : first + MOST_FILTERS]))


def _by_filters(placed: _PlacedRows, filters: tuple[str, ...]) -> Iterator[Classes]:
    """Together, or in halves where that makes too many classes: eight times of these are there at once."""
    found = by_filters(filters, len(placed.rows), placed.filter)
    if found is not None and (len(filters) == 1 or found.count * placed.places.count <= MOST_CELLS // 8):
        yield found
        return
    half = len(filters) // 2
    for part in (filters[:half], filters[half:]):
        yield from _by_filters(placed, part)
