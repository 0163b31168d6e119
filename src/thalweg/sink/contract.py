"""The contract of a sink: a kind, which is what users name, and what it opens, which takes the results of one query.

A new kind is one file with a `SinkKind`, and one line in `sink/__init__`. From outside it is `thalweg.register_sink`,
or an entry point of the group "thalweg.sinks".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import pyarrow as pa

from thalweg.errors import ThalwegError, bad_sink_option, sink_raised
from thalweg.kinds.options import read_options
from thalweg.model.bucket import Section
from thalweg.model.manifest import Prepared
from thalweg.model.query import Query, SinkSpec

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly once", "at least once"
"""How often a row of results is seen, after crashes and failures too."""
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741
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
    """The newest batch that can have been committed when the sink was opened."""
    pending: Callable[[], Sequence[Prepared]] = tuple
    """What was prepared and may still be committed, at any time."""
    callback: Callback | None = None
    """What the program has given beside the spec, and has to give again after a restart."""
    place: str = ""
    """Where the state is, by which the first release identified it."""
    is_trial: bool = False
    """Whether the sink is only asked what it has against being opened: nothing may be made."""


class SinkKind(ABC, Generic[O]):
    """What can be said of a sink before it is opened. One object for each kind, without state."""

    name: ClassVar[str]
    """As SQL and specs have it."""
    options: ClassVar[type[Any]]
    """What it takes: SQL's OPTIONS, Python's keywords, the checks and the docs come from this struct."""
    wants_rows: ClassVar[bool] = True
    """False: results are counted where they are made, and dropped."""
    keeps_results: ClassVar[bool] = False
    """Whether they are part of the state, where `results()` reads them."""
    unique_columns: ClassVar[bool] = False
    """Whether two columns of results must not have one name."""
    opens_early: ClassVar[bool] = True
    """Whether it is opened when a query is created, so that a place that cannot be written is refused at once."""
    is_engines: ClassVar[bool] = False
    """Whether only the engine can check and open it."""
    in_sql: ClassVar[bool] = True
    """Whether INTO may name it."""

    @property
    def is_delivered(self) -> bool:
        """Whether results are handed to it, and can be kept from it for a while."""
        return self.wants_rows and not self.keeps_results

    def spec(self, **given: Any) -> SinkSpec:
        """What was given, checked, as plain data."""
        return SinkSpec(self.name, self.pairs(given))

    def pairs(self, given: Mapping[str, object]) -> tuple[tuple[str, Any], ...]:
        """The options as they are kept: those of the struct, all of them."""
        return tuple(msgspec.to_builtins(self.read(given)).items())

    def read(self, given: Mapping[str, object]) -> O:
        options: O = read_options(self.options, given, self.refuse)
        return options

    def options_of(self, spec: SinkSpec) -> O:
        options: O = msgspec.convert(dict(spec.options), self.options)
        return options

    def refuse(self, option: str, reason: str, hint: str | None = None) -> ThalwegError:
        return bad_sink_option(self.name, option, reason, hint)

    def delivery(self, options: O) -> str:
        """EXACTLY_ONCE or AT_LEAST_ONCE."""
        return AT_LEAST_ONCE

    def check(self, query: Query) -> None:
        """Raises where results of the query cannot be given to it."""

    def missing(self, query: str, callback: Callback | None) -> ThalwegError | None:
        """What a program that started again has not given yet."""
        return None

    @abstractmethod
    def open(self, options: O, context: SinkContext) -> Sink: ...

    def in_tasks(self, query: Query) -> TaskSink | None:
        """How tasks prepare results that are too many for the driver; None: they are kept with the state."""
        return None

    def meant_by(self, word: str) -> str | None:
        """What to write, if the word is no sink and this kind is meant."""
        return None


class RowSink:
    """A sink without a place of its own: rows wait with the state."""

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        return ""


def objection(query: str, kind: str, error: BaseException) -> str:
    """What a sink says against results: its own words, or what it tripped over."""
    return str(error if isinstance(error, ThalwegError) else sink_raised(query, kind, error))
