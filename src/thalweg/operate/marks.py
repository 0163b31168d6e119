"""Which queries of a cohort each row of a bucket can serve.

A row's query set is the AND, over the columns that predicates read, of what the row's piece of the column allows
(`predicates`). Which piece that is follows from the value, which is kept anyway: it is looked for once for all
cohorts, and only for rows that somebody looks at. What cannot be told from what is kept of a row is kept as bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, kernel
from thalweg.model.probe import Cohort, Predicate, Role, Store
from thalweg.operate.per_object import once_per_object
from thalweg.operate.predicates import PredicateIndex
from thalweg.operate.query_sets import Sets, query_sets

Array = npt.NDArray[Any]

WORTH = 4
"""Rows of which a set is made for one that is asked for: one after the other they cost so much less."""
FEW = 4096
"""All of so many rows are marked as soon as one is asked for."""
_BLOCK = 1024
_SHORT = 1 << 16


@kernel
def _meet_sets(lines: Any, table: Any, out: Any) -> None:
    for start in range(0, out.size, _BLOCK):
        block, read = out[start : start + _BLOCK], lines[start : start + _BLOCK]
        for i in range(block.size):
            block[i] &= table[read[i]]


# -- of a plan


@lru_cache(maxsize=64)
def predicate_index(predicates: tuple[Predicate, ...]) -> PredicateIndex:
    return PredicateIndex(predicates)


@once_per_object(64)
def predicates_of(store: Store) -> PredicateIndex:
    return predicate_index(store.predicates)


@dataclass(frozen=True)
class RolePredicates:
    """What a role asks of rows, as its store's predicates have it."""

    table: Sets
    """Line by line, the queries that it does not contradict."""
    columns: frozenset[str]
    """What predicates read."""


@once_per_object(1024)
def asked_of(role: Role, store: Store) -> RolePredicates:
    wants = [(want.predicate, want.queries) for want in role.wants if want.predicate is not None]
    table = predicates_of(store).table(wants)
    return RolePredicates(table, frozenset(column for predicate, _ in wants for column in predicate.reads))


@once_per_object(1024)
def queries_by_streams(cohort: Cohort) -> dict[tuple[str, ...], int]:
    """Whose watermarks are their own -> the queries."""
    found: dict[tuple[str, ...], int] = {}
    for bit, streams in enumerate(cohort.streams):
        found[streams] = found.get(streams, 0) | 1 << bit
    return found


# -- of a bucket


class Filled:
    """Values of a bucket's rows, made as far as somebody looks."""

    def __init__(self, rows: int, kind: Any, make: Callable[[int, int], Array]) -> None:
        self._values = np.empty(rows, dtype=kind)
        self._make = make
        self._first = self._last = 0

    def has(self, first: int, last: int) -> bool:
        return self._first <= first and last <= self._last

    def over(self, first: int, last: int) -> Array:
        """All rows' values, of which these are right. Rows that nobody has asked for may not even be there: they are
        not made on the way from one range to another, which is forgotten instead."""
        if last < self._first or first > self._last:
            self._first = self._last = first
        self._fill(first, min(self._first, last))
        self._fill(max(self._last, first), last)
        self._first, self._last = min(self._first, first), max(self._last, last)
        return self._values

    def _fill(self, first: int, last: int) -> None:
        if first < last:
            self._values[first:last] = self._make(first, last)


@dataclass
class Pieces:
    """In which piece of each column a bucket's rows are."""

    index: PredicateIndex
    rows: int
    read: Callable[[str], pa.ChunkedArray]
    """A column of which the rows are there that are looked at."""

    def __post_init__(self) -> None:
        self._filled: dict[str, Filled] = {}

    def over(self, column: str, first: int, last: int) -> Array:
        if column not in self._filled:
            self._filled[column] = Filled(self.rows, self._kind, self._maker(column))
        return self._filled[column].over(first, last)

    def of(self, column: str, rows: Array) -> Array:
        return self.index.find_lines(column, self.read(column).take(pa.array(rows)))

    @property
    def _kind(self) -> Any:
        return np.uint16 if self.index.lines <= _SHORT else np.uint32

    def _maker(self, column: str) -> Callable[[int, int], Array]:
        values = self.read(column)
        return lambda first, last: self.index.find_lines(column, values.slice(first, last - first))


@dataclass(frozen=True)
class Bits:
    """What a bucket's rows keep of predicates; or of queries, where they are those of an intermediate."""

    bits: npt.NDArray[np.uint8]
    """[rows, bytes]"""
    lut: Sets
    always: int
    """Queries of which they say nothing."""

    def of(self, rows: slice | Array) -> Sets:
        return query_sets(np.ascontiguousarray(self.bits[rows]), self.lut, self.always)


@dataclass
class Marks:
    """The query sets of a bucket's rows, of one role of a cohort."""

    allowed: int
    """The queries for which the bucket holds what they want."""
    rows: int
    pieces: Pieces
    columns: Sequence[str] = ()
    """Whose pieces tell something."""
    table: Sets | None = None
    bits: Bits | None = None
    late: Sequence[tuple[int, int]] = ()
    """(queries, event time up to which rows came too late for them)."""
    times: Callable[[], Array] = lambda: np.empty(0, dtype=np.int64)
    need: Callable[[int, int], None] = lambda first, last: None
    """Sees to it that rows are there, from one up to, not including, the other."""

    def __post_init__(self) -> None:
        self._sets = Filled(self.rows, np.uint64, self._make_range)
        self._looked = 0

    def over(self, first: int, last: int) -> Sets:
        """Of all rows, of which these are right."""
        return self._sets.over(first, last)

    def of(self, rows: Array) -> Sets:
        """Of rows that are there."""
        if not len(rows):
            return np.empty(0, dtype=np.uint64)
        first, last = int(rows.min()), int(rows.max()) + 1
        self._looked += len(rows)
        if self._sets.has(first, last) or last - first <= max(FEW, WORTH * self._looked):
            return self.over(first, last)[rows]
        return self._make(rows)

    def _make_range(self, first: int, last: int) -> Sets:
        self.need(first, last)
        return self._make(slice(first, last))

    def _make(self, rows: slice | Array) -> Sets:
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        sets: Sets = np.full(count, self.allowed, dtype=np.uint64)
        for column in self.columns:
            if isinstance(rows, slice):
                lines = self.pieces.over(column, rows.start, rows.stop)[rows]
            else:
                lines = self.pieces.of(column, rows)
            assert self.table is not None
            _meet_sets(frozen_view(lines), self.table, sets)
        if self.bits is not None:
            sets &= self.bits.of(rows)
        for queries, threshold in self.late:
            sets[self.times()[rows] <= threshold] &= np.uint64(~queries & (1 << 64) - 1)
        return sets
