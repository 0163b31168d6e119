"""Oracle: state in an object store gives what state in a directory gives, through deaths and second drivers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.pipeline_program import Program, finished

import thalweg
from thalweg import faults
from thalweg.errors import SourceError, StateError
from thalweg.testing import LocalSession
from thalweg.testing.disk import Death

pytestmark = pytest.mark.slow


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
