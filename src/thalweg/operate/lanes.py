"""Lanes: all partials of a grouping that are merged alike stand side by side in one Arrow column.

A row of a lane column is a list of fixed size with one number for each partial, its *lane*. Whatever moves rows -
routing, packing, writing, reading, taking - then pays for a few columns, not for thousands. The field says the names
of its lanes, so a bucket knows its own: a query that comes later has a lane in newer buckets, and what older ones
lack merges as nothing. Counts have as few bytes as the greatest of their column needs.

Buckets of earlier releases, and what DuckDB has made, have a column for each partial: `packed` turns them into lanes,
`unpacked` lanes into columns for DuckDB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa

from thalweg.model.columns import EXTRA_LANES, LANES
from thalweg.model.plan import Partial
from thalweg.model.types import as_type
from thalweg.operate import duck
from thalweg.operate.columns import Array, as_values
from thalweg.route.lists import (
    EVERY_VALUE,
    Valid,
    flat_array,
    in_rows,
    make_lists,
    number_type,
    read_lists,
)

_NAMES = b"lanes"
MOST_KNOWN = 1 << 8
"""Lists of names that are remembered: batch after batch brings the same."""


@dataclass(frozen=True)
class Lanes:
    """Some rows of partials that are merged alike."""

    kind: str
    """What they have in common: how they are merged, and DuckDB's type."""
    names: tuple[str, ...]
    values: Array
    """Rows by lanes."""
    valid: Valid
    """Which of them are not NULL; empty where all are not."""

    @property
    def type(self) -> pa.DataType:
        return type_of(self.kind)

    def column(self, prefix: str) -> tuple[pa.Field, pa.Array]:
        values = _narrowed(self.values) if self.kind.startswith("count ") else self.values
        found = make_lists(
            values, self.valid, self.type if values is self.values else pa.from_numpy_dtype(values.dtype)
        )
        return pa.field(prefix + self.kind, found.type, metadata={_NAMES: _encoded(self.names)}), found

    def apart(self) -> dict[str, pa.Array]:
        """Each lane as a column of its own; all of them share their buffers."""
        rows = len(self.values)
        flat = flat_array(in_rows(self.values.T), in_rows(self.valid.T), self.type)
        return {name: flat.slice(i * rows, rows) for i, name in enumerate(self.names)}


def _narrowed(counts: Array) -> Array:
    """With as few bytes as the greatest needs. Most groups of a batch are small, and counts are half of a state."""
    if counts.size and counts.dtype == np.int64:
        most = counts.view(np.uint64).max()  # one below zero is beyond all others
        for kind in (np.uint8, np.uint16, np.uint32):
            if most <= np.iinfo(kind).max:
                return counts.astype(kind)
    return counts


def lane_kind(partial: Partial) -> str | None:
    """None where the partial is a column of its own: no plain count, sum, least or greatest of numbers."""
    return _kind(partial.op, partial.type) if partial.op else None


def by_kind(partials: Iterable[Partial]) -> dict[str, list[Partial]]:
    """What goes into lanes, by what it has in common."""
    found: dict[str, list[Partial]] = {}
    for partial in partials:
        kind = lane_kind(partial)
        if kind is not None:
            found.setdefault(kind, []).append(partial)
    return found


# -- lanes and columns


def packed(table: pa.Table, partials: Sequence[Partial], extra: Sequence[Partial] = ()) -> pa.Table:
    """The table with lanes in the place of those columns that can be."""
    known = set(table.column_names)
    columns, gone = [], set[str]()
    for prefix, of in ((LANES, partials), (EXTRA_LANES, extra)):
        for kind, found in by_kind(p for p in of if p.name in known).items():
            columns.append(_pack(kind, [(p.name, table.column(p.name)) for p in found]).column(prefix))
            gone |= {p.name for p in found}
    return with_lanes(table.drop_columns(sorted(gone)), columns) if gone else table


def with_lanes(table: pa.Table, columns: Iterable[tuple[pa.Field, pa.Array]]) -> pa.Table:
    for field, column in columns:
        table = table.append_column(field, column)
    return table


def without_extra(table: pa.Table, extra: Sequence[Partial]) -> pa.Table:
    """The table without what only goes into a coarser grouping."""
    names = {p.name for p in extra}
    gone = [name for name in table.column_names if name in names or name.startswith(EXTRA_LANES)]
    return table.drop_columns(gone) if gone else table


def unpacked(table: pa.Table, wanted: Collection[str] | None = None) -> pa.Table:
    """The table with a column for each lane, or for those that are wanted."""
    lanes = [field for field in table.schema if _kind_of(field) is not None]
    if not lanes:
        return table
    made: dict[str, pa.Array] = {}
    for field in lanes:
        parts = [*read_lanes(table, field.name)]
        chosen = [(i, n) for i, n in enumerate(lane_names(field)) if wanted is None or n in wanted]
        if chosen:
            made.update(_chosen(field, parts, chosen).apart())
    rest = table.drop_columns([field.name for field in lanes])
    return pa.Table.from_arrays([*rest.columns, *made.values()], names=[*rest.column_names, *made])


def concat(tables: Sequence[pa.Table], partials: Sequence[Partial]) -> pa.Table:
    """All rows; what some tables lack is NULL there. Tables with other lanes go through columns."""
    laid = {
        tuple((f.name, f.type, lane_names(f)) for f in table.schema if _kind_of(f) is not None) for table in tables
    }
    if len(laid) == 1:
        return pa.concat_tables(tables, promote_options="default")
    return packed(pa.concat_tables([unpacked(t) for t in tables], promote_options="default"), partials)


# -- as NumPy arrays


def read_lanes(table: pa.Table, name: str) -> Iterator[Lanes]:
    """A lane column, chunk by chunk."""
    kind, names = name[len(LANES) :], lane_names(table.schema.field(name))
    for chunk in table.column(name).chunks:
        values, valid = read_lists(chunk)
        yield Lanes(kind, names, values, valid)


def lane_columns(table: pa.Table, kind: str) -> list[pa.Field]:
    """Those that have lanes of this kind."""
    return [field for field in table.schema if _kind_of(field) == kind]


def partial_names(table: pa.Table) -> set[str]:
    """Of all columns and lanes; those of other columns are among them."""
    found = set(table.column_names)
    return found.union(*(lane_names(field) for field in table.schema if _kind_of(field) is not None))


def lane_names(field: pa.Field) -> tuple[str, ...]:
    return _decoded(field.metadata[_NAMES])


def lane_places(field: pa.Field) -> Mapping[str, int]:
    """The place of each lane, by name."""
    return _places(field.metadata[_NAMES])


def _kind_of(field: pa.Field) -> str | None:
    return field.name[len(LANES) :] if field.name.startswith((LANES, EXTRA_LANES)) else None


@lru_cache(maxsize=MOST_KNOWN)
def _encoded(names: tuple[str, ...]) -> bytes:
    return msgspec.json.encode(names)


@lru_cache(maxsize=MOST_KNOWN)
def _decoded(names: bytes) -> tuple[str, ...]:
    return msgspec.json.decode(names, type=tuple[str, ...])


@lru_cache(maxsize=MOST_KNOWN)
def _places(names: bytes) -> Mapping[str, int]:
    return {name: i for i, name in enumerate(_decoded(names))}


@lru_cache(maxsize=MOST_KNOWN)
def _kind(op: str, type_: str) -> str | None:
    kind = f"{op} {type_}"
    return kind if _is_plain(type_of(kind)) else None


@lru_cache(maxsize=MOST_KNOWN)
def type_of(kind: str) -> pa.DataType:
    return duck.arrow_type(kind.partition(" ")[2])


@lru_cache(maxsize=MOST_KNOWN)
def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_signed_integer, types.is_float32, types.is_float64, types.is_date32, types.is_timestamp)
    return any(test(kind) for test in tests)


def _pack(kind: str, columns: Sequence[tuple[str, pa.ChunkedArray]]) -> Lanes:
    arrow = type_of(kind)
    rows, names = len(columns[0][1]), tuple(name for name, _ in columns)
    values = np.empty((len(columns), rows), number_type(arrow))
    valid = np.ones((len(columns), rows), np.bool_)
    for i, (_, column) in enumerate(columns):
        found = as_values(as_type(column, arrow))
        assert found is not None  # of a type that lanes have
        values[i] = found[0]
        if found[1].size:
            valid[i] = found[1]
    return Lanes(kind, names, values.T, EVERY_VALUE if valid.all() else valid.T)


def _chosen(field: pa.Field, parts: Sequence[Lanes], chosen: Sequence[tuple[int, str]]) -> Lanes:
    """Some lanes of all parts together."""
    at, names, kind = [i for i, _ in chosen], tuple(name for _, name in chosen), field.name[len(LANES) :]
    none = np.empty((0, len(at)), number_type(type_of(kind)))
    values = np.concatenate([none, *(part.values[:, at] for part in parts)])
    if not any(part.valid.size for part in parts):
        return Lanes(kind, names, values, EVERY_VALUE)
    valid = [part.valid[:, at] if part.valid.size else np.ones((len(part.values), len(at)), bool) for part in parts]
    return Lanes(kind, names, values, np.concatenate(valid))
