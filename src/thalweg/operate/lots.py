"""What a slot holds of a grouping, lot by lot: the rows of one bucket, or those that have just arrived."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.plan import Grouping, Partial
from thalweg.operate import dense, duck
from thalweg.operate.columns import NEW, SPAN, START, WINDOW, key
from thalweg.operate.combine import group_columns

Cover = Sequence[tuple[int, int, int]]
"""(stretch start, stretch span, window start)"""


@dataclass(frozen=True)
class Lot:
    table: pa.Table
    span: int
    """The width of its stretches, negative for nodes."""
    starts: tuple[int, ...]
    """All starts that occur in it."""
    new: bool
    """Whether it has come with this batch."""


def whole(grouping: Grouping, lots: Sequence[Lot]) -> pa.Table:
    """One table with SPAN and NEW and every partial: what older buckets lack is NULL, which merges as nothing."""
    tables = [_marked(lot) for lot in lots]
    table = pa.concat_tables(tables, promote_options="default") if tables else _empty(grouping)
    for p in grouping.partials:
        if p.name not in table.column_names:
            table = table.append_column(p.name, pa.nulls(table.num_rows, duck.arrow_type(p.type)))
    return table


def _marked(lot: Lot) -> pa.Table:
    n = lot.table.num_rows
    table = lot.table.append_column(SPAN, pa.repeat(pa.scalar(lot.span, pa.int64()), n))
    return table.append_column(NEW, pa.repeat(pa.scalar(lot.new), n))


def _empty(grouping: Grouping) -> pa.Table:
    names = [START, SPAN, NEW, *group_columns(grouping)]
    types = [pa.int64(), pa.int64(), pa.bool_()]
    columns = [pa.array([], t) for t in types] + [pa.array([], pa.null())] * (len(names) - len(types))
    return pa.Table.from_arrays(columns, names=names)


def merge_dense(
    grouping: Grouping, lots: Sequence[Lot], cover: Cover, partials: Sequence[Partial]
) -> pa.Table | None:
    """Partials merged per window and key by direct address; None where that is not possible."""
    if not lots or not all(p.op for p in partials):
        return None
    names = [key(i) for i in range(len(grouping.keys))]
    wanted = [*names, *(p.name for p in partials)]
    if any(name not in lot.table.column_names for lot in lots for name in wanted):
        return None
    columns = dense.Columns(pa.concat_tables([lot.table.select(wanted) for lot in lots]))
    keys = [columns.key(name) for name in names]
    found = [k for k in keys if k is not None]
    if len(found) < len(keys):
        return None
    windows = sorted({w for _, _, w in cover})
    rounds = window_rounds(lots, cover, {w: i for i, w in enumerate(windows)})
    first = dense.Key(rounds[0], 0, len(windows), pa.int64())
    places = dense.place(rounds, first, found, columns.table.num_rows)
    done = None if places is None else dense.aggregate(places, columns, partials, merging=True)
    if places is None or done is None:
        return None
    numbers, *decoded = places.decode(done[0])
    starts = pa.array(np.asarray(windows, dtype=np.int64)[numbers.to_numpy()])
    made = [done[1][p.name].cast(duck.arrow_type(p.type)) for p in partials]
    return pa.Table.from_arrays([starts, *decoded, *made], names=[WINDOW, *wanted])


def window_rounds(lots: Sequence[Lot], cover: Cover, number: Mapping[int, int]) -> list[npt.NDArray[np.int32]]:
    """The windows of every row: as many arrays as the busiest stretch has windows, -1 where there is none."""
    windows: dict[tuple[int, int], list[int]] = {}
    for start, span, w in cover:
        windows.setdefault((start, span), []).append(number[w])
    most = max(len(found) for found in windows.values())
    rounds: list[list[npt.NDArray[np.int32]]] = [[] for _ in range(most)]
    for lot in lots:
        low = min(lot.starts)
        unit = math.gcd(*(s - low for s in lot.starts)) or 1
        lookup = np.full((most, (max(lot.starts) - low) // unit + 1), -1, dtype=np.int32)
        for start in lot.starts:
            for i, n in enumerate(windows.get((start, lot.span), ())):
                lookup[i, (start - low) // unit] = n
        at = np.floor_divide(lot.table.column(START).to_numpy() - low, unit)
        for i in range(most):
            rounds[i].append(lookup[i][at])
    return [np.concatenate(parts) for parts in rounds]
