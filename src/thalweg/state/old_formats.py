"""What manifests, intents, requests and catalogs of formats 2 to 4 looked like, and what each is now.

The names of fields are those of the JSON. What later releases left out has a default; what is not listed is not read.
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from thalweg.model import measurements as sections
from thalweg.model.bucket import Layout, RowBucket, Section, SliceBucket, StoredIndex
from thalweg.model.entry import Entry
from thalweg.model.history import History, RowHistory, SliceHistory, WantedRows
from thalweg.model.manifest import StreamProgress
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import Offsets
from thalweg.model.query import Query, query_from_json
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window

T = TypeVar("T")
OldFields = list[tuple[str, str]]
"""Names and types of columns."""


def old_schema(fields: OldFields) -> Schema:
    return Schema(tuple(Field(name, type_) for name, type_ in fields))


class OldHeader(Struct, frozen=True):
    """The first line of a manifest or an intent."""

    format: int
    crc: int
    length: int


class OldOffsets(Struct, frozen=True):
    tick: int
    streams: dict[str, int]

    def now(self) -> Offsets:
        return Offsets(self.tick, self.streams)


# -- buckets


class OldSection(Struct, frozen=True):
    file: str
    name: str
    offset: int
    length: int
    rows: int
    crc: int

    def now(self) -> Section:
        return Section(self.file, self.name, self.offset, self.length, self.rows, self.crc)


class OldSlicesMeta(Struct, frozen=True):
    offsets: str


class OldSlicesSection(OldSection, frozen=True):
    meta: OldSlicesMeta


class OldRowsMeta(Struct, frozen=True):
    columns: tuple[str, ...]
    distinct: dict[str, int] = {}


class OldRowsSection(OldSection, frozen=True):
    meta: OldRowsMeta


class OldIndexMeta(Struct, frozen=True):
    bits: int


class OldIndexSection(OldSection, frozen=True):
    meta: OldIndexMeta


class OldSlices(Struct, frozen=True):
    section: OldSlicesSection
    grouping: str
    level: int
    batches: tuple[int, int]
    slot: int
    spans: tuple[tuple[int, int], ...]

    def now(self) -> SliceBucket:
        return SliceBucket(
            section=self.section.now(),
            relation=self.grouping,
            level=self.level,
            batch_from=self.batches[0],
            batch_to=self.batches[1],
            place=self.slot,
            spans=self.spans,
            offsets=base64.b85decode(self.section.meta.offsets),
        )


class OldRows(Struct, frozen=True):
    section: OldRowsSection
    stream: str
    level: int
    batches: tuple[int, int]
    part: int
    indexes: dict[str, OldIndexSection]
    layout: Layout

    def now(self) -> RowBucket:
        return RowBucket(
            section=self.section.now(),
            relation=self.stream,
            level=self.level,
            batch_from=self.batches[0],
            batch_to=self.batches[1],
            place=self.part,
            indexes={id_: StoredIndex(index.now(), index.meta.bits) for id_, index in self.indexes.items()},
            layout=self.layout,
            columns=self.section.meta.columns,
            distinct=self.section.meta.distinct,
        )


# -- queries and their histories


class OldEntry(Struct, frozen=True):
    query: Any
    state: str
    error: str | None
    created: int
    fence: tuple[int, int] | None
    emitted: int
    complete_from: int | None = None

    def now(self, id_: str) -> Entry:
        query = query_from_json(self.query)
        return Entry(id_, query, self.state, self.error, self.created, self.fence, self.emitted, self.complete_from)


class OldLane(Struct, frozen=True):
    since: dict[str, int]
    grids: tuple[tuple[int, int, int], ...]
    windows: tuple[tuple[int, ...], ...]

    def now(self) -> SliceHistory:
        return SliceHistory(self.since, self.grids, tuple(Window(*window) for window in self.windows))


# -- manifests and intents


class OldMeasured(Struct, frozen=True):
    """What loops remembered. What is not in the form of this release begins anew, as in a manifest of today."""

    loads: dict[str, float] = {}
    shipped: tuple[str, ...] = ()
    spread: dict[str, list[int]] = {}
    dealing: Any = {}
    joins: Any = {}
    ordering: Any = {}
    assignment: dict[str, list[int]] = {}
    co_located_with: dict[str, str] = {}
    slots: int = 0
    moves: sections.KeyGroupMoves = sections.KeyGroupMoves()

    def measurements(self) -> Measurements:
        return Measurements(
            combining=sections.Combining(loads=self.loads, shipped=self.shipped),
            hot_join_keys=sections.HotJoinKeys(spread=self.spread),
            partitioners=_section(sections.Partitioners, dealing=self.dealing),
            probe_orders=_section(sections.ProbeOrders, joins=self.joins, ordering=self.ordering),
            slot_assignment=sections.SlotAssignment(
                assignment=self.assignment, co_located_with=self.co_located_with, slots=self.slots, moves=self.moves
            ),
        )


def _section(kind: type[T], **values: Any) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        return kind()


class OldExtra(OldMeasured, frozen=True):
    reached: OldOffsets | None = None
    through: int = 0
    closed: dict[str, int] = {}
    choices: dict[str, tuple[WantedRows, ...] | None] | None = None
    held_from: dict[str, int] = {}

    def row_histories(self) -> dict[str, RowHistory]:
        """Up to format 3 nobody wrote down what the stores had wanted: nothing can be said of their rows."""
        if self.choices is None:
            return {}
        return {name: RowHistory(us, self.choices.get(name)) for name, us in self.held_from.items()}


class OldManifest(Struct, frozen=True):
    batch: int
    groups: int
    hash: str
    streams: dict[str, StreamProgress]
    buckets: tuple[OldSlices, ...]
    queries: dict[str, OldEntry]
    lanes: dict[str, OldLane]
    extra: OldExtra
    stores: tuple[OldRows, ...] = ()

    def history(self) -> History:
        return History({id_: lane.now() for id_, lane in self.lanes.items()}, self.extra.row_histories())


class OldTable(Struct, frozen=True):
    schema: OldFields
    version: OldSection


class OldIntentFile(OldMeasured, frozen=True, kw_only=True):
    through: int
    slots: int
    reached: OldOffsets | None = None
    partitioners: dict[str, str] = {}
    tables: dict[str, OldTable] = {}


# -- requests and catalogs


class OldRecord(Struct, frozen=True):
    op: str
    query: Any = None
    name: str | None = None

    def now(self) -> Query | str:
        if self.op == "create":
            return query_from_json(self.query)
        if self.name is None:
            raise ValueError("it does not say what to drop")
        return self.name


class OldRequest(Struct, frozen=True):
    sequence: int | None = None
    base: int | None = None
    record: OldRecord | None = None


class OldSource(Struct, frozen=True):
    kind: str
    options: dict[str, object]


class OldStream(Struct, frozen=True):
    name: str
    schema: OldFields
    time: str
    delay_us: int
    source: OldSource

    def now(self) -> Stream:
        source = SourceSpec(self.source.kind, self.source.options)
        return Stream(self.name, old_schema(self.schema), self.time, self.delay_us, source)


class OldCatalog(Struct, frozen=True):
    streams: tuple[OldStream, ...]
