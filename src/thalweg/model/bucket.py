"""Buckets as values: where they lie, and what they hold. Reading and writing them is the state's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from thalweg.model.probe import Store, Want
from thalweg.model.windows import BEGINNING


@dataclass(frozen=True)
class Section:
    """A table inside a container."""

    file: str
    """Relative to the directory that `read_section` is given."""
    name: str
    offset: int
    length: int
    rows: int
    crc: int
    meta: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "name": self.name,
            "offset": self.offset,
            "length": self.length,
            "rows": self.rows,
            "crc": self.crc,
            "meta": dict(self.meta),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Section:
        return cls(
            file=value["file"],
            name=value["name"],
            offset=value["offset"],
            length=value["length"],
            rows=value["rows"],
            crc=value["crc"],
            meta=value["meta"],
        )

    @property
    def place(self) -> str:
        """A name that no other section of a state has."""
        return f"{self.file}#{self.offset}"


class SectionReader(Protocol):
    """Reads tables of the state."""

    def read(self, section: Section) -> pa.Table:
        """The table, checked; a part of it is not loaded before it is looked at."""
        ...


@dataclass(frozen=True)
class Bucket:
    """A live bucket of slices: enough to decide who must read it."""

    section: Section
    grouping: str
    slot: int
    level: int
    """How often its rows were merged by compaction."""
    batch_from: int
    batch_to: int
    """The batches, inclusive, whose rows it holds."""
    spans: tuple[tuple[int, int], ...]
    """(slice start, span) pairs present, in microseconds: it can go when the last has expired."""
    rows: int

    @property
    def name(self) -> str:
        return self.section.place

    def to_json(self) -> dict[str, Any]:
        return {
            "section": self.section.to_json(),
            "grouping": self.grouping,
            "slot": self.slot,
            "level": self.level,
            "batches": [self.batch_from, self.batch_to],
            "spans": [list(span) for span in self.spans],
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Bucket:
        return cls(
            section=Section.from_json(value["section"]),
            grouping=value["grouping"],
            slot=value["slot"],
            level=value["level"],
            batch_from=value["batches"][0],
            batch_to=value["batches"][1],
            spans=tuple((start, span) for start, span in value["spans"]),
            rows=value["rows"],
        )


@dataclass(frozen=True)
class Layout:
    """How the rows of a bucket were chosen and marked."""

    predicates: tuple[str, ...]
    """In the order of their bits."""
    keeps_all: bool
    low_us: int
    high_us: int
    """The least and the greatest event time."""
    closed_us: Mapping[str, int]
    """How far each stream had closed when the rows came: what is at or before that is late for its joins."""
    queries: tuple[str, ...] = ()
    """Intermediates: whose bits the query sets of the rows have, in order."""

    @classmethod
    def of(cls, store: Store, closed_us: Mapping[str, int]) -> Layout:
        """Of rows that the store chooses now; their times are not known yet."""
        return cls(tuple(p.id for p in store.predicates), store.keeps_all, 0, 0, closed_us)

    def threshold(self, streams: Sequence[str]) -> int:
        return min(self.closed_us.get(s, BEGINNING) for s in streams)

    def to_json(self) -> dict[str, Any]:
        return {
            "predicates": list(self.predicates),
            "keeps_all": self.keeps_all,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "closed_us": dict(self.closed_us),
            "queries": list(self.queries),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Layout:
        return cls(
            tuple(value["predicates"]),
            value["keeps_all"],
            value["low_us"],
            value["high_us"],
            value["closed_us"],
            tuple(value["queries"]),
        )


def usable(layout: Layout, columns: frozenset[str], want: Want) -> bool:
    """Whether a bucket of such rows with such columns holds all that these queries want of them."""
    if not columns.issuperset(want.columns):
        return False
    predicate = want.predicate
    if predicate is None:
        return layout.keeps_all
    if predicate.id in layout.predicates:
        return True
    reads = {*(atom.column for atom in predicate.atoms), *predicate.computed}
    return layout.keeps_all and columns.issuperset(reads)


@dataclass(frozen=True)
class StoreBucket:
    """A live bucket of a store: rows of one stream that joins may need, and where its indexes lie."""

    stream: str
    section: Section
    indexes: Mapping[str, Section]
    level: int
    batch_from: int
    batch_to: int
    part: int
    """The task that wrote it: with the batch and the stream, its name."""
    layout: Layout

    @property
    def name(self) -> str:
        return self.section.place

    @property
    def nbytes(self) -> int:
        return self.section.length + sum(s.length for s in self.indexes.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "section": self.section.to_json(),
            "indexes": {id_: section.to_json() for id_, section in self.indexes.items()},
            "level": self.level,
            "batches": [self.batch_from, self.batch_to],
            "part": self.part,
            "layout": self.layout.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StoreBucket:
        return cls(
            value["stream"],
            Section.from_json(value["section"]),
            {id_: Section.from_json(section) for id_, section in value["indexes"].items()},
            value["level"],
            value["batches"][0],
            value["batches"][1],
            value["part"],
            Layout.from_json(value["layout"]),
        )
