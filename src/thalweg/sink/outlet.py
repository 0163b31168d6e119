"""The results of a task: few travel to the driver with its report, more are prepared where they were made, others are
only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec import Struct

from thalweg.model.bucket import Section
from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.sink.contract import PartWriter, TaskSink, objection
from thalweg.state.collect import prepared_name
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage

INLINE_BYTES = 1_000_000
"""Results up to this size travel with the report; larger ones are made durable by the task."""

PART_BYTES = 1 << 18
"""Results of one query up to this size are not worth a file of their own, even where its sink writes in tasks: they
are made durable with those of others."""


class WrittenPart(Struct, frozen=True):
    """A file that a task has written for a sink."""

    query: str
    name: str
    rows: int
    nbytes: int = 0


class Left(Struct, frozen=True):
    """What a task has prepared."""

    sections: tuple[Section, ...] = ()
    parts: tuple[WrittenPart, ...] = ()
    failed: dict[str, str] = {}
    """Query -> what its sink said: its results are not here. They are made again and kept with the state."""


@dataclass
class Outlet:
    """What has been written is let go: joins can have more results in a batch than fit in memory, and memory that is
    used again is faster than new."""

    storage: Storage
    batch: int
    place: int
    watch: Stopwatch
    unique: Callable[[], str]
    """What tells objects of one batch apart."""
    uncollected: Collection[str] = ()
    """The queries whose results nobody takes."""
    sinks: Mapping[str, TaskSink] = field(default_factory=dict)
    """Of those whose sinks write in tasks."""
    counted: Counter[str] = field(default_factory=Counter)
    """query -> rows that nobody took."""
    held: list[tuple[str, pa.Table]] = field(default_factory=list)
    """(query, results) that are few enough to travel."""
    _bytes: int = 0
    _is_full: bool = False
    """Whether there are too many to travel."""
    _writer: ContainerWriter | None = None
    _together: Counter[str] = field(default_factory=Counter)
    """query -> bytes that are with those of others, though its sink writes in tasks."""
    _parts: dict[str, PartWriter] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def add(self, query: str, table: pa.Table) -> None:
        if query in self.uncollected:
            self.counted[query] += table.num_rows
            return
        with self.watch.during(SINK):
            if self._is_full:
                self._write(query, table)
                return
            self.held.append((query, table))
            self._bytes += table.nbytes
            if self._bytes > INLINE_BYTES:
                self._is_full = True
                for name, held in self.held:
                    self._write(name, held)
                self.held.clear()

    def close(self) -> Left | None:
        """What was prepared; None where all results are in `held`."""
        if not self._is_full:
            return None
        with self.watch.during(SINK):
            sections = () if self._writer is None else self._writer.close()
            self._writer = None
            parts = [part for query in list(self._parts) if (part := self._finish(query)) is not None]
            return Left(sections, tuple(parts), self._failed)

    def abandon(self) -> None:
        """What was not closed leaves nothing behind."""
        if self._writer is not None:
            self._writer.abandon()
        for part in self._parts.values():
            part.abandon()

    def _write(self, query: str, table: pa.Table) -> None:
        sink = self.sinks.get(query)
        if sink is not None and self._is_little(query, table):
            self._together[query] += table.nbytes
            sink = None
        if sink is None:
            if self._writer is None:
                name = prepared_name(self.batch, self.place, self.unique())
                self._writer = ContainerWriter(self.storage, name)
            self._writer.stream(query, table)
        elif query not in self._failed:
            try:
                if query not in self._parts:
                    self._parts[query] = sink.open_part(self.batch, self.place, self.unique())
                self._parts[query].write(table)
            except Exception as error:
                self._fail(query, sink, error)

    def _is_little(self, query: str, table: pa.Table) -> bool:
        """Joins give their results in pieces: what counts is all of them."""
        is_begun = query in self._parts or query in self._failed
        return not is_begun and self._together[query] + table.nbytes <= PART_BYTES

    def _finish(self, query: str) -> WrittenPart | None:
        part = self._parts.pop(query)
        try:
            name = part.finish()
        except Exception as error:
            self._parts[query] = part
            self._fail(query, self.sinks[query], error)
            return None
        return WrittenPart(query, name, part.rows, part.nbytes)

    def _fail(self, query: str, sink: TaskSink, error: Exception) -> None:
        """One sink's trouble is its query's alone."""
        self._failed[query] = objection(sink.query, sink.kind, error)
        part = self._parts.pop(query, None)
        if part is not None:
            part.abandon()
