"""The results of a task: few travel to the driver with its report, more go into a file, others are only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import pyarrow as pa

from thalweg.model.bucket import Section
from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage

INLINE_BYTES = 1_000_000
"""Results up to this size travel with the report; larger ones are left in a file for the driver."""


class Outlet:
    """What has been written is let go: joins can have more results in a batch than fit in memory, and memory that is
    used again is faster than new."""

    def __init__(
        self,
        storage: Storage,
        batch: int,
        slot: int,
        watch: Stopwatch,
        unique: Callable[[], str],
        uncollected: Collection[str] = (),
    ) -> None:
        """`uncollected`: the queries whose results nobody takes. `unique`: what tells files of one batch apart."""
        self.counted: Counter[str] = Counter()
        """query -> rows that nobody took."""
        self._uncollected = uncollected
        self._storage = storage
        self._name = f"spill/{batch:012d}-{slot}"
        self._unique = unique
        self._watch = watch
        self.held: list[tuple[str, pa.Table]] = []
        """(query, results) that are few enough to travel."""
        self._bytes = 0
        self._writer: ContainerWriter | None = None

    def add(self, query: str, table: pa.Table) -> None:
        if query in self._uncollected:
            self.counted[query] += table.num_rows
            return
        with self._watch.during(SINK):
            if self._writer is not None:
                self._writer.stream(query, table)
                return
            self.held.append((query, table))
            self._bytes += table.nbytes
            if self._bytes > INLINE_BYTES:
                self._writer = self._open()
                for name, held in self.held:
                    self._writer.stream(name, held)
                self.held.clear()

    def close(self) -> tuple[Section, ...]:
        """Where the results lie that were too many; the others are in `held`."""
        with self._watch.during(SINK):
            sections = () if self._writer is None else self._writer.close(durable=False)
            self._writer = None
            return sections

    def _open(self) -> ContainerWriter:
        return ContainerWriter(self._storage, f"{self._name}-{self._unique()}.arrow")

    def abandon(self) -> None:
        """What was not closed leaves nothing behind."""
        if self._writer is not None:
            self._writer.abandon()
