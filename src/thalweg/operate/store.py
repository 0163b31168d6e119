"""Stores: the rows of a stream that joins still need, once, in buckets with an index per key.

INGEST writes the rows that it read, and from then on they are only looked at: probes join row numbers, and a
row's values are fetched when a result needs them. A row is named by one number, its place in all buckets of the
store taken one after the other; everyone who works on a batch counts them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from thalweg.model.bucket import Layout, NewRows, PartTable, RowBucket, SectionReader, usable
from thalweg.model.join import joined_column
from thalweg.model.probe import Cohort, Index, Intermediate, Role, Store
from thalweg.operate.gather import StoreColumn, ends_by_bucket
from thalweg.operate.index import SMALL, KeyIndex, build_index
from thalweg.operate.marks import (
    Bits,
    Marks,
    Pieces,
    asked_of,
    predicate_index,
    predicates_of,
    queries_by_streams,
)
from thalweg.operate.predicates import PredicateIndex
from thalweg.operate.probe import Side, SortedSide, sort_side
from thalweg.operate.query_sets import EVERY_QUERY, make_lut
from thalweg.route.hash import hash_rows

BITS = ".p"
"""Predicates that a row satisfies, packed: those that its columns do not tell."""
SETS = ".sets"
"""Tuples and rows of intermediates: the queries that they can still serve."""

Array = npt.NDArray[Any]
Refs = Mapping[str, Array]
"""relation -> the numbers of its rows in tuples."""


# -- at the source


@dataclass
class Sampled:
    """Some of the rows that a task has read of a stream, as the predicates that each satisfies."""

    most: int = 256
    rows: list[bytes] = field(default_factory=list)
    """Sets of bits, from the lowest on."""
    seen: int = 0
    """All rows, sampled or not."""

    def add(self, predicates: PredicateIndex, rows: pa.Table) -> None:
        self.seen += rows.num_rows
        room = self.most - len(self.rows)
        if room > 0 and rows.num_rows:
            step = max(1, rows.num_rows // room)
            some = rows.select(list(predicates.columns)).take(np.arange(0, rows.num_rows, step)[:room])
            self.rows += [row.tobytes() for row in predicates.evaluate(some)]


def choose_rows(store: Store, rows: pa.Table, sample: Sampled) -> pa.Table:
    """The rows that some query may need, with what is kept of them."""
    predicates = predicates_of(store)
    if not store.predicates:
        sample.seen += rows.num_rows
        return rows.select(store.columns)
    sample.add(predicates, rows)
    if not store.keeps_all:
        kept = predicates.find_any(rows)
        if not kept.all():
            rows = rows.filter(pa.array(kept))
    table = rows.select(store.columns)
    if store.marked:
        table = table.append_column(BITS, _pack(predicate_index(store.marked).evaluate(rows)))
    return table


def _pack(bits: Array) -> pa.Array:
    kind = pa.binary(bits.shape[1])
    return pa.Array.from_buffers(kind, len(bits), [None, pa.py_buffer(np.ascontiguousarray(bits))])


def add_words(store: Store, table: pa.Table) -> pa.Table:
    """The rows as one chunk, with a column of hashes for every key that cannot be compared as it lies."""
    table = table.combine_chunks()
    for index in store.indexes:
        if index.word not in index.keys and index.word not in table.column_names:
            table = table.append_column(index.word, pa.array(key_words(index, table)))
    return table


def in_key_order(store: Store, table: pa.Table) -> pa.Table:
    """The rows in the order of the store's first index, so by key group; those without a key last.

    A row's partners then lie side by side, in the order in which the rows of a batch look for them: probes, and
    fetching what they find, go through memory once instead of jumping. A slot's rows are ranges.
    """
    if not store.indexes:
        return table
    order = make_index(store.indexes[0], table).order
    if len(order) < table.num_rows:
        without_key = np.ones(table.num_rows, dtype=bool)
        without_key[order] = False
        order = np.concatenate([order, np.flatnonzero(without_key)])
    return table.take(pa.array(order))


def lay_out(
    store: Store, rows: pa.Table, layout: Layout, level: int, batches: tuple[int, int], place: int
) -> NewRows:
    """Rows as a bucket to be written, with their indexes. The times of the layout are those of the rows."""
    table = in_key_order(store, add_words(store, rows))
    times = numbers(table.column(store.time))
    made = make_indexes(store, table)
    return NewRows(
        store.stream,
        level,
        batches,
        place,
        replace(layout, low_us=int(times.min()), high_us=int(times.max())),
        table,
        {id_: (index_to_table(index), index.bits) for id_, index in made.items()},
        {id_: round(distinct_keys(index)) for id_, index in made.items()},
    )


def index_to_table(index: KeyIndex) -> pa.Table:
    """An index as it is kept: of rows that lie in its order, without saying so row by row."""
    in_order = bool((index.order == np.arange(len(index.order))).all())
    return pa.table({"i": index.starts if in_order else np.concatenate([index.starts, index.order])})


def is_in_order(table: pa.Table, bits: int) -> bool:
    """Whether the rows lie in the order of an index that is kept so."""
    return int(table.num_rows) == (1 << bits) + 1


def index_from_table(table: pa.Table, bits: int) -> KeyIndex:
    both = numbers(table.column(0))
    starts, order = np.split(both, [(1 << bits) + 1])
    return KeyIndex(starts, order if len(order) else _numbers_up_to(int(starts[-1]), starts.dtype))


_UP_TO: dict[Any, Array] = {}
"""Type -> the longest row of numbers that was asked for: all implicit orders are the beginning of one."""


def _numbers_up_to(count: int, kind: Any) -> Array:
    known = _UP_TO.get(kind)
    if known is None or len(known) < count:
        known = _UP_TO[kind] = np.arange(max(count, SMALL), dtype=kind)
        known.flags.writeable = False
    return known[:count]


def distinct_keys(index: KeyIndex) -> float:
    """How many keys there are about, from how many prefixes of their hashes occur (linear counting)."""
    prefixes = len(index.starts) - 1
    free = prefixes - int(np.count_nonzero(np.diff(index.starts)))
    return float(prefixes * np.log(prefixes / max(free, 0.5)))


def make_indexes(store: Store, table: pa.Table) -> dict[str, KeyIndex]:
    return {index.id: make_index(index, table) for index in store.indexes}


def make_index(index: Index, table: pa.Table) -> KeyIndex:
    """Finds the rows by key; those with a null in it are in no index."""
    valid: Array | None = None
    for key in index.keys:
        column = table.column(key)
        if column.null_count:
            some = pc.is_valid(column).to_numpy()
            valid = some if valid is None else valid & some
    return build_index(key_words(index, table), valid)


def key_words(index: Index, table: pa.Table) -> Array:
    """What the index compares: as it is stored, or made from the key."""
    if index.word in table.column_names:
        return numbers(table.column(index.word))
    return hash_rows([table.column(key) for key in index.keys], rows=table.num_rows)


def numbers(column: pa.ChunkedArray | pa.Array) -> Array:
    """The values of a column of numbers or times as they lie; what is under a null is arbitrary."""
    array = column
    if isinstance(column, pa.ChunkedArray):  # in one chunk no byte of it is looked at
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    width = array.type.bit_width // 8
    kind = np.dtype(f"{'u' if pa.types.is_unsigned_integer(array.type) else 'i'}{width}")
    if len(array) == 0:
        return np.empty(0, dtype=kind)
    return np.frombuffer(array.buffers()[1], dtype=kind, count=array.offset + len(array))[array.offset :]


# -- in a slot


@dataclass
class Rows:
    """One bucket of a store, as a task sees it."""

    store: Store
    bucket: RowBucket
    reader: SectionReader
    is_new: bool
    """Whether its rows came with this batch."""
    _stored: PartTable | None = None
    _indexes: dict[str, KeyIndex] = field(default_factory=dict)
    _in_order: set[str] = field(default_factory=set)
    """Indexes in whose order the rows lie."""
    _words: dict[str, Array] = field(default_factory=dict)
    _times: Array | None = None
    _marked: Cohort | None = None
    _marks: dict[str, Marks] = field(default_factory=dict)
    """Of that cohort, by relation."""

    @property
    def layout(self) -> Layout:
        return self.bucket.layout

    @property
    def rows(self) -> int:
        return self.bucket.section.rows

    # What is read of a bucket is what somebody needs. `need`, `need_rows` and `whole` say so, and come first.

    @property
    def stored(self) -> PartTable:
        if self._stored is None:
            self._stored = self.reader.open(self.bucket.section)
        return self._stored

    def whole(self, *columns: str) -> pa.Table:
        """The rows, of which these columns are there."""
        self.stored.need(columns, [(0, self.rows)])
        return self.stored.table

    def need(self, cohort: Cohort, role: Role, index: Index, places: Sequence[tuple[int, int]]) -> None:
        """What a probe looks at, of the rows at these places of an index."""
        self.index(index)
        self.need_rows(cohort, role, index, [self._span(index, *place) for place in places])

    def need_rows(self, cohort: Cohort, role: Role, index: Index, rows: Sequence[tuple[int, int]]) -> None:
        self.stored.need({index.word} & self._columns | self._marking(self.marks(cohort, role).columns), rows)

    def _span(self, index: Index, first: int, last: int) -> tuple[int, int]:
        """Where the rows at these places of an index are: side by side where they lie in its order, else anywhere."""
        return (first, last) if index.id in self._in_order else (0, self.rows)

    @property
    def times(self) -> Array:
        if self._times is None:
            self._times = numbers(self.stored.table.column(self.store.time))
        return self._times

    def words(self, index: Index) -> Array:
        if index.id not in self._words:
            table = self.stored.table if index.word in self.bucket.columns else self.whole(*index.keys)
            self._words[index.id] = key_words(index, table)
        return self._words[index.id]

    def index(self, index: Index) -> KeyIndex:
        """The stored index, or, for a key that nobody asked for when the rows came, one made now."""
        if index.id not in self._indexes:
            self._indexes[index.id] = self._stored_index(index.id) or self._make_index(index)
        return self._indexes[index.id]

    def _make_index(self, index: Index) -> KeyIndex:
        return make_index(index, self.whole(*{index.word, *index.keys}.intersection(self.bucket.columns)))

    def _stored_index(self, id_: str) -> KeyIndex | None:
        index = self.bucket.indexes.get(id_)
        if index is None:
            return None
        table = self.reader.read(index.section)  # whole: it is small, and every probe begins in it
        if is_in_order(table, index.bits):
            self._in_order.add(id_)
        return index_from_table(table, index.bits)

    def marks(self, cohort: Cohort, role: Role) -> Marks:
        """What its rows can serve of a cohort; of one at a time."""
        if self._marked is not cohort:
            self._marked, self._marks = cohort, {}
        if role.relation not in self._marks:
            made = self._remembered(cohort) if self.layout.queries else self._make_marks(cohort, role)
            self._marks[role.relation] = made
        return self._marks[role.relation]

    def _make_marks(self, cohort: Cohort, role: Role) -> Marks:
        asked, allowed = asked_of(role, self.store), self.usable(role)
        columns = [column for column in self.bucket.columns if column in asked.columns]
        return Marks(
            allowed,
            self.rows,
            self._pieces,
            columns,
            asked.table,
            None if asked.columns <= self._columns else self._bits(role, allowed),
            self._late(cohort, allowed),
            lambda: self.times,
            self._needing(columns),
        )

    def _marking(self, columns: Iterable[str]) -> frozenset[str]:
        """What marks are made of, with pieces of these columns."""
        return self._columns.intersection((self.store.time, BITS, SETS, *columns))

    def _needing(self, columns: Iterable[str]) -> Callable[[int, int], None]:
        read = self._marking(columns)
        return lambda first, last: self.stored.need(read, [(first, last)])

    def usable(self, role: Role) -> int:
        """The queries for which the bucket holds every row that they want, and all they want of it."""
        if self._is_current:
            return role.queries
        return sum(want.queries for want in role.wants if usable(self.layout, self._columns, want))

    @cached_property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.bucket.columns)

    @cached_property
    def _is_current(self) -> bool:
        """Whether it holds whatever the store would."""
        layout, store = self.layout, self.store
        wanted = {predicate.id for predicate in store.predicates}
        everything = layout.keeps_all or not store.keeps_all
        return everything and wanted.issubset(layout.predicates) and self._columns.issuperset(store.columns)

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(predicates_of(self.store), self.rows, lambda column: self.stored.table.column(column))

    def _late(self, cohort: Cohort, allowed: int) -> list[tuple[int, int]]:
        """(queries, event time) where some rows came too late for some queries."""
        found = []
        for streams, queries in queries_by_streams(cohort).items():
            threshold = self.layout.threshold(streams)
            if queries & allowed and threshold >= self.layout.low_us:
                found.append((queries, threshold))
        return found

    def _bits(self, role: Role, allowed: int) -> Bits:
        """Of predicates that its columns do not tell. Those of queries that it is of no use for, nobody asks."""
        order = {id_: bit for bit, id_ in enumerate(self.layout.marked)}
        masks = [
            (order[want.predicate.id], want.queries)
            for want in role.wants
            if want.predicate is not None and want.queries & allowed and not want.predicate.reads <= self._columns
        ]
        width = (len(order) + 7) // 8
        told = sum(queries for _, queries in masks)
        return Bits(self._flat(BITS, width), make_lut(width, masks), EVERY_QUERY & ~told)

    def _remembered(self, cohort: Cohort) -> Marks:
        """Rows of an intermediate have their sets with them; the cohort may have other bits by now."""
        masks = [(bit, 1 << cohort.bit(q)) for bit, q in enumerate(self.layout.queries) if q in cohort.queries]
        bits = Bits(self._flat(SETS, 8), make_lut(8, masks), 0)
        allowed = sum(mask for _, mask in masks)
        return Marks(allowed, self.rows, self._pieces, bits=bits, need=self._needing(()))

    def _flat(self, column: str, width: int) -> Array:
        """The bytes of a column of values that are so wide; none where nobody asks for them."""
        if not width or column not in self._columns:
            return np.empty((self.rows, 0), dtype=np.uint8)
        found = self.stored.table.column(column)
        array = found.chunk(0) if found.num_chunks else pa.array([], found.type)
        flat = np.frombuffer(array.buffers()[1], dtype=np.uint8)[array.offset * width :][: self.rows * width]
        return flat.reshape(self.rows, width)

    def sort(self, cohort: Cohort, role: Role, index: Index, first: int, last: int) -> SortedSide:
        """The rows at these places of the index, in its order, with what each can serve."""
        self.need(cohort, role, index, [(first, last)])
        sets = self.marks(cohort, role).over(*self._span(index, first, last))
        return sort_side(self.index(index), self.words(index), self.times, sets, first, last)

    def side(
        self,
        cohort: Cohort,
        role: Role,
        index: Index,
        queries: int,
        ordered: SortedSide | None,
        first: int,
        last: int,
    ) -> Side:
        """The rows at these places of the index, as they are probed for some of the cohort's queries."""
        self.need(cohort, role, index, [(first, last)])
        marks = self.marks(cohort, role)
        return Side(self.index(index), self.words(index), self.times, marks.of, marks.allowed & queries, ordered)


class _Reads:
    """Sees to it that the rows of a column are there that somebody takes."""

    def __init__(self, column: str, bases: Array, buckets: Sequence[Rows]) -> None:
        self._column = column
        self._bases = bases
        self._apart = {n: b for n, b in enumerate(buckets) if column in b.bucket.columns and b.rows}
        """Buckets of which not all may be there, by their place in the store."""

    def __call__(self, numbers: Array) -> bool:
        """Before they are taken. Whether all rows are there by now, so that the column can be copied."""
        # Looking up the bucket of every row costs more than checking a column; it does not if it has to be fetched.
        for n in [n for n, b in self._apart.items() if b.stored.is_at_hand]:
            self._apart.pop(n).whole(self._column)
        if self._apart and len(numbers):
            first, last = ends_by_bucket(numbers, self._bases)
            for n, bucket in self._apart.items():
                if first[n] <= last[n]:
                    bucket.stored.need([self._column], [(int(first[n]), int(last[n]) + 1)])
        return not self._apart


@dataclass
class View:
    """A store as a task sees it: its buckets in an order that all tasks of the batch agree on."""

    store: Store
    buckets: Sequence[Rows]

    def __post_init__(self) -> None:
        self.bases = np.concatenate([[0], np.cumsum([b.rows for b in self.buckets])]).astype(np.int64)
        self._columns: dict[str, StoreColumn] = {}

    def take(self, column: str, refs: Array) -> pa.Array:
        """The values of a column for rows named by their numbers."""
        return self.column(column).take(refs)

    def column(self, column: str) -> StoreColumn:
        if column not in self._columns:
            reads = _Reads(column, self.bases, self.buckets)
            self._columns[column] = StoreColumn(self._column(column), reads)
        return self._columns[column]

    def _column(self, column: str) -> pa.ChunkedArray:
        """All buckets' values. A bucket from before anyone wanted the column has none, and is not asked for any."""
        stored = [b.stored.table.column(column) if column in b.bucket.columns else None for b in self.buckets]
        kinds = [found.type for found in stored if found is not None]
        kind = next((k for k in kinds if not pa.types.is_null(k)), pa.null())
        chunks: list[pa.Array] = []
        for b, found in zip(self.buckets, stored, strict=True):
            if found is None:
                chunks.append(pa.nulls(b.rows, kind))
            else:
                chunks += found.chunks if found.type == kind else b.whole(column).column(column).cast(kind).chunks
        return pa.chunked_array(chunks, kind)


@dataclass(frozen=True)
class Views:
    """All stores of a plan, and how a relation's values are found in tuples."""

    views: Mapping[str, View]
    intermediates: Mapping[str, Intermediate]
    streams: Mapping[str, str]
    """relation -> stream."""

    def __getitem__(self, store: str) -> View:
        return self.views[store]

    def take(self, relation: str, column: str, refs: Refs) -> pa.Array:
        """A column of a relation for tuples."""
        found, numbers = self.find(relation, column, refs)
        return found.take(numbers)

    def find(self, relation: str, column: str, refs: Refs) -> tuple[StoreColumn, Array]:
        """The column and the rows' numbers in it. Tuples have a relation themselves or inside an intermediate."""
        if relation in refs:
            return self.views[self.streams[relation]].column(column), refs[relation]
        holder = next(m for m in refs if m in self.intermediates and relation in self.intermediates[m].relations)
        return self.views[holder].column(joined_column(relation, column)), refs[holder]

    def has(self, relation: str, refs: Refs) -> bool:
        holders = (self.intermediates[m].relations for m in refs if m in self.intermediates)
        return relation in refs or any(relation in relations for relations in holders)

    def times(self, relation: str, refs: Refs) -> Array:
        return numbers(self.take(relation, self.views[self.streams[relation]].store.time, refs))
