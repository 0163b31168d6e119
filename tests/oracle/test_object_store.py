"""Oracle: state in an object store gives what state in a directory gives, through deaths and second drivers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import thalweg
from thalweg import faults
from thalweg.errors import SourceError, StateError
from thalweg.testing import LocalSession
from thalweg.testing.disk import Death

pytestmark = pytest.mark.slow

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


def test_the_same_results_as_in_a_directory(local: Callable[..., LocalSession], new_place: Callable[[], str]) -> None:
    wanted = finished(Program(local))
    assert all(wanted.values())
    assert wanted["called"] == wanted["sums"]
    place = new_place()
    assert finished(Program(lambda: local(state_dir=place))) == wanted


@pytest.mark.parametrize("phase", ["batch.tasks", "batch.prepared", "batch.manifest", "batch.sinks"])
def test_a_death_and_a_restart(local: Callable[..., LocalSession], new_place: Callable[[], str], phase: str) -> None:
    wanted = finished(Program(local))
    place = new_place()
    program = Program(lambda: local(state_dir=place))
    program.start()
    for batch in range(3):
        program.append(batch)
        program.session.run_available()
    program.append(3)

    def die(name: str) -> None:
        if name == phase:
            raise Death(name)

    with faults.watch(die), pytest.raises(Death):
        program.session.run_available()
    program.start()  # over the one that died: an object store holds nobody off
    program.session.run_available()
    assert program.found() == wanted
    calls = list(program.calls)
    program.session.stop()
    program.start()
    program.session.run_available()
    assert program.calls == calls  # after an end in good order nothing comes again


def test_of_two_drivers_the_older_one_stops_before_its_sinks(
    local: Callable[..., LocalSession], new_place: Callable[[], str]
) -> None:
    place = new_place()
    older, newer = Program(lambda: local(state_dir=place)), Program(lambda: local(state_dir=place))
    older.start()
    older.append(0)
    older.session.run_available()
    seen = list(older.calls)
    newer.start()
    newer.append(1)
    with pytest.raises(StateError, match="another session has opened this state since"):
        older.session.run_available()
    assert older.calls == seen
    newer.append(2)
    newer.session.run_available()
    newer.append(3)
    newer.session.run_available()
    assert {**older.given, **newer.given}.keys() == {*older.calls, *newer.calls}
    assert newer.session.query("sums").results().num_rows == finished_rows(local)
    newer.session.stop()


def finished_rows(local: Callable[..., LocalSession]) -> int:
    return len(finished(Program(local))["sums"])


@pytest.mark.on_spark
def test_on_spark(
    spark: Any, local: Callable[..., LocalSession], new_place: Callable[[], str], tmp_path: Path
) -> None:
    wanted = finished(Program(local), 2)
    place = new_place()
    assert finished(Program(lambda: thalweg.connect(place, spark=spark)), 2) == wanted
    stream = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS v")
    with thalweg.connect(new_place(), spark=spark) as session, pytest.raises(SourceError, match="needs a directory"):
        session.create_stream("rate", stream, time="ts", watermark="1 second")
