"""The session: everything a user does, put together from the other packages."""

from __future__ import annotations

import difflib
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from thalweg import errors, partition
from thalweg.adapt.probe_orders.loop import JoinPlanning
from thalweg.adapt.probe_orders.measure import EPOCH
from thalweg.adapt.slot_assignment import Repartitioning
from thalweg.adapt.small_batches import SETTINGS as SMALL_BATCHES
from thalweg.adapt.small_batches import SmallBatches
from thalweg.aggregates import InUse
from thalweg.batch.delivery import Delivery
from thalweg.batch.listeners import Listener
from thalweg.batch.requests import registered
from thalweg.batch.run import BatchRunner
from thalweg.batch.tables import store_table
from thalweg.engine.contract import Engine, Feeder
from thalweg.frontend.bind import bind
from thalweg.frontend.intervals import parse_interval
from thalweg.frontend.statements import (
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropTable,
    Explain,
    Show,
    parse,
)
from thalweg.model.entry import Entry
from thalweg.model.manifest import StreamProgress
from thalweg.model.partitioning import AUTO, COMBINE, HASH, LOCAL
from thalweg.model.query import Query, SinkSpec, query_from_json, query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.types import element_type, to_arrow
from thalweg.model.windows import BEGINNING
from thalweg.observe.drawing import FORMS, draw
from thalweg.observe.explain import explain_failed, explain_plan, explain_query
from thalweg.observe.progress import progress_of
from thalweg.observe.stopwatch import mean, shares
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.sink.specs import parse_spec, to_callable
from thalweg.source.schema import as_schema
from thalweg.source.sources import Files, Memory, files, generate, memory
from thalweg.state.catalog import Table, check_catalog, load_streams, load_tables, save_streams, save_tables
from thalweg.state.definitions import copy_definitions
from thalweg.state.manifest import Manifests
from thalweg.state.places import open_storage
from thalweg.state.rejected import read_rejected
from thalweg.state.requests import CreateQuery as CreateQueryRequest
from thalweg.state.requests import DropQuery as DropQueryRequest
from thalweg.state.requests import RequestLog
from thalweg.state.storage import Storage
from thalweg.state.term import take_term

__all__ = ["QueryHandle", "Session", "Status", "connect", "copy_state"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US, _LAST_US = (
    (end.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
Callback = Callable[[pa.Table, int], Any]


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
    places for their results."""
    every = None if repartition is None else to_microseconds(repartition)

    def on_spark() -> Engine:
        from thalweg.engine.spark_engine import SparkEngine  # a session without Spark does not load it

        return SparkEngine(spark, settings, None if landing is None else os.fspath(landing))

    return Session(open_storage(state_dir), on_spark, slots, every, join_epoch, small_batches, fork)


def copy_state(state_dir: str | Path, into: str | Path) -> None:
    """What a state says of streams, tables and queries, into a directory that is not there yet. The state is only
    read, and may be in use."""
    storage = open_storage(state_dir)
    storage.check()
    copy_definitions(storage, open_storage(into))


class Session:
    """One state, one pipeline, any number of queries. Methods may be called from any thread."""

    def __init__(
        self,
        storage: Storage,
        open_engine: Callable[[], Engine],
        slots: int | str | None,
        repartition_us: int | None,
        join_epoch: int | None,
        small_batches: str | None = None,
        fork: bool = False,
    ) -> None:
        """`open_engine` is called once the state is ours. `small_batches`: None if all run alike."""
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
            self._sources: dict[str, Any] = {}
            self._aggregates = InUse()
            self._delivery = Delivery(self._engine, storage, term, newest)
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
            )
            self._handles: dict[str, QueryHandle] = {}
            self._active: Mapping[str, Stream] = {}
            self._pipeline = self._engine.pipeline(
                self._runner, lambda: self._streams, lambda: self._active, self._after_batch
            )
            self._analyzer = self._engine.analyzer
            self._register_known()
            self._alive: weakref.WeakSet[QueryHandle] = weakref.WeakSet()
            self._draining = False
            self._rehearses = False
            self._restore_handles()
        except BaseException:
            self._hold.release()
            raise

    # -- streams -------------------------------------------------------------------------------------------

    def create_stream(
        self, name: str, source: Any, *, time: str, watermark: str | timedelta, schema: Any = None
    ) -> Stream:
        """A named source with an event-time column and a watermark delay.

        After a restart the same definition takes up the stream that the state directory holds.
        """
        with self._mutex:
            self._check_mine()
            _check_name("stream", name)
            source = self._engine.source(name, source, self.storage)
            if not hasattr(source, "spec"):
                raise errors.wrong_source(name, source)
            stream = self._stream(name, source, time, watermark, schema)
            known = self._streams.get(name)
            if (known is not None and name not in self._restored) or name in self._tables:
                raise errors.name_taken("stream", name)
            if known is not None and not _same_stream(known, stream):
                raise errors.definition_differs("stream", name)
            # Before anything is kept: what the analyser refuses, no later session could open.
            self._analyzer.register(stream)
            self._restored.discard(name)
            if isinstance(source, Memory):
                source.bind(self.storage, name, self._pipeline.wake)
            self._sources = {**self._sources, name: source}  # not in place: progress() looks without the mutex
            self._streams = {**self._streams, name: stream}
            save_streams(self.storage, self._streams)
            self._activate_streams()
            return stream

    def _stream(self, name: str, source: Any, time: str, watermark: str | timedelta, schema: Any) -> Stream:
        columns: Schema | None
        if schema is not None:
            columns = memory(schema).schema()
        elif isinstance(source, Files) and name in self._restored:
            # The files that they were taken from may be gone, and others be the first now.
            source.recall(self._streams[name].source)
            columns = self._streams[name].schema
        else:
            columns = source.schema()
        if columns is None:
            raise errors.unknown_schema(name)
        if time not in columns:
            raise errors.missing_time_column(name, time, columns.names)
        if columns.type_of(time) not in ("timestamp", "timestamp_ntz"):
            raise errors.bad_time_column(name, time, columns.type_of(time))
        for column in columns.names:
            if column.startswith("."):
                raise errors.reserved_column(name, column)
        return Stream(name, columns, time, to_microseconds(watermark), source.spec())

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
        given = None if schema is None else memory(schema).schema()
        with self._mutex:
            expected = self._table_columns(name, given, replace)
        # Not under the mutex, which every batch needs to end: a DataFrame may take its time.
        rows = self._engine.read_table(name, source, expected, format)
        columns = expected or as_schema(rows.schema)
        self._analyzer.check_table(name, columns)
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
                raise errors.unknown_name("table", name, _near(name, self._tables))
            if self._uses_table(name):
                raise errors.table_in_use(name, "it cannot be dropped")
            tables = {n: t for n, t in self._tables.items() if n != name}
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
        with self._mutex:
            requests = self._check_mine()
            _check_name("query", name)
            spec = sink if isinstance(sink, SinkSpec) else to_callable() if callable(sink) else SinkSpec()
            if sink is not None and not isinstance(sink, SinkSpec) and not callable(sink):
                raise errors.wrong_sink(name, sink)
            pairs = tuple(sorted((option, str(value)) for option, value in (options or {}).items()))
            tables = {t.name: t.schema for t in self._tables.values()}
            own = self._aggregates.offered()
            query = bind(
                name, select, self._streams, self._analyzer,
                sink=spec, options=pairs, emit=emit, tables=tables, own=own,
            )  # fmt: skip
            _check_join_limit(query)
            _check_arrays(query)
            _check_partitioner(query)
            handle = self._handles.get(name)
            if handle is not None and not handle.restored:
                raise errors.name_taken("query", name)
            if handle is not None and handle.definition != query:
                raise errors.definition_differs("query", name)
            if emit == "updates" and (query.order or query.limit is not None):
                raise errors.updates_are_unordered(name)
            # Alone, for what can go wrong in it: what is durable, every batch plans.
            make_plan([Registered(name, query)], self._streams, slots=1, tables=tables)
            self._delivery.check(query, opening=not self._rehearses)
            self._aggregates.take(query if handle is None else handle.definition, own)
            if self._pipeline.is_running and not self._draining:
                self._feed(query.streams)  # before it is durable: a DataFrame that cannot be run is told here
            if handle is None:
                number = requests.append(CreateQueryRequest(query.json))
                handle = QueryHandle(self, query_id(name, number), query)
                self._alive.add(handle)
            handle.restored = False
            if callable(sink):
                self._delivery.callbacks[handle.id] = sink
            self._handles = {**self._handles, name: handle}
            self._activate_streams()
            self._wake()
            return handle

    def drop_query(self, name: str) -> None:
        """Ends a query from the next batch on; state that only it used is freed then."""
        with self._mutex:
            requests = self._check_mine()
            handle = self.query(name)
            requests.append(DropQueryRequest(name))
            self._handles = {n: h for n, h in self._handles.items() if n != name}
            handle.dropped = True
            self._activate_streams()
            self._wake()

    def query(self, name: str) -> QueryHandle:
        if name not in self._handles:
            raise errors.unknown_name("query", name, _near(name, self._handles))
        return self._handles[name]

    @property
    def queries(self) -> Mapping[str, QueryHandle]:
        return MappingProxyType(self._handles)

    # -- SQL -----------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Any:
        """Runs statements. CREATE QUERY gives its handle, SHOW a table, EXPLAIN a text; several give a list."""
        results = [self._execute(statement, text) for statement in parse(text)]
        return results[0] if len(results) == 1 else results

    def _execute(self, statement: Any, text: str) -> Any:
        match statement:
            case CreateStream():
                return self._create_stream_from(statement)
            case CreateQuery():
                return self._create_query_from(statement, text)
            case DropQuery(name):
                return self.drop_query(name)
            case CreateTable():
                return self._create_table_from(statement)
            case DropTable(name):
                return self.drop_table(name)
            case Show(what):
                return self._show(what)
            case Explain(name, form):
                return self.explain(name, form)
        raise AssertionError(statement)

    def _create_stream_from(self, statement: CreateStream) -> Stream:
        options: dict[str, Any] = dict(statement.options)
        kind = options.pop("source", "files")
        schema = None if statement.fields is None else Schema(statement.fields)
        delay = timedelta(microseconds=statement.delay_us)
        if kind == "files":
            source: Any = files(options.pop("path", ""), **options)
        elif kind == "generate":
            source = generate(options.pop("generator", statement.name), **options)
        elif kind == "memory":
            if schema is None:
                raise errors.unknown_schema(statement.name)
            source = memory(schema)
        else:
            raise errors.unknown_source(kind)
        return self.create_stream(statement.name, source, time=statement.time, watermark=delay, schema=schema)

    def _create_table_from(self, statement: CreateTable) -> Table:
        options = dict(statement.options)
        schema = None if statement.fields is None else Schema(statement.fields)
        path, kind = options.pop("path", ""), options.pop("format", None)
        if options:
            raise errors.bad_table(statement.name, f"there is no option {next(iter(options))!r}", "path, format")
        return self.create_table(statement.name, path, schema=schema, format=kind, replace=statement.replace)

    def _create_query_from(self, statement: CreateQuery, text: str) -> QueryHandle:
        options = dict(statement.options)
        own = {name: options.pop(name) for name in _QUERY_OPTIONS if statement.sink is not None and name in options}
        sink = parse_spec(statement.sink, options) if statement.sink is not None else None
        try:
            return self.create_query(
                statement.name,
                statement.select,
                sink,
                emit=statement.emit,
                options=own if sink is not None else options,
            )
        except errors.SqlError as error:
            raise errors.moved(error, text, statement.offset) from None

    def _show(self, what: str) -> pa.Table:
        if what == "tables":
            return pa.Table.from_pylist(
                [
                    {
                        "table": t.name,
                        "rows": t.version.rows,
                        "columns": ", ".join(f"{f.name} {f.type}" for f in t.schema.fields),
                    }
                    for t in self._tables.values()
                ],
                schema=_SHOW_TABLES,
            )
        if what == "streams":
            rows = [
                {
                    "stream": s.name,
                    "source": s.source.kind,
                    "time": s.time,
                    "watermark_delay_us": s.delay_us,
                    "columns": ", ".join(f"{f.name} {f.type}" for f in s.schema.fields),
                }
                for s in self._streams.values()
            ]
            return pa.Table.from_pylist(rows, schema=_SHOW_STREAMS)
        rows = [
            {
                "query": name,
                "state": h.status["state"],
                "stream": ", ".join(h.definition.streams),
                "sink": h.definition.sink.kind,
                "select": h.definition.text,
            }
            for name, h in self._handles.items()
        ]
        return pa.Table.from_pylist(rows, schema=_SHOW_QUERIES)

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
            if self._pipeline.is_running or self._draining:
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

    def stop(self) -> None:
        """Ends the pipeline and frees the state directory. What was not finished goes on at the next connect."""
        self._pipeline.stop()  # not under the mutex: the batch that is ending needs it
        self._runner.repartitioner.wait(10)
        self._runner.join_planner.wait(10)
        with self._mutex:
            if self._requests is None:
                return
            self._stop_landings()
            for source in self._sources.values():
                if isinstance(source, Memory):
                    source.unbind()
            self._requests.close()
            self._requests = None
            self._hold.release()
            self._engine.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._requests is None else "running" if self._pipeline.is_running else "idle"
        counts = f"{_counted(len(self._streams), 'stream')}, {_counted(len(self._handles), 'query', 'queries')}"
        return f"<thalweg session in {self.storage.place}: {state}, {counts}>"

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
            entries = [self._entry(h) for h in self._handles.values()]
            plan = make_plan(
                registered(entries),
                self._streams,
                slots=self._runner.slots,
                loads=self._runner.loads(),
                tables={t.name: t.schema for t in self._tables.values()},
                joins=self._runner.join_load(),
                **self._runner.partitioning(),
            )
            manifest = self._runner.manifest
            id_ = None if name is None else self._entry(self.query(name)).id
            failed = {e.id: e for e in entries if e.state == "failed"}
            names = {e.id: e.query for e in entries if e.id not in failed}
            if form in FORMS:
                return FORMS[form](draw(plan, names, manifest, id_))
            reports = self._runner.partitioning_report(), self._runner.ordering_report()
            if id_ is None:
                failures = {e.query.name: e.error or "" for e in failed.values()}
                return explain_plan(plan, names, manifest, *reports, failures)
            if id_ in failed:
                return explain_failed(failed[id_].query, failed[id_].error or "")
            return explain_query(plan, names, id_, manifest, *reports)

    def progress(self) -> dict[str, Any]:
        """Counters: what has come in, what has gone out, how long batches take.

        Raises what has ended the pipeline or a source in the background; `start` or `run_available` goes on after it.
        """
        self._check_alive()
        manifest, reports = self._runner.manifest, self._runner.reports
        last = reports[-1] if reports else None
        recent = [r for r in reports[-5:] if r.rows]
        seconds = sum(r.seconds for r in recent)
        streams = {}
        for name in self._streams:
            p = manifest.streams.get(name)
            closed = manifest.closed.get(name, BEGINNING)
            streams[name] = {
                "rows": p.rows if p else 0,
                "late": p.late if p else 0,
                "rejected": p.rejected if p else 0,
                "watermark": None if closed <= BEGINNING else _instant(closed),
            }
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
            "queries": {name: h.status for name, h in self._handles.items()},
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
        """The rows of a stream that could not be read, each with its reason."""
        manifest = self._runner.manifest
        progress = manifest.streams.get(stream, StreamProgress())
        return read_rejected(self.storage, stream, manifest.batch, progress.rejected)

    # -- inside --------------------------------------------------------------------------------------------

    def _entry(self, handle: QueryHandle) -> Entry:
        return self._runner.entries.get(handle.id) or Entry(handle.id, handle.definition, "pending")

    def _read_results(self, handle: QueryHandle) -> pa.Table:
        query = handle.definition
        if query.sink.kind != "memory":
            raise errors.not_in_memory(query.name, query.sink.kind)
        schema = pa.schema([pa.field(o.name, to_arrow(o.expr.type)) for o in query.outputs])
        return self._delivery.results.read(handle.id, schema)

    def _restore_handles(self) -> None:
        for id_, entry in self._runner.entries.items():
            self._handles[entry.query.name] = QueryHandle(self, id_, entry.query, restored=True)
        for number, request in self._runner.requests.read_after(self._runner.manifest.through):
            if isinstance(request, CreateQueryRequest):
                query = query_from_json(request.query)
                self._handles[query.name] = QueryHandle(self, query_id(query.name, number), query, restored=True)
            else:
                self._handles.pop(request.name, None)
        self._activate_streams()

    def _after_batch(self) -> None:
        with self._mutex:
            self._activate_streams()
            ids = {*self._runner.entries, *(h.id for h in self._handles.values())}
            self._delivery.forget_all_but(ids)
            # What a dropped query has given can be read as long as somebody holds its handle.
            self._delivery.kept = {h.id for h in self._alive}
            self._delivery.results.forget_reads(ids | self._delivery.kept)

    def _activate_streams(self) -> None:
        """Only streams that some query reads are read; the others wait where they are."""
        with self._mutex:
            used = self._used_streams()
            self._active = {name: s for name, s in self._streams.items() if name in used}
            # A landing waits for nothing that the mutex is held for, so it can be waited for under it.
            if not self._draining and any(landing.is_started for landing in self._landings()):
                self._stop_landings(but=used if self._pipeline.is_running else ())

    def _used_streams(self) -> set[str]:
        """Those that some running query reads."""
        running = [h.definition for h in self._handles.values() if self._entry(h).state != "failed"]
        return {stream for query in running for stream in query.streams}

    def _wake(self) -> None:
        if self._pipeline.is_running:
            self._pipeline.tick()

    def _landings(self, names: Collection[str] | None = None) -> list[Feeder]:
        """Of the streams that are named, or of all."""
        sources = {name: s for name, s in self._sources.items() if isinstance(s, Feeder)}
        return [landing for name, landing in sources.items() if names is None or name in names]

    def _feed(self, streams: Collection[str]) -> None:
        """Has the DataFrames of these streams landed from now on."""
        self._check_given(streams)
        for landing in self._landings(streams):
            if not landing.is_started:
                landing.start()

    def _stop_landings(self, but: Collection[str] = ()) -> None:
        for landing in self._landings(set(self._sources) - set(but)):
            landing.stop()

    def _check_sources(self) -> None:
        if self._rehearses:
            raise errors.only_rehearsed()
        self._check_given(self._used_streams())
        for name, handle in self._handles.items():
            if handle.definition.sink.kind == "callable" and handle.id not in self._delivery.callbacks:
                raise errors.missing_callback(name)
            if self._entry(handle).state != "failed":
                self._aggregates.take(handle.definition, self._aggregates.offered())

    def _check_given(self, streams: Collection[str]) -> None:
        for name in sorted(streams):
            if self._streams[name].source.kind == "spark" and name not in self._sources:
                raise errors.source_not_given(name)

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


class Status(dict[str, Any]):
    """How a query fares; its entries can be read as attributes too: `query.status.state`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class QueryHandle:
    """A query in the hands of a user."""

    def __init__(self, session: Session, id_: str, definition: Query, restored: bool = False) -> None:
        self._session = session
        self.id = id_
        self.definition = definition
        self.restored = restored
        self.dropped = False

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def status(self) -> Status:
        """state (pending, running, failed, dropped), error, rows emitted, and from when on it is complete."""
        if self.dropped:
            return Status(state="dropped", error=None, emitted=0, complete_from=None)
        entry = self._session._entry(self)
        since = [us for us in (entry.fence and entry.fence[1], entry.complete_from) if us is not None]
        complete = _instant(max(since)) if since else None
        return Status(state=entry.state, error=entry.error, emitted=entry.emitted, complete_from=complete)

    def results(self) -> pa.Table:
        """All results so far, of a query without a sink of its own."""
        return self._session._read_results(self)

    def drop(self) -> None:
        """Ends the query. A second time does nothing, even if the name has been given to another query since."""
        if not self.dropped:
            self._session.drop_query(self.name)

    def explain(self, form: str = "text") -> str:
        return self._session.explain(self.name, form)

    def __repr__(self) -> str:
        return f"<query {self.name}: {self.status['state']}>"


_SHOW_STREAMS = pa.schema(
    [
        ("stream", pa.string()),
        ("source", pa.string()),
        ("time", pa.string()),
        ("watermark_delay_us", pa.int64()),
        ("columns", pa.string()),
    ]
)
_SHOW_QUERIES = pa.schema(
    [
        ("query", pa.string()),
        ("state", pa.string()),
        ("stream", pa.string()),
        ("sink", pa.string()),
        ("select", pa.string()),
    ]
)


_SHOW_TABLES = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("columns", pa.string())])


_QUERY_OPTIONS = ("join_limit", "partitioner")
"""Options that are the query's own, not its sink's."""
_FREE_OPTIONS = ("max_files_per_batch", "rows_per_batch", "pace")
"""Options of a source that may change from run to run: they do not change which rows there are."""


def _same_stream(known: Stream, given: Stream) -> bool:
    """Whether a program that starts again means the stream that the state directory holds."""

    def lasting(stream: Stream) -> dict[str, Any]:
        return {k: v for k, v in stream.source.options.items() if k not in _FREE_OPTIONS}

    same_source = known.source.kind == given.source.kind and lasting(known) == lasting(given)
    return same_source and replace(known, source=given.source) == given


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise errors.bad_name(kind, name)


def _check_join_limit(query: Query) -> None:
    given = dict(query.options).get("join_limit")
    if given is not None and not (given.isdecimal() and int(given) > 0):
        raise errors.bad_option(query.name, "join_limit", given, "the most rows that one key may yield in one batch")


def _check_arrays(query: Query) -> None:
    """A line of text has no place for an array."""
    kind = dict(query.sink.options).get("format") if query.sink.kind == "files" else None
    for output in query.outputs if kind in ("json", "csv") else ():
        if element_type(output.expr.type) is not None:
            raise errors.array_in_text(query.name, output.name, kind)


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


def _instant(us: int) -> datetime:
    """An event time, as near as Python's times come to it: rows may be of years that those do not reach."""
    return _EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), _LAST_US))


def to_microseconds(span: str | timedelta) -> int:
    """A length of time as the interfaces take it."""
    text = span if isinstance(span, str) else f"{span // timedelta(microseconds=1)} microseconds"
    return parse_interval(text)


def _counted(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _near(name: str, known: Mapping[str, Any]) -> list[str]:
    return difflib.get_close_matches(name, list(known), n=3)
