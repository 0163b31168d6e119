"""The columns of some rows, with those that are computed of them: each worked out once for all that ask, and only if
somebody does. Most predicates are never looked at one by one (`operate/classes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.kernel import frozen_view
from thalweg.model.failure import Failures
from thalweg.model.plan import Computed
from thalweg.operate.classes import MOST_FILTERS, Classes, Cuts, by_filters
from thalweg.operate.comparison import Comparisons, Ranges, ranges_of
from thalweg.operate.compute import add_computed

Array = npt.NDArray[Any]
EVERY_ROW: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
"""Instead of a mask that admits all."""
WORTH_CLASSES = 3
"""Filters from which on rows are told apart by all of them at once."""


@dataclass(frozen=True)
class Key:
    """A grouping column as whole numbers from `low` on, `width` of them."""

    values: Array
    low: int
    width: int
    type: pa.DataType


@dataclass
class Columns:
    table: pa.Table
    stream: str = ""
    computed: Mapping[str, Computed] = field(default_factory=dict)
    """By name: what can be worked out of the table, or is in it."""
    failures: Failures = field(default_factory=dict)
    _made: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    _keys: dict[str, Key | None] = field(default_factory=dict)
    _values: dict[str, tuple[Array, Array] | None] = field(default_factory=dict)
    _filters: dict[str, Array] = field(default_factory=dict)
    _classes: dict[tuple[str | None, ...], Classes | None] = field(default_factory=dict)
    _cuts: dict[str, Cuts] = field(default_factory=dict)

    @cached_property
    def _there(self) -> frozenset[str]:
        return frozenset(self.table.column_names)

    # -- as they are

    def column(self, name: str) -> pa.ChunkedArray:
        if name in self._there:
            return self.table.column(name)
        if name not in self._made:
            self.compute([name])
        return self._made[name]

    def compute(self, names: Iterable[str]) -> None:
        """Works out these columns, with all that they read, together."""
        waiting, needed = {n for n in names if n in self.computed}, set[str]()
        while waiting:
            needed |= waiting
            waiting = {c for name in waiting for c in self.computed[name].expr.columns if c in self.computed} - needed
        todo = [c for name, c in self.computed.items() if name in needed - self._there and name not in self._made]
        if todo:
            read = {column for c in todo for column in c.expr.columns if column in self._made}
            rows = self._with(sorted(read))
            made = add_computed(rows, self.stream, todo, self.failures)
            self._made.update({c.name: made.column(c.name) for c in todo})

    def compute_expressions(self) -> None:
        """Works out all but comparisons and what connects them: these are cheaper as flags (`filter`), or told apart
        together."""
        self.compute(name for name in self.computed if not self._is_compared(name))

    def with_computed(self, names: Iterable[str]) -> pa.Table:
        """The table, with at least these of what is computed."""
        names = list(dict.fromkeys(names))
        self.compute(names)
        return self._with([name for name in names if name in self._made])

    def _with(self, made: Sequence[str]) -> pa.Table:
        columns = [*self.table.columns, *(self._made[name] for name in made)]
        return pa.Table.from_arrays(columns, names=[*self.table.column_names, *made]) if made else self.table

    # -- as NumPy arrays

    def key(self, name: str) -> Key | None:
        """None where the column cannot be a place in an array: another type, a NULL."""
        if name not in self._keys:
            self._keys[name] = as_key(self.column(name))
        return self._keys[name]

    def values(self, name: str) -> tuple[Array, Array] | None:
        """(values, which are not NULL), the latter empty where all are not; None for another type."""
        if name not in self._values:
            self._values[name] = as_values(self.column(name))
        return self._values[name]

    def filter(self, name: str) -> Array:
        """Which rows a boolean column admits; NULL does not."""
        if name not in self._filters:
            self._filters[name] = frozen_view(self._compared(name) if self._is_compared(name) else self._flags(name))
        return self._filters[name]

    def _flags(self, name: str) -> Array:
        column = self.column(name)
        flags: Array = (pc.fill_null(column, False) if column.null_count else column).to_numpy()
        return flags

    def _is_compared(self, name: str) -> bool:
        """Whether it is worked out without a statement, and was not yet."""
        if name in self._there or name in self._made or name not in self.computed:
            return False
        computed = self.computed[name]
        return computed.kind == "sql" and self._comparisons.understands(computed.expr.sql)

    def _compared(self, name: str) -> Array:
        truth = self._comparisons.truth(self.computed[name].expr.sql)
        assert truth is not None
        return truth.is_true

    @cached_property
    def _comparisons(self) -> Comparisons:
        return Comparisons(self.table)

    # -- told apart by filters

    def told_apart(self, filters: Iterable[str | None], most: int) -> Iterator[Classes]:
        """By what is compared with one column, for each column, and by all other filters together; those that are too
        few, or make more than `most` classes, are left out."""
        by_column, others = self.compared(filters)
        for column, ranges in by_column.items():
            if len(ranges) < WORTH_CLASSES:
                others.extend(ranges)
            elif len(ranges) + 1 <= most:
                yield self.cuts(column).classes(ranges, most)
        if WORTH_CLASSES <= len(others) <= MOST_FILTERS:
            found = self.classes(tuple(others))
            if found is not None and found.count <= most:
                yield found

    def classes(self, filters: tuple[str | None, ...]) -> Classes | None:
        """By which of these, at most `MOST_FILTERS`, admit a row; None where there are too many classes."""
        if filters not in self._classes:
            self._classes[filters] = by_filters(filters, self.table.num_rows, self.filter)
        return self._classes[filters]

    def compared(self, filters: Iterable[str | None]) -> tuple[dict[str, dict[str, Ranges]], list[str | None]]:
        """By column, the filters that compare it with constants, and what they admit; and all other filters."""
        by_column: dict[str, dict[str, Ranges]] = {}
        others: list[str | None] = []
        for name in filters:
            ranges = None if name is None else self.ranges(name)
            if name is None or ranges is None:
                others.append(name)
            else:
                by_column.setdefault(ranges.column, {})[name] = ranges
        return by_column, others

    def ranges(self, name: str) -> Ranges | None:
        """What a computed column admits, where it compares a column that came with the rows."""
        computed = self.computed.get(name)
        found = None if computed is None else ranges_of(computed.expr.sql)
        if found is None or found.column not in self._there:
            return None
        return found if self.table.schema.field(found.column).type in found.kinds else None

    def cuts(self, column: str) -> Cuts:
        """By all that queries compare the column with."""
        if column not in self._cuts:
            ranges = self._all_compared.get(column, {})
            self._cuts[column] = Cuts.of(self.table.column(column), [*ranges.values()])
        return self._cuts[column]

    @cached_property
    def _all_compared(self) -> dict[str, dict[str, Ranges]]:
        return self.compared(self.computed)[0]


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
        return frozen_view(numbers.to_numpy()), EVERY_ROW
    values, valid = _unpacked(numbers.chunk(0) if numbers.num_chunks == 1 else numbers.combine_chunks())
    return frozen_view(values), frozen_view(valid)


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
