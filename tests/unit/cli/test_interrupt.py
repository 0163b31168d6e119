"""Unit: Ctrl-C, in real processes that get it as from a terminal: the whole process group at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from thalweg.cli.interrupt import Interrupt, Interrupted, run_interruptibly

STATEMENTS = """
CREATE STREAM purchases WATERMARK FOR ts AS ts - INTERVAL 1 SECOND
WITH (source = 'generate', generator = 'purchases', rows_per_second = '1000', pace = '1000');
CREATE QUERY counts AS SELECT count(*) AS n FROM purchases GROUP BY window(ts, '2 seconds');
"""


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """What a shell runs in the background ignores Ctrl-C and hands that on to its children: tests run there, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Process:
    """A command in a process group of its own, whose output is read as it comes."""

    def __init__(self, *command: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.out, self.err = b"", b""
        self.readers = [threading.Thread(target=self._read, args=(name,)) for name in ("out", "err")]
        for reader in self.readers:
            reader.start()

    def _read(self, name: str) -> None:
        source = getattr(self.process, f"std{name}")
        while data := os.read(source.fileno(), 65536):
            setattr(self, name, getattr(self, name) + data)

    def wait_for(self, seen: Callable[[], bool], seconds: float = 150) -> None:
        end = time.monotonic() + seconds
        while not seen():
            assert self.process.poll() is None, self.err.decode()
            assert time.monotonic() < end, (self.out, self.err)
            time.sleep(0.05)

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(120)
        for reader in self.readers:
            reader.join(60)
        return code


def thalweg_process(*arguments: str, cwd: Path) -> Process:
    return Process(sys.executable, "-m", "thalweg.cli", *arguments, cwd=cwd)


@pytest.fixture
def statements(tmp_path: Path) -> Path:
    path = tmp_path / "game.sql"
    path.write_text(STATEMENTS)
    return path


@pytest.mark.spark
def test_a_steady_run_ends_with_0(statements: Path, tmp_path: Path) -> None:
    run = thalweg_process("run", str(statements), "--state", str(tmp_path / "state"), cwd=tmp_path)
    run.wait_for(lambda: b"batch 2" in run.out)
    assert run.interrupt() == 0
    assert run.out.count(b"stopping") == 1
    assert run.err == b""


@pytest.mark.spark
@pytest.mark.parametrize("seconds", [0.5, 4.0])
def test_a_start_ends_at_once_with_130(statements: Path, tmp_path: Path, seconds: float) -> None:
    """While Python imports, and while the JVM comes up."""
    run = thalweg_process("run", str(statements), cwd=tmp_path)
    time.sleep(seconds)
    code = run.interrupt()
    # A fast machine may be in its steady run by then. On a slow one Python does not mind signals yet: it is killed by
    # this one, which a shell tells as 130, too.
    assert code in (130, -signal.SIGINT) or b"stopping" in run.out
    assert run.err == b""


PROGRAM = """
import sys, time
import thalweg

session = thalweg.connect(sys.argv[1])
source = thalweg.generate("purchases", rows=500_000_000, rows_per_second=100_000, rows_per_batch=100_000)
session.create_stream("purchases", source, time="ts", watermark="2 seconds")
session.create_query("counts", "SELECT count(*) AS n FROM purchases GROUP BY window(ts, '5 seconds')")
if sys.argv[2] == "start":
    session.start()

def say_when_it_runs():
    while session.progress()["batch"] < 1:
        time.sleep(0.1)
    print("runs", flush=True)

import threading
threading.Thread(target=say_when_it_runs).start()
try:
    session.run_available() if sys.argv[2] == "run_available" else time.sleep(300)
except KeyboardInterrupt:
    print("interrupted", flush=True)
if sys.argv[2] == "start":
    print("still running:", session._parts.pipeline.is_running)
session.stop()
print("stopped", flush=True)
"""


@pytest.mark.spark
@pytest.mark.parametrize("how", ["run_available", "start"])
def test_a_program_gets_its_interrupt_and_nothing_else(tmp_path: Path, how: str) -> None:
    program = Process(sys.executable, "-c", PROGRAM, str(tmp_path / "state"), how, cwd=tmp_path)
    program.wait_for(lambda: b"runs" in program.out)
    assert program.interrupt() == 0
    said = ["runs", "interrupted", *(["still running: True"] if how == "start" else []), "stopped"]
    assert program.out.decode().splitlines() == said
    assert program.err == b""


def test_work_that_heeds_an_interrupt_comes_to_its_end() -> None:
    def work(interrupt: Interrupt) -> int:
        with interrupt.heeded():
            threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
            assert interrupt.wait(30)
            assert not interrupt.press()  # a second one is not waited for
        return 7

    assert run_interruptibly(work) == 7


@pytest.mark.slow
def test_an_interrupt_is_caught_wherever_the_main_thread_is() -> None:
    """Many in a row, each at another moment of its loop."""
    for _ in range(30):

        def work(interrupt: Interrupt) -> int:
            with interrupt.heeded():
                signal.raise_signal(signal.SIGINT)
                return 7 if interrupt.wait(30) else 1

        assert run_interruptibly(work) == 7


def test_work_that_does_not_is_left_alone() -> None:
    go_on = threading.Event()

    def work(interrupt: Interrupt) -> int:
        signal.raise_signal(signal.SIGINT)
        go_on.wait(30)
        return 7

    with pytest.raises(Interrupted):
        run_interruptibly(work)
    go_on.set()


def test_errors_of_the_work_are_raised() -> None:
    def work(interrupt: Interrupt) -> int:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        run_interruptibly(work)
