"""The second of a sink's two verbs: what a manifest holds is committed. Here sinks are opened and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial

from thalweg.batch.contract import SinkOpener
from thalweg.batch.giving import give
from thalweg.batch.hands import Hands
from thalweg.batch.queues import Queues
from thalweg.errors import ThalwegError, nothing_to_retain, repeated_column, sink_not_installed
from thalweg.model.manifest import Prepared
from thalweg.model.patience import retained
from thalweg.model.query import Query
from thalweg.sink.contract import Callback, Sink, SinkContext
from thalweg.sink.kinds import SINKS, keeps_results, kind_of
from thalweg.state.results import StoredResults
from thalweg.state.storage import Storage
from thalweg.state.term import Term


class Delivery:
    """Opens a query's sink when its first results come, and keeps it."""

    def __init__(self, opener: SinkOpener, storage: Storage, term: Term, hands: Hands | None = None) -> None:
        self._opener = opener
        self._storage = storage
        self._term = term
        self.results = StoredResults(storage, ())
        self.callbacks: dict[str, Callback] = {}
        """Query id -> the callable that takes its results."""
        self.kept: set[str] = set()
        """Dropped queries whose results somebody may still read."""
        self.newest = -1
        """The newest batch that can have been committed."""
        self.check_mine: Callable[[], None] = lambda: None
        """Raises if another session has taken over, which delivers then."""
        self._sinks: dict[str, Sink] = {}
        self._opening = threading.Lock()
        self._openings: dict[str, threading.Lock] = {}
        self.queues = Queues(self, hands)

    # -- giving ---------------------------------------------------------------------------------------------

    def can_give(self, id_: str, query: Query) -> bool:
        return self.missing(id_, query) is None

    def missing(self, id_: str, query: Query) -> ThalwegError | None:
        """What the program has not given, without which the sink cannot be opened."""
        kind = SINKS.find(query.sink.kind)
        if kind is None:
            return sink_not_installed(query.name, query.sink.kind)
        return kind.missing(query.name, self.callbacks.get(id_))

    def give(self, query: Query, prepared: Prepared) -> None:
        """Commits what a manifest holds."""
        give(self._storage, query, prepared, partial(self.sink_of, prepared.query, query), self.check_mine)

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

    def sink_of(self, id_: str, query: Query) -> Sink:
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
