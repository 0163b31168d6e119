"""The log of requests survives a crash at any byte."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thalweg.state.changes import ChangeLog

from thalweg.errors import StateError
from thalweg.state import durable
from thalweg.testing.disk import FaultyDisk


def fill(state_dir: Path, count: int) -> ChangeLog:
    log = ChangeLog(state_dir)
    for number in range(count):
        log.append({"create": f"q{number}", "text": "SELECT 'é\n'"})
    return log


def numbers(log: ChangeLog, after: int = 0) -> list[int]:
    return [sequence for sequence, _ in log.read_after(after)]


def test_requests_come_back_in_order(tmp_path: Path) -> None:
    fill(tmp_path, 3).close()
    log = ChangeLog(tmp_path)
    assert numbers(log) == [1, 2, 3]
    assert log.read_after(2) == [(3, {"create": "q2", "text": "SELECT 'é\n'"})]
    assert log.append({"drop": "q0"}) == 4
    assert log.last_sequence == 4


def test_cut_at_every_byte_only_the_torn_tail_is_lost(tmp_path: Path) -> None:
    fill(tmp_path, 3).close()
    path = tmp_path / "changes.log"
    good = path.read_bytes()
    for length in range(len(good) + 1):
        path.write_bytes(good[:length])
        log = ChangeLog(tmp_path)
        whole = good[:length].count(b"\n")
        assert numbers(log) == list(range(1, whole + 1))
        assert log.append({"after": "crash"}) == whole + 1
        log.close()
        again = ChangeLog(tmp_path)
        assert again.read_after(whole) == [(whole + 1, {"after": "crash"})]
        again.close()


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 3).close()
    path = tmp_path / "changes.log"
    good = path.read_bytes()
    first_line = good.index(b"\n")
    for at in range(first_line):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(StateError, match=r"changes\.log"):
            ChangeLog(tmp_path)
    lines = good.splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(StateError, match="request 2"):
        ChangeLog(tmp_path)


@given(st.lists(st.integers(-3, 12), max_size=12))
def test_numbers_go_on_through_truncation_and_restart(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log, last, dropped = ChangeLog(directory), 0, 0
    for step in steps:
        if step < 0:
            log.close()
            log = ChangeLog(directory)
        elif step % 2:
            last += 1
            assert log.append({"n": last}) == last
        else:
            log.truncate_through(step)
            dropped = max(dropped, min(step, last))
        assert log.read_after(0) == [(n, {"n": n}) for n in range(dropped + 1, last + 1)]
    log.close()


def test_a_request_is_synced_before_it_is_acknowledged_and_not_seen_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(tmp_path, 1)
    seen: list[list[int]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(numbers(log)))
    log.append({"create": "q"})
    assert seen == [[1]]
    assert numbers(log) == [1, 2]


def test_threads_share_syncs_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path)
    syncs: list[int] = []

    def slow_sync(descriptor: int) -> None:
        syncs.append(1)
        time.sleep(0.01)

    monkeypatch.setattr(os, "fsync", slow_sync)
    got: list[int] = []

    def work(worker: int) -> None:
        for number in range(5):
            got.append(log.append({"worker": worker, "number": number}))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 41))
    assert len(syncs) < 30
    log.close()
    records = ChangeLog(tmp_path).read_after(0)
    assert [sequence for sequence, _ in records] == list(range(1, 41))
    for worker in range(8):
        assert [r["number"] for _, r in records if r["worker"] == worker] == list(range(5))


def test_a_failed_sync_refuses_this_and_later_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fill(tmp_path, 1)

    def fail(descriptor: int) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StateError, match="could not be made durable"):
        log.append({"n": 1})
    monkeypatch.undo()
    with pytest.raises(StateError, match="input/output error"):
        log.append({"n": 2})
    assert numbers(log) == [1]


def test_a_truncation_that_fails_after_the_rename_refuses_later_requests(tmp_path: Path) -> None:
    """They would go into a file that no longer has a name."""
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        log = fill(tmp_path, 3)
        disk.fail_at(disk.verbs + 1, errno.EIO, times=1, only=["sync_directory"])
        with pytest.raises(OSError, match="Input/output error"):
            log.truncate_through(2)
        with pytest.raises(StateError, match="could not be made durable"):
            log.append({"n": 4})
        log.close()
        assert numbers(ChangeLog(tmp_path)) == [3]


def test_a_truncation_that_fails_before_the_rename_does_no_harm(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        log = fill(tmp_path, 3)
        disk.fail_at(disk.verbs + 1, errno.ENOSPC, times=1)
        with pytest.raises(OSError, match="No space left"):
            log.truncate_through(2)
        assert log.append({"n": 4}) == 4
    disk.power_cut()
    assert numbers(ChangeLog(tmp_path)) == [1, 2, 3, 4]


def test_a_short_write_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fill(tmp_path, 1)
    write = os.write

    def cut(descriptor: int, data: Any) -> int:
        return write(descriptor, data[:5])

    monkeypatch.setattr(os, "write", cut)
    with pytest.raises(StateError, match="5 of"):
        log.append({"n": 1})
    monkeypatch.undo()
    assert log.append({"n": 2}) == 2
    log.close()
    assert ChangeLog(tmp_path).read_after(1) == [(2, {"n": 2})]
