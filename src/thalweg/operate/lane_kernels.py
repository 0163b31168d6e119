"""The loops of merging lanes: rows by lanes, added up at places.

`cells`: the place of each row, below 0 for one that has none. `valid` says which values count; empty: all. Lane
`source[k]` of the rows goes into lane `into[k]` of `out`, and `seen` notes that something did, unless it is empty.
"""

from __future__ import annotations

from typing import Any

from thalweg.kernel import kernel


@kernel
def number_places(cells: Any, number: Any, places: Any, count: Any, out: Any) -> Any:
    """Numbers the places that occur as they come, those of `number` being known: how many there are now."""
    for i in range(cells.size):
        c = cells[i]
        if c < 0:
            out[i] = -1
            continue
        if number[c] < 0:
            number[c], places[count] = count, c
            count += 1
        out[i] = number[c]
    return count


@kernel
def add_lanes(cells: Any, values: Any, valid: Any, source: Any, into: Any, out: Any, seen: Any) -> None:
    everything, noting, nothing = valid.size == 0, seen.size > 0, values.dtype.type(0)
    for i in range(cells.size):
        c = cells[i]
        if c < 0:
            continue
        if everything:
            for k in range(source.size):
                out[c, into[k]] += values[i, source[k]]
                if noting:
                    seen[c, into[k]] = True
        else:
            for k in range(source.size):
                # Adding nothing is cheaper than a branch that is taken every other time.
                is_there = valid[i, source[k]]
                out[c, into[k]] += values[i, source[k]] if is_there else nothing
                seen[c, into[k]] |= is_there


@kernel
def take_least_lanes(cells: Any, values: Any, valid: Any, source: Any, into: Any, out: Any, seen: Any) -> None:
    """NaN is the greatest number in Spark: what is no NaN is less."""
    everything, noting = valid.size == 0, seen.size > 0
    for i in range(cells.size):
        c = cells[i]
        if c < 0:
            continue
        for k in range(source.size):
            if everything or valid[i, source[k]]:
                value, least = values[i, source[k]], out[c, into[k]]
                if value < least or least != least:
                    out[c, into[k]] = value
                if noting:
                    seen[c, into[k]] = True


@kernel
def take_greatest_lanes(cells: Any, values: Any, valid: Any, source: Any, into: Any, out: Any, seen: Any) -> None:
    everything, noting = valid.size == 0, seen.size > 0
    for i in range(cells.size):
        c = cells[i]
        if c < 0:
            continue
        for k in range(source.size):
            if everything or valid[i, source[k]]:
                value = values[i, source[k]]
                if value > out[c, into[k]] or value != value:
                    out[c, into[k]] = value
                if noting:
                    seen[c, into[k]] = True
