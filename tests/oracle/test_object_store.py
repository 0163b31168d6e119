"""Oracle: state in an object store gives what state in a directory gives, through deaths and second drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.support.pipeline_program import Program, finished

from thalweg import faults
from thalweg.errors import StateError
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death

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


@pytest.mark.spark
def test_on_spark(local: Callable[..., LocalSession], new_place: Callable[[], str]) -> None:
    """Not in the tests' own Spark session: its workers were started without the server's address."""
    command = [sys.executable, "-m", "tests.support.object_store_on_spark", new_place()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["results"] == json.loads(json.dumps(finished(Program(local), 2)))
    assert "needs a directory to land in" in told["refused"]
