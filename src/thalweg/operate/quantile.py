"""Percentiles of values that were counted: of each group, as Spark defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MANY = 1 << 12
"""Values from which on a group is looked at alone: selecting is faster than sorting."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def quantile_of_counts(values: pa.ChunkedArray, counts: pa.ChunkedArray, shares: pa.ChunkedArray) -> pa.Array:
    """DuckDB gives the groups in portions: lists of values, as long lists of counts. A NULL list has no quantile."""
    offsets, found = _flat(values)
    _, seen = _flat(counts)
    if not len(found):
        return pa.nulls(len(values), pa.float64())
    return pa.array(quantiles(offsets, found, seen, shares[0].as_py()), mask=np.diff(offsets) == 0)


def quantiles(offsets: Counts, values: Floats, counts: Counts, share: float) -> Floats:
    """Of groups that lie one after another; 0 for empty ones."""
    sizes = np.diff(offsets)
    out = np.zeros(len(sizes))
    for group in np.flatnonzero(sizes >= MANY):
        part = slice(offsets[group], offsets[group + 1])
        out[group] = _of_one(values[part], counts[part], share)
    small = np.flatnonzero((sizes > 0) & (sizes < MANY))
    if len(small):
        chosen = np.repeat(sizes < MANY, sizes)
        out[small] = _of_several(sizes[small], values[chosen], counts[chosen], share)
    return out


def _flat(column: pa.ChunkedArray) -> tuple[Counts, npt.NDArray[Any]]:
    """Where each list starts, one more than there are, and all elements."""
    lists = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    elements = lists.values[offsets[0] : offsets[-1]].to_numpy(zero_copy_only=False)
    return offsets - offsets[0], elements


def _of_one(values: Floats, counts: Counts, share: float) -> float:
    rows = int(counts.sum())
    lower, higher, position = _between(np.array([rows]), share)
    places = [int(lower[0]), int(higher[0])]
    if rows == len(values):
        low, high = np.partition(values, places)[places]
    else:
        order = np.argsort(values)
        until = np.cumsum(counts[order])
        low, high = values[order[np.searchsorted(until, places, side="right")]]
    return float(_interpolated(np.array([low]), np.array([high]), lower, higher, position)[0])


def _of_several(sizes: Counts, values: Floats, counts: Counts, share: float) -> Floats:
    """Groups one after another, none of them empty."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((values, groups))
    until = np.cumsum(counts[order])
    ends = until[np.cumsum(sizes) - 1]
    starts = np.concatenate(([0], ends[:-1]))
    lower, higher, position = _between(ends - starts, share)
    low = values[order[np.searchsorted(until, starts + lower, side="right")]]
    high = values[order[np.searchsorted(until, starts + higher, side="right")]]
    return _interpolated(low, high, lower, higher, position)


def _between(rows: Counts, share: float) -> tuple[Counts, Counts, Floats]:
    """The rows between which the quantile lies, and where."""
    position: Floats = (rows - 1) * np.float64(share)
    return np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64), position


def _interpolated(low: Floats, high: Floats, lower: Counts, higher: Counts, position: Floats) -> Floats:
    """Spark's way, to the last digit. NaN equals NaN."""
    with np.errstate(invalid="ignore"):
        between: Floats = (higher - position) * low + (position - lower) * high
    same = (lower == higher) | (low == high) | (np.isnan(low) & np.isnan(high))
    return np.where(same, low, between)
