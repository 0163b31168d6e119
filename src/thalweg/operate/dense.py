"""Grouping by small whole numbers: a table of all possible groups, addressed directly.

Where the keys are whole numbers (or dates, or times) of a narrow range, the product of their ranges is an array
and a group is a place in it. That is several times faster than hashing, and needs no statement. Everything else
goes through DuckDB; both give the same groups, and a test holds them against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.kernel import frozen_view
from thalweg.model.plan import Partial
from thalweg.model.types import as_type
from thalweg.operate.classes import MOST_FILTERS, Classes, Span, by_filters
from thalweg.operate.dense_kernels import (
    add_values,
    count_rows,
    extend,
    gather_values,
    take_greatest,
    take_least,
    tell_apart,
)

Array = npt.NDArray[Any]
SMALLEST_LIMIT = 1 << 16
"""So many places are always affordable."""
MOST_PLACES = 2**31 - 1
"""Places have numbers of 32 bits."""
_EVERY_ROW: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
WORTH_CLASSES = 3
"""Filters from which on rows are told apart by all of them at once."""
_FEW_SPANS = 4
"""Of more, classes are gathered one by one."""
ROWS_A_CLASS_CELL = 2
"""Rows that there must be for a place of each class: what is folded in the end must be less than what is read."""


@dataclass(frozen=True)
class Key:
    """A grouping column as whole numbers from `low` on, `width` of them."""

    values: Array
    low: int
    width: int
    type: pa.DataType


class HasValues(Protocol):
    def values(self, name: str) -> tuple[Array, Array] | None:
        """(values, which are not NULL), the latter empty where all are not; None for another type."""
        ...

    def filter(self, name: str) -> Array:
        """Which rows a boolean column admits; NULL does not."""
        ...


@dataclass
class Columns:
    """The columns of one table as NumPy arrays, each converted once for all groupings over it."""

    table: pa.Table
    _keys: dict[str, Key | None] = field(default_factory=dict)
    _values: dict[str, tuple[Array, Array] | None] = field(default_factory=dict)
    _filters: dict[str, Array] = field(default_factory=dict)
    _classes: dict[tuple[str | None, ...], Classes | None] = field(default_factory=dict)

    def key(self, name: str) -> Key | None:
        """None where the column cannot be a place in an array: another type, a NULL."""
        if name not in self._keys:
            self._keys[name] = as_key(self.table.column(name))
        return self._keys[name]

    def values(self, name: str) -> tuple[Array, Array] | None:
        """(values, which are not NULL), the latter empty where all are not; None for another type."""
        if name not in self._values:
            self._values[name] = as_values(self.table.column(name))
        return self._values[name]

    def filter(self, name: str) -> Array:
        """Which rows a boolean column admits; NULL does not."""
        if name not in self._filters:
            self._filters[name] = as_filter(self.table.column(name))
        return self._filters[name]

    def classes(self, filters: tuple[str | None, ...]) -> Classes | None:
        """None where there are too many."""
        if filters not in self._classes:
            self._classes[filters] = by_filters(filters, self.table.num_rows, self.filter)
        return self._classes[filters]


def as_key(column: pa.ChunkedArray) -> Key | None:
    numbers = _as_numbers(column)
    if numbers is None or column.null_count or len(column) == 0:
        return None
    low, high = (int(end.as_py()) for end in pc.min_max(numbers).values())
    values = frozen_view(numbers.to_numpy())
    return Key(values, low, high - low + 1, column.type)


def as_values(column: pa.ChunkedArray) -> tuple[Array, Array] | None:
    kind = column.type
    numbers = column if pa.types.is_floating(kind) else _as_numbers(column)
    if numbers is None:
        return None
    if column.null_count == 0:
        return frozen_view(numbers.to_numpy()), _EVERY_ROW
    values, valid = _unpacked(numbers.chunk(0) if numbers.num_chunks == 1 else numbers.combine_chunks())
    return frozen_view(values), frozen_view(valid)


def as_filter(column: pa.ChunkedArray) -> Array:
    known = pc.fill_null(column, False) if column.null_count else column
    return frozen_view(known.to_numpy())


def _unpacked(numbers: pa.Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The values, 0 for NULL, and which are none. From the buffers: Arrow's functions take five times as long, and
    thousands of columns come this way in a batch."""
    bits, data = numbers.buffers()
    start, end = numbers.offset, numbers.offset + len(numbers)
    valid = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")[start:].view(np.bool_)
    values = np.frombuffer(data, numbers.type.to_pandas_dtype(), count=end)[start:]
    return np.where(valid, values, values.dtype.type(0)), valid


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    kind = column.type
    if pa.types.is_signed_integer(kind):
        return column
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    return None


@dataclass(frozen=True)
class Places:
    """Which place each row falls into, and how places turn back into keys."""

    rounds: tuple[npt.NDArray[np.int32], ...]
    """Per round the place of each row, negative for none: a row may count in several windows."""
    count: int
    keys: tuple[Key, ...]

    def decode(self, occupied: Array) -> list[pa.Array]:
        """The key columns of the given places."""
        columns = []
        rest = occupied
        for key in reversed(self.keys):
            rest, digit = np.divmod(rest, key.width)
            columns.append(restore(digit.astype(np.int64) + key.low, key.type))
        return columns[::-1]


def restore(values: Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        return pa.array(values.astype(np.int32)).cast(kind)
    return as_type(pa.array(values), kind)


def place(first: Sequence[npt.NDArray[np.int32]], first_key: Key, keys: Sequence[Key], rows: int) -> Places | None:
    """Places by `first` (slice or window numbers, one array per round) and then by the keys; None: too many."""
    count = first_key.width
    for key in keys:
        count *= key.width
    if count > min(MOST_PLACES, max(SMALLEST_LIMIT, 2 * rows * len(first))):
        return None
    rounds = []
    for numbers in first:
        cells = numbers.astype(np.int32)
        for key in keys:
            extend(cells, key.values, key.low, key.width)
        rounds.append(cells)
    return Places(tuple(rounds), count, (first_key, *keys))


def gather(places: Places, values: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Where each place starts, one more than there are, and the values that were seen, place after place, with how
    often. `seen`: how often each row's value was; 0: leave it out."""
    counts = np.zeros(places.count, dtype=np.int64)
    admitted = frozen_view(seen > 0)
    for cells in places.rounds:
        count_rows(frozen_view(cells), admitted, counts)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    out, out_seen = np.empty(offsets[-1], np.float64), np.empty(offsets[-1], np.int64)
    next_ = offsets[:-1].copy()
    for cells in places.rounds:
        gather_values(frozen_view(cells), frozen_view(seen), frozen_view(values), next_, out, out_seen)
    return offsets, out, out_seen


def aggregate(
    places: Places, columns: Columns, partials: Sequence[Partial], merging: bool
) -> tuple[Array, dict[str, pa.Array]] | None:
    """(occupied places, partial -> its column there), or None where some partial cannot be done this way.

    Combining reads the columns that partials are made from, and their filters; merging reads partials.
    """
    lanes = _lanes(places, columns, partials, merging)
    made = []
    for partial in partials:
        lane = lanes.run(partial)
        if lane is None:
            return None
        made.append((partial, *lane))
    occupied = np.flatnonzero(lanes.occupied())
    at = slice(None) if len(occupied) == places.count else occupied
    empty = _Empty(at)
    return occupied, {
        p.name: pa.array(out[at], mask=None if p.op == "count" and not merging else empty.of(seen))
        for p, out, seen in made
    }


def _lanes(places: Places, columns: Columns, partials: Sequence[Partial], merging: bool) -> _Lanes | ClassLanes:
    """Filter by filter, or, where there are several and groups are few, by class."""
    filters = () if merging else tuple(dict.fromkeys(p.filter for p in partials))
    most = columns.table.num_rows // (places.count * ROWS_A_CLASS_CELL)
    if WORTH_CLASSES <= len(filters) <= MOST_FILTERS and most > 1:
        classes = columns.classes(filters)
        if classes is not None and classes.count <= most:
            return ClassLanes(places, columns, classes)
    return _Lanes(places, columns, merging)


class _Empty:
    """Where nothing was admitted: a count is 0 there, all else is NULL. Many partials have the same places empty."""

    def __init__(self, at: Array | slice) -> None:
        self.at = at
        self.known: dict[int, tuple[Array, Array | None]] = {}

    def of(self, seen: Array) -> Array | None:
        """Of the places looked at; None: nowhere."""
        if id(seen) not in self.known:
            empty = seen[self.at] == 0
            self.known[id(seen)] = seen, empty if empty.any() else None  # kept, so that its id stays its own
        return self.known[id(seen)][1]


class _Lanes:
    """Aggregates partial after partial over the same places; what several need is counted once."""

    def __init__(self, places: Places, columns: HasValues, merging: bool) -> None:
        self.places = places
        self.rounds = [frozen_view(cells) for cells in places.rounds]
        self.columns = columns
        self.merging = merging
        self.rows: dict[str | None, Array] = {}
        """filter -> rows admitted, by place."""
        self.counts: dict[tuple[str | None, str], Array] = {}

    def occupied(self) -> Array:
        """Whether any row was admitted, by place."""
        found: Array = np.logical_or.reduce([rows > 0 for rows in self.rows.values()])
        return found

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        """(aggregate, how many values went into it), by place."""
        argument = partial.name if self.merging else partial.argument
        name = None if self.merging else partial.filter
        passing = _EVERY_ROW if name is None else self.columns.filter(name)
        if name not in self.rows:
            self.rows[name] = self._count(passing)
        if not partial.op:
            return None
        if argument is None:
            return self.rows[name], self.rows[name]
        found = self.columns.values(argument)
        if found is None:
            return None
        values, valid = found
        seen, admitted = self.rows[name], passing
        if valid.size:
            admitted = valid if name is None else frozen_view(passing & valid)
            if (name, argument) not in self.counts:
                self.counts[name, argument] = self._count(admitted)
            seen = self.counts[name, argument]
        if partial.op == "count" and not self.merging:
            return seen, seen
        out = self._accumulate(partial, values, admitted)
        return None if out is None else (out, seen)

    def _count(self, admitted: Array) -> Array:
        out: Array = np.zeros(self.places.count, dtype=np.int64)
        for cells in self.rounds:
            count_rows(cells, admitted, out)
        return out

    def _accumulate(self, partial: Partial, values: Array, admitted: Array) -> Array | None:
        run: Any
        if partial.op in ("sum", "count"):
            floating = partial.type == "DOUBLE"
            if partial.op == "sum" and not floating and _may_overflow(values, len(self.places.rounds)):
                return None
            out = np.zeros(self.places.count, dtype=np.float64 if floating else np.int64)
            run = add_values
        else:
            if values.dtype.kind == "f" and np.isnan(values).any():
                return None  # NaN is the greatest number in Spark and in DuckDB, and incomparable here
            out = np.full(self.places.count, _neutral(values.dtype, partial.op), dtype=values.dtype)
            run = take_least if partial.op == "min" else take_greatest
        for cells in self.rounds:
            run(cells, admitted, values, out)
        return out


class ClassLanes:
    """The same with many filters: every row is added up once, in its class, and a filter's lane is that of its
    classes together. A hundred queries over the same keys look at a row about as often as one does."""

    def __init__(self, places: Places, columns: HasValues, classes: Classes) -> None:
        self.shape = (classes.count, places.count)
        self.classes = classes
        self.apart = _Lanes(_apart(places, classes), columns, merging=False)
        self.made: dict[tuple[str | None, str | None, str], tuple[Array, Array] | None] = {}
        self.folded: dict[tuple[int, np.ufunc, Span], Array] = {}
        self.runs: dict[tuple[int, np.ufunc, bool], Array] = {}
        self.members: dict[str | None, Array] = {}

    def occupied(self) -> Array:
        found: Array = np.logical_or.reduce(self.apart.occupied().reshape(self.shape))
        return found

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        kind = (partial.op, partial.argument, partial.type)
        if kind not in self.made:
            self.made[kind] = self.apart.run(_of_every_row(*kind))
        found = self.made[kind]
        if found is None:
            return None
        values, seen = found
        folding = {"min": np.minimum, "max": np.maximum}.get(partial.op or "", np.add)
        return self._fold(folding, values, partial.filter), self._fold(np.add, seen, partial.filter)

    def _fold(self, folding: np.ufunc, of: Array, name: str | None) -> Array:
        spans = self.classes.spans[name]
        if len(spans) > _FEW_SPANS:
            if name not in self.members:
                self.members[name] = np.array([at for span in spans for at in range(*span)])
            folded: Array = folding.reduce(of.reshape(self.shape)[self.members[name]], axis=0)
            return folded
        lanes = [self._lane(folding, of, span) for span in spans if span[0] < span[1]]
        if not lanes:  # no row was admitted: nobody looks at the values
            return np.zeros(self.shape[1], dtype=of.dtype)
        folded = lanes[0]
        for lane in lanes[1:]:
            folded = folding(folded, lane)
        return folded

    def _lane(self, folding: np.ufunc, of: Array, span: Span) -> Array:
        """Of classes that follow one another. Many begin with the first class, or end with the last."""
        first, last = span
        block: Array = of.reshape(self.shape)
        if last - first == 1:
            one: Array = block[first]
            return one
        if first > 0 and last < len(block):
            if (id(of), folding, span) not in self.folded:
                self.folded[id(of), folding, span] = folding.reduce(block[first:last], axis=0)
            return self.folded[id(of), folding, span]
        from_first = first == 0
        if (id(of), folding, from_first) not in self.runs:
            ordered = block if from_first else block[::-1]
            self.runs[id(of), folding, from_first] = folding.accumulate(ordered, axis=0)
        run: Array = self.runs[id(of), folding, from_first][last - 1 if from_first else len(block) - 1 - first]
        return run


@lru_cache(maxsize=1 << 10)
def _of_every_row(op: str, argument: str | None, kind: str) -> Partial:
    return Partial("", "", None, "", kind, op=op, argument=argument)


def _apart(places: Places, classes: Classes) -> Places:
    """The places of every class, one class after the other."""
    rounds = []
    for cells in places.rounds:
        out = np.empty_like(cells)
        tell_apart(frozen_view(cells), classes.numbers, np.int32(places.count), out)
        rounds.append(out)
    return Places(tuple(rounds), places.count * classes.count, places.keys)


def _neutral(kind: np.dtype[Any], op: str) -> Any:
    """What every value beats."""
    if kind.kind == "f":
        return np.inf if op == "min" else -np.inf
    return np.iinfo(kind).max if op == "min" else np.iinfo(kind).min


def _may_overflow(values: Array, rounds: int) -> bool:
    """Whether a sum could leave 64 bits: then DuckDB decides, which raises as Spark does."""
    if values.dtype.itemsize < 8 or values.size == 0:
        return False
    largest = max(abs(int(values.min())), abs(int(values.max())))
    return largest * values.size * rounds >= 1 << 62
