"""Source combining: rows of a chunk -> partials per slice and key, for every grouping of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.kernel import frozen_view
from thalweg.model.columns import EXTRA_LANES, GROUP, LANES, START, key, value
from thalweg.model.expr import quote
from thalweg.model.failure import Failures, OfPartial
from thalweg.model.plan import FILTER, Grouping, Partial, Plan, weighted_mean
from thalweg.operate import dense, duck
from thalweg.operate.columns import Columns, Key
from thalweg.operate.dense_kernels import number_slices
from thalweg.operate.lanes import by_kind, packed, unpacked, with_lanes
from thalweg.operate.merge_lanes import merge_lanes
from thalweg.route.hash import hash_rows, key_groups

_EXACT_US, _MOST_SLICES = 1 << 53, 1 << 31
"""Microseconds that a double holds exactly, and slices that a number of 32 bits does."""


@dataclass(frozen=True)
class Slices:
    """Each row's slice, as a number counted from the first slice of the chunk."""

    first: int
    """The first microsecond of that slice."""
    unit: int
    """Microseconds from one to the next."""
    key: Key

    @classmethod
    def of(cls, times_us: np.ndarray, grouping: Grouping) -> Slices:
        origin, unit = grouping.slice_start_us, grouping.slice_us
        low, high = ((int(end) - origin) // unit * unit + origin for end in (times_us.min(), times_us.max()))
        width = (high - low) // unit + 1
        if high - low + unit <= _EXACT_US and width <= _MOST_SLICES:
            numbers = np.empty(len(times_us), np.int32)
            number_slices(frozen_view(times_us), low, unit, 1 / unit, numbers)
        else:
            numbers = np.floor_divide(times_us - low, unit)
        return cls(low, unit, Key(numbers, 0, width, pa.int64()))

    @property
    def starts(self) -> np.ndarray:
        """The first microsecond of each row's slice."""
        starts: np.ndarray = self.key.values.astype(np.int64) * self.unit + self.first
        return starts


def make(columns: Columns, slices: Slices, grouping: Grouping, failures: Failures) -> pa.Table:
    """A grouping from the rows: as they are, by direct address, or by DuckDB."""
    if grouping.rows_are_partials:
        return packed(lift(columns, slices, grouping), grouping.partials)
    table = combine_dense(columns, slices, grouping)
    if table is not None:
        return table
    reads = {c for p in (*grouping.partials, *grouping.partials_for_others) for c in p.reads}
    rows = columns.with_computed([*grouping.keys, *grouping.values, *sorted(reads)])
    table = combine(rows.append_column(START, pa.array(slices.starts)), grouping, failures)
    return packed(table, grouping.partials, grouping.partials_for_others)


def combine_dense(columns: Columns, slices: Slices, grouping: Grouping) -> pa.Table | None:
    """The partials of one grouping by direct address; None where its keys or partials do not lend themselves."""
    kinds = [(LANES, kind, of) for kind, of in by_kind(grouping.partials).items()]
    kinds += [(EXTRA_LANES, kind, of) for kind, of in by_kind(grouping.partials_for_others).items()]
    if sum(len(of) for _, _, of in kinds) < len(grouping.partials) + len(grouping.partials_for_others):
        return None
    places = _place(columns, slices, (*grouping.keys, *grouping.values))
    done = None if places is None else dense.aggregate(places, columns, [(kind, of) for _, kind, of in kinds])
    if places is None or done is None:
        return None
    made = [lanes.column(prefix) for (prefix, _, _), lanes in zip(kinds, done[1], strict=True)]
    return with_lanes(_groups(places, done[0], slices, grouping), made)


def _place(columns: Columns, slices: Slices, names: Sequence[str]) -> dense.Places | None:
    """By slice and by these columns."""
    keys = [columns.key(name) for name in names]
    found = [key for key in keys if key is not None]
    if len(found) < len(keys):
        return None
    return dense.place([slices.key.values], slices.key, found, len(slices.key.values))


def _groups(places: dense.Places, occupied: npt.NDArray[np.int64], slices: Slices, grouping: Grouping) -> pa.Table:
    """The slices and the keys of places."""
    numbers, *decoded = places.decode(occupied)
    starts = pc.add(pc.multiply(numbers, grouping.slice_us), slices.first)
    return pa.Table.from_arrays([starts, *decoded], names=[START, *group_columns(grouping)])


def combine(rows: pa.Table, grouping: Grouping, failures: Failures) -> pa.Table:
    """The partials of one grouping. `rows` has the column START besides the grouping's own columns. What has
    failed in this task is not tried again: it is NULL."""
    partials = (*grouping.partials, *grouping.partials_for_others)
    sound = [p for p in partials if OfPartial(grouping.id, p.name) not in failures]
    try:
        table = duck.run(_combine_text(grouping, sound), batch=rows)
    except duck.Error:
        table = _combine_apart(rows, grouping, sound, failures)
    names = [START, *group_columns(grouping), *(p.name for p in partials)]
    if table.num_columns == len(names):
        return table
    made = {name: table.column(name) for name in table.column_names}
    types = {p.name: duck.arrow_type(p.type) for p in partials}
    columns = [made[name] if name in made else pa.nulls(table.num_rows, types[name]) for name in names]
    return pa.Table.from_arrays(columns, names=names)


def lift(rows: Columns, slices: Slices, grouping: Grouping) -> pa.Table:
    """Every row that some query admits as a partial of its own: a value that was seen once."""
    columns = [
        pa.chunked_array([pa.array(slices.starts)]),
        *(rows.column(c) for c in (*grouping.keys, *grouping.values)),
    ]
    columns += [_seen_once(rows, p) for p in grouping.partials]
    names = [START, *group_columns(grouping), *(p.name for p in grouping.partials)]
    table = pa.Table.from_arrays(columns, names=names)
    mask = admitted(rows, grouping.partials)
    return table if mask is None else table.filter(pa.array(mask))


def _seen_once(rows: Columns, partial: Partial) -> pa.ChunkedArray:
    if partial.filter is None:
        return pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.table.num_rows)])
    return pc.fill_null(rows.column(partial.filter), False).cast(pa.int64())


def admitted(rows: Columns, partials: Sequence[Partial]) -> np.ndarray | None:
    """Which rows make any of the partials; None for all."""
    filters = admitting(partials)
    if not filters:
        return None
    found = np.zeros(rows.table.num_rows, dtype=bool)
    for name in filters:
        found |= rows.filter(name)
    return found


def roll_up(finer: pa.Table, grouping: Grouping, source: Grouping) -> pa.Table:
    """A coarser grouping's partials from a finer one's."""
    names = [key(source.keys.index(k)) for k in grouping.keys]
    if finer.num_rows:
        table = _roll_up_dense(finer, grouping, names)
        if table is not None:
            return table
    origin, width = grouping.slice_start_us, grouping.slice_us
    start = f"{quote(START)} - ((({quote(START)} - {origin}) % {width}) + {width}) % {width}"
    groups = [f"{start} AS {quote(START)}", *(f"{quote(n)} AS {quote(key(i))}" for i, n in enumerate(names))]
    text = merge_text(
        "finer", groups, [_expression(g) for g in groups], (*grouping.partials, *grouping.partials_for_others)
    )
    return packed(duck.run(text, finer=unpacked(finer)), grouping.partials, grouping.partials_for_others)


def _roll_up_dense(finer: pa.Table, grouping: Grouping, names: Sequence[str]) -> pa.Table | None:
    slices = Slices.of(finer.column(START).to_numpy(), grouping)
    places = _place(Columns(finer), slices, names)
    if places is None:
        return None
    table = None
    for prefix, partials in ((LANES, grouping.partials), (EXTRA_LANES, grouping.partials_for_others)):
        done = merge_lanes(places, [finer], partials)
        if done is None:
            return None
        table = _groups(places, done[0], slices, grouping) if table is None else table
        table = with_lanes(table, [lanes.column(prefix) for lanes in done[1]])
    return table


def merge_text(source: str, groups: Sequence[str], group_by: Sequence[str], partials: Sequence[Partial]) -> str:
    """Merges partials of `source`. `groups` are its grouping columns as selected, `group_by` as grouped."""
    means = [p for p in partials if p.mean_of is not None]
    if means:
        over = f" OVER (PARTITION BY {', '.join(group_by)})"
        extra = ", ".join(
            f"{weighted_mean(quote(n), quote(m), over)} AS {quote(p.name + '_mean')}"
            for p in means
            for n, m in [p.mean_of or ("", "")]
        )
        source = f"(SELECT *, {extra} FROM {source})"
    merged = [f"{p.merge} AS {quote(p.name)}" for p in partials]
    return f"SELECT {', '.join([*groups, *merged])} FROM {source} GROUP BY {', '.join(group_by)}"


def combined(partial: Partial) -> str:
    """The aggregate over rows, with its filter in place."""
    if partial.filter is None:
        return partial.combine.replace(FILTER, "")
    clause = f" FILTER (WHERE {quote(partial.filter)})"
    return partial.combine.replace(FILTER, clause) if FILTER in partial.combine else partial.combine + clause


def group_columns(grouping: Grouping) -> list[str]:
    """The names of a bucket's grouping columns other than the slice."""
    return [
        *(key(i) for i in range(len(grouping.keys))),
        *(value(i) for i in range(len(grouping.values))),
    ]


def with_groups(plan: Plan, grouping: Grouping, table: pa.Table) -> pa.Table:
    """A grouping's partials with the key group of each."""
    columns = [table.column(key(i)) for i in range(len(grouping.keys))]
    groups = key_groups(hash_rows(columns, rows=table.num_rows), plan.groups)
    return table.append_column(GROUP, pa.array(groups))


def _named_keys(grouping: Grouping) -> list[str]:
    keys = [f"{quote(k)} AS {quote(key(i))}" for i, k in enumerate(grouping.keys)]
    return keys + [f"{quote(v)} AS {quote(value(i))}" for i, v in enumerate(grouping.values)]


def _expression(selected: str) -> str:
    return selected.rsplit(" AS ", 1)[0]


def _combine_text(grouping: Grouping, partials: Sequence[Partial]) -> str:
    groups = [quote(START), *_named_keys(grouping)]
    made = [f"{combined(p)} AS {quote(p.name)}" for p in partials]
    by = ", ".join([quote(START), *(quote(c) for c in (*grouping.keys, *grouping.values))])
    return f"SELECT {', '.join([*groups, *made])} FROM batch WHERE {_admitted(partials)} GROUP BY {by}"


def admitting(partials: Sequence[Partial]) -> list[str]:
    """The columns one of which must be true: rows that no partial admits make no group. None: all rows may."""
    filters = {p.filter for p in partials}
    named = sorted(f for f in filters if f is not None)
    return [] if None in filters or len(named) > 16 else named


def _admitted(partials: Sequence[Partial]) -> str:
    return " OR ".join(quote(f) for f in filters) if (filters := admitting(partials)) else "true"


def _combine_apart(rows: pa.Table, grouping: Grouping, partials: Sequence[Partial], failures: Failures) -> pa.Table:
    """After a failure: what fails alone is named and left out. Where the others cannot be made together all the same,
    they stay apart: a bucket is a bag of partials, and NULL merges as nothing."""
    for unit in _units(partials):
        _combine_unit(rows, grouping, unit, failures)
    sound = [p for p in partials if OfPartial(grouping.id, p.name) not in failures]
    try:
        return duck.run(_combine_text(grouping, sound), batch=rows)
    except duck.Error:
        made = [_combine_unit(rows, grouping, unit, failures) for unit in _units(sound)]
        tables = [table for table in made if table is not None]
        return pa.concat_tables(tables, promote_options="default") if tables else _no_groups(rows, grouping)


def _combine_unit(rows: pa.Table, grouping: Grouping, unit: Sequence[Partial], failures: Failures) -> pa.Table | None:
    """None where not all of it can be made. What is at fault is named then."""
    try:
        return duck.run(_combine_text(grouping, unit), batch=rows)
    except duck.Error as error:
        if len(unit) > 1:
            for p in unit:
                _combine_unit(rows, grouping, [p], failures)
        if len(unit) == 1 or not any(OfPartial(grouping.id, p.name) in failures for p in unit):
            failures.update((OfPartial(grouping.id, p.name), duck.reason(error)) for p in unit)
        return None


def _units(partials: Sequence[Partial]) -> list[list[Partial]]:
    """What has to stand in one row: squared deviations are merged with the count and the mean that they are from."""
    together: dict[str, frozenset[str]] = {p.name: frozenset((p.name,)) for p in partials}
    for p in partials:
        if p.mean_of is not None:
            joined = frozenset[str]().union(*(together.get(name, ()) for name in (p.name, *p.mean_of)))
            together.update(dict.fromkeys(joined, joined))
    return [[p for p in partials if p.name in unit] for unit in dict.fromkeys(together.values())]


def _no_groups(rows: pa.Table, grouping: Grouping) -> pa.Table:
    names = [START, *grouping.keys, *grouping.values]
    return rows.select(names).slice(0, 0).rename_columns([START, *group_columns(grouping)])
