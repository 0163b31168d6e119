"""What a session is made of, and what several of its verbs ask of it."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from thalweg import errors
from thalweg.batch.delivery import Delivery
from thalweg.batch.requests import foresee
from thalweg.batch.run import BatchRunner
from thalweg.catalog import Catalog
from thalweg.engine.contract import Analyzer, Engine, Pipeline
from thalweg.handle import HandleOwner, QueryHandle
from thalweg.model.entry import Entry
from thalweg.observe import log
from thalweg.rehearsal import Trial
from thalweg.source.kinds import SOURCES
from thalweg.state.requests import RequestLog, ResumeRequest
from thalweg.state.storage import Hold, Storage
from thalweg.user_aggregates import InUse
from thalweg.verbs.feeding import Feeding

_UNWELL = ("failed", "stopped", "paused", "waiting", "retrying")


@dataclass(eq=False)
class SessionParts:
    """Of one session. Verbs replace the catalog while they hold the mutex."""

    owner: HandleOwner
    """To whom handles of queries turn."""
    storage: Storage
    hold: Hold
    engine: Engine
    analyzer: Analyzer
    requests: RequestLog
    aggregates: InUse
    catalog: Catalog
    runner: BatchRunner = field(init=False)
    delivery: Delivery = field(init=False)
    pipeline: Pipeline = field(init=False)
    mutex: threading.RLock = field(default_factory=threading.RLock)
    feeding: Feeding = field(default_factory=Feeding)
    alive: weakref.WeakSet[QueryHandle] = field(default_factory=weakref.WeakSet)
    """Handles of queries that this session has made, as long as somebody holds them."""
    trial: Trial | None = None
    """Of a session that only tries statements out."""
    is_open: bool = True
    is_draining: bool = False
    rehearses: bool = False

    # -- whether something may be done ----------------------------------------------------------------------

    def check_open(self) -> None:
        """Not whether anything has failed: what is called now may be what puts it right."""
        if not self.is_open:
            raise errors.session_stopped()

    def check_mine(self) -> None:
        """Before the state is changed: another session may have taken it over."""
        self.check_open()
        self.runner.check_mine()

    def check_alive(self) -> None:
        """Raises what has ended the pipeline or a source in the background, until it is started again."""
        self.pipeline.check()
        self.feeding.check()

    @property
    def is_running(self) -> bool:
        """In the background."""
        return self.pipeline.is_running and not self.is_draining

    @property
    def state(self) -> str:
        if not self.is_open:
            return "stopped"
        if self.pipeline.is_running or self.is_draining:
            return "running"
        return "idle" if self.pipeline.failure is None else "failed"

    @contextmanager
    def tried(self) -> Iterator[tuple[SessionParts, Trial]]:
        """Parts over which verbs accept and refuse as they would over these, and keep nothing."""
        trial = Trial(self.analyzer, lambda: (self.catalog.streams, self.catalog.tables), self.mutex)
        trying = copy.copy(self)
        trying.analyzer, trying.trial = trial, trial
        try:
            yield trying, trial
        finally:
            trial.take_back()

    # -- queries ---------------------------------------------------------------------------------------------

    def entry_of(self, handle: QueryHandle) -> Entry:
        return self.runner.entries.get(handle.id) or Entry(handle.id, handle.definition, "pending")

    def missing(self, handle: QueryHandle) -> errors.ThalwegError | None:
        """What a program that started again has not given yet, and the query needs."""
        ungiven = self.delivery.missing(handle.id, handle.definition)
        if ungiven is not None:
            return ungiven
        for name in handle.definition.streams:
            kind = SOURCES.find(self.catalog.streams[name].source.kind)
            if kind is None:
                return errors.source_not_installed(name, self.catalog.streams[name].source.kind)
            if not kind.in_sql and name not in self.feeding.sources:
                return errors.source_not_given(name)
        return None

    def tell(self, handle: QueryHandle, states: Collection[str] = _UNWELL) -> None:
        """Logs how a query fares that does not do what it should."""
        status = handle.status
        if status.state not in states:
            return
        log.warning(
            "delivery", "not_delivering", query=handle.name, state=status.state,
            reason=(status.error or "paused by hand").partition("\n")[0], rows_kept=status.undelivered.rows or None,
            hint=None if status.state in ("waiting", "retrying") else f"RESUME QUERY {handle.name}",
        )  # fmt: skip

    def register_known(self) -> None:
        """What the state holds, made known to the analyser."""
        place = "catalog.json"
        try:
            for stream in self.catalog.streams.values():
                self.analyzer.register(stream)
            place = "tables.json"
            for table in self.catalog.tables.values():
                self.analyzer.register_table(table.name, table.schema)
        except errors.SourceError as error:
            raise errors.unusable_entry(self.storage.locate(place), error) from None

    def restore_queries(self) -> None:
        """Those that run, and those that a request has created and no batch has seen."""
        requests = self.requests.read_after(self.runner.manifest.through)
        found = foresee(self.runner.entries, {}, requests)[0]
        handles = [QueryHandle(self.owner, id_, entry.query, restored=True) for id_, entry in found.items()]
        self.catalog = self.catalog.with_queries(handles)
        self.activate_streams()

    def tell_connected(self, term: int, timeline: str, fork: bool) -> None:
        log.info(
            "session", "connected", place=self.storage.place, term=term, timeline=timeline[:12],
            fork=fork or None, streams=len(self.catalog.streams), queries=len(self.catalog.queries),
        )  # fmt: skip

    # -- the pipeline ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        if self.pipeline.is_running:
            self.pipeline.tick()

    def used_streams(self) -> set[str]:
        """Those that some running query reads, or one that is to run again."""
        requests = self.requests.read_after(self.runner.manifest.through)
        resumed = {request.name for _, request in requests if isinstance(request, ResumeRequest)}
        handles = self.catalog.queries.items()
        running = [h.definition for name, h in handles if name in resumed or self.entry_of(h).runs]
        return {stream for query in running for stream in query.streams}

    def read_too(self, streams: Collection[str]) -> None:
        """These are read from now on, besides those that are."""
        active = self.feeding.active
        if not active.keys() >= {*streams}:
            self.feeding.activate(self.catalog.streams, {*active, *streams})

    def are_read(self, streams: Collection[str]) -> bool:
        """Whether running queries read them all. It looks no further than to the first that does."""
        handles = self.catalog.queries.values()
        return all(
            any(stream in h.definition.streams and self.entry_of(h).runs for h in handles) for stream in streams
        )

    def activate_streams(self) -> None:
        with self.mutex:
            used = self.used_streams()
            self.feeding.activate(self.catalog.streams, used)
            # A landing waits for nothing that the mutex is held for, so it can be waited for under it.
            if not self.is_draining and self.feeding.is_started:
                self.feeding.stop(but=used if self.pipeline.is_running else ())

    def after_batch(self) -> None:
        with self.mutex:
            self.activate_streams()
            ids = {*self.runner.entries, *(h.id for h in self.catalog.queries.values())}
            self.delivery.forget_all_but(ids)
            # What a dropped query has given can be read as long as somebody holds its handle.
            self.delivery.kept = {h.id for h in self.alive}
            self.delivery.results.forget_reads(ids | self.delivery.kept)

    def after_end(self, reason: errors.ThalwegError | None) -> None:
        """Rows of a DataFrame that nobody would read are not landed any more."""
        if reason is not None:
            with self.mutex:
                self.feeding.stop()
