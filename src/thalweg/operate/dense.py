"""Grouping by small whole numbers: a table of all possible groups, addressed directly.

Where the keys are whole numbers (or dates, or times) of a narrow range, the product of their ranges is an array
and a group is a place in it. That is several times faster than hashing, and needs no statement. Everything else
goes through DuckDB; both give the same groups, and a test holds them against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

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
from thalweg.operate.lanes import Lanes, type_of
from thalweg.route.lists import EVERY_VALUE, number_type

SMALLEST_LIMIT = 1 << 16
"""So many places are always affordable."""
MOST_PLACES = 2**31 - 1
"""Places have numbers of 32 bits."""
_FEW_SPANS = 4
"""Of more, classes are gathered one by one."""
ROWS_A_CLASS_CELL = 2
"""Rows that there must be for a place of each class: what is folded in the end must be less than what is read."""


At: TypeAlias = npt.NDArray[np.int64] | slice
"""Places that are looked at."""
_Asked: TypeAlias = tuple[str, str | None, str]
"""(operation, argument, type)."""


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
    places: Places, columns: Columns, kinds: Sequence[tuple[str, Sequence[Partial]]]
) -> tuple[npt.NDArray[np.int64], list[Lanes]] | None:
    """(occupied places, the lanes of each kind there), or None where some partial cannot be made this way."""
    makers = _makers(places, columns, tuple(dict.fromkeys(p.filter for _, of in kinds for p in of)))
    if not all(makers[p.filter].make(p) for _, of in kinds for p in of):
        return None
    occupied = np.flatnonzero(np.logical_or.reduce([maker.occupied() for maker in {*makers.values()}]))
    at = slice(None) if len(occupied) == places.count else occupied
    return occupied, [_written(kind, of, makers, at, len(occupied)) for kind, of in kinds]


def _written(
    kind: str, partials: Sequence[Partial], makers: Mapping[str | None, _Alone | ClassLanes], at: At, count: int
) -> Lanes:
    counted = partials[0].op == "count"
    values = np.empty((len(partials), count), number_type(type_of(kind)))
    valid = EVERY_VALUE if counted else np.empty(values.shape, np.bool_)
    by_maker: dict[_Alone | ClassLanes, list[int]] = {}
    for i, p in enumerate(partials):
        by_maker.setdefault(makers[p.filter], []).append(i)
    for maker, of in by_maker.items():
        maker.write([partials[i] for i in of], np.array(of), at, values, valid)
    names = tuple(p.name for p in partials)
    return Lanes(kind, names, values.T, EVERY_VALUE if counted or valid.all() else valid.T)


def _makers(places: Places, columns: Columns, filters: Sequence[str | None]) -> dict[str | None, _Alone | ClassLanes]:
    """Filter by filter, or, where there are several and groups are few, by class."""
    alone = _Alone(places, columns)
    makers: dict[str | None, _Alone | ClassLanes] = dict.fromkeys(filters, alone)
    most = columns.table.num_rows // (places.count * ROWS_A_CLASS_CELL)
    if len(filters) < WORTH_CLASSES or most <= 1:
        return makers
    for classes in columns.told_apart(filters, most):
        makers.update(dict.fromkeys(classes.spans, ClassLanes(places, columns, classes)))
    return makers


class _Alone:
    """Aggregates partial after partial over the same places; what several need is counted once."""

    def __init__(self, places: Places, columns: HasValues) -> None:
        self.places = places
        self.rounds = [frozen_view(cells) for cells in places.rounds]
        self.columns = columns
        self.rows: dict[str | None, Array] = {}
        """filter -> rows admitted, by place."""
        self.counts: dict[tuple[str | None, str], Array] = {}
        self.made: dict[str, tuple[Array, Array]] = {}
        """By name of the partial."""

    def occupied(self) -> Array:
        """Whether any row was admitted, by place."""
        found: Array = np.logical_or.reduce([rows > 0 for rows in self.rows.values()])
        return found

    def make(self, partial: Partial) -> bool:
        found = self.run(partial)
        if found is not None:
            self.made[partial.name] = found
        return found is not None

    def write(
        self, partials: Sequence[Partial], into: npt.NDArray[np.int64], at: At, values: Array, valid: Array
    ) -> None:
        """Of partials that were made: their lanes at the places looked at, and where these are not NULL."""
        for i, p in zip(into.tolist(), partials, strict=True):
            out, seen = self.made[p.name]
            values[i] = out[at]
            if valid.size:
                valid[i] = seen[at] > 0

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        """(aggregate, how many values went into it), by place."""
        argument, name = partial.argument, partial.filter
        passing = EVERY_ROW if name is None else self.columns.filter(name)
        if name not in self.rows:
            self.rows[name] = self._count(passing)
        if argument is None:
            return self.rows[name], self.rows[name]
        found = self.columns.values(argument)
        if found is None:
            return None
        values, is_there = found
        seen, admitted = self.rows[name], passing
        if is_there.size:
            admitted = is_there if name is None else frozen_view(passing & is_there)
            if (name, argument) not in self.counts:
                self.counts[name, argument] = self._count(admitted)
            seen = self.counts[name, argument]
        if partial.op == "count":
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
        if partial.op == "sum":
            floating = partial.type == "DOUBLE"
            if not floating and _may_overflow(values, len(self.places.rounds)):
                return None
            out = np.zeros(self.places.count, dtype=np.float64 if floating else np.int64)
            run = add_values
        else:
            if values.dtype.kind == "f" and np.isnan(values).any():
                return None  # NaN is the greatest number in Spark and in DuckDB, and incomparable here
            out = np.full(self.places.count, neutral(values.dtype, partial.op), dtype=values.dtype)
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
        self.apart = _Alone(_apart(places, classes), columns)
        self.made: dict[_Asked, tuple[Array, Array] | None] = {}
        self.folded: dict[tuple[int, np.ufunc, Span], Array] = {}
        self.runs: dict[tuple[int, np.ufunc, bool], Array] = {}
        self.members: dict[str | None, Array] = {}

    def occupied(self) -> Array:
        found: Array = np.logical_or.reduce(self.apart.occupied().reshape(self.shape))
        return found

    def make(self, partial: Partial) -> bool:
        return self._of_classes(_asked(partial)) is not None

    def write(
        self, partials: Sequence[Partial], into: npt.NDArray[np.int64], at: At, values: Array, valid: Array
    ) -> None:
        """As of the others. Lanes that are read off one running sum are read together."""
        together: dict[tuple[_Asked, bool], list[tuple[int, int]]] = {}
        for i, p in zip(into.tolist(), partials, strict=True):
            line = self._line(self.classes.spans[p.filter])
            if line is not None:
                together.setdefault((_asked(p), line[0]), []).append((i, line[1]))
                continue
            found = self.run(p)
            assert found is not None  # it was made
            values[i] = found[0][at]
            if valid.size:
                valid[i] = found[1][at] > 0
        for (asked, from_first), lines in together.items():
            lanes, numbers = np.array(lines).T
            made = self._of_classes(asked)
            assert made is not None
            values[lanes] = self._running(_folding(asked[0]), made[0], from_first)[numbers][:, at]
            if valid.size:
                valid[lanes] = self._running(np.add, made[1], from_first)[numbers][:, at] > 0

    def _of_classes(self, asked: _Asked) -> tuple[Array, Array] | None:
        if asked not in self.made:
            self.made[asked] = self.apart.run(_of_every_row(*asked))
        return self.made[asked]

    def _line(self, spans: Sequence[Span]) -> tuple[bool, int] | None:
        """Of classes from the first on, or up to the last: whether it is the former, and in which line of these
        running sums their lane is."""
        if len(spans) != 1:
            return None
        (first, last), count = spans[0], self.classes.count
        if first >= last or (first > 0 and last < count):
            return None
        return (True, last - 1) if first == 0 else (False, count - 1 - first)

    def run(self, partial: Partial) -> tuple[Array, Array] | None:
        found = self._of_classes(_asked(partial))
        if found is None:
            return None
        values, seen = found
        folding = _folding(partial.op)
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
        run: Array = self._running(folding, of, from_first)[last - 1 if from_first else len(block) - 1 - first]
        return run

    def _running(self, folding: np.ufunc, of: Array, from_first: bool) -> Array:
        """Class by class, what there is of it and of those before it, from the first class on or from the last."""
        if (id(of), folding, from_first) not in self.runs:
            block = of.reshape(self.shape)
            self.runs[id(of), folding, from_first] = folding.accumulate(block if from_first else block[::-1], axis=0)
        return self.runs[id(of), folding, from_first]


def _folding(op: str) -> np.ufunc:
    return {"min": np.minimum, "max": np.maximum}.get(op, np.add)


def _asked(partial: Partial) -> _Asked:
    return partial.op, partial.argument, partial.type


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


def neutral(kind: np.dtype[Any], op: str) -> Any:
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
