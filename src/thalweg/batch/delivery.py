"""Results to sinks: one log for all memory queries, one sink object for each of the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa

from thalweg.batch.contract import SinkOpener
from thalweg.batch.requests import Entry
from thalweg.errors import ThalwegError, failed_sink, repeated_column
from thalweg.model.plan import Member
from thalweg.model.query import Query
from thalweg.model.types import to_arrow
from thalweg.operate.finish import order_rows
from thalweg.sink.base import Callback, Sink, SinkContext, open_sink
from thalweg.sink.memory import ResultLog
from thalweg.state.identity import identity


class Delivery:
    """Opens a query's sink when its first results come, and keeps it."""

    def __init__(self, opener: SinkOpener, state_dir: Path) -> None:
        self._opener = opener
        self.owner = identity(state_dir)
        self.place = str(state_dir)
        self.log = ResultLog(state_dir)
        self.callbacks: dict[str, Callback] = {}
        """Query id -> the callable that takes its results."""
        self._sinks: dict[str, Sink] = {}

    def deliver(self, batch: int, results: Mapping[str, tuple[Entry, pa.Table]]) -> dict[str, str]:
        """Commits a batch; what a sink objects to stops its query, by id, and nothing else."""
        failed: dict[str, str] = {}
        kept = {id_: table for id_, (entry, table) in results.items() if entry.query.sink.kind == "memory"}
        if kept:
            self.log.commit(batch, kept)
        for id_, (entry, table) in results.items():
            if id_ not in kept and table.num_rows:
                try:
                    self._sink(entry).commit(batch, table)
                except ThalwegError as error:
                    failed[id_] = str(error)
                except (Exception, SystemExit) as error:  # a sink's own mistake, or a value that it cannot show
                    failed[id_] = str(failed_sink(entry.query.name, entry.query.sink.kind, error))
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
            return self._opener.open_sink(query, id_, self.owner)
        return open_sink(query.sink, SinkContext(query.name, self.owner, self.callbacks.get(id_), self.place))


def present(entry: Entry, member: Member | None, parts: list[pa.Table]) -> pa.Table:
    """A query's result as users see it: ordered, named and typed."""
    table = pa.concat_tables(parts)
    if member is not None and member.order:
        table = order_rows(table, member)
    outputs = entry.query.outputs
    arrays = [table.column(i).cast(to_arrow(o.expr.type)) for i, o in enumerate(outputs)]
    return pa.Table.from_arrays(arrays, names=[o.name for o in outputs])
