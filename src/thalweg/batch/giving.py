"""One call of a sink: what a manifest holds is committed. Tells what is the sink's fault from what is the state's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from thalweg import faults
from thalweg.batch.queue import LostResultsError
from thalweg.errors import ThalwegError, sink_raised
from thalweg.model.manifest import Prepared
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.sink.contract import Gathering, SectionSink, Sink
from thalweg.state.container import read_section
from thalweg.state.storage import Storage

faults.register("delivery.begin", "delivery.done")


def give(
    storage: Storage,
    query: Query,
    prepared: Prepared,
    open_sink: Callable[[], Sink],
    check_mine: Callable[[], None],
) -> None:
    """Whatever the sink raises becomes an error that tells of it. `check_mine`: raises if another session has taken
    over."""
    with _state_at_fault():
        faults.point("delivery.begin")
        check_mine()
    try:
        sink = open_sink()
        if isinstance(sink, SectionSink):  # it reads them itself
            sink.commit_sections(prepared.batch, prepared.sections)
        else:
            _give_rows(storage, sink, query, prepared)
    except (ThalwegError, LostResultsError):
        raise
    except BaseException as error:  # also a sink's own mistake, or a value that it cannot show
        raise sink_raised(query.name, query.sink.kind, error) from error
    with _state_at_fault():
        faults.point("delivery.done")


def _give_rows(storage: Storage, sink: Sink, query: Query, prepared: Prepared) -> None:
    with _state_at_fault():
        tables = [read_section(storage, section) for section in prepared.sections]
    table = pa.concat_tables([shown(t, shown_schema(query)) for t in tables]) if tables else None
    if prepared.parts and isinstance(sink, Gathering):
        sink.commit_parts(prepared.batch, table, prepared.parts)
    else:
        sink.commit(prepared.batch, prepared.token, table)


@contextmanager
def _state_at_fault() -> Iterator[None]:
    """What goes wrong here is no fault of a sink."""
    try:
        yield
    except BaseException as error:
        raise LostResultsError from error
