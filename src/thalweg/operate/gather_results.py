"""Results of many queries at once, from partials that were merged for all of them.

Column by column: what queries ask alike of partials of the same type stands in one array, query after query. Types,
means and NULLs are seen to once for all of it, keys and windows are looked up once, and a query's result is a slice
of such arrays. One query alone would cost dozens of Arrow's calls, which is more than its rows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.types import as_type, to_inner_arrow
from thalweg.operate import duck
from thalweg.operate.plain_outputs import Choice

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lane:
    """A merged partial, place by place."""

    values: npt.NDArray[Any]
    seen: npt.NDArray[Any] | None
    """Zero where the value is NULL; None: it is so nowhere."""
    type: str
    """DuckDB's."""

    def column(self, places: Places) -> pa.Array:
        """As DuckDB would give it."""
        return gather_lanes([(self, places)])


class Merged(Protocol):
    """Merged partials. A place is a window and a group of keys."""

    def admitted(self, name: str) -> Places:
        """Where a count is above zero."""
        ...

    def lane(self, name: str) -> Lane | None:
        """None for what is no partial, or of a type that NumPy does not have."""
        ...

    def column(self, name: str, places: Places) -> pa.Array | None:
        """The window, or a key, of these places; None for a partial."""
        ...


@dataclass(frozen=True)
class Wanted:
    """A result that is only chosen from merged partials."""

    present: str
    """The partial that counts: where it is above zero, there is a row."""
    columns: tuple[tuple[Choice, str], ...]
    """With the Spark type of each."""


def gather_results(wanted: Sequence[Wanted], merged: Merged) -> list[pa.Table | None]:
    """The rows of each result; None for one that cannot be made this way."""
    if not wanted:
        return []
    gathering = _Gathering.of(wanted, merged)
    slices = [[gathering.slice(one.present, *column) for column in one.columns] for one in wanted]
    return [gathering.table(one.present, of_one) for one, of_one in zip(wanted, slices, strict=True)]


@dataclass
class _Column:
    """One column of results: of all queries that ask the same of partials of the same types."""

    choice: Choice
    type: str
    parts: list[tuple[tuple[Lane, ...], Places]] = field(default_factory=list)
    begins: dict[tuple[str, ...], int] = field(default_factory=dict)
    """(present, partials) -> where its rows begin."""
    rows: int = 0

    def add(self, asked: tuple[str, ...], lanes: tuple[Lane, ...], places: Places) -> int:
        """Where the values begin."""
        if asked not in self.begins:
            self.begins[asked] = self.rows
            self.parts.append((lanes, places))
            self.rows += len(places)
        return self.begins[asked]

    def make(self) -> pa.Array | None:
        numbers = range(len(self.choice.reads))
        return self.made_of([gather_lanes([(lanes[i], places) for lanes, places in self.parts]) for i in numbers])

    def made_of(self, columns: Sequence[pa.Array]) -> pa.Array | None:
        made = self.choice.of(columns)
        return None if made is None else as_type(made, to_inner_arrow(self.type))


def gather_lanes(parts: Sequence[tuple[Lane, Places]]) -> pa.Array:
    """The values of lanes of one type at these places, lane after lane, as DuckDB would give them."""
    first, rows = parts[0][0], sum(len(places) for _, places in parts)
    values, empty = np.empty(rows, first.values.dtype), np.zeros(rows, np.bool_)
    at = 0
    for lane, places in parts:
        end = at + len(places)
        lane.values.take(places, out=values[at:end], mode="clip")  # which goes without a copy
        if lane.seen is not None:
            np.equal(lane.seen.take(places), 0, out=empty[at:end])
        at = end
    return as_type(pa.array(values, mask=empty if empty.any() else None), duck.arrow_type(first.type))


_Slice = tuple[_Column, int]
"""A column, and where the rows of a query begin in it."""


@dataclass
class _Gathering:
    merged: Merged
    places: dict[str, Places]
    """Present -> the places where it is above zero."""
    begins: dict[str, int]
    """Present -> where these begin among those of all."""
    _columns: dict[tuple[object, ...], _Column] = field(default_factory=dict)
    _made: dict[int, pa.Array | None] = field(default_factory=dict)
    """By the id of the column."""

    @classmethod
    def of(cls, wanted: Sequence[Wanted], merged: Merged) -> _Gathering:
        places = {name: merged.admitted(name) for name in dict.fromkeys(one.present for one in wanted)}
        ends = np.cumsum([len(found) for found in places.values()])
        begins = [0, *ends[:-1].tolist()]
        return cls(merged, places, dict(zip(places, begins, strict=True)))

    def slice(self, present: str, choice: Choice, type_: str) -> _Slice | None:
        """None where a partial is no lane."""
        found = [self.merged.lane(name) for name in choice.reads]
        lanes = tuple(lane for lane in found if lane is not None)
        if not lanes:
            return self._slice_of_places(present, choice, type_)
        if len(lanes) < len(found):
            return None
        alike = (choice.make, choice.constants, type_, *((lane.type, lane.values.dtype) for lane in lanes))
        column = self._columns.get(alike)
        if column is None:
            column = self._columns[alike] = _Column(choice, type_)
        return column, column.add((present, *choice.reads), lanes, self.places[present])

    def _slice_of_places(self, present: str, choice: Choice, type_: str) -> _Slice | None:
        """Of windows and keys, which are looked up for all queries together."""
        column = self._columns.get((choice, type_))
        if column is None:
            column = self._columns[choice, type_] = _Column(choice, type_)
            everywhere = np.concatenate([*self.places.values()])
            read = [self.merged.column(name, everywhere) for name in choice.reads]
            columns = [one for one in read if one is not None]
            self._made[id(column)] = column.made_of(columns) if len(columns) == len(read) else None
        return column, self.begins[present]

    def table(self, present: str, slices: Sequence[_Slice | None]) -> pa.Table | None:
        arrays, rows = [], len(self.places[present])
        for one in slices:
            made = None if one is None else self._array(one[0])
            if one is None or made is None:
                return None
            arrays.append(made.slice(one[1], rows))
        return pa.Table.from_arrays(arrays, names=_names(len(arrays)))

    def _array(self, column: _Column) -> pa.Array | None:
        if id(column) not in self._made:
            self._made[id(column)] = column.make()
        return self._made[id(column)]


@lru_cache(maxsize=1 << 8)
def _names(count: int) -> list[str]:
    return [f"{i}" for i in range(count)]
