"""Percentiles of values that were counted: of each group, as Spark defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, inlined, kernel

MANY = 1 << 12
"""Values from which on a group is looked at alone: selecting is faster than sorting."""

_FEW = 48
"""Values up to which inserting one after another sorts fastest."""

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
        # Picking copies: what is sorted in place is not what was given.
        picked = values[chosen].astype(np.float64, copy=False), counts[chosen].astype(np.int64, copy=False)
        out[small] = _of_several(sizes[small], *picked, share)
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
    """Groups one after another, none of them empty; they are sorted in place."""
    _sort_groups(frozen_view(sizes), values, counts)
    until = np.cumsum(counts)
    ends = until[np.cumsum(sizes) - 1]
    starts = np.concatenate(([0], ends[:-1]))
    lower, higher, position = _between(ends - starts, share)
    low = values[np.searchsorted(until, starts + lower, side="right")]
    high = values[np.searchsorted(until, starts + higher, side="right")]
    return _interpolated(low, high, lower, higher, position)


@inlined
def _less(a: Any, b: Any) -> Any:
    """NaN is the greatest of all."""
    return a < b or (b != b and a == a)


@inlined
def _sift(values: Any, counts: Any, start: Any, root: Any, end: Any) -> None:
    """Lets a value sink in the heap of `end` values from `start` on."""
    value, count = values[start + root], counts[start + root]
    child = 2 * root + 1
    while child < end:
        if child + 1 < end and _less(values[start + child], values[start + child + 1]):
            child += 1
        if not _less(value, values[start + child]):
            break
        values[start + root], counts[start + root] = values[start + child], counts[start + child]
        root = child
        child = 2 * root + 1
    values[start + root], counts[start + root] = value, count


@kernel
def _sort_groups(sizes: Any, values: Any, counts: Any) -> None:
    """Values ascending within their group, each with its count: few by insertion, more by a heap."""
    start = 0
    for size in sizes:
        if size <= _FEW:
            for i in range(start + 1, start + size):
                value, count = values[i], counts[i]
                j = i - 1
                while j >= start and _less(value, values[j]):
                    values[j + 1], counts[j + 1] = values[j], counts[j]
                    j -= 1
                values[j + 1], counts[j + 1] = value, count
        else:
            for root in range(size // 2 - 1, -1, -1):
                _sift(values, counts, start, root, size)
            for end in range(size - 1, 0, -1):
                last = start + end
                values[start], values[last] = values[last], values[start]
                counts[start], counts[last] = counts[last], counts[start]
                _sift(values, counts, start, 0, end)
        start += size


def _between(rows: Counts, share: float) -> tuple[Counts, Counts, Floats]:
    """The rows between which the quantile lies, and where."""
    position: Floats = (rows - 1) * np.float64(share)
    return np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64), position


def _interpolated(low: Floats, high: Floats, lower: Counts, higher: Counts, position: Floats) -> Floats:
    """Spark's way, to the last digit. NaN equals NaN."""
    with np.errstate(invalid="ignore"):
        between: Floats = low + (high - low) * (position - lower)
    same = (lower == higher) | (low == high) | (np.isnan(low) & np.isnan(high))
    return np.where(same, low, between)
