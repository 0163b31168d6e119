"""Unit: what the JVM says in every session is left out, everything else is passed on as it was; and, with a real
process, a short program says nothing that was not asked of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks_of

from thalweg.engine.launch import Sieve, find_java, pass_on
from thalweg.errors import UsageError

WARNING = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
FRAME = b'  File "/x/pyspark.zip/pyspark/daemon.py", line %d, in %s\n'
CLOSED = (
    b"Traceback (most recent call last):\n",
    FRAME % (264, b"manager"),
    b"    code = worker(sock, authenticated)\n",
    FRAME % (95, b"worker"),
    b"    outfile.flush()\n",
    b"BrokenPipeError: [Errno 32] Broken pipe\n",
)
REAL = b"""Traceback (most recent call last):
  File "/home/me/own.py", line 3, in update
    x = 1 / 0
        ~~^~~
ZeroDivisionError: division by zero
"""


def passed(*pieces: bytes) -> bytes:
    sieve = Sieve()
    return b"".join(sieve.pass_through(piece) for piece in pieces)


def test_the_warning_and_the_end_of_workers_are_left_out() -> None:
    closed = b"".join(CLOSED)
    assert passed(WARNING) == b""
    assert passed(b"".join(line for line in CLOSED if not line.startswith(b"    "))) == b""
    assert passed(b"a\n" + WARNING + b"b\n" + closed + closed + b"c\n") == b"a\nb\nc\n"


def test_traces_of_workers_that_are_mixed_are_left_out() -> None:
    choice = random.Random(5)
    for _ in range(50):
        first, second, mixed = list(CLOSED), list(CLOSED), []
        while first or second:
            mixed.append((first if first and (not second or choice.random() < 0.5) else second).pop(0))
        assert passed(*mixed) == b""


@pytest.mark.parametrize(
    "text",
    [
        REAL,
        b"Traceback (most recent call last):\n" + REAL,
        b"BrokenPipeError: [Errno 32] Broken pipe\n",
        b"    indented\n",
        REAL.replace(b"ZeroDivisionError: division by zero", b"BrokenPipeError: [Errno 32] Broken pipe"),
        FRAME % (1, b"manager") + b"MemoryError\n",
        b"Traceback (most recent call last):\n" + FRAME % (264, b"manager") + b"MemoryError\n",
        b"WARNING: Using incubator modules: something.else\n",
    ],
)
def test_everything_else_is_passed_on_in_whatever_pieces_it_comes(text: bytes) -> None:
    assert passed(text) == text
    assert passed(*(text[i : i + 1] for i in range(len(text)))) == text


def test_a_line_without_its_end_does_not_wait() -> None:
    assert passed(b"50 %") == b"50 %"
    assert passed(b"WARN") == b""
    assert passed(b"WARN", b"ING: other") == b"WARNING: other"


def test_what_nobody_reads_does_not_hold_up_the_writer() -> None:
    reading, writing = os.pipe()
    closed, _ = os.pipe()
    thread = threading.Thread(target=pass_on, args=(reading, closed))
    thread.start()
    os.write(writing, b"x" * 10_000 + b"\n")
    os.close(writing)
    thread.join(10)
    assert not thread.is_alive()


def test_java_is_looked_for_before_spark_is_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Java") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "Java 17 or newer" in str(caught.value.hint)
    with pytest.raises(UsageError, match="there is no Java") as caught:
        find_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert f"JAVA_HOME is {tmp_path}" in str(caught.value.detail)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path)}) == str(tmp_path / "bin" / "java")


@pytest.mark.slow
def test_a_java_that_ends_is_said_with_its_version(tmp_path: Path) -> None:
    """In a process of its own: here Spark may be running already."""
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\nexit 1\n")
    java.chmod(0o755)
    program = "import thalweg; thalweg.connect('state')"
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert "UsageError: Spark's Java process has ended while it started" in done.stderr
    assert 'openjdk version "11.0.2"' in done.stderr
    assert "Java 17 or newer" in done.stderr


TYPO = """
with thalweg.connect("state/") as session:
    for statement in ("CREATE QUERY typo AS SELECT pirce FROM purchases", "EXPLAIN revenue"):
        try:
            print(repr(session.sql(statement)).splitlines()[0])
        except thalweg.ThalwegError as error:
            print(error.message)
"""


@pytest.mark.spark
def test_the_readme_and_a_typo_say_nothing_on_their_own(tmp_path: Path) -> None:
    """Two lives, so that the end of workers is seen more than once; the second is not stopped, but ends."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = next(block.text for block in blocks_of(readme) if block.kind == "python")
    for more in (TYPO, "\nsession = thalweg.connect('state/')\n"):
        command = [sys.executable, "-c", program + more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path)
        assert done.stderr == ""
        assert done.returncode == 0
        assert "53848.74" in done.stdout
        assert more is not TYPO or "unknown column 'pirce'" in done.stdout
