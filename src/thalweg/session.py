"""The session: everything a user does, put together from the other packages."""

from __future__ import annotations

import copy
import difflib
import html
import os
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from thalweg import errors, partition
from thalweg.adapt.settings import EPOCH, JoinPlanning, Repartitioning
from thalweg.adapt.small_batches import SETTINGS as SMALL_BATCHES
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.delivery import Delivery
from thalweg.batch.hands import Hands
from thalweg.batch.listeners import Listener
from thalweg.batch.requests import foresee, registered
from thalweg.batch.run import BatchRunner
from thalweg.batch.tables import fitting, store_table
from thalweg.engine.contract import Engine
from thalweg.frontend.bind import bind
from thalweg.frontend.delivery_options import normal_options
from thalweg.frontend.intervals import parse_interval
from thalweg.frontend.statements import Show, parse
from thalweg.handle import Fare, QueryHandle, Status
from thalweg.model.budget import Budget, parse_bytes
from thalweg.model.entry import Entry
from thalweg.model.manifest import StreamProgress
from thalweg.model.own import Definition
from thalweg.model.partitioning import AUTO, COMBINE, HASH, LOCAL
from thalweg.model.query import Query, SinkSpec, is_same_query, query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.types import to_arrow
from thalweg.observe import log
from thalweg.observe.drawing import FORMS, draw
from thalweg.observe.explain import explain_failed, explain_plan, explain_query
from thalweg.observe.progress import progress_of
from thalweg.observe.shown import Explanation
from thalweg.observe.stopwatch import mean, shares
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.rehearsal import Trial, unstored
from thalweg.sink.callables import check_callback, to_callable
from thalweg.sink.kinds import is_delivered, keeps_results
from thalweg.source.contract import Source
from thalweg.source.kinds import SOURCES, is_same_source
from thalweg.source.schema import as_schema
from thalweg.state.catalog import Table, check_catalog, load_streams, load_tables, save_streams, save_tables
from thalweg.state.definitions import copy_definitions
from thalweg.state.manifest import Manifests
from thalweg.state.places import open_storage
from thalweg.state.rejected import read_rejected
from thalweg.state.requests import CreateQuery as CreateQueryRequest
from thalweg.state.requests import DropQuery as DropQueryRequest
from thalweg.state.requests import PauseQuery as PauseQueryRequest
from thalweg.state.requests import RequestLog, ResetWatermark
from thalweg.state.requests import ResumeQuery as ResumeQueryRequest
from thalweg.state.storage import Storage
from thalweg.state.term import take_term
from thalweg.statements import execute, execute_all
from thalweg.streams import (
    DEFAULT_AHEAD,
    DEFAULT_IDLE,
    DEFAULT_RETAINED,
    stream_progress,
    to_delay,
    to_microseconds,
    with_limits,
    wrong_time,
)
from thalweg.user_aggregates import InUse

__all__ = ["QueryHandle", "Session", "Status", "connect", "copy_state"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
Callback = Callable[[pa.Table, int], Any]
_UNWELL = ("failed", "stopped", "paused", "waiting", "retrying")


def connect(
    state_dir: str | Path,
    spark: Any = None,
    *,
    slots: int | str | None = None,
    repartition: str | timedelta | None = "4 minutes",
    join_epoch: int | None = EPOCH,
    small_batches: str = "spark",
    fork: bool = False,
    landing: str | Path | None = None,
    expression_time: str | timedelta | None = "60 seconds",
    worker_memory: int | str | None = None,
    **settings: Any,
) -> Session:
    """Opens (or makes) a state: a directory, or a URL of an object store (`s3://bucket/prefix`). What it holds of
    streams and queries goes on where it was.

    `spark`: an existing SparkSession; without it a local one is made, with `settings` for its configuration. `slots`:
    places where state lives and work is done; one per core unless given. "auto": as many as there is work for, up to
    one per core. `repartition`: how often the assignment of keys to slots is optimised (also when the data drift);
    None: never. `join_epoch`: batches after which the orders of joins are looked at again; None: they are not
    planned. `small_batches`: where batches of little work run: "spark", in one task; or "driver", in this process,
    which is quicker, but what goes wrong there goes wrong here. Never with aggregates of your own. `fork`: the state
    is a copy of another that goes on, or is behind its sinks: it becomes one of its own, whose queries must have new
    places for their results. `expression_time`: the time of a processor that an expression, a group or a window may
    take for the rows of one task; a query that takes more is stopped. None: any. `worker_memory`: the memory that it
    may take, as bytes or as "2 GB"; unless given, the machine's divided by its cores, a fifth of it where they are
    many."""
    if not isinstance(state_dir, str | os.PathLike) and type(state_dir).__module__.startswith("pyspark."):
        raise errors.session_as_directory(type(state_dir).__name__)
    budget = Budget(
        None if expression_time is None else to_microseconds(expression_time) / 1e6,
        None if worker_memory is None else parse_bytes(worker_memory),
    )
    every = None if repartition is None else to_microseconds(repartition)

    def on_spark() -> Engine:
        from thalweg.engine.spark_engine import SparkEngine  # a session without Spark does not load it

        return SparkEngine(spark, settings, None if landing is None else os.fspath(landing))

    return Session(open_storage(state_dir), on_spark, slots, every, join_epoch, small_batches, fork, budget)


def copy_state(state_dir: str | Path, into: str | Path) -> None:
    """What a state says of streams, tables and queries, into a directory that is not there yet. The state is only
    read, and may be in use."""
    storage = open_storage(state_dir)
    storage.check()
    copy_definitions(storage, open_storage(into))


@dataclass(frozen=True)
class _Known:
    """What a SELECT may name."""

    streams: Mapping[str, Stream]
    tables: Mapping[str, Schema]
    own: Mapping[str, Definition]


class Session:
    """One state, one pipeline, any number of queries. Methods may be called from any thread."""

    _trial: Trial | None = None
    """Of a session that only tries statements out."""

    def __init__(
        self,
        storage: Storage,
        open_engine: Callable[[], Engine],
        slots: int | str | None,
        repartition_us: int | None,
        join_epoch: int | None,
        small_batches: str | None = None,
        fork: bool = False,
        budget: Budget | None = None,
        hands: Hands | None = None,
    ) -> None:
        """`open_engine` is called once the state is ours. `small_batches`: None if all run alike. `hands`: who gives
        results to sinks; threads of their own unless given."""
        if small_batches is not None and small_batches not in SMALL_BATCHES:
            raise errors.bad_small_batches(small_batches, SMALL_BATCHES)
        if join_epoch is not None and (not isinstance(join_epoch, int) or join_epoch < 1):
            raise errors.bad_join_epoch(join_epoch)
        whole = isinstance(slots, int) and not isinstance(slots, bool)
        if not (slots is None or slots == AUTO or (whole and int(slots) > 0)):
            raise errors.bad_slots(slots)
        self.storage = storage
        storage.claim()
        self._hold = storage.hold()
        try:
            self._engine = open_engine()
            self._mutex = threading.RLock()
            storage.sweep()
            term = take_term(storage, fork)
            manifests = Manifests(storage)
            newest = manifests.newest()
            self._streams, self._tables = load_streams(storage), load_tables(storage)
            if newest is not None:
                check_catalog(storage, newest, self._streams, self._tables)
            self._requests: RequestLog | None = RequestLog(storage, 0 if newest is None else newest.through)
            self._restored, self._restored_tables = set(self._streams), set(self._tables)
            self._sources: dict[str, Source] = {}
            self._aggregates = InUse()
            self._delivery = Delivery(self._engine, storage, term, newest, hands)
            self._runner = BatchRunner(
                self._engine.runner,
                storage,
                term,
                manifests,
                self._requests,
                lambda: self._streams,
                lambda: self._tables,
                self._delivery,
                slots=None if slots == AUTO else int(slots or self._engine.runner.tasks),
                repartitioning=None if repartition_us is None else Repartitioning(repartition_us / 1e6),
                join_planning=None if join_epoch is None else JoinPlanning(join_epoch),
                functions=self._aggregates.code,
                check_hold=self._hold.check,
                small_batches=SmallBatches(small_batches, self._engine.runner.tasks) if small_batches else None,
                budget=budget,
            )
            self._handles: dict[str, QueryHandle] = {}
            self._active: Mapping[str, Stream] = {}
            self._pipeline = self._engine.pipeline(
                self._runner, lambda: self._streams, lambda: self._active, self._after_batch
            )
            self._pipeline.after_end = self._after_end
            self._analyzer = self._engine.analyzer
            self._register_known()
            self._alive: weakref.WeakSet[QueryHandle] = weakref.WeakSet()
            self._draining = False
            self._rehearses = False
            self._restore_handles()
            log.info(
                "session", "connected", place=storage.place, term=term.number, timeline=term.timeline[:12],
                fork=fork or None, streams=len(self._streams), queries=len(self._handles),
            )  # fmt: skip
        except BaseException:
            self._hold.release()
            if hasattr(self, "_engine"):
                self._engine.stop()
            raise

    # -- streams -------------------------------------------------------------------------------------------

    def create_stream(
        self,
        name: str,
        source: Any,
        *,
        time: str,
        watermark: str | timedelta,
        schema: Any = None,
        max_ahead: str | timedelta | None = DEFAULT_AHEAD,
        idle_timeout: str | timedelta | None = DEFAULT_IDLE,
        retain_rejected: str | int | None = DEFAULT_RETAINED,
    ) -> Stream:
        """A named source with an event-time column and a watermark delay.

        `max_ahead`: how far a row's time may be ahead of the clock when its batch begins; what is later is set aside
        and moves no watermark. None: no bound, as for generators unless given. `idle_timeout`: after so long without
        rows the stream holds no join back; None: it always does. `retain_rejected`: how much is kept of what was set
        aside, such as '100 MB', the newest first; None: all.

        After a restart the same definition takes up the stream that the state directory holds, with these three as
        they were there unless they are given.
        """
        with self._mutex:
            self._check_mine()
            _check_name("stream", name)
            source = self._engine.source(name, source, self.storage)
            if not isinstance(source, Source):
                raise errors.wrong_source(name, source)
            stream = self._stream(name, source, time, watermark, schema)
            known = self._streams.get(name)
            stream = with_limits(stream, known, max_ahead, idle_timeout, retain_rejected)
            if (known is not None and name not in self._restored) or name in self._tables:
                raise errors.name_taken("stream", name)
            if known is not None and not _same_stream(known, stream):
                raise errors.definition_differs("stream", name)
            # Before anything is kept: what the analyser refuses, no later session could open.
            self._analyzer.register(stream)
            self._restored.discard(name)
            if self._trial is not None:
                self._streams = {**self._streams, name: stream}
                return stream
            source.attach(self.storage, name, self._pipeline.wake)
            self._sources = {**self._sources, name: source}  # not in place: progress() looks without the mutex
            self._streams = {**self._streams, name: stream}
            save_streams(self.storage, self._streams)
            if known is None:
                log.info("session", "stream_created", stream=name, source=stream.source.kind)
            self._activate_streams()
            if self._pipeline.is_running and not self._draining and name in self._active:
                self._feed([name])  # queries have waited for it
            return stream

    def reset_watermark(self, name: str) -> None:
        """Has the watermark of a stream begin anew with the rows that come from the next batch on. It is durable when
        this returns.

        What is kept of open windows stays. Windows that had closed may be given once more, made of rows from then on:
        `progress()["streams"][name]["reset"]` says since when and up to where, the status of their queries from when
        on they are complete. Outer, semi and anti joins stay where they are: what was late for them is.
        """
        with self._mutex:
            requests = self._check_mine()
            self.stream(name)
            requests.append(ResetWatermark(name))
            self._wake()

    def stream(self, name: str) -> Stream:
        if name not in self._streams:
            raise errors.unknown_name("stream", name, _near(name, self._streams), self._streams)
        return self._streams[name]

    def _stream(self, name: str, source: Source, time: str, watermark: str | timedelta, schema: Any) -> Stream:
        columns: Schema | None
        if schema is not None:
            columns = as_schema(schema)
        elif name in self._restored and source.recall(self._streams[name].source):
            columns = self._streams[name].schema
        else:
            columns = source.schema()
        if columns is None:
            raise errors.unknown_schema(name)
        wrong = wrong_time(name, columns, time, source if schema is None else None)
        try:
            delay_us = to_delay(name, watermark)
        except errors.ThalwegError as error:
            raise error if wrong is None else errors.also(wrong, error) from None
        if wrong is not None:
            raise wrong
        for column in columns.names:
            if column.startswith("."):
                raise errors.reserved_column(name, column)
        return Stream(name, columns, time, delay_us, source.spec())

    @property
    def state_dir(self) -> Path | str:
        """Where the state is: a directory, or the URL of an object store."""
        return self.storage.place if "://" in self.storage.place else Path(self.storage.place)

    @property
    def streams(self) -> Mapping[str, Stream]:
        return MappingProxyType(self._streams)

    # -- tables --------------------------------------------------------------------------------------------

    def create_table(
        self, name: str, source: Any, *, schema: Any = None, format: str | None = None, replace: bool = False
    ) -> Table:
        """A static table that streams can be joined with: a DataFrame, an Arrow table, or the path of a file.

        It is read now. `replace=True` reads it anew under the same columns, and so does the first call after a
        restart; rows that arrive from the next batch on are joined with the new rows.
        """
        given = None if schema is None else as_schema(schema)
        with self._mutex:
            expected = self._table_columns(name, given, replace)
        # Not under the mutex, which every batch needs to end: a DataFrame may take its time.
        rows = self._engine.read_table(name, source, expected, format)
        columns = expected or as_schema(rows.schema)
        self._analyzer.check_table(name, columns)
        if self._trial is not None:
            return self._try_table(self._trial, name, rows, columns, replace)
        table = store_table(self.storage, name, rows, columns)
        with self._mutex:
            self._table_columns(name, columns, replace)  # the name may have been taken, or come into use, meanwhile
            self._analyzer.register_table(name, columns)
            before, tables = self._tables.get(name), {**self._tables, name: table}
            save_tables(self.storage, tables)
            self._tables = tables
            if before is not None:
                self._runner.retire_table(before)
            self._restored_tables.discard(name)
            return table

    def _try_table(self, trial: Trial, name: str, rows: pa.Table, columns: Schema, replace: bool) -> Table:
        fitting(name, rows, columns)
        with self._mutex:
            self._table_columns(name, columns, replace)
            self._analyzer.register_table(name, columns)
            trial.rows.append(rows)
            self._tables = {**self._tables, name: unstored(name, rows, columns)}
            self._restored_tables.discard(name)
            return self._tables[name]

    def _table_columns(self, name: str, given: Schema | None, replace: bool) -> Schema | None:
        """Those that a table of the name must have; None: any. Raises where there can be none."""
        self._check_mine()
        _check_name("table", name)
        known = self._tables.get(name)
        if name in self._streams or (known is not None and not replace and name not in self._restored_tables):
            raise errors.name_taken("table", name)
        if known is None or not self._uses_table(name):
            return given
        if given is not None and given != known.schema:
            raise errors.table_in_use(name, "its columns cannot change")
        return known.schema

    def drop_table(self, name: str) -> None:
        with self._mutex:
            self._check_mine()
            if name not in self._tables:
                raise errors.unknown_name("table", name, _near(name, self._tables), self._tables)
            if self._uses_table(name):
                raise errors.table_in_use(name, "it cannot be dropped")
            tables = {n: t for n, t in self._tables.items() if n != name}
            if self._trial is None:
                save_tables(self.storage, tables)
                self._runner.retire_table(self._tables[name])
            self._tables = tables
            self._analyzer.unregister(name)

    def _uses_table(self, name: str) -> bool:
        joins = (h.definition.join for h in self._handles.values())
        return any(name == t.table for join in joins if join is not None for t in join.tables)

    @property
    def tables(self) -> Mapping[str, Table]:
        return MappingProxyType(self._tables)

    # -- queries -------------------------------------------------------------------------------------------

    def create_query(
        self,
        name: str,
        select: str,
        sink: SinkSpec | Callback | None = None,
        *,
        emit: str = "final",
        options: Mapping[str, str] | None = None,
    ) -> QueryHandle:
        """A continuous query. It is durable when this returns and takes part from the next batch on."""
        self._check_mine()
        _check_name("query", name)
        spec = sink if isinstance(sink, SinkSpec) else to_callable() if callable(sink) else SinkSpec()
        if sink is not None and not isinstance(sink, SinkSpec) and not callable(sink):
            raise errors.wrong_sink(name, sink)
        if callable(sink):
            check_callback(name, sink)
        pairs = tuple(sorted(normal_options(name, options or {}).items()))
        bind_here = partial(self._bind, name, select, spec, pairs, emit)
        # Not under the mutex, which every batch needs to end: Spark's analyser may take its time.
        known = self._known()
        query = bind_here(known)
        with self._mutex:
            requests = self._check_mine()
            if self._known() != known:
                known = self._known()
                query = bind_here(known)
            own = known.own
            handle = self._handles.get(name)
            if handle is not None and not handle.restored:
                raise errors.name_taken("query", name)
            if handle is not None and not is_same_query(handle.definition, query):
                raise errors.definition_differs("query", name)
            if emit == "updates" and (query.order or query.limit is not None):
                raise errors.updates_are_unordered(name)
            trying = self._trial is not None
            self._delivery.check(query, opening=not self._rehearses, trying=trying)
            if trying:
                self._handles = {**self._handles, name: QueryHandle(self, query_id(name, 0), query)}
                return self._handles[name]
            self._aggregates.take(query if handle is None else handle.definition, own)
            if self._pipeline.is_running and not self._draining:
                self._feed(query.streams)  # before it is durable: a DataFrame that cannot be run is told here
            if handle is None:
                number = requests.append(CreateQueryRequest(query))
                handle = QueryHandle(self, query_id(name, number), query)
                self._alive.add(handle)
                log.info("session", "query_created", query=name, streams=query.streams, sink=spec.kind)
            handle.restored = False
            if callable(sink):
                self._delivery.callbacks[handle.id] = sink
                self._delivery.queues.wake(handle.id)
            self._handles = {**self._handles, name: handle}
            self._activate_streams()
            self._wake()
            self._tell(handle, ("failed", "stopped", "paused"))
            return handle

    def _known(self) -> _Known:
        tables = {t.name: t.schema for t in self._tables.values()}
        return _Known(self._streams, tables, self._aggregates.offered())

    def _bind(
        self, name: str, select: str, sink: SinkSpec, options: tuple[tuple[str, str], ...], emit: str, known: _Known
    ) -> Query:
        query = bind(
            name, select, known.streams, self._analyzer,
            sink=sink, options=options, emit=emit, tables=known.tables, own=known.own, queries=self._handles,
        )  # fmt: skip
        _tell_summed_text(query, known.streams)
        _check_join_limit(query)
        _check_partitioner(query)
        # Alone, for what can go wrong in it: what is durable, every batch plans.
        make_plan([Registered(name, query)], known.streams, slots=1, tables=known.tables)
        return query

    def drop_query(self, name: str) -> None:
        """Ends a query from the next batch on; state that only it used is freed then."""
        with self._mutex:
            requests = self._check_mine()
            handle = self.query(name)
            left = {n: h for n, h in self._handles.items() if n != name}
            if self._trial is not None:
                self._handles = left
                return
            requests.append(DropQueryRequest(name))
            self._delivery.queues.discard(handle.id)
            log.info("session", "query_dropped", query=name)
            self._handles = left
            handle.dropped = True
            self._activate_streams()
            self._wake()

    def pause_query(self, name: str) -> None:
        """Keeps the results of a query from its sink until it is resumed, durably and from now on. The query goes on
        being computed."""
        with self._mutex:
            requests = self._check_mine()
            handle, queues = self.query(name), self._delivery.queues
            if not is_delivered(handle.definition.sink):
                raise errors.nothing_to_pause(name, handle.definition.sink.kind)
            entry, known = self.entry_of(handle), queues.look(handle.id)
            if known.state == "paused" and known.reason is None:  # somebody said so before
                return
            queues.pause(entry)  # first: a batch that sees the request finds it so
            try:
                requests.append(PauseQueryRequest(name))
            except BaseException:
                if known.state == "paused":
                    queues.pause(entry, known.reason or "")
                else:
                    queues.resume(handle.id)
                raise
            log.info("delivery", "paused_by_hand", query=name)
            self._wake()

    def resume_query(self, name: str) -> None:
        """Delivers what was kept of a query, from the first batch on. One that failed or stopped is computed again
        from the next batch on, as if it were created then; what is missing in between stays missing."""
        with self._mutex:
            requests = self._check_mine()
            handle, queues = self.query(name), self._delivery.queues
            entry, known = self.entry_of(handle), queues.look(handle.id)
            if entry.runs and known.state != "paused":
                queues.resume(handle.id)  # its next try is now
                return
            queues.resume(handle.id)
            try:
                requests.append(ResumeQueryRequest(name))
            except BaseException:
                if known.state == "paused":
                    queues.pause(entry, known.reason or "")
                raise
            log.info("delivery", "query_resumed", query=name, batches_kept=known.batches)
            self._activate_streams()
            self._wake()

    def query(self, name: str) -> QueryHandle:
        if name not in self._handles:
            raise errors.unknown_name("query", name, _near(name, self._handles), self._handles)
        return self._handles[name]

    @property
    def own_aggregates(self) -> Collection[str]:
        """Names of the aggregates that the program has defined."""
        return self._aggregates.offered()

    @property
    def queries(self) -> Mapping[str, QueryHandle]:
        return MappingProxyType(self._handles)

    # -- SQL -----------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Any:
        """Runs statements. CREATE QUERY gives its handle, SHOW a table, EXPLAIN a text; several give a list.

        Of several none takes effect where one would be refused."""
        results = execute_all(self, parse(text), text)
        return results[0] if len(results) == 1 else results

    @contextmanager
    def trial(self) -> Iterator[tuple[Session, Trial]]:
        """A session that accepts and refuses as this one would, and keeps nothing."""
        trial = Trial(self._analyzer, lambda: (self._streams, self._tables), self._mutex)
        trying = copy.copy(self)
        trying._trial, trying._analyzer = trial, trial
        trying._restored, trying._restored_tables = set(self._restored), set(self._restored_tables)
        try:
            yield trying, trial
        finally:
            trial.take_back()

    # -- running -------------------------------------------------------------------------------------------

    def start(self, trigger: str = "1 second") -> None:
        """Runs in the background until `stop`: a batch whenever there is input, at most one per trigger."""
        with self._mutex:
            self._check_open()
            if self._pipeline.is_running or self._draining:
                raise errors.already_running()
            every_us = parse_interval(trigger)
            if every_us < 0:
                raise errors.bad_trigger(trigger)
            self._check_sources()
            self._stop_landings()  # what a pipeline that failed has left
            try:
                self._feed(self._used_streams())
                self._pipeline.start(every_us)
            except BaseException:
                self._stop_landings()
                raise

    def run_available(self) -> None:
        """Processes everything that is there, emits every window that the final watermark closes, returns."""
        with self._mutex:
            self._check_open()
            if self._pipeline.is_running or self._draining or self._delivery.queues.is_here:
                raise errors.already_running()
            self._check_sources()
            self._stop_landings()  # what a pipeline that failed has left
            landings = self._landings(self._used_streams())
            self._draining = True
        try:
            for landing in landings:
                landing.run_available()
            self._pipeline.run_available()
        finally:
            self._draining = False
        troubled = self._delivery.queues.troubled()
        for handle in self._handles.values():
            if handle.id in troubled or not self.entry_of(handle).runs or self._missing(handle) is not None:
                self._tell(handle)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits until the pipeline ends, and raises what ended it, if it did not end by `stop`. False: that took
        longer than `timeout` seconds."""
        return self._pipeline.await_end(timeout)

    def stop(self, timeout: float | None = 30.0) -> None:
        """Ends the pipeline, waits until sinks have what is for them, and frees the state directory. What is not
        finished after `timeout` seconds (None: it is waited for) goes on at the next connect."""
        if self._delivery.queues.is_here:
            raise errors.stopped_inside_batch()
        self._pipeline.stop()  # not under the mutex: the batch that is ending needs it
        if self._requests is not None:
            self._finish_delivery(timeout)
        self._runner.adaptations.wait(20)
        with self._mutex:
            if self._requests is None:
                return
            self._stop_landings()
            for source in self._sources.values():
                source.detach()
            self._requests.close()
            self._requests = None
            self._hold.release()
            self._engine.stop()
            log.info("session", "stopped", place=self.storage.place)

    def _finish_delivery(self, timeout: float | None) -> None:
        try:
            if not self._runner.flush(timeout):
                left = len(self._delivery.queues.waiting())
                log.warning("delivery", "not_delivered_in_time", results=left)
            self._runner.note_delivery()
        except Exception as error:  # the next connect finds it, too
            log.warning("delivery", "not_all_delivered", error=error)
        finally:
            self._delivery.queues.close()

    def __repr__(self) -> str:
        state = self._state()
        counts = f"{_counted(len(self._streams), 'stream')}, {_counted(len(self._handles), 'query', 'queries')}"
        return f"<thalweg session in {self.storage.place}: {state}, {counts}>"

    def _repr_html_(self) -> str:
        shown = [execute(self, Show(what), "")._repr_html_() for what in ("streams", "queries")]
        return f"<p>{html.escape(repr(self))}</p>{''.join(shown)}"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- looking -------------------------------------------------------------------------------------------

    def rehearse(self) -> None:
        """From now on statements are only tried out, to be explained: no sink is opened, and nothing can be started.

        Over a copy of a state directory's definitions (`copy_state`) nothing of it stays.
        """
        self._rehearses = True

    def explain(self, name: str | None = None, form: str = "text") -> str:
        """What runs and why, for all queries or for one. `form`: "text", or "mermaid" or "graphviz" for a picture."""
        if form not in ("text", *FORMS):
            raise errors.unknown_form(form, ("text", *FORMS))
        with self._mutex:
            entries = [self.entry_of(h) for h in self._handles.values()]
            decided = self._runner.decided
            plan = make_plan(
                registered(entries),
                self._streams,
                slots=decided.slots,
                loads=decided.loads,
                tables={t.name: t.schema for t in self._tables.values()},
                joins=decided.joins,
                assignment=decided.placement.assignment,
                follows=decided.placement.follows,
                partitioners=decided.placement.partitioners,
                spread=decided.placement.spread,
            )
            manifest = self._runner.manifest
            id_ = None if name is None else self.entry_of(self.query(name)).id
            failed = {e.id: e for e in entries if not e.runs}
            names = {e.id: e.query for e in entries if e.id not in failed}
            if form in FORMS:
                return Explanation(FORMS[form](draw(plan, names, manifest, id_)))
            reports = self._runner.partitioning_report(), self._runner.ordering_report()
            if id_ is None:
                failures = {e.query.name: e.error or "" for e in failed.values()}
                return Explanation(explain_plan(plan, names, manifest, *reports, failures))
            if id_ in failed:
                return Explanation(explain_failed(failed[id_].query, failed[id_].error or ""))
            return Explanation(explain_query(plan, names, id_, manifest, *reports))

    def progress(self) -> dict[str, Any]:
        """Counters: what has come in, what has gone out, how long batches take.

        Raises what has ended the pipeline or a source in the background; `start` or `run_available` goes on after it.
        """
        self._check_alive()
        manifest, reports = self._runner.manifest, self._runner.reports
        last = reports[-1] if reports else None
        recent = [r for r in reports[-5:] if r.rows]
        seconds = sum(r.seconds for r in recent)
        marks = self._runner.watermarks()
        streams = {name: stream_progress(name, manifest, marks) for name in self._streams}
        return {
            "batch": manifest.batch,
            "rows": sum(s["rows"] for s in streams.values()),
            "rows_per_second": sum(r.rows for r in recent) / seconds if seconds else 0.0,
            "batch_seconds": last.seconds if last else 0.0,
            "phases": dict(last.phases) if last else {},
            "time": self._time(),
            "state": {
                "buckets": len(manifest.buckets) + len(manifest.stores),
                "rows": sum(b.section.rows for b in (*manifest.buckets, *manifest.stores)),
                "bytes": sum(b.nbytes for b in (*manifest.buckets, *manifest.stores)),
            },
            "sent_bytes": last.sent_bytes if last else 0,
            "slots": self._runner.slots,
            "partitioning": asdict(self._runner.partitioning_report()),
            "join_orders": asdict(self._runner.ordering_report()),
            "queries": {
                name: Status(h.status, held_by=marks.held_by(h.definition.streams))
                for name, h in self._handles.items()
            },
            "streams": streams,
            "last_progress": progress_of(last) if last else None,
        }

    def add_listener(self, listener: Listener) -> None:
        """Calls `listener.on_progress(progress)` after every batch from now on, with what is in
        `progress()["last_progress"]`, and `listener.on_terminated(error)`, if it has that, when the pipeline ends.

        It is called in the thread of the batches, which waits for it. One that raises is not called again.
        """
        self._pipeline.listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._pipeline.listeners.remove(listener)

    def _time(self) -> dict[str, Any]:
        """Where the time goes: of the last batch, of those that brought rows on average, and in shares of these."""
        reports = self._runner.reports
        usual = mean([r.time for r in reports if r.rows])
        last = dict(reports[-1].time) if reports else mean([])
        return {"cores": self._runner.tasks, "last": last, "mean": usual, "shares": shares(usual)}

    def rejected(self, stream: str) -> pa.Table:
        """The rows and files of a stream that were set aside, each with file, line, batch, reason, row, time and
        stream. With `retain_rejected` the newest of them."""
        manifest = self._runner.manifest
        p = manifest.streams.get(stream, StreamProgress())
        kept = p.rejected - p.forgotten
        return read_rejected(self.storage, stream, manifest.batch, kept, p.rejected_from)

    @property
    def status(self) -> Status:
        """state (running, idle, failed, stopped), error, the last batch, and how many queries are in which state."""
        failure = self._pipeline.failure
        counts = Counter(handle.status.state for handle in self._handles.values())
        error = None if failure is None else str(failure)
        return Status(state=self._state(), error=error, batch=self._runner.manifest.batch, queries=dict(counts))

    def _state(self) -> str:
        if self._requests is None:
            return "stopped"
        if self._pipeline.is_running or self._draining:
            return "running"
        return "idle" if self._pipeline.failure is None else "failed"

    # -- inside --------------------------------------------------------------------------------------------

    def fare_of(self, handle: QueryHandle) -> Fare:
        entry, known = self.entry_of(handle), self._delivery.queues.look(handle.id)
        size = known.batches, known.rows, known.nbytes
        failure, state = self._pipeline.failure, self._state()
        if not entry.runs or state == "stopped":
            return Fare(entry, entry.state if not entry.runs else state, entry.error, *size)
        if state == "failed":
            return Fare(entry, "stopped", str(failure), *size)
        missing = self._missing(handle)
        if missing is not None and known.state != "paused":
            return Fare(entry, "waiting", str(missing), *size)
        if known.is_troubled:
            return Fare(entry, known.state, known.reason, *size)
        return Fare(entry, "pending" if entry.state == "pending" else state, None, *size)

    def _missing(self, handle: QueryHandle) -> errors.ThalwegError | None:
        """What a program that started again has not given yet, and the query needs."""
        ungiven = self._delivery.missing(handle.id, handle.definition)
        if ungiven is not None:
            return ungiven
        for name in handle.definition.streams:
            kind = SOURCES.find(self._streams[name].source.kind)
            if kind is None:
                return errors.source_not_installed(name, self._streams[name].source.kind)
            if not kind.in_sql and name not in self._sources:
                return errors.source_not_given(name)
        return None

    def _tell(self, handle: QueryHandle, states: Collection[str] = _UNWELL) -> None:
        """Logs how a query fares that does not do what it should."""
        status = handle.status
        if status.state not in states:
            return
        log.warning(
            "delivery", "not_delivering", query=handle.name, state=status.state,
            reason=(status.error or "paused by hand").partition("\n")[0], rows_kept=status.undelivered.rows or None,
            hint=None if status.state in ("waiting", "retrying") else f"RESUME QUERY {handle.name}",
        )  # fmt: skip

    def entry_of(self, handle: QueryHandle) -> Entry:
        return self._runner.entries.get(handle.id) or Entry(handle.id, handle.definition, "pending")

    def results_of(self, handle: QueryHandle) -> pa.Table:
        query = handle.definition
        if not keeps_results(query.sink):
            raise errors.not_in_memory(query.name, query.sink.kind)
        schema = pa.schema([pa.field(o.name, to_arrow(o.expr.type)) for o in query.outputs])
        return self._delivery.results.read(handle.id, schema)

    def _restore_handles(self) -> None:
        requests = self._runner.requests.read_after(self._runner.manifest.through)
        for id_, entry in foresee(self._runner.entries, {}, requests)[0].items():
            self._handles[entry.query.name] = QueryHandle(self, id_, entry.query, restored=True)
        self._activate_streams()

    def _after_batch(self) -> None:
        with self._mutex:
            self._activate_streams()
            ids = {*self._runner.entries, *(h.id for h in self._handles.values())}
            self._delivery.forget_all_but(ids)
            # What a dropped query has given can be read as long as somebody holds its handle.
            self._delivery.kept = {h.id for h in self._alive}
            self._delivery.results.forget_reads(ids | self._delivery.kept)

    def _after_end(self, reason: errors.ThalwegError | None) -> None:
        """Rows of a DataFrame that nobody would read are not landed any more."""
        if reason is not None:
            with self._mutex:
                self._stop_landings()

    def _activate_streams(self) -> None:
        """Only streams that some query reads are read; the others wait where they are."""
        with self._mutex:
            used = self._used_streams()
            self._active = {name: s for name, s in self._streams.items() if name in used}
            # A landing waits for nothing that the mutex is held for, so it can be waited for under it.
            if not self._draining and any(landing.is_started for landing in self._landings()):
                self._stop_landings(but=used if self._pipeline.is_running else ())

    def _used_streams(self) -> set[str]:
        """Those that some running query reads, or one that is to run again."""
        requests = self._runner.requests.read_after(self._runner.manifest.through)
        resumed = {request.name for _, request in requests if isinstance(request, ResumeQueryRequest)}
        handles = self._handles.items()
        running = [h.definition for name, h in handles if name in resumed or self.entry_of(h).runs]
        return {stream for query in running for stream in query.streams}

    def _wake(self) -> None:
        if self._pipeline.is_running:
            self._pipeline.tick()

    def _landings(self, names: Collection[str] | None = None) -> list[Source]:
        """Of the streams that are named, or of all."""
        return [source for name, source in self._sources.items() if names is None or name in names]

    def _feed(self, streams: Collection[str]) -> None:
        """Has the DataFrames of these streams landed from now on."""
        for landing in self._landings(streams):
            if not landing.is_started:
                landing.start()

    def _stop_landings(self, but: Collection[str] = ()) -> None:
        for landing in self._landings(set(self._sources) - set(but)):
            landing.stop()

    def _check_sources(self) -> None:
        if self._rehearses:
            raise errors.only_rehearsed()
        for handle in self._handles.values():
            if self.entry_of(handle).runs:
                self._aggregates.take(handle.definition, self._aggregates.offered())

    def _check_open(self) -> RequestLog:
        """Not whether anything has failed: what is called now may be what puts it right."""
        if self._requests is None:
            raise errors.session_stopped()
        return self._requests

    def _check_mine(self) -> RequestLog:
        """Before the state is changed: another session may have taken it over."""
        requests = self._check_open()
        self._runner.check_mine()
        return requests

    def _check_alive(self) -> None:
        """Raises what has ended the pipeline or a source in the background, until it is started again."""
        self._pipeline.check()
        for landing in self._landings():
            landing.check()

    def _register_known(self) -> None:
        """What the state directory holds, made known to the analyser."""
        try:
            place = "catalog.json"
            for stream in self._streams.values():
                self._analyzer.register(stream)
            place = "tables.json"
            for table in self._tables.values():
                self._analyzer.register_table(table.name, table.schema)
        except errors.SourceError as error:
            raise errors.unusable_entry(self.storage.locate(place), error) from None


def _same_stream(known: Stream, given: Stream) -> bool:
    """Whether a program that starts again means the stream that the state directory holds."""
    same_source = is_same_source(known.source, given.source)
    limits = {name: getattr(given, name) for name in ("max_ahead_us", "idle_us", "retain_rejected")}
    return same_source and replace(known, source=given.source, **limits) == given


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise errors.bad_name(kind, name)


def _tell_summed_text(query: Query, streams: Mapping[str, Stream]) -> None:
    """As in Spark, a text is added up as a number: rows whose text is none end the query."""
    texts = {f.name for s in query.streams for f in streams[s].schema.fields if f.type == "string"}
    for aggregate in query.aggregates:
        columns = {column for arg in aggregate.args for column in arg.columns}
        if aggregate.function in ("sum", "avg") and columns and columns <= texts:
            log.warning("session", "text_as_number", query=query.name, function=aggregate.function, columns=columns)


def _check_join_limit(query: Query) -> None:
    given = dict(query.options).get("join_limit")
    if given is not None and not (given.isdecimal() and int(given) > 0):
        raise errors.bad_option(query.name, "join_limit", given, "the most rows that one key may yield in one batch")


def _check_partitioner(query: Query) -> None:
    given = dict(query.options).get("partitioner", AUTO)
    known = (AUTO, COMBINE, LOCAL, *partition.names())
    if given not in known:
        raise errors.partitioner_unknown(given, known)
    if given in (AUTO, COMBINE):
        return
    if query.window is None or not query.keys:
        raise errors.nothing_to_partition(query.name, given)
    if query.emit == "updates" and given != HASH:
        raise errors.updates_stay_whole(query.name, given)


def _counted(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _near(name: str, known: Mapping[str, Any]) -> list[str]:
    return difflib.get_close_matches(name, list(known), n=3)
