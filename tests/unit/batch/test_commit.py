"""Unit: the manifest is the commit. What sinks are given of a batch before, at and after it, and by whom."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg import faults
from thalweg.batch.hands import Inline
from thalweg.errors import SinkError, StateError
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = "SELECT k, v FROM events WHERE v >= 0"
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("v", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.Table.from_pylist([{"ts": START + timedelta(seconds=v), "k": 1, "v": v} for v in values], SCHEMA)


class Program:
    """A program that is started again and again: one stream, one query."""

    def __init__(self, local: Local, place: Path) -> None:
        self.local = local
        self.place = place
        self.given: list[tuple[int, list[int]]] = []
        """(batch, values) as its callable was given them."""

    def seen(self) -> list[list[int]]:
        return [values for _, values in self.given]

    def take(self, table: pa.Table, batch: int) -> None:
        self.given.append((batch, table.column("v").to_pylist()))

    def start(self, sink: Any = None, **options: Any) -> LocalSession:
        session = self.local(state_dir=self.place, **options)
        session._fed["events"] = thalweg.memory(SCHEMA)
        session.create_stream("events", session._fed["events"], time="ts", watermark="0 seconds")
        session.create_query("q", ALL, sink or self.take)
        return session

    def run(self, *values: int, sink: Any = None) -> None:
        """One life, which ends in good order."""
        session = self.start(sink)
        if values:
            session.append("events", rows(*values))
        session.run_available()
        session.stop()

    def kill(self, session: LocalSession) -> None:
        """What is on its way to a sink may arrive; nobody says that it has."""
        session._parts.runner.flush()
        session._parts.delivery.queues.close()
        session._parts.hold.release()

    def die_at(self, point: str, *values: int) -> LocalSession:
        session = self.start()
        session.append("events", rows(*values))
        with faults.watch(dying_at(point)), pytest.raises(Death, match="died"):
            session.run_available()
        return session


def dying_at(point: str) -> Callable[[str], None]:
    def die(passed: str) -> None:
        if passed == point:
            raise Death("died")

    return die


@pytest.fixture
def program(local: Local, state_dir: Path) -> Program:
    return Program(local, state_dir)


# -- a callable ----------------------------------------------------------------------------------------------


def test_a_clean_restart_gives_nothing_again(program: Program) -> None:
    program.run(1)
    program.run()
    program.run(2)
    program.run()
    assert program.seen() == [[1], [2]]


def test_a_clean_stop_of_what_ran_in_the_background_is_one_too(program: Program) -> None:
    session = program.start()
    session.start("0 seconds")
    session.append("events", rows(1))
    given_up = time.monotonic() + 30
    while not program.given:  # a batch is finished before its results are given
        assert time.monotonic() < given_up
        time.sleep(0.01)
    session.stop()
    before = list(program.given)
    program.run()
    assert [values for _, values in before] == [[1]]
    assert program.given == before


@pytest.mark.parametrize("point", ["batch.start", "batch.tasks", "batch.prepared"])
def test_before_its_manifest_nobody_sees_a_batch(program: Program, point: str) -> None:
    program.run(1)
    program.die_at(point, 2).stop()
    assert program.seen() == [[1]]
    program.run(3)
    assert program.seen() == [[1], [2, 3]]


@pytest.mark.parametrize("point", ["batch.manifest", "delivery.begin"])
def test_what_a_crash_kept_from_a_callable_is_given_at_last(program: Program, point: str) -> None:
    program.run(1)
    session = program.die_at(point, 2)
    batch = session._parts.runner.manifest.batch
    program.kill(session)
    assert program.seen() == [[1]]
    program.run()
    assert program.given == [(0, [1]), (batch, [2])]
    program.run(3)
    program.run()
    assert program.seen() == [[1], [2], [3]]


def test_the_session_itself_gives_it_when_it_goes_on(program: Program) -> None:
    session = program.die_at("batch.manifest", 1)
    assert program.given == []
    session.append("events", rows(2))
    session.run_available()
    assert program.given[0] == (0, [1])
    assert program.seen() == [[1], [2]]


@pytest.mark.parametrize("point", ["batch.sinks", "batch.end", "delivery.done"])
def test_what_a_callable_may_have_seen_is_given_again_under_the_same_batch(program: Program, point: str) -> None:
    program.kill(program.die_at(point, 1))
    program.run(2)
    assert program.given[:2] == [(0, [1]), (0, [1])]
    program.run()
    assert program.seen() == [[1], [1], [2]]


def test_what_a_callable_objects_to_is_kept_and_known_after_a_restart(program: Program) -> None:
    """No later manifest says so: the object `delivered` does."""

    def take_one(table: pa.Table, batch: int) -> None:
        if program.given:
            raise ValueError("no")
        program.take(table, batch)

    session = program.start(take_one, hands=Inline())
    for _ in range(2):
        session.append("events", rows(1))  # the watermark moves once
        session.run_available()
    told = session.query("q").status
    assert (told.state, told.emitted, told.undelivered.rows) == ("paused", 2, 1)
    assert session._parts.runner.manifest.queries[session.query("q").id].paused is None
    session.stop()
    assert session.query("q").status.state == "stopped"
    session = program.start()
    again = session.query("q").status
    assert (again.state, again.error, again.undelivered) == (told.state, told.error, told.undelivered)
    session.run_available()
    assert program.seen() == [[1]]
    session.query("q").resume()
    session.run_available()
    assert program.seen() == [[1], [1]]
    session.stop()


# -- a copy --------------------------------------------------------------------------------------------------


def values_in(out: Path) -> list[int]:
    return sorted(v for path in out.glob("part-*") for v in pq.read_table(path).column("v").to_pylist())


@pytest.fixture
def copied(program: Program, tmp_path: Path) -> Program:
    """A copy of a state that has gone on since."""
    sink = thalweg.to_files(tmp_path / "out")
    program.run(1, sink=sink)
    copy = Program(program.local, tmp_path / "copy")
    shutil.copytree(program.place, copy.place)
    session = program.start(sink)
    session.append("events", rows(2))
    session.run_available()
    session.append("events", rows(3))
    session.run_available()
    session.stop()
    return copy


def test_a_copy_of_a_state_that_went_on_is_refused_by_its_sink(copied: Program, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"query q: .*(another copy of this state|holds results of batch 2)"):
        copied.start(thalweg.to_files(tmp_path / "out"))
    assert values_in(tmp_path / "out") == [1, 2, 3]


def test_a_copy_that_runs_on_stops_the_query_before_its_sink_is_written_to(copied: Program, tmp_path: Path) -> None:
    session = copied.local(state_dir=copied.place)  # what it holds goes on without being given again
    source = thalweg.memory(SCHEMA)
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    beside = session.create_query("beside", ALL)
    source.append(rows(20))
    session.run_available()
    status = session.query("q").status
    assert status["state"] == "paused"
    assert status["error"].startswith(f"query q: another copy of this state writes to {tmp_path / 'out'}")
    assert "fork=True" in status["error"]
    assert beside.results().num_rows == 1
    session.stop()
    assert values_in(tmp_path / "out") == [1, 2, 3]


def test_a_copy_of_a_session_that_still_runs_is_behind_its_sink(program: Program, tmp_path: Path) -> None:
    """No other term is to be seen: the session that writes is one that the copy knows."""
    sink = thalweg.to_files(tmp_path / "out")
    session = program.start(sink)
    session.append("events", rows(1))
    session.run_available()
    copy = Program(program.local, tmp_path / "copy")
    shutil.copytree(program.place, copy.place)
    session.append("events", rows(2))
    session.run_available()
    with pytest.raises(SinkError, match=r"query q: .* holds results of batch \d+, but the state has got"):
        copy.start(sink)
    session.append("events", rows(3))
    session.run_available()
    assert session.query("q").status["state"] == "idle"
    assert values_in(tmp_path / "out") == [1, 2, 3]


def test_a_copy_that_was_first_keeps_the_other_from_the_sink(program: Program, tmp_path: Path) -> None:
    sink = thalweg.to_files(tmp_path / "out")
    session = program.start(sink)
    session.append("events", rows(1))
    session.run_available()
    copy = Program(program.local, tmp_path / "copy")
    shutil.copytree(program.place, copy.place)
    copy.run(20, sink=sink)
    session.append("events", rows(2))
    session.run_available()
    assert "another copy of this state" in session.query("q").status["error"]
    assert values_in(tmp_path / "out") == [1, 20]


def test_a_fork_has_a_timeline_of_its_own_and_new_places(copied: Program, program: Program, tmp_path: Path) -> None:
    session = copied.local(state_dir=copied.place, fork=True)
    source = thalweg.memory(SCHEMA)
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    with pytest.raises(SinkError, match="already holds the results of query q"):
        session.create_query("q", ALL, thalweg.to_files(tmp_path / "out"))
    session.drop_query("q")
    query = session.create_query("q", ALL, thalweg.to_files(tmp_path / "forked"))
    source.append(rows(20))
    session.run_available()
    assert query.status["state"] == "idle"
    assert values_in(tmp_path / "forked") == [20]
    forked = session._parts.runner.manifest.timeline
    session.stop()
    copied.run(21, sink=thalweg.to_files(tmp_path / "forked"))  # it goes on without being forked again
    assert values_in(tmp_path / "forked") == [20, 21]
    session = program.start(thalweg.to_files(tmp_path / "out"))
    assert forked != session._parts.runner.manifest.timeline
    session.append("events", rows(4))
    session.run_available()
    session.stop()
    assert values_in(tmp_path / "out") == [1, 2, 3, 4]


# -- two sessions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blind_to", "said"),
    [
        ((), "no longer holds its state directory"),
        (("lock",), "another session has opened this state since"),
        (("lock", "term"), "another session has run batch"),
    ],
)
def test_the_older_of_two_sessions_is_stopped_before_its_sinks(
    program: Program, monkeypatch: pytest.MonkeyPatch, blind_to: tuple[str, ...], said: str
) -> None:
    """Each way of noticing would do alone."""
    older = program.start()
    older.append("events", rows(1))
    older.run_available()
    older.append("events", rows(2))
    (program.place / "lock").unlink()
    other = Program(program.local, program.place)
    newer = other.start()
    newer.run_available()
    assert other.seen() == [[2]]
    with monkeypatch.context() as patch:
        if "lock" in blind_to:
            patch.setattr(older._parts.runner.commits, "_check_hold", lambda: None)
        if "term" in blind_to:
            patch.setattr("thalweg.batch.commit.check_term", lambda storage, term: None)
        with pytest.raises(StateError, match=said):
            older.run_available()
    with pytest.raises(StateError):
        older.run_available()
    assert program.seen() == [[1]]
    newer.append("events", rows(3))
    newer.run_available()
    assert other.seen() == [[2], [3]]
    older.stop()


def test_the_older_does_not_give_what_a_crash_kept_and_the_newer_has_given(program: Program) -> None:
    older = program.die_at("batch.manifest", 1)
    (program.place / "lock").unlink()
    other = Program(program.local, program.place)
    other.start().run_available()
    assert other.given == [(0, [1])]
    with pytest.raises(StateError, match="no longer holds"):
        older.run_available()
    assert program.given == []
