"""Results to sinks, in two steps: prepared before the manifest, committed after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg import faults
from thalweg.batch.contract import SinkOpener
from thalweg.batch.hands import Hands
from thalweg.batch.queues import LostResultsError, Queues
from thalweg.batch.work import unique
from thalweg.errors import ThalwegError, nothing_to_retain, repeated_column, sink_not_installed, sink_raised
from thalweg.model.bucket import Section
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest, Prepared, ResultFile
from thalweg.model.patience import Patience, retained
from thalweg.model.plan import Member
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.observe import log
from thalweg.operate.finish import order_rows
from thalweg.sink.contract import Callback, Gathering, SectionSink, Sink, SinkContext
from thalweg.sink.kinds import SINKS, is_delivered, keeps_results, kind_of
from thalweg.sink.outlet import Part
from thalweg.state.collect import prepared_name
from thalweg.state.container import ContainerWriter, read_section
from thalweg.state.results import Results
from thalweg.state.storage import Storage
from thalweg.state.term import Term

faults.register("delivery.begin", "delivery.done")


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

    @property
    def nbytes(self) -> int:
        prepared = sum(section.length for section in self.sections) + sum(part.nbytes for part in self.parts)
        return prepared + (0 if self.table is None else self.table.nbytes)


@dataclass
class Preparation:
    """What a batch has ready for its manifest."""

    results: tuple[ResultFile, ...] = ()
    undelivered: list[Prepared] = field(default_factory=list)
    unkept: dict[str, int] = field(default_factory=dict)
    """Query id -> rows for which there was no more place."""


class Delivery:
    """Opens a query's sink when its first results come, and keeps it."""

    def __init__(
        self, opener: SinkOpener, storage: Storage, term: Term, newest: Manifest | None, hands: Hands | None = None
    ) -> None:
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
        self.check_mine: Callable[[], None] = lambda: None
        """Raises if another session has taken over, which delivers then."""
        self._sinks: dict[str, Sink] = {}
        self._opening = threading.Lock()
        self._openings: dict[str, threading.Lock] = {}
        self.queues = Queues(self, hands)

    # -- before the manifest -------------------------------------------------------------------------------

    def prepare(self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]) -> Preparation:
        """Makes the results of a batch durable, where nobody sees them. `live`: all queries that run."""
        ready = Preparation()
        waiting: dict[str, Made] = {}
        for id_, made in results.items():
            if not made.rows or not is_delivered(made.entry.query.sink):
                continue
            if not self._has_room(made):
                ready.unkept[id_] = made.rows
            elif token := self._prepare_in_sink(batch, made):
                ready.undelivered.append(Prepared(id_, batch, made.rows, token=token, nbytes=made.nbytes))
            else:
                waiting[id_] = made
        own = {section.name: section for section in self._keep(batch, waiting)}
        for id_, made in waiting.items():
            sections = (*made.sections, *((own[id_],) if id_ in own else ()))
            parts = tuple(part.name for part in made.parts)
            ready.undelivered.append(Prepared(id_, batch, made.rows, sections, parts=parts, nbytes=made.nbytes))
        ready.results = self._prepare_results(batch, results, live)
        return ready

    def _has_room(self, made: Made) -> bool:
        """What is all that waits is kept, however much it is."""
        known = self.queues.look(made.entry.id)
        limit = Patience.of(made.entry.query).undelivered_bytes
        return not known.batches or known.nbytes + made.nbytes <= limit

    def _prepare_in_sink(self, batch: int, made: Made) -> str:
        """What the sink calls what it has written. Empty: it has no place for it, or has trouble with it."""
        entry = made.entry
        if made.sections:  # so the rest is better kept beside them
            return ""
        if self.queues.look(entry.id).is_troubled or not self.can_give(entry.id, entry.query):
            return ""
        try:
            return self._sink(entry.id, entry.query).prepare(batch, made.table, [part.name for part in made.parts])
        except BaseException as error:
            log.warning("delivery", "kept_with_the_state", query=entry.query.name, batch=batch, error=error)
            return ""

    def _prepare_results(
        self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]
    ) -> tuple[ResultFile, ...]:
        """Of queries that keep them in memory."""
        kept = {id_: made for id_, made in results.items() if keeps_results(made.entry.query.sink)}
        wanted = {id_ for id_, entry in live.items() if keeps_results(entry.query.sink)}
        tables = {id_: made.table for id_, made in kept.items() if made.table is not None}
        files: dict[str, set[str]] = {}
        for id_, made in kept.items():
            for section in made.sections:
                files.setdefault(section.file, set()).add(id_)
        limits = {id_: limit for id_ in wanted if (limit := retained(live[id_].query)) is not None}
        return self.results.prepare(batch, tables, wanted | self.kept, files, limits)

    def _keep(self, batch: int, waiting: Mapping[str, Made]) -> list[Section]:
        """What will wait for long is in a container of its own: the others need not be kept for as long."""
        tables = {id_: made.table for id_, made in waiting.items() if made.table is not None}
        troubled = {id_ for id_ in tables if self.queues.look(id_).is_troubled}
        sections: list[Section] = []
        for ids in (tables.keys() - troubled, troubled):
            if ids:
                with ContainerWriter(self._storage, prepared_name(batch, 0, unique())) as writer:
                    for id_ in tables:
                        if id_ in ids:
                            writer.add(id_, tables[id_])
                    sections += writer.close()
        return sections

    # -- after it ------------------------------------------------------------------------------------------

    def can_give(self, id_: str, query: Query) -> bool:
        return self.missing(id_, query) is None

    def missing(self, id_: str, query: Query) -> ThalwegError | None:
        """What the program has not given, without which the sink cannot be opened."""
        kind = SINKS.find(query.sink.kind)
        if kind is None:
            return sink_not_installed(query.name, query.sink.kind)
        return kind.missing(query.name, self.callbacks.get(id_))

    def give(self, query: Query, prepared: Prepared) -> None:
        """Commits what a manifest holds. Whatever the sink raises becomes an error that tells of it."""
        with _state_at_fault():
            faults.point("delivery.begin")
            self.check_mine()
        try:
            sink = self._sink(prepared.query, query)
            if isinstance(sink, SectionSink):  # it reads them itself
                sink.commit_sections(prepared.batch, prepared.sections)
            else:
                self._give_rows(sink, query, prepared)
        except (ThalwegError, LostResultsError):
            raise
        except BaseException as error:  # also a sink's own mistake, or a value that it cannot show
            raise sink_raised(query.name, query.sink.kind, error) from error
        with _state_at_fault():
            faults.point("delivery.done")

    def _give_rows(self, sink: Sink, query: Query, prepared: Prepared) -> None:
        with _state_at_fault():
            tables = [read_section(self._storage, section) for section in prepared.sections]
        table = pa.concat_tables([shown(t, shown_schema(query)) for t in tables]) if tables else None
        if prepared.parts and isinstance(sink, Gathering):
            sink.commit_parts(prepared.batch, table, prepared.parts)
        else:
            sink.commit(prepared.batch, prepared.token, table)

    def forget(self, id_: str) -> None:
        self._sinks.pop(id_, None)
        self._openings.pop(id_, None)

    # -- sinks ---------------------------------------------------------------------------------------------

    def check(self, query: Query, *, opening: bool = True, trying: bool = False) -> None:
        """Opens the sink of a query to be, so that a path that cannot be written is refused at once. `trying`: it may
        make nothing."""
        names = [output.name for output in query.outputs]
        kind = kind_of(query.sink)
        if kind.unique_columns and len(set(names)) < len(names):
            raise repeated_column(query.name, next(n for n in names if names.count(n) > 1))
        if retained(query) is not None and not keeps_results(query.sink):
            raise nothing_to_retain(query.name, query.sink.kind)
        kind.check(query)
        if kind.is_engines:
            self._opener.check_sink(query)
        if opening and kind.opens_early:
            self._open(query, query.name, trying)

    def forget_all_but(self, ids: Collection[str]) -> None:
        """Lets go of the sinks of queries that are gone."""
        for id_ in list(self._sinks):  # other threads may open some
            if id_ not in ids:
                self.forget(id_)
        self.callbacks = {id_: callback for id_, callback in self.callbacks.items() if id_ in ids}

    def _sink(self, id_: str, query: Query) -> Sink:
        with self._opening:
            lock = self._openings.setdefault(id_, threading.Lock())
        with lock:
            if id_ not in self._sinks:
                self._sinks[id_] = self._open(query, id_)
            return self._sinks[id_]

    def _open(self, query: Query, id_: str, trying: bool = False) -> Sink:
        context = SinkContext(
            query=query.name,
            timeline=self._term.timeline,
            term=self._term.token,
            known_terms=frozenset(self._term.known),
            number=self._term.number,
            first_known=self._term.oldest,
            newest=self.newest,
            pending=lambda: self.queues.items_of(id_),
            callback=self.callbacks.get(id_),
            place=self._storage.place,
            is_trial=trying,
        )
        kind = kind_of(query.sink)
        if kind.is_engines:
            return self._opener.open_sink(query, id_, context, self._storage)
        return kind.open(kind.options_of(query.sink), context)


@contextmanager
def _state_at_fault() -> Iterator[None]:
    """What goes wrong here is no fault of a sink."""
    try:
        yield
    except BaseException as error:
        raise LostResultsError from error


def present(query: Query, member: Member | None, parts: Sequence[pa.Table]) -> pa.Table:
    """A query's result as users see it: ordered, named and typed."""
    table = pa.concat_tables(parts)
    if member is not None and member.order:
        table = order_rows(table, member)
    return shown(table, shown_schema(query))
