"""The results of a batch, query by query: what came with the tasks' reports, and what tasks have prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from thalweg.batch.totals import BatchTotals
from thalweg.model.bucket import Section
from thalweg.model.entry import Entry
from thalweg.model.plan import WindowedQuery
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.operate.finish import order_rows
from thalweg.sink.outlet import WrittenPart
from thalweg.state.reader import StateReader
from thalweg.state.storage import Storage


@dataclass(frozen=True)
class Made:
    """The results of a query in a batch: some with the driver, the rest as tasks have prepared them."""

    entry: Entry
    table: pa.Table | None = None
    sections: tuple[Section, ...] = ()
    parts: tuple[WrittenPart, ...] = ()

    @property
    def rows(self) -> int:
        prepared = sum(section.rows for section in self.sections) + sum(part.rows for part in self.parts)
        return prepared + (0 if self.table is None else self.table.num_rows)

    @property
    def nbytes(self) -> int:
        prepared = sum(section.length for section in self.sections) + sum(part.nbytes for part in self.parts)
        return prepared + (0 if self.table is None else self.table.nbytes)


def made_of(entry: Entry, member: WindowedQuery | None, totals: BatchTotals, storage: Storage) -> Made:
    """What all tasks together have made for a query."""
    tables, sections = totals.results.get(entry.id, []), totals.sections.get(entry.id, [])
    if entry.query.order or entry.query.limit is not None:  # only of all rows together one can tell
        reader = StateReader(storage)
        tables, sections = [*tables, *(reader.read(section) for section in sections)], []
    table = _present(entry.query, member, tables) if tables else None
    return Made(entry, table, tuple(sections), tuple(totals.parts.get(entry.id, ())))


def _present(query: Query, member: WindowedQuery | None, parts: Sequence[pa.Table]) -> pa.Table:
    """As users see it: ordered, named and typed."""
    table = pa.concat_tables(parts)
    if member is not None and member.order:
        table = order_rows(table, member)
    return shown(table, shown_schema(query))
