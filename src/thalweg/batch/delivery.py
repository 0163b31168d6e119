"""Results to sinks, in two steps: prepared before the manifest, committed after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.batch.contract import SinkOpener
from thalweg.batch.work import unique
from thalweg.errors import repeated_column
from thalweg.model.bucket import Section
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest, Prepared, ResultFile
from thalweg.model.plan import Member
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.operate.finish import order_rows
from thalweg.sink.base import Callback, Sink, SinkContext, objection, open_sink
from thalweg.sink.outlet import Part
from thalweg.state.collect import prepared_name
from thalweg.state.container import ContainerWriter, read_section
from thalweg.state.results import Results
from thalweg.state.storage import Storage
from thalweg.state.term import Term


@dataclass(frozen=True)
class Made:
    """The results of a query in a batch: some with the driver, the rest as tasks have prepared them."""

    entry: Entry
    table: pa.Table | None = None
    sections: tuple[Section, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def rows(self) -> int:
        prepared = sum(section.rows for section in self.sections) + sum(part.rows for part in self.parts)
        return prepared + (0 if self.table is None else self.table.num_rows)


@dataclass
class Preparation:
    """What a batch has ready for its manifest."""

    results: tuple[ResultFile, ...] = ()
    undelivered: list[Prepared] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Query id -> what its sink said against its results."""


class Delivery:
    """Opens a query's sink when its first results come, and keeps it."""

    def __init__(self, opener: SinkOpener, storage: Storage, term: Term, newest: Manifest | None) -> None:
        self._opener = opener
        self._storage = storage
        self._term = term
        self.results = Results(storage, () if newest is None else newest.results)
        self.callbacks: dict[str, Callback] = {}
        """Query id -> the callable that takes its results."""
        self.kept: set[str] = set()
        """Dropped queries whose results somebody may still read."""
        self.newest = -1 if newest is None else newest.batch
        """The newest batch that can have been committed."""
        self._pending = () if newest is None else newest.undelivered
        self._sinks: dict[str, Sink] = {}

    def prepare(self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]) -> Preparation:
        """Makes the results of a batch durable, where nobody sees them. What a sink objects to stops its query, and
        nothing else. `live`: all queries that run."""
        ready = Preparation()
        waiting: dict[str, Made] = {}
        for id_, made in results.items():
            query = made.entry.query
            if query.sink.kind in ("memory", "noop") or not made.rows:
                continue
            try:
                token = self._sink(made.entry).prepare(batch, made.table, [part.name for part in made.parts])
            except (Exception, SystemExit) as error:
                ready.failed[id_] = objection(query.name, query.sink.kind, error)
                continue
            if token:
                ready.undelivered.append(Prepared(id_, batch, made.rows, token=token))
            else:
                waiting[id_] = made
        own = {section.name: section for section in self._keep(batch, waiting)}
        for id_, made in waiting.items():
            sections = (*made.sections, *((own[id_],) if id_ in own else ()))
            ready.undelivered.append(Prepared(id_, batch, made.rows, sections))
        kept = {id_: made for id_, made in results.items() if made.entry.query.sink.kind == "memory"}
        wanted = {id_ for id_, entry in live.items() if entry.query.sink.kind == "memory"}
        tables = {id_: made.table for id_, made in kept.items() if made.table is not None}
        files: dict[str, set[str]] = {}
        for id_, made in kept.items():
            for section in made.sections:
                files.setdefault(section.file, set()).add(id_)
        ready.results = self.results.prepare(batch, tables, wanted | self.kept, files)
        return ready

    def _keep(self, batch: int, waiting: Mapping[str, Made]) -> Sequence[Section]:
        tables = {id_: made.table for id_, made in waiting.items() if made.table is not None}
        if not tables:
            return ()
        with ContainerWriter(self._storage, prepared_name(batch, 0, unique())) as writer:
            for id_, table in tables.items():
                writer.add(id_, table)
            return writer.close()

    def commit(self, undelivered: Sequence[Prepared], entries: Mapping[str, Entry]) -> dict[str, str]:
        """Gives out what a manifest holds; query id -> what its sink said against it."""
        failed: dict[str, str] = {}
        for prepared in undelivered:
            entry = entries.get(prepared.query)
            if entry is None or entry.state == "failed" or prepared.query in failed:
                continue
            tables = [read_section(self._storage, section) for section in prepared.sections]
            try:
                table = pa.concat_tables([shown(t, shown_schema(entry.query)) for t in tables]) if tables else None
                self._sink(entry).commit(prepared.batch, prepared.token, table)
            except (Exception, SystemExit) as error:  # also a sink's own mistake, or a value that it cannot show
                failed[prepared.query] = objection(entry.query.name, entry.query.sink.kind, error)
        return failed

    def check(self, query: Query, *, opening: bool = True) -> None:
        """Opens the sink of a query to be, so that a path that cannot be written is refused at once."""
        names = [output.name for output in query.outputs]
        if query.sink.kind in ("files", "spark") and len(set(names)) < len(names):
            raise repeated_column(query.name, next(n for n in names if names.count(n) > 1))
        self._opener.check_sink(query)
        if opening and query.sink.kind not in ("memory", "spark", "callable"):
            self._open(query, query.name)

    def forget_all_but(self, ids: Collection[str]) -> None:
        """Lets go of the sinks of queries that are gone."""
        self._sinks = {id_: sink for id_, sink in self._sinks.items() if id_ in ids}
        self.callbacks = {id_: callback for id_, callback in self.callbacks.items() if id_ in ids}

    def _sink(self, entry: Entry) -> Sink:
        if entry.id not in self._sinks:
            self._sinks[entry.id] = self._open(entry.query, entry.id)
        return self._sinks[entry.id]

    def _open(self, query: Query, id_: str) -> Sink:
        if query.sink.kind == "spark":
            return self._opener.open_sink(query, id_, self._term.timeline)
        context = SinkContext(
            query=query.name,
            timeline=self._term.timeline,
            term=self._term.token,
            known_terms=frozenset(self._term.known),
            number=self._term.number,
            first_known=self._term.oldest,
            newest=self.newest,
            pending=frozenset(p.token for p in self._pending if p.query == id_),
            callback=self.callbacks.get(id_),
            place=self._storage.place,
        )
        return open_sink(query.sink, context)


def present(query: Query, member: Member | None, parts: Sequence[pa.Table]) -> pa.Table:
    """A query's result as users see it: ordered, named and typed."""
    table = pa.concat_tables(parts)
    if member is not None and member.order:
        table = order_rows(table, member)
    return shown(table, shown_schema(query))
