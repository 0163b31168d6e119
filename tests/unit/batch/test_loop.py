"""Unit: which input a batch gets, when it begins, and how runs end; what a batch does is a stand-in."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.batch.contract import TasksCancelledError
from thalweg.batch.loop import Loop, Run, next_pause
from thalweg.errors import StateError, ThalwegError, UsageError
from thalweg.model.offsets import NOTHING, Offsets, SourceMark
from thalweg.model.split import Split, parse_splits
from thalweg.model.stream import Stream
from thalweg.observe.progress import BatchReport, Progress
from thalweg.source.chunks import Chunk
from thalweg.source.files import files
from thalweg.source.memory import Memory, memory
from thalweg.source.read import read
from thalweg.state.local_storage import LocalStorage


class Batches:
    """As far as a loop knows them. A batch reads its splits; what else it does, a test says."""

    tasks = 2

    def __init__(self, storage: LocalStorage, streams: dict[str, Stream]) -> None:
        self.storage = storage
        self.streams = streams
        self.runner: Any = SimpleNamespace(cancel=lambda: None)
        self.manifest = SimpleNamespace(batch=-1, marks={})
        self.reached = NOTHING
        self.repeated: Offsets | None = None
        """How far a batch goes that sinks of an earlier release may have seen."""
        self.calls: list[str] = []
        """What else the loop has asked for."""
        self.has_work = True
        self.dealt: list[list[list[Split]]] = []
        """Per batch, per task, its splits."""
        self.values: list[list[Any]] = []
        """Per batch, the values of all streams."""
        self.on_batch: Callable[[int], None] = lambda batch: None
        self.reports: list[BatchReport] = []

    def recover(self) -> None:
        self.calls.append("recover")

    def make_room(self, leaves: threading.Event) -> None:
        """There always is."""

    def flush(self, seconds: float | None, leaves: threading.Event) -> bool:
        self.calls.append("flush")
        return True

    def note_if_idle(self) -> None:
        """There is nothing to note."""

    def note_delivery(self) -> None:
        self.calls.append("note_delivery")

    def settled(self) -> Offsets | None:
        return self.repeated

    def begin(self) -> Offsets:
        return self.reached

    def has_requests(self) -> bool:
        return False

    def has_work_without_rows(self) -> bool:
        return self.has_work

    def has_idled(self) -> bool:
        return False

    def has_more_to_close(self) -> bool:
        return False

    def run(
        self, splits: Sequence[str], reached: Offsets, choosing_seconds: float, marks: dict[str, SourceMark]
    ) -> None:
        self.calls.append("run")
        self.on_batch(self.manifest.batch + 1)
        self.dealt.append([parse_splits(text) for text in splits])
        self.values.append([v for task in self.dealt[-1] for split in task for v in self.read(split)])
        self.manifest.batch += 1
        self.manifest.marks = {**self.manifest.marks, **marks}
        self.reached, self.repeated = reached, None
        rows = len(self.values[-1])
        self.reports.append(BatchReport(self.manifest.batch, rows, 0, 0.1, time.time(), {}, {}, 0))

    def read(self, split: Split) -> list[Any]:
        return [v for c in self._read(split) for v in c.table["a"].to_pylist()]

    def _read(self, split: Split) -> Iterator[Chunk]:
        return read(split, self.streams[split.stream], ["a"], self.storage)


class Rig:
    """A state directory with memory streams, and a loop over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = LocalStorage(str(directory))
        self.streams: dict[str, Stream] = {}
        self.batches = Batches(self.storage, self.streams)
        self.open()

    def open(self) -> None:
        """As after a restart."""
        given: Any = self.batches
        self.loop = Loop(given, self.known, self.known, lambda: None)

    def known(self) -> dict[str, Stream]:
        return dict(self.streams)

    def add(self, name: str, **options: Any) -> Memory:
        source = memory("a bigint", **options)
        source.attach(self.storage, name, self.loop.wake)
        self.register(Stream(name, source.schema(), "a", 0, source.spec()))
        return source

    def register(self, stream: Stream) -> None:
        self.streams[stream.name] = stream

    def run_available(self) -> list[list[Any]]:
        """Per batch of this run, the values of all streams."""
        before = len(self.batches.values)
        self.loop.run_available()
        return self.batches.values[before:]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.loop.stop()


def table(*values: int) -> pa.Table:
    return pa.table({"a": values})


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


# -- which input


def test_all_that_is_there_and_one_batch_without_rows(rig: Rig) -> None:
    source = rig.add("s", max_files_per_batch=2)
    for i in range(3):
        source.append(table(i))
    assert rig.run_available() == [[0, 1], [2], []]
    assert all(len(batch) == 2 for batch in rig.batches.dealt)
    source.append(table(3, 4))
    assert rig.run_available() == [[3, 4], []]
    assert rig.run_available() == [[]]


def test_a_last_batch_that_would_do_nothing_is_left_out(rig: Rig) -> None:
    rig.batches.has_work = False
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1]]
    assert rig.run_available() == []


def test_rows_that_come_during_the_run_wait_for_the_next(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))
    rig.batches.on_batch = lambda batch: source.append(table(10 + batch))
    assert rig.run_available() == [[1], []]
    rig.batches.on_batch = lambda batch: None
    assert rig.run_available() == [[10, 11], []]


def test_a_batch_that_nobody_saw_is_chosen_anew_and_one_of_an_earlier_release_is_repeated(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))

    def fail(batch: int) -> None:
        source.append(table(2))
        raise RuntimeError("cut off")

    rig.batches.on_batch = fail
    with pytest.raises(ThalwegError, match="in batch 0"):
        rig.run_available()
    rig.open()
    rig.batches.on_batch = lambda batch: None
    assert rig.run_available() == [[1, 2], []]
    source.append(table(3))
    source.append(table(4))
    rig.batches.repeated = Offsets(0, {"s": 3})
    rig.open()
    assert rig.run_available() == [[3], [4], []]


def test_a_stream_that_comes_later_starts_at_its_beginning(rig: Rig) -> None:
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1], []]
    rig.add("t").append(table(7))
    assert rig.run_available() == [[7], []]


@pytest.mark.slow
def test_in_the_background_data_streams_and_ticks_are_taken_up(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))
    rig.loop.start(0)
    wait_for(lambda: len(rig.batches.values) == 1)
    rig.loop.tick()
    wait_for(lambda: len(rig.batches.values) == 2)
    rig.add("t").append(table(5))
    wait_for(lambda: len(rig.batches.values) == 3)
    source.append(table(2))
    wait_for(lambda: len(rig.batches.values) == 4)
    time.sleep(0.3)
    rig.loop.stop()
    assert rig.batches.values == [[1], [], [5], [2]]


def test_an_append_is_not_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.batch.loop._POLLS", (60.0, 60.0))
    source = rig.add("s")
    rig.loop.start(0)
    wait_for(lambda: len(rig.batches.values) == 1)
    time.sleep(0.05)  # it has found nothing more by now
    source.append(table(1))
    wait_for(lambda: rig.batches.values == [[], [1]], 10)


@pytest.mark.parametrize(("looked", "pause"), [(0.0, 0.01), (0.0002, 0.01), (0.002, 0.04), (0.5, 0.1)])
def test_looks_that_find_nothing_take_a_twentieth_of_the_time(looked: float, pause: float) -> None:
    assert next_pause(looked) == pytest.approx(pause)


@pytest.mark.slow
def test_a_trigger_lets_rows_wait_until_it_is_time(rig: Rig) -> None:
    began: list[float] = []
    rig.batches.on_batch = lambda batch: began.append(time.monotonic())
    source = rig.add("s")
    rig.loop.start(300_000)
    wait_for(lambda: len(began) == 1)
    source.append(table(1))
    wait_for(lambda: len(began) == 2)
    assert began[1] - began[0] > 0.25


def test_a_directory_that_is_gone_does_not_stop_the_other_streams(rig: Rig) -> None:
    rig.register(Stream("f", memory("a int").schema(), "a", 0, files(f"{rig.directory}/gone/*.csv").spec()))
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1], []]


def test_a_log_that_cannot_be_read_is_told_as_it_is(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("a\n1\n")
    source = files(f"{tmp_path}/in/*.csv", header=True)
    rig.register(Stream("f", memory("a bigint").schema(), "a", 0, source.spec()))
    assert rig.run_available() == [[1], []]
    for name in rig.storage.names("sources/f/files/"):
        rig.storage.write(name, b"{")
    rig.open()
    with pytest.raises(StateError, match=r"sources/f/files/.* is not what was written"):
        rig.run_available()
    rig.loop.start(0)
    wait_for(lambda: not rig.loop.is_running)
    with pytest.raises(StateError, match=r"sources/f/files/.* is not what was written"):
        rig.loop.check()


def test_marks_of_sources_go_into_the_manifest_and_are_held_against_them(rig: Rig) -> None:
    source = rig.add("s")
    source.append(table(1))
    rig.run_available()
    assert rig.batches.manifest.marks["s"].units == 1
    rig.batches.manifest.marks["s"] = SourceMark(5, rig.batches.manifest.marks["s"].crc)
    rig.open()
    with pytest.raises(StateError, match=r"sources/s/.* is missing"):
        rig.run_available()


def test_what_sinks_were_not_given_comes_before_every_batch_and_is_noted_at_the_end(rig: Rig) -> None:
    """A pipeline that was stopped in good order gives nothing out again; one that was not has that to find out."""
    rig.add("s").append(table(1))
    rig.run_available()
    assert rig.batches.calls == ["recover", "run", "recover", "run", "recover", "flush", "note_delivery"]
    rig.batches.calls.clear()
    rig.loop.start(0)
    wait_for(lambda: "run" in rig.batches.calls)
    rig.loop.stop()
    assert rig.batches.calls[:2] == ["recover", "run"]
    assert rig.batches.calls[-1] == "note_delivery"
    assert rig.batches.calls.count("note_delivery") == 1


# -- of a backlog


def add_files(rig: Rig, count: int) -> None:
    """A stream of so many files of two rows each."""
    directory = rig.directory / "in"
    directory.mkdir(exist_ok=True)
    for number in range(count):
        pq.write_table(table(2 * number, 2 * number + 1), directory / f"{number:02}.parquet")
    rig.register(Stream("f", memory("a bigint").schema(), "a", 0, files(f"{directory}/*.parquet").spec()))


def test_batches_of_a_backlog_grow_and_wait_for_no_trigger(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.adapt.batch_size.FIRST_ROWS", 4)
    add_files(rig, 13)
    rig.loop.start(60_000_000)
    wait_for(lambda: sum(map(len, rig.batches.values)) == 26)
    # Two files; then four times as many, which is all that is allowed after such a small one; then what is left.
    assert rig.batches.values == [[0, 1, 2, 3], [*range(4, 20)], [*range(20, 26)]]


def test_other_queries_have_a_backlog_taken_carefully_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.adapt.batch_size.FIRST_ROWS", 4)
    monkeypatch.setattr(rig.batches, "has_requests", lambda: len(rig.batches.values) in (1, 2))
    add_files(rig, 8)
    rig.loop.start(0)
    wait_for(lambda: sum(map(len, rig.batches.values)) == 16)
    assert [len(values) for values in rig.batches.values if values] == [4, 4, 4, 4]


def test_a_run_that_ends_takes_all_that_users_allow(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rows are late is a matter of batches: it may not be one of how long they took."""
    monkeypatch.setattr("thalweg.adapt.batch_size.FIRST_ROWS", 4)
    add_files(rig, 9)
    assert rig.run_available() == [[*range(18)], []]


# -- how it ends


def test_a_failure_is_told_until_it_is_started_again(rig: Rig) -> None:
    def fail(batch: int) -> None:
        raise OSError(28, "No space left")

    rig.add("s").append(table(1))
    rig.batches.on_batch = fail
    rig.loop.start(0)
    wait_for(lambda: not rig.loop.is_running)
    for _ in range(2):
        with pytest.raises(ThalwegError, match="has stopped in batch 0"):
            rig.loop.check()
    rig.batches.on_batch = lambda batch: None
    rig.loop.start(0)
    wait_for(lambda: len(rig.batches.values) == 1)
    rig.loop.check()


def test_a_batch_that_fails_again_is_told_with_what_to_do(rig: Rig) -> None:
    def fail(batch: int) -> None:
        raise OSError(28, "No space left")

    def told() -> ThalwegError:
        with pytest.raises(ThalwegError, match="has stopped in batch") as caught:
            rig.loop.run_available()
        return caught.value

    rig.batches.on_batch = fail
    rig.batches.manifest.batch = 6
    first = told()
    assert first.message == "the pipeline has stopped in batch 7"
    assert str(first.hint).startswith("mend what the detail says, then start again: batch 7 is run again")
    assert "has failed 2 times: starting again will not help by itself" in str(told().hint)
    rig.batches.manifest.batch = 7
    assert "batch 8 is run again" in str(told().hint)


@pytest.mark.slow
def test_stop_waits_for_a_batch_that_cannot_be_cancelled_and_for_no_other(rig: Rig) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def stay(batch: int) -> None:
        inside.set()
        assert go_on.wait(30)

    source = rig.add("s", max_files_per_batch=1)
    source.append(table(1))
    source.append(table(2))
    rig.batches.on_batch = stay
    rig.loop.start(0)
    assert inside.wait(30)
    stopping = threading.Thread(target=rig.loop.stop)
    stopping.start()
    stopping.join(0.3)
    assert stopping.is_alive()
    go_on.set()
    stopping.join(30)
    assert rig.batches.values == [[1]]
    assert not rig.loop.is_running
    with pytest.raises(UsageError, match="stopped"):
        rig.loop.run_available()
    with pytest.raises(UsageError, match="stopped"):
        rig.loop.start(0)


def test_a_run_that_begins_while_another_thread_stops_the_loop_ends_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = threading.Thread(target=rig.loop.stop)

    def tick() -> None:
        stopping.start()
        wait_for(lambda: rig.loop._stopped)

    rig.add("s").append(table(1))
    monkeypatch.setattr(rig.loop, "tick", tick)  # the last that happens before the run is there
    rig.loop.run_available()
    stopping.join(30)
    assert not stopping.is_alive()
    assert not rig.loop.is_running
    assert rig.batches.values == []


class Job:
    """Tasks that go on until they are cancelled. Before they have begun, nothing can be."""

    def __init__(self, rig: Rig, begins_after: float = 0.0) -> None:
        self.inside, self.ended = threading.Event(), threading.Event()
        self._begun, self._begins_after = threading.Event(), begins_after
        rig.batches.runner = self
        rig.batches.on_batch = self.run

    def run(self, batch: int) -> None:
        self.inside.set()
        time.sleep(self._begins_after)
        self._begun.set()
        assert self.ended.wait(30)
        raise TasksCancelledError

    def cancel(self) -> None:
        if self._begun.is_set():
            self.ended.set()


@pytest.mark.slow
@pytest.mark.parametrize("begins_after", [0.0, 0.3])
def test_stop_cancels_tasks_that_run_or_begin(rig: Rig, begins_after: float) -> None:
    job = Job(rig, begins_after)
    source = rig.add("s")
    source.append(table(1))
    rig.loop.start(0)
    assert job.inside.wait(30)
    rig.loop.stop()
    assert job.ended.is_set()
    rig.loop.check()  # no failure
    rig.batches.on_batch = lambda batch: None
    rig.open()
    source.append(table(2))
    assert rig.run_available() == [[1, 2], []], "nobody had seen the batch"


def test_an_interrupt_before_the_caller_knows_its_run_ends_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(rig)
    rig.add("s").append(table(1))
    begin = Run.begin

    def interrupted(run: Run) -> None:
        begin(run)
        assert job.inside.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rig.loop.run_available()
    assert job.ended.is_set()
    assert not rig.loop.is_running


def test_an_interrupt_cancels_the_run_and_reaches_its_caller(rig: Rig) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        job = Job(rig)
        rig.add("s").append(table(1))
        threading.Thread(target=lambda: (job.inside.wait(30), signal.raise_signal(signal.SIGINT))).start()
        with pytest.raises(KeyboardInterrupt):
            rig.loop.run_available()
    finally:
        signal.signal(signal.SIGINT, before)
    assert job.ended.is_set()
    assert not rig.loop.is_running
    rig.batches.on_batch = lambda batch: None
    assert rig.run_available() == [[1], []]


def test_a_batch_cannot_stop_the_loop_that_runs_it(rig: Rig) -> None:
    told: list[str] = []

    def stop(batch: int) -> None:
        try:
            rig.loop.stop()
        except UsageError as error:
            told.append(error.message)

    rig.batches.on_batch = stop
    assert rig.run_available() == [[]]
    assert told == ["a sink or a listener cannot stop the session that is calling it"]


def test_what_is_no_error_of_ours_reaches_the_caller_as_it_is(rig: Rig) -> None:
    class Death(BaseException):
        pass

    def die(batch: int) -> None:
        raise Death

    rig.batches.on_batch = die
    with pytest.raises(Death):
        rig.run_available()
    assert not rig.loop.is_running


# -- who listens


class Listener:
    def __init__(self, *, fails_in: int | None = None, error: BaseException | None = None) -> None:
        self.batches: list[int] = []
        self.ends: list[str | None] = []
        self.fails_in, self.error = fails_in, error

    def on_progress(self, progress: Progress) -> None:
        self.batches.append(progress["batchId"])
        if progress["batchId"] == self.fails_in and self.error is not None:
            raise self.error

    def on_terminated(self, error: ThalwegError | None) -> None:
        self.ends.append(None if error is None else error.message)


def test_a_listener_hears_of_every_batch_and_of_the_end(rig: Rig) -> None:
    listener, other = Listener(), Listener()
    rig.loop.listeners.add(listener)
    rig.loop.listeners.add(other)
    rig.add("s").append(table(1))
    rig.run_available()
    assert (listener.batches, listener.ends) == ([0, 1], [None])
    rig.loop.listeners.remove(other)
    rig.loop.listeners.remove(other)

    def fail(batch: int) -> None:
        raise OSError(28, "No space left")

    rig.batches.on_batch = fail
    rig.loop.start(0)
    wait_for(lambda: not rig.loop.is_running)
    assert listener.ends == [None, "the pipeline has stopped in batch 2"]
    assert (other.batches, other.ends) == ([0, 1], [None])


@pytest.mark.parametrize("error", [ValueError("no such luck"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_listener_that_raises_is_told_of_once_and_ends_nothing(rig: Rig, error: BaseException) -> None:
    failing, other = Listener(fails_in=0, error=error), Listener()
    rig.loop.listeners.add(failing)
    rig.loop.listeners.add(other)
    rig.add("s").append(table(1))
    with pytest.warns(
        UserWarning, match=f"on_progress of .* raised {type(error).__name__}.*not called again"
    ) as told:
        rig.run_available()
    assert len(told) == 1
    assert (failing.batches, failing.ends) == ([0], [])
    assert (other.batches, other.ends) == ([0, 1], [None])


def test_a_program_that_makes_errors_of_warnings_goes_on(rig: Rig, recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("error")
    rig.loop.listeners.add(Listener(fails_in=0, error=ValueError()))
    rig.add("s").append(table(1))
    assert rig.run_available() == [[1], []]


def test_a_listener_cannot_stop_the_loop_that_calls_it(rig: Rig) -> None:
    class Stopping:
        def on_progress(self, progress: Progress) -> None:
            rig.loop.stop()

    rig.loop.listeners.add(Stopping())
    with pytest.warns(UserWarning, match="cannot stop the session"):
        assert rig.run_available() == [[]]


def test_what_is_no_listener_is_refused(rig: Rig) -> None:
    given: Any = print
    with pytest.raises(UsageError, match="is not a listener"):
        rig.loop.listeners.add(given)
