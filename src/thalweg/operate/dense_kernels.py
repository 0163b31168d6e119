"""The loops of grouping by small whole numbers. `cells`: the place of each row, below 0 for one that has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.kernel import inlined, kernel

_MIXING = np.uint64(0x9E3779B97F4A7C15)


@kernel
def number_slices(times: Any, low: Any, width: Any, inverse: Any, out: Any) -> None:
    """How many times `width` each time is above `low`, for times that are less than 2**53 above it. By a product that
    is off by one at most: processors divide slowly, and not side by side."""
    for i in range(times.size):
        above = times[i] - low
        number = np.int64(np.float64(above) * inverse)
        rest = above - number * width
        out[i] = number + np.int64(rest >= width) - np.int64(rest < 0)


@kernel
def extend(cells: Any, values: Any, low: Any, width: Any) -> None:
    for i in range(cells.size):
        if cells[i] >= 0:
            cells[i] = cells[i] * width + (values[i] - low)


@kernel
def count_rows(cells: Any, admitted: Any, out: Any) -> None:
    if admitted.size == 0:
        for i in range(cells.size):
            if cells[i] >= 0:
                out[cells[i]] += 1
    else:
        for i in range(cells.size):
            # Adding nothing is cheaper than a branch that is taken every other time.
            if cells[i] >= 0:
                out[cells[i]] += np.int64(admitted[i])


@kernel
def add_values(cells: Any, admitted: Any, values: Any, out: Any) -> None:
    nothing = values.dtype.type(0)
    if admitted.size == 0:
        for i in range(cells.size):
            if cells[i] >= 0:
                out[cells[i]] += values[i]
    else:
        for i in range(cells.size):
            value = values[i]  # read in any case: a choice of two values needs no branch, one of reading does
            added = value if admitted[i] else nothing
            if cells[i] >= 0:
                out[cells[i]] += added


@kernel
def take_least(cells: Any, admitted: Any, values: Any, out: Any) -> None:
    everyone = admitted.size == 0
    for i in range(cells.size):
        c = cells[i]
        if c >= 0 and (everyone or admitted[i]) and values[i] < out[c]:
            out[c] = values[i]


@kernel
def take_greatest(cells: Any, admitted: Any, values: Any, out: Any) -> None:
    everyone = admitted.size == 0
    for i in range(cells.size):
        c = cells[i]
        if c >= 0 and (everyone or admitted[i]) and values[i] > out[c]:
            out[c] = values[i]


@kernel
def mark(sets: Any, admitted: Any, bit: Any) -> None:
    for i in range(sets.size):
        sets[i] |= np.uint64(admitted[i]) << bit


@inlined
def _slot(of: Any, mask: Any) -> Any:
    """Where a set is looked for first: by the highest bits of a product, which all of its factor's have a say in."""
    return (of * _MIXING >> np.uint64(52)) & mask


@kernel
def number_sets(sets: Any, known: Any, table: Any, out: Any) -> Any:
    """Numbers the sets that occur as they come, 0 being none: how many, or -1 where `known` is too short."""
    count, mask = 0, np.uint64(table.size - 1)
    for i in range(sets.size):
        if sets[i] == 0:
            out[i] = -1
            continue
        at = _slot(sets[i], mask)
        while table[at] >= 0 and known[table[at]] != sets[i]:
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            if count == known.size:
                return -1
            known[count], table[at] = sets[i], count
            count += 1
        out[i] = table[at]
    return count


@kernel
def tell_apart(cells: Any, numbers: Any, places: Any, out: Any) -> None:
    """The place of each row within its class, classes one after the other; none for a row without a class."""
    for i in range(cells.size):
        out[i] = numbers[i] * places + cells[i] if cells[i] >= 0 and numbers[i] >= 0 else -1


@kernel
def gather_values(cells: Any, seen: Any, values: Any, next_: Any, out: Any, out_seen: Any) -> None:
    """`next_` is where the next value of each place goes."""
    for i in range(cells.size):
        c = cells[i]
        if c >= 0 and seen[i] > 0:
            at = next_[c]
            next_[c] = at + 1
            out[at] = values[i]
            out_seen[at] = seen[i]
