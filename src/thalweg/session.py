"""The session: everything a user does, each verb carried out over the parts that `verbs/` puts together."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from thalweg.batch.listeners import Listener
from thalweg.handle import Fare, QueryHandle, Status
from thalweg.model.if_there import IfThere
from thalweg.model.stream import Stream
from thalweg.state.catalog import Table
from thalweg.statements import run_statements
from thalweg.verbs import explaining, looking, new_queries, opening, queries, running, streams, tables
from thalweg.verbs.explaining import copy_state
from thalweg.verbs.looking import SessionProgress
from thalweg.verbs.settings import JOIN_EPOCH, SessionSettings, budget_of, span_or_none, spark_or_none

__all__ = ["QueryHandle", "Session", "Status", "connect", "copy_state"]


def connect(
    state_dir: str | Path,
    spark: Any = None,
    *,
    slots: int | str | None = None,
    repartition: str | timedelta | None = "4 minutes",
    join_epoch: int | None = JOIN_EPOCH,
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
    take for the rows of one task; a query that takes more fails. None: any. `worker_memory`: the memory that it
    may take, as bytes or as "2 GB"; unless given, the machine's divided by its cores, a fifth of it where they are
    many."""
    return Session(
        opening.open_storage(state_dir),
        opening.on_spark(spark_or_none(spark), settings, landing),
        SessionSettings(
            slots,
            span_or_none(repartition),
            join_epoch,
            small_batches,
            fork,
            budget_of(expression_time, worker_memory),
        ),
    )


class Session:
    """One state, one pipeline, any number of queries. Methods may be called from any thread."""

    def __init__(self, place: opening.Place, open_engine: opening.OpenEngine, settings: SessionSettings) -> None:
        self._parts = opening.open_parts(self, place, open_engine, settings)
        self.storage = self._parts.storage

    # -- streams -------------------------------------------------------------------------------------------

    def create_stream(
        self,
        name: str,
        source: Any,
        *,
        time: str | None = None,
        watermark: str | timedelta | None = None,
        schema: Any = None,
        max_ahead: str | timedelta | None = streams.DEFAULT_AHEAD,
        idle_timeout: str | timedelta | None = streams.DEFAULT_IDLE,
        retain_rejected: str | int | None = streams.DEFAULT_RETAINED,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Stream:
        """A named source with an event-time column and a watermark delay: both must be given.

        `max_ahead`: how far a row's time may be ahead of the clock when its batch begins; what is later is set aside
        and moves no watermark. None: no bound, as for generators unless given. `idle_timeout`: after so long without
        rows the stream holds no join back; None: it always does. `retain_rejected`: how much is kept of what was set
        aside, such as '100 MB', the newest first; None: all.

        After a restart the same definition takes up the stream that the state directory holds, with these three as
        they were there unless they are given. Of a name that is taken, `replace=True` begins anew with nothing, if
        no query reads what was there and the definition is another; `if_not_exists=True` leaves it as it is.
        """
        limits = streams.Limits(max_ahead, idle_timeout, retain_rejected)
        if_there = IfThere(replace, if_not_exists)
        return streams.create_stream(self._parts, name, source, time, watermark, schema, limits, if_there)

    def alter_stream(
        self,
        name: str,
        *,
        watermark: str | timedelta = streams.KEPT,
        idle_timeout: str | timedelta | None = streams.KEPT,
        max_ahead: str | timedelta | None = streams.KEPT,
    ) -> Stream:
        """Changes what is given of a stream, from the next batch on; durable when this returns.

        A watermark never goes back: with a longer delay it stays where it is until rows have come that are that far
        ahead of it, and windows that are open stay open for longer. With a shorter one it moves forward at once.
        """
        return streams.alter_stream(self._parts, name, streams.Changes(watermark, idle_timeout, max_ahead))

    def drop_stream(self, name: str, *, if_exists: bool = False) -> None:
        """Forgets a stream that no query reads, and all that is kept of it. Durable when this returns."""
        streams.drop_stream(self._parts, name, if_exists)

    def reset_watermark(self, name: str) -> None:
        """Has the watermark of a stream begin anew with the rows that come from the next batch on. It is durable when
        this returns.

        What is kept of open windows stays. Windows that had closed may be given once more, made of rows from then on:
        `progress()["streams"][name]["reset"]` says since when and up to where, the status of their queries from when
        on they are complete. Outer, semi and anti joins stay where they are: what was late for them is.
        """
        streams.reset_watermark(self._parts, name)

    def stream(self, name: str) -> Stream:
        return self._parts.catalog.stream(name)

    @property
    def streams(self) -> Mapping[str, Stream]:
        return MappingProxyType(self._parts.catalog.streams)

    @property
    def state_dir(self) -> Path | str:
        """Where the state is: a directory, or the URL of an object store."""
        return self.storage.place if "://" in self.storage.place else Path(self.storage.place)

    # -- tables --------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        source: Any,
        *,
        schema: Any = None,
        format: str | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Table:
        """A static table that streams can be joined with: a DataFrame, an Arrow table, or the path of a file.

        It is read now. `replace=True` reads it anew under the same columns, and so does the first call after a
        restart; rows that arrive from the next batch on are joined with the new rows. `if_not_exists=True` leaves one
        that is there as it is.
        """
        if_there = IfThere(replace, if_not_exists)
        return tables.create_table(self._parts, name, source, schema, format, if_there)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        tables.drop_table(self._parts, name, if_exists)

    @property
    def tables(self) -> Mapping[str, Table]:
        return MappingProxyType(self._parts.catalog.tables)

    # -- queries -------------------------------------------------------------------------------------------

    def create_query(
        self,
        name: str,
        select: str,
        sink: new_queries.Sink | None = None,
        *,
        emit: str = "final",
        options: Mapping[str, str] | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> QueryHandle:
        """A continuous query. It is durable when this returns and takes part from the next batch on.

        Of a name that is taken, `replace=True` ends the query that has it, unless it says the same, and begins this
        one with the same batch; if this one is refused, the other goes on. `if_not_exists=True` leaves it as it is.
        """
        given = new_queries.Given(name, select, sink, emit, options, IfThere(replace, if_not_exists))
        return new_queries.create_queries(self._parts, [given])[0]

    def create_queries(
        self,
        given: Iterable[new_queries.Listed],
        *,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> list[QueryHandle]:
        """Many continuous queries at once: all of them are created, or none.

        Each is given as `(name, select)`, `(name, select, sink)`, or as a dictionary of the arguments of
        `create_query`. They are durable when this returns, together, and take part from the next batch on; the
        handles come in the same order. What is wrong with one is raised as `create_query` would raise it, with its
        place in the list, and nothing has been created then. `replace` and `if_not_exists` are as for one query, and
        hold for each. It takes much less time than one after the other.
        """
        return new_queries.create_list(self._parts, given, IfThere(replace, if_not_exists))

    def drop_query(self, name: str, *, if_exists: bool = False) -> None:
        """Ends a query from the next batch on; state that only it used is freed then."""
        queries.drop_query(self._parts, name, if_exists)

    def pause_query(self, name: str) -> None:
        """Keeps the results of a query from its sink until it is resumed, durably and from now on. The query goes on
        being computed."""
        queries.pause_query(self._parts, name)

    def resume_query(self, name: str) -> None:
        """Delivers what was kept of a query, from the first batch on. One that failed or stopped is computed again
        from the next batch on, as if it were created then; what is missing in between stays missing."""
        queries.resume_query(self._parts, name)

    def query(self, name: str) -> QueryHandle:
        return self._parts.catalog.query(name)

    @property
    def own_aggregates(self) -> Collection[str]:
        """Names of the aggregates that the program has defined."""
        return self._parts.aggregates.offered()

    @property
    def queries(self) -> Mapping[str, QueryHandle]:
        return MappingProxyType(self._parts.catalog.queries)

    # -- SQL -----------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Any:
        """Runs statements. CREATE QUERY gives its handle, SHOW a table, EXPLAIN a text; several give a list.

        Of several none takes effect where one would be refused."""
        results = run_statements(self._parts, text)
        return results[0] if len(results) == 1 else results

    def rehearse(self) -> None:
        """From now on statements are only tried out, to be explained: no sink is opened, and nothing can be started.

        Over a copy of a state directory's definitions (`copy_state`) nothing of it stays.
        """
        self._parts.rehearses = True

    # -- running -------------------------------------------------------------------------------------------

    def start(self, trigger: str = "1 second") -> None:
        """Runs in the background until `stop`: a batch whenever there is input, at most one per trigger."""
        running.start(self._parts, trigger)

    def run_available(self) -> None:
        """Processes everything that is there, emits every window that the final watermark closes, returns."""
        running.run_available(self._parts)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits until the pipeline ends, and raises what ended it, if it did not end by `stop`. False: that took
        longer than `timeout` seconds."""
        return self._parts.pipeline.await_end(timeout)

    def stop(self, timeout: float | None = 30.0) -> None:
        """Ends the pipeline, waits until sinks have what is for them, and frees the state directory. What is not
        finished after `timeout` seconds (None: it is waited for) goes on at the next connect."""
        running.stop(self._parts, timeout)

    # -- looking -------------------------------------------------------------------------------------------

    def explain(self, name: str | None = None, form: str = "text") -> str:
        """What runs and why, for all queries or for one. `form`: "text", or "mermaid" or "graphviz" for a picture."""
        return explaining.explain(self._parts, name, form)

    def progress(self) -> dict[str, Any]:
        """Counters: what has come in, what has gone out, how long batches take.

        Raises what has ended the pipeline or a source in the background; `start` or `run_available` goes on after it.
        """
        return self.snapshot().as_dict()

    def snapshot(self) -> SessionProgress:
        """The same as a value with types: `session.snapshot().streams["s"].late`."""
        return looking.progress(self._parts)

    def add_listener(self, listener: Listener) -> None:
        """Calls `listener.on_progress(progress)` after every batch from now on, with what is in
        `progress()["last_progress"]`, and `listener.on_terminated(error)`, if it has that, when the pipeline ends.

        It is called in the thread of the batches, which waits for it. One that raises is not called again.
        """
        self._parts.pipeline.listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._parts.pipeline.listeners.remove(listener)

    def rejected(self, stream: str) -> pa.Table:
        """The rows and files of a stream that were set aside, each with file, line, batch, reason, row, time and
        stream. With `retain_rejected` the newest of them."""
        return looking.rejected(self._parts, stream)

    @property
    def status(self) -> Status:
        """state (running, idle, failed, stopped), error, the last batch, and how many queries are in which state."""
        return looking.status(self._parts)

    # -- what handles ask ----------------------------------------------------------------------------------

    def fare_of(self, handle: QueryHandle) -> Fare:
        return looking.fare_of(self._parts, handle)

    def results_of(self, handle: QueryHandle) -> pa.Table:
        return looking.results_of(self._parts, handle)

    def kept_of(self, handle: QueryHandle) -> tuple[int, int] | None:
        return looking.kept_of(self._parts, handle)

    # -- in a prompt ---------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        catalog = self._parts.catalog
        counts = f"{_counted(len(catalog.streams), 'stream')}, {_counted(len(catalog.queries), 'query', 'queries')}"
        return f"<thalweg session in {self.storage.place}: {self._parts.state}, {counts}>"

    def _repr_html_(self) -> str:
        shown = [table._repr_html_() for table in run_statements(self._parts, "SHOW STREAMS; SHOW QUERIES")]
        return f"<p>{html.escape(repr(self))}</p>{''.join(shown)}"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _counted(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
