"""The contract of a source: a kind, which is what users name; what a program holds of it; and its units.

A new kind is one file with a `SourceKind`, and one line in `source/__init__`. From outside it is
`thalweg.register_source`, or an entry point of the group "thalweg.sources".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa

from thalweg.errors import ThalwegError, source_option_invalid, unknown_schema
from thalweg.kinds.options import read_options
from thalweg.model.offsets import SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.source.chunks import Chunk, Piece, SplitReading, chunks
from thalweg.source.schema import as_schema
from thalweg.state.storage import Storage

ENDLESS = 1 << 62
"""The units of a source that never ends, such as a generator."""
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741


class Source(ABC):
    """What a stream can be made of, in the hands of a program."""

    @abstractmethod
    def spec(self) -> SourceSpec: ...

    @abstractmethod
    def schema(self) -> Schema | None:
        """None: not known yet; the columns of the stream must be given."""

    def recall(self, known: SourceSpec) -> bool:
        """After a restart: what was known then. True: the columns of then hold as well."""
        return False

    def check_there(self) -> None:  # noqa: B027
        """Before a stream is made of it for the first time: raises what is wrong with the place that it names. What
        goes away later ends nothing."""

    def first_misfit(self, schema: Schema, time: str) -> str | None:
        """The first row whose value in the column is no time, as people read it; None: nothing to show."""
        return None

    # A source that keeps what it is given.

    def attach(self, storage: Storage, stream: str, tell: Callable[[], None]) -> None:  # noqa: B027
        """It is the source of this stream from now on. `stream`: its place in the storage: the name, but for one
        that was dropped and created anew. `tell` says that there is something new."""

    def detach(self) -> None:  # noqa: B027
        """The session stops, or the stream is dropped."""

    # A source that something has to run for.

    @property
    def is_started(self) -> bool:
        """Whether it was started and not stopped since; it may have failed: see `check`."""
        return False

    def start(self) -> None:  # noqa: B027
        """The pipeline runs from now on."""

    def run_available(self) -> None:  # noqa: B027
        """Fetches what is there now, then returns."""

    def stop(self) -> None:  # noqa: B027
        """Returns once nothing of it is written any more."""

    def check(self) -> None:  # noqa: B027
        """Raises what has ended it, if that was not `stop`."""


class Units(ABC):
    """How one kind of source numbers what it has."""

    def __init__(self, stream: Stream, storage: Storage) -> None:
        self.stream = stream.name
        self.place = stream.place
        """Under which the storage keeps what is of this stream."""
        self.storage = storage

    @abstractmethod
    def available(self) -> int:
        """How many there are by now; each of them is durably known when this returns."""

    def limit(self, start: int, end: int) -> int:
        """How far a batch that starts at `start` may go, if `end` units are there."""
        return end

    def weights(self, start: int, end: int) -> Sequence[int] | None:
        """About how many rows each of these units has, as `model/split` weighs them. None: `limit` alone says how far
        a batch goes."""
        return None

    @abstractmethod
    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        """The units start..end-1 in order, cut so that `parts` tasks can share them evenly."""

    def mark(self, consumed: int) -> SourceMark:
        """By which a later run can tell whether the units are still the same."""
        return SourceMark(consumed, 0)

    def check(self, mark: SourceMark) -> None:  # noqa: B027
        """A StateError if something is missing that was there when the mark was made."""

    def release(self, end: int) -> None:  # noqa: B027 - most sources keep nothing of their own
        """Units before `end` will never be read again."""


class SourceKind(ABC, Generic[O]):
    """What can be said of sources of one kind. One object for each, without state: tasks get it, too."""

    name: ClassVar[str]
    """As SQL and specs have it."""
    options: ClassVar[type[Any]]
    """What it takes: SQL's OPTIONS, Python's keywords, the checks and the docs come from this struct."""
    changeable: ClassVar[frozenset[str]] = frozenset()
    """Options that may differ after a restart: they do not change which rows there are."""
    makes_up_times: ClassVar[bool] = False
    """Whether its event times have nothing to do with the clock."""
    in_sql: ClassVar[bool] = True
    """Whether CREATE STREAM may name it; otherwise a program has to give it, also after a restart."""
    sets_aside: ClassVar[bool] = False
    """Whether a part that makes `read` raise is set aside with the reason. Otherwise the batch ends and is repeated:
    rows are not given up for trouble that may pass."""

    def structs(self) -> Mapping[str, type[msgspec.Struct]]:
        """Options for the docs, by what they are of."""
        return {self.name: self.options}

    def read_options(self, given: Mapping[str, object]) -> O:
        options: O = read_options(self.options, given, self.refuse)
        return options

    def options_of(self, spec: SourceSpec) -> O:
        """Of what is durable."""
        options: O = msgspec.convert(spec.options, self.options)
        return options

    def written(self, spec: SourceSpec) -> dict[str, object]:
        """The options of a source as `make` takes them: what SHOW CREATE shows."""
        return {name: value for name, value in spec.options.items() if value is not None}

    def trouble(self, options: O) -> str | None:
        """Why nothing can come from it at the moment, as far as a glance tells."""
        return None

    def give_back(self, stream: Stream, storage: Storage) -> None:
        """The stream was dropped, and no batch reads it any more. What the storage keeps of it goes without this."""

    def refuse(self, option: str, reason: str, hint: str | None = None) -> ThalwegError:
        return source_option_invalid(self.name, option, reason, hint)

    def make(self, stream: str, given: Mapping[str, object], schema: Schema | None = None) -> Source:
        """The source of a CREATE STREAM, whose options are all text. `schema`: the columns that it names."""
        return PlainSource(self, self.read_options(given), schema, stream)

    def is_same(self, known: SourceSpec, given: SourceSpec) -> bool:
        """Whether a program that starts again means the source that the state holds."""
        return self._lasting(known) == self._lasting(given)

    def _lasting(self, spec: SourceSpec) -> dict[str, object]:
        return {name: value for name, value in spec.options.items() if name not in self.changeable}

    def schema(self, options: O) -> Schema | pa.Schema | str | None:
        """The columns, as far as the options tell them."""
        return None

    @abstractmethod
    def units(self, stream: Stream, storage: Storage) -> Units:
        """What the stream has to offer. Only one at a time is open."""

    def read(self, asked: SplitReading, storage: Storage | None) -> Iterator[Chunk]:
        """The rows of a split, in a task. `storage`: where units that the state holds lie."""
        first = asked.split.start
        for table in self.rows(self.options_of(asked.stream.source), asked.split, asked.columns):
            yield from chunks(Piece(table, table.num_rows, first), asked)
            first += table.num_rows

    def rows(self, options: O, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The same rows whenever it is asked. Columns that nobody asked for may be left out. A row whose values do
        not fit the stream's types is set aside."""
        raise NotImplementedError(f"source {self.name} has neither read nor rows")


class PlainSource(Source):
    """Of a kind that needs no more than its options."""

    def __init__(self, kind: SourceKind[Any], options: msgspec.Struct, schema: Schema | None, stream: str) -> None:
        self._kind = kind
        self._options = options
        self._schema = schema
        self._stream = stream

    def spec(self) -> SourceSpec:
        return SourceSpec(self._kind.name, msgspec.to_builtins(self._options))

    def schema(self) -> Schema:
        found = self._schema or self._kind.schema(self._options)
        if found is None:
            raise unknown_schema(self._stream)
        return as_schema(found)
