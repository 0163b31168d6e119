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

from thalweg.engine.launch import Sieve, pass_on

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


TEN_LINES = """
import sys
import thalweg

with thalweg.connect(sys.argv[1]) as session:
    source = thalweg.generate("purchases", rows=20_000, rows_per_second=1_000)
    session.create_stream("purchases", source, time="ts", watermark="2 seconds")
    select = "SELECT count(*) AS n FROM purchases GROUP BY window(ts, '5 seconds')"
    query = session.create_query("counts", select)
    session.run_available()
    print(query.results().num_rows)
    print(repr(session.sql("EXPLAIN counts"))[:1])
"""


@pytest.mark.spark
def test_a_session_of_our_own_says_nothing_on_its_own(tmp_path: Path) -> None:
    """Two lives, so that the end of workers is seen more than once."""
    for _ in range(2):
        command = [sys.executable, "-c", TEN_LINES, str(tmp_path / "state")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
        assert done.stderr == ""
        assert done.returncode == 0
        assert int(done.stdout.split()[0]) > 0
