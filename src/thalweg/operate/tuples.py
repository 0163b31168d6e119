"""Combinations of rows on their way through a probe tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.operate.probe import Begun
from thalweg.operate.query_sets import Sets
from thalweg.operate.store import SETS, Array


@dataclass
class Tuples:
    """Combinations of rows: a row number for each relation, and the queries that each can still serve."""

    refs: dict[str, npt.NDArray[np.int64]]
    sets: Sets
    begun: Begun | None = None
    """Of rows that have just set out: their keys and times."""

    def __len__(self) -> int:
        return len(self.sets)

    def pick(self, chosen: Array) -> Tuples:
        """Those at the given positions, or where the given mask is true."""
        return Tuples({name: refs[chosen] for name, refs in self.refs.items()}, self.sets[chosen])

    def serving(self, queries: int, of: int | None = None) -> Tuples:
        """What is left of them for these queries; `of`: all that any of them can serve, each at least one."""
        if of is not None and not of & ~queries:
            return self
        sets = self.sets & np.uint64(queries)
        found = sets != 0
        if found.all():
            return Tuples(self.refs, sets)
        return Tuples({name: refs[found] for name, refs in self.refs.items()}, sets[found])

    def to_table(self) -> pa.Table:
        """For the way to another slot: numbers as narrow as they fit."""
        return pa.table({name: narrowed(of) for name, of in (*self.refs.items(), (SETS, self.sets))})

    @classmethod
    def from_table(cls, table: pa.Table) -> Tuples:
        names = [name for name in table.column_names if name != SETS]
        refs = {name: table.column(name).to_numpy().astype(np.int64, copy=False) for name in names}
        return cls(refs, table.column(SETS).to_numpy().astype(np.uint64, copy=False))

    @classmethod
    def concat(cls, parts: Sequence[Tuples]) -> Tuples:
        if len(parts) == 1:
            return parts[0]
        names = parts[0].refs
        return cls(
            {name: np.concatenate([p.refs[name] for p in parts]) for name in names},
            np.concatenate([p.sets for p in parts]),
        )


def narrowed(numbers: Array) -> Array:
    """Numbers from 0 on in the narrowest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max())), copy=False) if len(numbers) else numbers
