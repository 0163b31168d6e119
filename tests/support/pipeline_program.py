"""A small pipeline as a user's program has it: started again it says the same again. No Spark of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

import thalweg

START = datetime(2026, 1, 1)
QUERIES = {
    "sums": "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k, window(ts, '10 seconds')",
    "pairs": "SELECT a.k AS k, a.v AS v, b.v AS w FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS",
    "named": "SELECT a.k AS k, names.name AS name, a.v AS v FROM a JOIN names ON a.k = names.k",
}
NAMES = pa.table({"k": pa.array([0, 1, 2], pa.int64()), "name": ["zero", "one", "two"]})


def rows(batch: int) -> pa.Table:
    times = [START + timedelta(seconds=batch * 10 + i / 2) for i in range(20)]
    numbers = range(batch * 20, batch * 20 + 20)
    return pa.table(
        {"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": [n % 5 for n in numbers], "v": list(numbers)}
    )


class Program:
    """What a user's program does at each start; the callable's batches outlive it."""

    def __init__(self, open_session: Callable[..., Any]) -> None:
        self._open = open_session
        self.given: dict[int, list[dict[str, Any]]] = {}
        self.calls: list[int] = []

    def start(self) -> None:
        self.session = self._open()
        self.sources = {name: thalweg.memory(rows(0).schema) for name in "ab"}
        for name, source in self.sources.items():
            self.session.create_stream(name, source, time="ts", watermark="1 second")
        self.session.create_table("names", NAMES)
        for name, select in QUERIES.items():
            self.session.create_query(name, select)
        self.session.create_query("called", QUERIES["sums"], sink=self._call)

    def _call(self, table: pa.Table, batch: int) -> None:
        self.calls.append(batch)
        self.given[batch] = table.to_pylist()

    def append(self, batch: int) -> None:
        for source in self.sources.values():
            source.append(rows(batch))

    def found(self) -> dict[str, list[tuple[Any, ...]]]:
        """All results; the callable's as they are once a batch that comes again replaces itself."""
        tables = {name: self.session.query(name).results().to_pylist() for name in QUERIES}
        tables["called"] = [row for batch in self.given.values() for row in batch]
        return {name: sorted(tuple(row.values()) for row in found) for name, found in tables.items()}


def finished(program: Program, batches: int = 4) -> dict[str, list[tuple[Any, ...]]]:
    program.start()
    for batch in range(batches):
        program.append(batch)
        program.session.run_available()
    found = program.found()
    program.session.stop()
    return found
