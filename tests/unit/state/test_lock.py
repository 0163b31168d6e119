from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thalweg.errors import StateError
from thalweg.state.lock import DirectoryLock

HOLDER = """
import sys, time
from thalweg.state.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_session_in_this_process_is_refused(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "state")
    with pytest.raises(StateError, match=f"process {os.getpid()} on host"):
        DirectoryLock(tmp_path / "state")
    lock.release()
    DirectoryLock(tmp_path / "state").release()


def test_a_refusal_says_only_who_holds_it(tmp_path: Path) -> None:
    """Not the error of the system, with the frames of the insides above it."""
    with DirectoryLock(tmp_path), pytest.raises(StateError) as refused:
        DirectoryLock(tmp_path)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_another_process_is_refused_until_the_holder_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(StateError, match=f"process {holder.pid} on host"):
                DirectoryLock(tmp_path)
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    DirectoryLock(tmp_path).release()


def test_a_lock_whose_file_was_removed_is_lost(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.check()
    os.unlink(lock.path)
    with pytest.raises(StateError, match="no longer holds"):
        lock.check()
    other = DirectoryLock(tmp_path)  # the name is free for anybody
    with pytest.raises(StateError, match="no longer holds"):
        lock.check()
    other.check()
    lock.release()
    other.check()
    other.release()


def test_a_child_of_the_program_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    try:
        lock.release()
        DirectoryLock(tmp_path).release()
    finally:
        os.write(writing, b".")
        os.waitpid(child, 0)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be used"):
        DirectoryLock(tmp_path / "file")
