"""A query in the hands of a user."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from msgspec.structs import asdict

from thalweg.errors import UsageError
from thalweg.model.entry import Entry
from thalweg.model.query import Query
from thalweg.observe.progress import as_time
from thalweg.observe.shown import table_html, table_text

_END = "drop() ends a query, pause() keeps its results back, session.stop() ends the pipeline of all"
_WAIT = (
    "queries share one pipeline: session.await_termination() waits for its end, session.run_available() works until "
    "all that is there is processed"
)
_LOOK = "query.status tells how it fares, session.progress() what the pipeline does"
_ROWS = "results() gives its rows as an Arrow table; results().to_pandas() as a DataFrame"
_ELSEWHERE = {
    **dict.fromkeys(("stop", "cancel", "terminate", "close"), _END),
    **dict.fromkeys(("awaitTermination", "await_termination", "processAllAvailable", "wait"), _WAIT),
    **dict.fromkeys(("isActive", "is_active", "state", "lastProgress", "recentProgress", "exception"), _LOOK),
    **dict.fromkeys(("toPandas", "to_pandas", "collect", "fetchall", "print", "head", "df"), _ROWS),
    "start": "a query takes part from the next batch on; session.start() starts the pipeline",
}
"""What users of other systems ask of a query -> what there is."""


class Status(dict[str, Any]):
    """How a query fares; its entries can be read as attributes too: `query.status.state`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Fare:
    """How a query fares at this moment."""

    entry: Entry
    state: str
    error: str | None = None
    batches: int = 0
    rows: int = 0
    nbytes: int = 0
    """What its sink has not been given."""


class HandleOwner(Protocol):
    """What a handle asks of its session."""

    def fare_of(self, handle: QueryHandle) -> Fare: ...

    def pause_query(self, name: str) -> None: ...

    def resume_query(self, name: str) -> None: ...

    def results_of(self, handle: QueryHandle) -> pa.Table: ...

    def kept_of(self, handle: QueryHandle) -> tuple[int, int] | None: ...

    def drop_query(self, name: str) -> None: ...

    def explain(self, name: str | None = None, form: str = "text") -> str: ...


class QueryHandle:
    """A query in the hands of a user."""

    def __init__(self, session: HandleOwner, id_: str, definition: Query, restored: bool = False) -> None:
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
        """state, error (also why results are not delivered), rows emitted, since when they are complete, how many
        are kept for `results()`, what its sink has not been given, and the gap in its results, if there is one. The
        states:

        pending (before its first batch), running, idle (the pipeline does not run), waiting (for its callable or
        DataFrame), retrying (its sink), paused (results are kept), failed, stopped, dropped."""
        gone = Fare(Entry(self.id, self.definition), "dropped")
        fare = gone if self.dropped else self._session.fare_of(self)
        entry, gap = fare.entry, fare.entry.gap
        kept = None if self.dropped else self._session.kept_of(self)
        since = [us for us in (entry.fence and entry.fence[1], entry.complete_from) if us is not None]
        return Status(
            state=fare.state,
            error=fare.error,
            emitted=entry.emitted,
            complete_from=as_time(max(since)) if since else None,
            results=None if kept is None else Status(rows=kept[0], bytes=kept[1]),
            undelivered=Status(batches=fare.batches, rows=fare.rows, bytes=fare.nbytes),
            gap=None if gap is None else Status(asdict(gap)),
        )

    def pause(self) -> None:
        """Keeps results from its sink, durably, until `resume`. The query goes on being computed."""
        self._session.pause_query(self.name)

    def resume(self) -> None:
        """Delivers what was kept, from the first batch on. A query that failed or stopped is computed again from the
        next batch on."""
        self._session.resume_query(self.name)

    def results(self) -> pa.Table:
        """All results so far, of a query without a sink of its own; with `retain_results` the newest."""
        return self._session.results_of(self)

    def drop(self) -> None:
        """Ends the query. A second time does nothing, even if the name has been given to another query since."""
        if not self.dropped:
            self._session.drop_query(self.name)

    def explain(self, form: str = "text") -> str:
        return self._session.explain(self.name, form)

    def show(self, rows: int = 20) -> None:
        """Prints the first results so far, of a query without a sink of its own."""
        print(table_text(self.results(), rows))

    def __repr__(self) -> str:
        return f"<query {self.name}: {self.status['state']}>"

    def _repr_html_(self) -> str:
        try:
            shown = table_html(self.results())
        except UsageError:  # they are elsewhere
            shown = ""
        return f"<p>{html.escape(repr(self))}, {self.status['emitted']:,} rows emitted</p>{shown}"

    def __getattr__(self, name: str) -> Any:
        """Only for names that there are not: for those of other systems, the error names what to call instead."""
        known = f"'{type(self).__name__}' object has no attribute {name!r}"
        instead = _ELSEWHERE.get(name)
        raise AttributeError(known if instead is None else f"{known}: {instead}", name=name, obj=self)
