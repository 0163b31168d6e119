"""The results of a task: few travel to the driver with its report, more go into a file, unheard ones are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa

from thalweg.observe.stopwatch import SINK, Stopwatch
from thalweg.route.bucket import pack
from thalweg.state.collect import unique
from thalweg.state.container import ContainerWriter
from thalweg.state.durable import make_directory

INLINE_BYTES = 1_000_000
"""Results up to this size travel with the report; larger ones are left in a file for the driver."""


class Results:
    """What has been written is let go: joins can have more results in a batch than fit in memory, and memory that is
    used again is faster than new."""

    def __init__(
        self,
        state_dir: Path | str,
        batch: int,
        slot: int,
        watch: Stopwatch,
        unheard: Collection[str] = (),
        unique: Callable[[], str] = unique,
    ) -> None:
        """`unheard`: the queries whose results nobody takes. `unique`: what tells files of one batch apart."""
        self.counted: Counter[str] = Counter()
        """query -> rows that nobody took."""
        self._unheard = unheard
        self._state_dir = Path(state_dir)
        self._name = f"spill/{batch:012d}-{slot}"
        self._unique = unique
        self._watch = watch
        self._held: list[tuple[str, pa.Table]] = []
        self._bytes = 0
        self._writer: ContainerWriter | None = None

    def add(self, query: str, table: pa.Table) -> None:
        if query in self._unheard:
            self.counted[query] += table.num_rows
            return
        with self._watch.during(SINK):
            if self._writer is not None:
                self._writer.stream(query, table)
                return
            self._held.append((query, table))
            self._bytes += table.nbytes
            if self._bytes > INLINE_BYTES:
                self._writer = self._open()
                for name, held in self._held:
                    self._writer.stream(name, held)
                self._held.clear()

    def close(self) -> tuple[str, bytes] | None:
        """(kind, payload) of the cell that tells the driver; None where there are no results."""
        with self._watch.during(SINK):
            if self._writer is not None:
                sections = self._writer.close(sync=False)
                self._writer = None
                return "spill", json.dumps([s.to_json() for s in sections]).encode()
            return ("results", pack(self._held)) if self._held else None

    def _open(self) -> ContainerWriter:
        path = self._state_dir / f"{self._name}-{self._unique()}.arrow"
        make_directory(path.parent)
        return ContainerWriter(path, root=self._state_dir)

    def abandon(self) -> None:
        """What was not closed leaves nothing behind."""
        if self._writer is not None:
            self._writer.abandon()
