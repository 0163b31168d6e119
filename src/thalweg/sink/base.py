"""The contract of a sink, and the registry of those that this process can write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from thalweg.errors import ThalwegError, sink_raised, unknown_sink
from thalweg.model.bucket import Section
from thalweg.model.manifest import Prepared
from thalweg.model.query import SinkSpec

Callback = Callable[[pa.Table, int], Any]


class PartWriter(Protocol):
    """Results of one query that a task writes itself, in pieces."""

    @property
    def rows(self) -> int:
        """How many were written."""
        ...

    @property
    def nbytes(self) -> int:
        """How many, as Arrow has them."""
        ...

    def write(self, table: pa.Table) -> None:
        """Rows as operators make them: not yet named and typed as users see them."""
        ...

    def finish(self) -> str:
        """Makes them durable, where nobody sees them; what they are called there."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


class TaskSink(Protocol):
    """How tasks prepare results of one query that are too many to go through the driver. A value."""

    @property
    def kind(self) -> str: ...

    @property
    def query(self) -> str: ...

    def open_part(self, batch_id: int, place: int, unique: str) -> PartWriter:
        """`place`: which task or slot writes; `unique`: tells its attempts apart."""
        ...


class Sink(Protocol):
    """Takes the results of one query in two steps. Between them the manifest is created: what it holds will be
    committed, again if need be, and what it does not hold never was."""

    @property
    def kind(self) -> str: ...

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        """Makes results durable where nobody sees them; what they are called there. Empty: the sink has no such
        place, and they are kept with the state until they are committed. `parts`: what tasks have prepared."""
        ...

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        """Makes the results of a batch visible, whole: those that `prepare` called `token`, or the table, also where
        `prepare` has failed. A second time changes nothing: it is the same batch, after a crash."""
        ...


@runtime_checkable
class Gathering(Sink, Protocol):
    """A sink that tasks write for."""

    def commit_parts(self, batch_id: int, table: pa.Table | None, parts: Sequence[str]) -> None:
        """As `commit`, of what tasks have written and the rest, where `prepare` has failed."""
        ...


@runtime_checkable
class SectionSink(Protocol):
    """A sink that reads results where they lie in the state, instead of taking a table from the driver."""

    def commit_sections(self, batch_id: int, sections: Sequence[Section]) -> None:
        """As `commit`: makes the results of a batch visible; called instead of it."""
        ...


@dataclass(frozen=True)
class SinkContext:
    """What a sink may know beside its spec."""

    query: str
    timeline: str = ""
    """Identifies the state, so that two pipelines do not write into one place."""
    term: str = ""
    """The session that writes."""
    known_terms: frozenset[str] = frozenset()
    """Sessions of this state that may have written before it, as far as they are remembered."""
    number: int = 0
    """Which session of the state it is."""
    first_known: int = 0
    """The number of the first that is remembered."""
    newest: int = -1
    """The newest batch that can have been committed."""
    pending: Callable[[], Sequence[Prepared]] = tuple
    """What was prepared and may still be committed, at any time."""
    callback: Callback | None = None
    """The callable of a `callable` sink: not part of the durable spec."""
    place: str = ""
    """Where the state is, by which the first release identified it."""
    is_trial: bool = False
    """Whether the sink is only asked what it has against being opened: nothing may be made."""


Opener = Callable[[SinkSpec, SinkContext], Sink]


def open_sink(spec: SinkSpec, context: SinkContext) -> Sink:
    """The sink of one query. `memory` and `spark` are not opened here: results of memory queries are part of the
    state (`state/results`), and Spark's writers belong to the engine."""
    openers = _openers()
    if spec.kind not in openers:
        raise unknown_sink(spec.kind, tuple(openers))
    return openers[spec.kind](spec, context)


def _openers() -> dict[str, Opener]:
    from thalweg.sink.callback import CallbackSink
    from thalweg.sink.console import ConsoleSink
    from thalweg.sink.files import FilesSink
    from thalweg.sink.noop import NoopSink

    return {
        "callable": CallbackSink.open,
        "console": ConsoleSink.open,
        "files": FilesSink.open,
        "noop": NoopSink.open,
    }


class RowSink:
    """A sink without a place of its own: rows wait with the state."""

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        return ""


def objection(query: str, kind: str, error: BaseException) -> str:
    """What a sink says against results: its own words, or what it tripped over."""
    return str(error if isinstance(error, ThalwegError) else sink_raised(query, kind, error))
