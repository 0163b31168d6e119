"""Grouping by small whole numbers: a table of all possible groups, addressed directly.

Where the keys are whole numbers (or dates, or times) of a narrow range, the product of their ranges is an array
and a group is a place in it. That is several times faster than hashing, and needs no statement. Everything else
goes through DuckDB; both give the same groups, and a test holds them against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view
from thalweg.model.plan import Partial
from thalweg.model.types import as_type
from thalweg.operate.classes import Classes, Span
from thalweg.operate.columns import EVERY_ROW, WORTH_CLASSES, Array, Columns, Key
from thalweg.operate.dense_kernels import (
    add_values,
    count_rows,
    extend,
    gather_values,
    take_greatest,
    take_least,
    tell_apart,
)

SMALLEST_LIMIT = 1 << 16
"""So many places are always affordable."""
MOST_PLACES = 2**31 - 1
"""Places have numbers of 32 bits."""
_FEW_SPANS = 4
"""Of more, classes are gathered one by one."""
ROWS_A_CLASS_CELL = 2
"""Rows that there must be for a place of each class: what is folded in the end must be less than what is read."""


class HasValues(Protocol):
    def values(self, name: str) -> tuple[Array, Array] | None:
        """(values, which are not NULL), the latter empty where all are not; None for another type."""
        ...

    def filter(self, name: str) -> Array:
        """Which rows a boolean column admits; NULL does not."""
        ...


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


def _lanes(places: Places, columns: Columns, partials: Sequence[Partial], merging: bool) -> _Lanes | _MixedLanes:
    """Filter by filter, or, where there are several and groups are few, by class."""
    plain = _Lanes(places, columns, merging)
    filters = () if merging else tuple(dict.fromkeys(p.filter for p in partials))
    most = columns.table.num_rows // (places.count * ROWS_A_CLASS_CELL)
    if len(filters) < WORTH_CLASSES or most <= 1:
        return plain
    lanes: dict[str | None, _Lanes | ClassLanes] = dict.fromkeys(filters, plain)
    for classes in columns.told_apart(filters, most):
        lanes.update(dict.fromkeys(classes.spans, ClassLanes(places, columns, classes)))
    return _MixedLanes(lanes)


class _MixedLanes:
    """Some filters by class, some one by one."""

    def __init__(self, lanes: Mapping[str | None, _Lanes | ClassLanes]) -> None:
        self.lanes = lanes

    def occupied(self) -> Array:
        found: Array = np.logical_or.reduce([lanes.occupied() for lanes in {*self.lanes.values()}])
        return found

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        return self.lanes[partial.filter].run(partial)


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
        passing = EVERY_ROW if name is None else self.columns.filter(name)
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
