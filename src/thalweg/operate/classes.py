"""Rows told apart by many filters at once: each row is added up once, in its class, and the lane of a filter is that
of its classes together.

Comparisons of one column with constants cut its values into pieces, which are classes in order. What `v > c` admits
is all classes from one on, so a sum over classes from the last to the first has the lanes of all such filters.
Filters of any other form tell rows apart by which of them admit a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.kernel import frozen_view
from thalweg.operate.comparison import Ranges
from thalweg.operate.dense_kernels import mark, number_sets

Numbers = npt.NDArray[np.int32]
Span = tuple[int, int]
"""Classes, from the first up to, not including, the last."""
MOST_FILTERS = 64
"""A bit for each in one word."""
MOST_CLASSES = 1024
"""Predicates of many columns soon have too many."""
SOME_ROWS = 1 << 15
"""Rows that show whether there are too many."""
MOST_BETWEEN = 1 << 16
"""Whole numbers between the least and the greatest value, up to which each has a place in a table of classes."""


@dataclass(frozen=True)
class Classes:
    """Some rows, told apart."""

    numbers: Numbers
    """The class of each row, or -1: no filter admits it."""
    count: int
    spans: Mapping[str | None, tuple[Span, ...]]
    """Filter -> the classes that it admits; None: every row."""

    def of(self, rows: npt.NDArray[np.int64]) -> Classes:
        return Classes(frozen_view(self.numbers[rows]), self.count, self.spans)


def everyone(rows: int) -> Classes:
    return Classes(frozen_view(np.zeros(rows, np.int32)), 1, {None: ((0, 1),)})


Passing = Callable[[str], npt.NDArray[np.bool_]]
"""Which rows a boolean column admits."""


def by_filters(filters: Sequence[str | None], rows: int, passing: Passing) -> Classes | None:
    """By which of these, at most `MOST_FILTERS`, admit a row; None where there are too many classes."""
    if rows > SOME_ROWS and _numbered(filters, SOME_ROWS, passing) is None:
        return None
    found = _numbered(filters, rows, passing)
    if found is None:
        return None
    numbers, known = found
    admitting = {name: known >> np.uint64(bit) & np.uint64(1) for bit, name in enumerate(filters)}
    spans = {name: tuple((c, c + 1) for c in np.flatnonzero(bits).tolist()) for name, bits in admitting.items()}
    return Classes(frozen_view(numbers), len(known), spans)


def _numbered(
    filters: Sequence[str | None], rows: int, passing: Passing
) -> tuple[Numbers, npt.NDArray[np.uint64]] | None:
    """(class of each of the first rows, the filters of each class as bits); None where there are too many classes."""
    sets: npt.NDArray[np.uint64] = np.zeros(rows, dtype=np.uint64)
    for bit, name in enumerate(filters):
        if name is None:
            sets |= np.uint64(1 << bit)
        else:
            mark(sets, passing(name)[:rows], np.uint64(bit))
    known, table = np.empty(MOST_CLASSES, np.uint64), np.full(4 * MOST_CLASSES, -1, np.int32)
    numbers = np.empty(rows, np.int32)
    count = number_sets(frozen_view(sets), known, table, numbers)
    return None if count < 0 else (numbers, known[:count])


@dataclass
class Cuts:
    """A column of numbers cut by all that is compared with it."""

    values: pa.ChunkedArray
    at: npt.NDArray[Any]
    """In order, each once. A value is in the class of so many cuts as are not above it."""
    _numbers: Numbers | None = field(default=None)

    @classmethod
    def of(cls, values: pa.ChunkedArray, ranges: Sequence[Ranges]) -> Cuts:
        kind = np.float64 if pa.types.is_floating(values.type) else np.int64
        return cls(values, np.array(sorted(_ends(ranges)), dtype=kind))

    @property
    def numbers(self) -> Numbers:
        """The class of each row; NULL has none."""
        if self._numbers is None:
            column = self.values
            known = pc.fill_null(column, 0) if column.null_count else column
            found = _classes_of(known.to_numpy(), self.at)
            if column.null_count:
                found[pc.is_null(column).to_numpy()] = -1
            self._numbers = frozen_view(found)
        return self._numbers

    def classes(self, filters: Mapping[str, Ranges], most: int = 0) -> Classes:
        """By these filters: what only others tell apart is one class, unless there are at most so many of all."""
        ends = np.array(sorted(_ends(filters.values())), dtype=self.at.dtype)
        numbers = self.numbers
        if len(self.at) + 1 <= most:
            ends = self.at
        else:
            fewer = np.searchsorted(np.searchsorted(self.at, ends), np.arange(len(self.at) + 2)).astype(np.int32)
            fewer[-1] = -1  # of NULL
            numbers = frozen_view(fewer[numbers])
        place = {end: i + 1 for i, end in enumerate(ends.tolist())}
        count = len(ends) + 1

        def span(low: float | None, high: float | None) -> Span:
            return 0 if low is None else place[low], count if high is None else place[high]

        spans: dict[str | None, tuple[Span, ...]] = {
            name: tuple(span(*within) for within in r.within) for name, r in filters.items()
        }
        return Classes(numbers, count, spans)


def _ends(ranges: Iterable[Ranges]) -> set[float]:
    return {end for r in ranges for within in r.within for end in within if end is not None}


def _classes_of(values: npt.NDArray[np.generic], cuts: npt.NDArray[np.generic]) -> Numbers:
    if values.dtype.kind == "i" and values.size > MOST_BETWEEN // 4:
        low, high = int(values.min()), int(values.max())
        if high - low < MOST_BETWEEN:
            table = np.searchsorted(cuts, np.arange(low, high + 1), side="right").astype(np.int32)
            return table[values.astype(np.int64) - low]
    return np.searchsorted(cuts, values, side="right").astype(np.int32)
