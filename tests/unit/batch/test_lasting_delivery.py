"""Unit: what a session makes of sinks that fail, block or are missing: states, kept results, gaps, restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg.batch.hands import Inline
from thalweg.errors import ThalwegError, UsageError
from thalweg.model.stream import SourceSpec
from thalweg.sink import files as files_module
from thalweg.sink import outlet
from thalweg.sink.files import FilesSink
from thalweg.state.delivered import find_delivered
from thalweg.state.local_storage import LocalStorage
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = "SELECT k, v FROM events WHERE v >= 0"
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
BAD = "SELECT 1 / v AS x FROM events"
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("v", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.Table.from_pylist([{"ts": START + timedelta(seconds=v), "k": 1, "v": v} for v in values], SCHEMA)


class Sink:
    """A callable that refuses as long as it is told to."""

    def __init__(self) -> None:
        self.given: list[tuple[int, list[int]]] = []
        self.raises: BaseException | None = None
        self.may = threading.Event()
        """Whether it may go on; else it waits."""
        self.may.set()

    def __call__(self, table: pa.Table, batch: int) -> None:
        if self.raises is not None:
            raise self.raises
        self.may.wait(30)
        self.given.append((batch, table.column(1).to_pylist()))

    @property
    def values(self) -> list[int]:
        return [value for _, values in self.given for value in values]


class Program:
    """A stream, a query with a callable, and one that keeps its results."""

    def __init__(self, local: Local, state_dir: Path) -> None:
        self.local, self.state_dir = local, state_dir
        self.sink = Sink()
        self.options: dict[str, str] = {}

    def start(self, given: bool = True, **options: Any) -> LocalSession:
        session = self.session = self.local(state_dir=self.state_dir, **options)
        session._fed["events"] = thalweg.memory(SCHEMA)
        session.create_stream("events", session._fed["events"], time="ts", watermark="0 seconds")
        if given:
            session.create_query("q", ALL, self.sink, options=self.options)
            session.create_query("other", ALL)
        return session

    def run(self, *values: int) -> None:
        for value in values:
            self.session.append("events", rows(value))
            self.session.run_available()

    def kill(self) -> None:
        self.session._parts.runner.flush(30)
        self.session._parts.delivery.queues.close()
        self.session._parts.hold.release()

    @property
    def status(self) -> Any:
        return self.session.query("q").status

    @property
    def others(self) -> list[int]:
        found: list[int] = self.session.query("other").results()["v"].to_pylist()
        return found


@pytest.fixture
def program(local: Local, state_dir: Path) -> Program:
    return Program(local, state_dir)


# -- a sink that fails


@pytest.mark.slow
def test_a_sink_that_fails_for_a_while_loses_nothing(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    program.start(hands=Inline())
    program.run(1)
    program.sink.raises = OSError("webhook timed out")
    program.run(2, 3)
    assert (program.status.state, program.status.undelivered) == ("paused", {"batches": 2, "rows": 2, "bytes": 32})
    assert "webhook timed out" in program.status.error
    assert program.session.progress()["queries"]["q"].undelivered.rows == 2
    assert program.others == [1, 2, 3]
    assert 'not_delivering query=q state=paused reason="query q: its callable failed on batch' in caplog.text
    assert 'rows_kept=2 hint="RESUME QUERY q"' in caplog.text
    program.sink.raises = None
    program.session.sql("RESUME QUERY q")
    assert program.sink.values == [1, 2, 3]
    assert (program.status.state, program.status.error, program.status.gap) == ("idle", None, None)
    program.run(4)
    assert program.sink.values == [1, 2, 3, 4]


def test_what_was_kept_is_kept_over_restarts_and_kills(program: Program) -> None:
    program.options = {"retries": "0"}
    program.start()
    program.sink.raises = KeyboardInterrupt()
    program.run(1, 2)
    assert program.status.state == "paused"
    program.kill()
    for value in (3, 4):
        program.start()
        program.run(value)
        assert (program.status.state, program.status.undelivered.batches) == ("paused", value)
        program.kill()
    program.sink.raises = None
    session = program.start()
    session.query("q").resume()
    program.run(5)
    assert program.sink.values == [1, 2, 3, 4, 5]
    session.stop()
    program.start()
    program.run()
    assert program.status.state == "idle"
    assert program.sink.values == [1, 2, 3, 4, 5]


def test_a_query_that_is_paused_when_it_is_created_again_is_told(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.options = {"retries": "0"}
    session = program.start()
    program.sink.raises = ValueError("no")
    program.run(1)
    session.stop()
    caplog.clear()
    program.start()
    assert "not_delivering query=q state=paused" in caplog.text
    assert "RESUME QUERY q" in caplog.text


# -- by hand


def test_a_query_is_paused_and_resumed_by_hand(program: Program) -> None:
    session = program.start()
    program.run(1)
    session.sql("PAUSE QUERY q")
    assert (program.status.state, program.status.error) == ("paused", None)
    program.run(2, 3)
    assert program.sink.values == [1]
    assert program.others == [1, 2, 3]
    session.stop()
    session = program.start()
    program.run(4)
    assert program.sink.values == [1]
    session.resume_query("q")
    session.run_available()
    assert program.sink.values == [1, 2, 3, 4]


@pytest.mark.parametrize("verbs", [["pause"], ["pause", "resume"], ["pause", "resume", "pause"]])
def test_a_request_that_no_batch_has_seen_counts_after_a_restart(program: Program, verbs: list[str]) -> None:
    session = program.start()
    program.run(1)
    for verb in verbs:
        getattr(session.query("q"), verb)()
    program.kill()
    program.start()
    assert (program.status.state == "paused") == (verbs[-1] == "pause")
    program.run(2)
    assert program.sink.values == ([1] if verbs[-1] == "pause" else [1, 2])


def test_a_query_that_its_sink_has_paused_can_be_paused_by_hand(program: Program) -> None:
    """That the sink has paused it is not durable yet, and is not what was asked for."""
    program.options = {"retries": "0"}
    session = program.start()
    program.run(1)
    session._parts.runner.note_delivery = lambda: None  # type: ignore[method-assign]
    program.sink.raises = ValueError("no")
    program.run(2)
    assert (program.status.state, program.status.error is None) == ("paused", False)
    session.query("q").pause()
    assert (program.status.state, program.status.error) == ("paused", None)
    program.kill()
    program.sink.raises = None
    program.start()
    program.run(3)
    assert (program.status.state, program.sink.values) == ("paused", [1])


def test_a_query_can_be_paused_before_its_first_batch(program: Program) -> None:
    session = program.start()
    session.query("q").pause()
    program.kill()
    program.start()
    program.run(1)
    assert program.status.state == "paused"
    assert program.sink.values == []


def test_what_has_no_sink_cannot_be_paused(program: Program) -> None:
    with pytest.raises(UsageError, match="query other has no sink"):
        program.start().query("other").pause()


def test_what_a_dropped_query_was_not_given_is_not_given(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    session = program.start()
    session.query("q").pause()
    program.run(1, 2)
    session.query("q").drop()
    assert "dropped_undelivered query=q rows=2 batches=2" in caplog.text
    program.kill()
    session = program.start()  # under another id
    program.run(3)
    assert program.sink.values == [3]
    # What the new one was given may not be noted yet; which batch that was depends on how many had no rows.
    assert all(p.batch >= 3 for p in session._parts.runner.manifest.undelivered)


# -- the bound


@pytest.mark.slow
def test_at_the_bound_the_query_stops_with_a_gap_that_is_told(program: Program) -> None:
    program.options = {"undelivered_bytes": "40"}
    session = program.start()
    program.run(1)
    session.query("q").pause()
    program.run(2, 3, 4, 5)  # 16 bytes each
    status = program.status
    assert status.state == "stopped"
    gap = status.gap
    assert (gap.rows, gap.until_batch) == (1, None)
    assert f"results of batch {gap.from_batch} and later are missing" in status.error
    assert status.undelivered.rows == 2
    assert program.others == [1, 2, 3, 4, 5]
    session.stop()
    session = program.start()
    assert (program.status.state, program.status.gap) == ("stopped", gap)
    session.query("q").resume()
    program.run(6)
    assert program.sink.values == [1, 2, 3, 6]
    assert program.status.state == "idle"
    assert program.status.gap.from_batch == gap.from_batch
    assert program.status.gap.until_batch > gap.from_batch


def test_a_query_that_is_resumed_gives_what_was_kept_before_there_is_more(program: Program) -> None:
    """Else it would stop at the bound again, though its sink takes all."""
    program.options = {"undelivered_bytes": "40"}
    session = program.start()
    session.query("q").pause()
    program.run(1, 2)
    program.sink.may.clear()
    session.query("q").resume()
    threading.Timer(0.3, program.sink.may.set).start()
    program.run(3)
    assert (program.status.state, program.status.gap) == ("idle", None)
    assert program.sink.values == [1, 2, 3]


def test_results_of_one_batch_are_kept_however_many_they_are(program: Program) -> None:
    program.options = {"undelivered_bytes": "1"}
    session = program.start()
    session.query("q").pause()
    session.append("events", rows(1, 2, 3))
    session.run_available()
    assert program.status.state == "paused"
    session.query("q").resume()
    session.run_available()
    assert program.sink.values == [1, 2, 3]


@pytest.mark.parametrize(
    ("option", "given"),
    [("undelivered_bytes", "much"), ("undelivered_bytes", "0"), ("retries", "-1"), ("sink_timeout", "0 seconds")],
)
def test_options_that_make_no_sense_are_refused(program: Program, option: str, given: str) -> None:
    session = program.start()
    with pytest.raises(ThalwegError, match=option):
        session.create_query("another", ALL, program.sink, options={option: given})


def test_an_option_that_there_is_not_is_refused(program: Program) -> None:
    session = program.start()
    with pytest.raises(UsageError, match="query 'another' has no option 'retrys'") as raised:
        session.create_query("another", ALL, program.sink, options={"retrys": "3"})
    assert "did you mean retries?" in str(raised.value)
    assert "another" not in session.queries


def test_of_results_in_memory_the_newest_are_kept_if_that_is_asked(program: Program) -> None:
    session = program.start()
    with pytest.raises(UsageError, match="keeps no results of which retain_results could be some"):
        session.create_query("sunk", ALL, program.sink, options={"retain_results": "1 MB"})
    newest = session.create_query("newest", ALL, options={"retain_results": "1"})
    program.run(1, 2, 3)
    assert newest.results()["v"].to_pylist() == [3]
    assert (newest.status.emitted, newest.status.results.rows) == (3, 1)
    assert session.progress()["queries"]["newest"].results.bytes > 0
    assert (program.status.results, session.query("other").status.results.rows) == (None, 3)
    assert program.others == [1, 2, 3]
    session.stop()
    session = program.start()
    assert session.query("newest").results()["v"].to_pylist() == [3]
    program.run(4)
    assert session.query("newest").results()["v"].to_pylist() == [4]


def test_options_are_written_as_people_do(program: Program) -> None:
    session = program.start()
    options = {"undelivered_bytes": "1 GB", "retry_delay": "1 second", "sink_timeout": "2 minutes"}
    query = session.create_query("another", ALL, program.sink, options=options)
    assert dict(query.definition.options) == {
        "undelivered_bytes": "1000000000",
        "retry_delay": "1000000",
        "sink_timeout": "120000000",
    }
    shown = session.sql(
        f"CREATE QUERY shown INTO console OPTIONS (rows = 3, undelivered_bytes = '1 GiB', retries = 3) AS {ALL}"
    )
    assert dict(shown.definition.options) == {"undelivered_bytes": "1073741824", "retries": "3"}


def test_a_failed_query_is_computed_again_from_when_it_is_resumed(
    local: Local, state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = local({"events": rows(1)}, state_dir=state_dir)
    bad = session.create_query("bad", BAD)
    session.run_available()
    session.append("events", rows(0))
    session.run_available()
    assert bad.status.state == "failed"
    gap = bad.status.gap
    assert (gap.rows, gap.until_batch) == (0, None)
    assert "not_delivering query=bad state=failed" in caplog.text
    bad.resume()
    session.append("events", rows(2))
    session.run_available()
    assert bad.status.state == "idle"
    assert bad.results()["x"].to_pylist() == [1.0, 0.5]
    assert bad.status.gap.from_batch == gap.from_batch


@pytest.mark.slow
def test_a_resumed_query_sees_what_one_created_then_would(local: Local, state_dir: Path) -> None:
    """Windows that it has not seen whole it does not emit."""
    sink = Sink()
    session = local({"events": rows(1)}, state_dir=state_dir)
    query = session.create_query("sums", SUMS, sink, options={"undelivered_bytes": "1"})
    query.pause()
    for value in (12, 25, 31):  # each closes a window; the second finds no place
        session.append("events", rows(value))
        session.run_available()
    assert query.status.state == "stopped"
    query.resume()
    fresh = session.create_query("fresh", SUMS)
    for value in (34, 41, 55, 70):
        session.append("events", rows(value))
        session.run_available()
    assert query.status.state == "idle"
    assert sink.values[0] == 1
    assert sink.values[1:] == fresh.results()["s"].to_pylist()
    assert fresh.results().num_rows > 0


# -- files


def failing(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Calls of a function of the files sink that fail first."""
    real, refused = getattr(files_module, name), []

    def fail(*given: Any, **more: Any) -> Any:
        if len(refused) < times:
            refused.append(str(given[0]))
            raise OSError(28, "No space left on device")
        return real(*given, **more)

    monkeypatch.setattr(files_module, name, fail)
    return refused


def found(out: Path) -> list[int]:
    return sorted(v for path in out.glob("part-*") for v in pq.read_table(path)["v"].to_pylist())


def test_a_full_disk_of_a_files_sink_loses_nothing(
    local: Local, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    session = local({"events": rows(1)}, state_dir=state_dir, hands=Inline())
    session.create_query("f", ALL, thalweg.to_files(out))
    session.run_available()
    refused = failing(monkeypatch, "write_atomic", 4)
    session.append("events", rows(2))
    session.run_available()
    assert len(refused) == 4, "when it was prepared, and three times when it was committed"
    assert session.query("f").status.state == "idle"
    assert found(out) == [1, 2]
    assert [path.name for path in out.glob(".part*")] == []


@pytest.mark.parametrize("step", ["open", "write", "finish", "link"])
def test_what_tasks_cannot_write_waits_with_the_state(
    local: Local, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Where results are so many that tasks write them."""
    monkeypatch.setattr(outlet, "INLINE_BYTES", 8)
    monkeypatch.setattr(outlet, "PART_BYTES", 0)
    out = tmp_path / "out"
    session = local({"events": rows(1)}, state_dir=state_dir, hands=Inline())
    session.create_query("f", ALL, thalweg.to_files(out))
    session.create_query("other", ALL)
    session.run_available()
    if step == "link":
        failing(monkeypatch, "link", 1)
    else:
        calls: list[int] = []

        def fail(*given: Any) -> Any:
            calls.append(1)
            raise OSError(28, "No space left on device")

        place = files_module.FilesInTasks if step == "open" else files_module.FilePart
        monkeypatch.setattr(place, "open_part" if step == "open" else step, fail)
    session.append("events", rows(2, 3))
    session.run_available()
    assert session.query("f").status.state == "idle"
    assert found(out) == [1, 2, 3]
    assert session.query("other").results()["v"].to_pylist() == [1, 2, 3]
    assert [path.name for path in out.glob(".part*")] == []


@pytest.mark.parametrize("together", [0, 16, 1 << 20])
@pytest.mark.parametrize("dies", ["write", "show"])
def test_a_death_while_a_files_sink_takes_what_tasks_wrote_doubles_nothing(
    local: Local, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str, together: int
) -> None:
    """In files of their own, beside what lies in the state, or in the state alone."""
    monkeypatch.setattr(outlet, "INLINE_BYTES", 8)
    monkeypatch.setattr(outlet, "PART_BYTES", together)
    out = tmp_path / "out"
    session = local({"events": rows(1, 2, 3)}, state_dir=state_dir, hands=Inline())
    session.create_query("f", ALL, thalweg.to_files(out), options={"retries": "0"})
    failing(monkeypatch, "link", 1)
    real = getattr(FilesSink, f"_{dies}")

    def die(*given: Any) -> Any:
        real(*given)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(FilesSink, "_sweep", lambda *given: None)
        patch.setattr(FilesSink, f"_{dies}", die)
        session.run_available()
    assert session.query("f").status.state == "paused"
    session._parts.delivery.queues.close()
    session._parts.hold.release()
    session = local(state_dir=state_dir, hands=Inline())
    session.resume_query("f")
    session.run_available()
    assert found(out) == [1, 2, 3]
    assert [path.name for path in out.glob(".part*")] == []


# -- sinks that block or are slow


def test_a_sink_that_blocks_holds_neither_others_nor_stop(program: Program) -> None:
    gate, entered = threading.Event(), threading.Event()

    def block(table: pa.Table, batch: int) -> None:
        entered.set()
        gate.wait(30)

    session = program.start()
    session.create_query("blocked", ALL, block)
    session.start("0 seconds")
    try:
        session.append("events", rows(1))
        assert entered.wait(30)
        session.append("events", rows(2))
        deadline = time.monotonic() + 30
        while program.sink.values != [1, 2]:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        began = time.monotonic()
        session.stop(timeout=0.01)
        assert time.monotonic() - began < 10
        assert session.query("blocked").status.undelivered.rows == 2
    finally:
        gate.set()
    again = program.start()
    got = Sink()
    again.create_query("blocked", ALL, got)
    again.run_available()
    assert got.values == [1, 2]


def test_a_sink_cannot_stop_the_session_that_calls_it(program: Program) -> None:
    said: list[str] = []

    def stop(table: pa.Table, batch: int) -> None:
        for verb in (program.session.stop, program.session.run_available):
            try:
                verb()
            except UsageError as error:
                said.append(str(error))

    session = program.start()
    session.create_query("stops", ALL, stop)
    program.run(1)
    assert len(said) == 2
    assert session.status.state == "idle"


# -- what was not given again


def test_a_query_whose_callable_was_not_given_again_waits_alone(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    session = program.start()
    program.run(1)
    session.stop()
    program.start(given=False)
    assert program.status.state == "waiting"
    assert "its Python callable is gone" in program.status.error
    program.run(2, 3)
    assert program.others == [1, 2, 3]
    assert (program.status.state, program.status.undelivered.rows) == ("waiting", 2)
    assert "not_delivering query=q state=waiting" in caplog.text
    program.session.create_query("q", ALL, program.sink)
    program.session.run_available()
    assert program.sink.values == [1, 2, 3]
    assert program.status.state == "idle"


def test_queries_over_a_dataframe_that_was_not_given_again_wait_alone(program: Program) -> None:
    """The stream has nothing new meanwhile."""
    session = program.start()
    others = thalweg.memory(SCHEMA)
    session.create_stream("a", others, time="ts", watermark="0 seconds")
    session.create_table("names", pa.table({"k": pa.array([1], pa.int64()), "name": ["one"]}))
    beside = session.create_query("beside", "SELECT a.v, names.name FROM a JOIN names ON a.k = names.k")
    parts = session._parts
    parts.catalog = parts.catalog.with_stream(replace(session.stream("events"), source=SourceSpec("spark", {})))
    parts.feeding.sources = {name: source for name, source in parts.feeding.sources.items() if name != "events"}
    parts.activate_streams()
    others.append(rows(1))
    session.run_available()
    assert beside.results()["v"].to_pylist() == [1]
    assert (beside.status.state, program.status.state) == ("idle", "waiting")
    assert "streaming DataFrame" in program.status.error


# -- states


def test_states_tell_what_is_so(program: Program) -> None:
    session = program.start()
    assert (program.status.state, session.status.state) == ("pending", "idle")
    program.run(1)
    assert (program.status.state, session.status.state) == ("idle", "idle")
    assert session.status.queries == {"idle": 2}
    session.start("0 seconds")
    assert (program.status.state, session.status.state) == ("running", "running")
    assert session.await_termination(0.01) is False
    with pytest.raises(UsageError, match="already running") as raised:
        session.start()
    assert "stop() it first" not in str(raised.value)
    session.stop()
    assert (program.status.state, session.status.state) == ("stopped", "stopped")
    assert session.sql("SHOW QUERIES")["state"].to_pylist() == ["stopped", "stopped"]
    assert session.await_termination() is True


def test_a_dead_pipeline_is_seen_everywhere(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    session = program.start()
    program.run(1)
    with monkeypatch.context() as patch:
        patch.setattr(
            session._parts.runner.runner, "run", lambda *given: (_ for _ in ()).throw(RuntimeError("worker died"))
        )
        session.start("0 seconds")
        session.append("events", rows(2))
        with pytest.raises(ThalwegError, match="the pipeline has stopped"):
            session.await_termination(30)
    assert session.status.state == "failed"
    assert "worker died" in session.status.error
    assert program.status.state == "stopped"
    assert "worker died" in program.status.error
    assert set(session.sql("SHOW QUERIES")["state"].to_pylist()) == {"stopped"}
    session.run_available()
    assert (session.status.state, session.status.error, program.status.state) == ("idle", None, "idle")
    assert program.sink.values == [1, 2]


def test_landings_stop_with_the_pipeline(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    session = program.start()
    stopped: list[bool] = []
    parts = session._parts
    monkeypatch.setattr(parts.feeding, "stop", lambda but=(): stopped.append(True))
    monkeypatch.setattr(parts.runner.runner, "run", lambda *given: (_ for _ in ()).throw(RuntimeError("died")))
    parts.pipeline.start(0)
    with pytest.raises(ThalwegError):
        session.await_termination(30)
    assert stopped


# -- what is durable


def test_in_the_background_what_was_given_is_noted_when_nothing_follows(program: Program) -> None:
    session = program.start()
    session.start("0 seconds")
    session.append("events", rows(1))
    storage = LocalStorage(str(program.state_dir))
    deadline = time.monotonic() + 30
    while program.sink.values != [1] or (note := find_delivered(storage)) is None or not note.given:
        newest = session._parts.runner.manifest
        if program.sink.values == [1] and newest.batch > 0 and not newest.undelivered:
            break  # a later manifest says so
        assert time.monotonic() < deadline
        time.sleep(0.002)
    session._parts.pipeline._run.leaves.set()
    session._parts.pipeline._wake.set()
    program.kill()
    program.start()
    program.run()
    assert program.sink.values == [1]


@pytest.mark.slow
def test_results_that_wait_cost_a_manifest_what_changes(local: Local, state_dir: Path) -> None:
    """Fifty queries whose sinks take nothing: what earlier batches have left is not written again."""
    session = local({"events": rows(1)}, state_dir=state_dir)
    for n in range(50):
        session.create_query(f"q{n}", ALL, lambda table, batch: None).pause()
    session.run_available()
    written: dict[int, int] = {}
    create = LocalStorage.create

    def count(storage: LocalStorage, name: str, data: Any) -> bool:
        if name.startswith(("manifests/", "parts/")):
            batch = session._parts.runner.manifest.batch
            written[batch] = written.get(batch, 0) + len(data)
        return create(storage, name, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "create", count)
        for second in range(2, 12):
            session.append("events", rows(second))
            session.run_available()
    sizes = [size for batch, size in sorted(written.items()) if size > 10_000]
    assert len(sizes) >= 8
    assert max(sizes) < 1.3 * min(sizes)
    session.stop()
    session = local(state_dir=state_dir)
    assert session.query("q0").status.undelivered.batches == 11


def test_a_state_that_was_forked_gives_out_nothing_of_its_original(program: Program) -> None:
    session = program.start()
    session.query("q").pause()
    program.run(1)
    session.stop()
    session = program.start(fork=True)
    session.query("q").resume()
    program.run(2)
    assert program.sink.values == [2]


def test_nothing_is_said_while_all_is_well(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    program.start()
    program.run(1, 2)
    program.session.stop()
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
