"""Buckets as values: where they lie, and what they hold. Reading and writing them is the state's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from thalweg.model.probe import Store, Want
from thalweg.model.times import joint_time


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A table inside a container."""

    file: str
    """The name of the container in the storage."""
    name: str
    offset: int
    length: int
    rows: int
    crc: int

    @property
    def place(self) -> str:
        """A name that no other section of a state has."""
        return f"{self.file}#{self.offset}"


class PartTable(Protocol):
    """A table of the state of which parts are read."""

    @property
    def table(self) -> pa.Table:
        """All rows; those that `need` was not asked for may be anything."""
        ...

    @property
    def is_at_hand(self) -> bool:
        """Whether nothing has to be fetched for it."""
        ...

    def need(self, columns: Iterable[str], rows: Sequence[tuple[int, int]]) -> None:
        """Reads and checks these rows, each from the first up to, not including, the last."""
        ...


class SectionReader(Protocol):
    """Reads tables of the state."""

    def open(self, section: Section) -> PartTable: ...

    def read(self, section: Section) -> pa.Table:
        """The table, checked; a part of it is not loaded before it is looked at."""
        ...


class Layout(Struct, frozen=True, forbid_unknown_fields=True):
    """How the rows of a bucket were chosen and marked."""

    predicates: tuple[str, ...]
    """By which they were chosen."""
    keeps_all: bool
    low_us: int
    high_us: int
    """The least and the greatest event time."""
    closed_us: Mapping[str, int]
    """How far each stream, or several together, had closed when the rows came: what is at or before that is late for
    its joins."""
    queries: tuple[str, ...] = ()
    """Intermediates: whose bits the query sets of the rows have, in order."""
    bits: tuple[str, ...] | None = None
    """Predicates of which each row has a bit, in order. None, in buckets of earlier releases: of all."""

    @classmethod
    def of(cls, store: Store, closed_us: Mapping[str, int]) -> Layout:
        """Of rows that the store chooses now; their times are not known yet."""
        predicates, bits = (tuple(p.id for p in of) for of in (store.predicates, store.marked))
        return cls(predicates, store.keeps_all, 0, 0, closed_us, bits=bits)

    @property
    def marked(self) -> tuple[str, ...]:
        """The predicates of which each row has a bit, in order."""
        return self.predicates if self.bits is None else self.bits

    def threshold(self, streams: Sequence[str]) -> int:
        return joint_time(self.closed_us, streams)


def usable(layout: Layout, columns: frozenset[str], want: Want) -> bool:
    """Whether a bucket of such rows with such columns holds all that these queries want of them."""
    if not columns.issuperset(want.columns):
        return False
    predicate = want.predicate
    if predicate is None:
        return layout.keeps_all
    if predicate.id in layout.predicates:
        return True
    return layout.keeps_all and columns.issuperset(predicate.reads)


class _Bucket(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A live bucket: enough to decide who must read it."""

    section: Section
    relation: str
    """Whose state it is: the id of a grouping, or the stream of a store."""
    level: int
    """How often its rows were merged by compaction."""
    batch_from: int
    batch_to: int
    """The batches, inclusive, whose rows it holds."""
    place: int
    """Which of a batch's tasks or slots wrote it."""

    @property
    def name(self) -> str:
        return self.section.place

    @property
    def nbytes(self) -> int:
        return self.section.length


class SliceBucket(_Bucket, frozen=True, tag="slices", kw_only=True):
    """Partials of slices, ordered by key group."""

    spans: tuple[tuple[int, int], ...]
    """(slice start, span) pairs present, in microseconds: it can go when the last has expired."""
    offsets: bytes
    """Where each key group begins (`route/bucket.encode_offsets`)."""


class StoredIndex(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an index of rows lies."""

    section: Section
    bits: int
    """Of its directory."""


class RowBucket(_Bucket, frozen=True, tag="rows", kw_only=True):
    """Rows of one stream that joins may need, and where their indexes lie."""

    indexes: Mapping[str, StoredIndex]
    layout: Layout
    columns: tuple[str, ...]
    distinct: Mapping[str, int] = {}
    """Index -> about how many keys there are."""

    @property
    def nbytes(self) -> int:
        return self.section.length + sum(index.section.length for index in self.indexes.values())


Bucket = SliceBucket | RowBucket
"""What manifests hold: told apart by a tag."""


@dataclass(frozen=True)
class NewSlices:
    """A bucket of slices to be written."""

    relation: str
    level: int
    span: int
    """Of each slice; negative for nodes."""
    starts: tuple[int, ...]
    batch_from: int
    table: pa.Table
    """With the key group of each row."""


@dataclass(frozen=True)
class NewRows:
    """A bucket of rows to be written."""

    relation: str
    level: int
    batches: tuple[int, int]
    place: int
    layout: Layout
    table: pa.Table
    indexes: Mapping[str, tuple[pa.Table, int]]
    """Index -> how it is kept, and the bits of its directory."""
    distinct: Mapping[str, int]


NewBucket = NewSlices | NewRows
