"""Percentiles of values that were counted: of each group, as Spark defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, kernel

MANY = 1 << 11
"""Values from which on NumPy sorts a group faster than the kernel, its call included."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def quantile_of_counts(values: pa.ChunkedArray, counts: pa.ChunkedArray, shares: pa.ChunkedArray) -> pa.Array:
    """DuckDB gives the groups in portions: lists of values, as long lists of counts. A NULL list has no quantile."""
    lists, numbers = _whole(values), _whole(counts)
    offsets = lists.offsets.to_numpy()
    found = lists.values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    # The lists of both columns are cut alike, but may start at different places of what lies below.
    seen = numbers.values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    seen = seen[numbers.offsets[0].as_py() :]
    found, offsets = found[offsets[0] :], offsets - offsets[0]
    share = shares[0].as_py() if len(shares) else 0.0
    out = np.zeros(len(lists), np.float64)
    _small(frozen_view(offsets), frozen_view(found), frozen_view(seen), share, MANY, out)
    for group in np.flatnonzero(np.diff(offsets) >= MANY):
        part = slice(offsets[group], offsets[group + 1])
        out[group] = _large(found[part], seen[part], share)
    return pa.array(out, mask=np.diff(offsets) == 0)


def _whole(column: pa.ChunkedArray) -> pa.ListArray:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array


def _large(values: Floats, counts: Counts, share: float) -> float:
    rows = int(counts.sum())
    position = (rows - 1) * share
    lower, higher = math.floor(position), math.ceil(position)
    if rows == len(values):
        low, high = np.partition(values, [lower, higher])[[lower, higher]]
    else:
        order = np.argsort(values)
        until = np.cumsum(counts[order])
        low, high = values[order[np.searchsorted(until, [lower, higher], side="right")]]
    return float(_between(low, high, position, lower, higher))


@kernel
def _between(low: Any, high: Any, position: Any, lower: Any, higher: Any) -> float:
    """Spark's way to interpolate, to the last digit."""
    if lower == higher or low == high or (np.isnan(low) and np.isnan(high)):
        return float(low)
    return float((higher - position) * low + (position - lower) * high)


@kernel
def _small(offsets: Any, values: Any, counts: Any, share: Any, many: Any, out: Any) -> None:
    for group in range(out.size):
        start, end = offsets[group], offsets[group + 1]
        if end == start or end - start >= many:
            continue
        rows = 0
        for i in range(start, end):
            rows += counts[i]
        position = (rows - 1) * share
        lower, higher = math.floor(position), math.ceil(position)
        order = np.argsort(values[start:end])
        until, low, high = 0, values[start], values[start]
        for i in range(order.size):
            before, until = until, until + counts[start + order[i]]
            if before <= lower < until:
                low = values[start + order[i]]
            if before <= higher < until:
                high = values[start + order[i]]
        out[group] = _between(low, high, position, lower, higher)
