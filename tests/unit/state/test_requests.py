"""Unit: a request is durable before it is acknowledged, and one that is damaged, missing or another is named."""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError
from thalweg.model.query import Query
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.requests import CreateRequest, DropRequest, ReplaceRequest, Request, RequestLog
from thalweg.testing.faults import Death


def log_of(path: Path, through: int = 0) -> RequestLog:
    return RequestLog(LocalStorage(str(path)), through)


def query(number: int) -> CreateRequest:
    return CreateRequest(Query(f"q{number}", "SELECT 'é\n'", "s", ()))


def fill(path: Path, count: int) -> RequestLog:
    log = log_of(path)
    for number in range(1, count + 1):
        log.append(query(number))
    return log


def numbers(log: RequestLog, after: int = 0) -> list[int]:
    return [number for number, _ in log.read_after(after)]


def place(path: Path, number: int) -> Path:
    return path / "requests" / f"{number:012d}"


def test_requests_come_back_in_order(tmp_path: Path) -> None:
    fill(tmp_path, 3).close()
    log = log_of(tmp_path)
    assert numbers(log) == [1, 2, 3]
    assert log.read_after(2) == [(3, query(3))]
    assert log.append(DropRequest("q0")) == 4
    assert log.last == 4
    assert log_of(tmp_path).read_after(3) == [(4, DropRequest("q0"))]


def test_each_is_an_object_and_the_last_one_is_counted(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    assert sorted(path.name for path in (tmp_path / "requests").iterdir()) == ["000000000001", "000000000002", "last"]


def test_what_was_applied_is_not_read_again_and_goes(tmp_path: Path) -> None:
    fill(tmp_path, 3).close()
    log = log_of(tmp_path, through=2)
    assert numbers(log) == [3]
    assert log.last == 3
    assert not place(tmp_path, 1).exists()
    assert not place(tmp_path, 2).exists()
    log.forget_through(3)
    assert numbers(log) == []
    assert log.last == 3
    assert sorted(path.name for path in (tmp_path / "requests").iterdir()) == ["last"]
    assert log_of(tmp_path, through=3).append(query(4)) == 4


def test_several_that_are_made_as_one_share_a_number_and_an_object(tmp_path: Path) -> None:
    let_go: list[Request] = []
    log = RequestLog(LocalStorage(str(tmp_path)), 0, let_go.append)
    several = [query(1), ReplaceRequest(query(2).query), query(3)]
    assert log.append_all(several) == 1
    assert log.append(DropRequest("q1")) == 2
    assert log.append_all([query(4)]) == 3
    expected = [*((1, request) for request in several), (2, DropRequest("q1")), (3, query(4))]
    assert log.read_after(0) == expected
    log.close()
    assert sorted(path.name for path in (tmp_path / "requests").iterdir()) == [
        "000000000001", "000000000002", "000000000003", "last",
    ]  # fmt: skip
    # One alone is written as it was before there were several.
    assert "more" not in place(tmp_path, 3).read_text()
    log = RequestLog(LocalStorage(str(tmp_path)), 0, let_go.append)
    assert log.read_after(0) == expected
    log.forget_through(1)
    assert let_go == several
    assert numbers(log) == [2, 3]


def test_several_are_synced_once(tmp_path: Path) -> None:
    """However many: an object, the count, and the names of both."""
    counts = []
    for many in (1, 100):
        log = fill(tmp_path / f"{many}", 1)
        with durable.use(disk := FaultyDisk(tmp_path / f"{many}")):
            log.append_all([query(number) for number in range(many)])
        counts.append(disk.verbs)
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_of_several_all_are_there_after_a_death_or_none(tmp_path: Path) -> None:
    several = [query(number) for number in range(5)]
    with durable.use(disk := FaultyDisk(tmp_path / "once")):
        log_of(tmp_path / "once").append_all(several)
    for verb in range(1, disk.verbs + 1):
        for seed in range(4):
            root = tmp_path / f"{verb}-{seed}"
            disk = FaultyDisk(root)
            root.mkdir()
            disk.die_at(verb, seed=seed)
            with durable.use(disk), pytest.raises(Death):
                log_of(root).append_all(several)
            disk.power_cut(seed)
            with durable.use(disk):
                found = log_of(root).read_after(0)
            assert found in ([], [(1, request) for request in several])


@pytest.mark.slow
def test_damage_at_every_byte_is_named(tmp_path: Path) -> None:
    fill(tmp_path, 2).close()
    for path in (place(tmp_path, 1), place(tmp_path, 2), tmp_path / "requests" / "last"):
        good = path.read_bytes()
        for at in range(len(good)):
            for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
                path.write_bytes(bad)
                with pytest.raises(StateError) as raised:
                    log_of(tmp_path)
                assert str(path) in str(raised.value)
        path.write_bytes(good)
    assert numbers(log_of(tmp_path)) == [1, 2]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_one_that_is_missing_is_named(tmp_path: Path, lost: int) -> None:
    """The newest one, too: `requests/last` knows of it."""
    fill(tmp_path, 3).close()
    place(tmp_path, lost).unlink()
    with pytest.raises(StateError, match=rf"requests/0+{lost} is missing"):
        log_of(tmp_path)


def test_all_that_are_missing_are_missed(tmp_path: Path) -> None:
    fill(tmp_path, 2).close()
    for number in (1, 2):
        place(tmp_path, number).unlink()
    with pytest.raises(StateError, match=r"requests/0+1 is missing"):
        log_of(tmp_path)
    assert log_of(tmp_path, through=2).last == 2


def test_two_that_changed_places_are_named(tmp_path: Path) -> None:
    fill(tmp_path, 2).close()
    first, second = place(tmp_path, 1).read_bytes(), place(tmp_path, 2).read_bytes()
    place(tmp_path, 1).write_bytes(second)
    place(tmp_path, 2).write_bytes(first)
    with pytest.raises(StateError, match=r"requests/0+1 is not what was written") as raised:
        log_of(tmp_path)
    assert "expected request 1, found request 2" in str(raised.value)


def test_an_object_of_another_kind_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 2).close()
    place(tmp_path, 2).write_bytes((tmp_path / "requests" / "last").read_bytes())
    with pytest.raises(StateError, match=r"requests/0+2 is not what was written"):
        log_of(tmp_path)


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, 1).close()
    (tmp_path / "requests" / "notes.txt").write_text("mine")
    log = log_of(tmp_path, through=1)
    assert log.last == 1
    assert (tmp_path / "requests" / "notes.txt").exists()


@pytest.mark.slow
@given(st.lists(st.integers(-3, 12), max_size=12))
def test_numbers_go_on_through_what_is_forgotten_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log, last, forgotten = log_of(directory), 0, 0
    for step in steps:
        if step < 0:
            log.close()
            log = log_of(directory, forgotten)
        elif step % 2:
            last += 1
            assert log.append(query(last)) == last
        else:
            forgotten = max(forgotten, min(step, last))
            log.forget_through(forgotten)
        assert log.read_after(0) == [(n, query(n)) for n in range(forgotten + 1, last + 1)]
        assert log.last == last
    log.close()


def test_a_request_is_synced_before_it_is_acknowledged_and_not_seen_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(tmp_path, 1)
    seen: list[list[int]] = []
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        sync = disk.sync_directory
        known = log._requests

        def look(path: Path) -> None:
            seen.append([*known])
            sync(path)

        monkeypatch.setattr(disk, "sync_directory", look)
        log.append(query(2))
    assert seen
    assert {tuple(numbers) for numbers in seen} == {(1,)}
    assert numbers(log) == [1, 2]
    disk.power_cut()
    assert numbers(log_of(tmp_path)) == [1, 2]


def append_until_death(path: Path, acknowledged: list[int]) -> None:
    log = log_of(path)
    while True:
        acknowledged.append(log.append(query(len(acknowledged) + 1)))


@pytest.mark.slow
def test_after_a_death_anywhere_all_that_were_acknowledged_are_there(tmp_path: Path) -> None:
    """And of the one that was not, all or nothing; and the log goes on."""
    with durable.use(disk := FaultyDisk(tmp_path / "once")):
        fill(tmp_path / "once", 3)
    for verb in range(1, disk.verbs + 1):
        for seed in range(4):
            root = tmp_path / f"{verb}-{seed}"
            disk = FaultyDisk(root)
            root.mkdir()
            acknowledged: list[int] = []
            disk.die_at(verb, seed=seed)
            with durable.use(disk), pytest.raises(Death):  # noqa: PT012
                log = log_of(root)
                for number in (1, 2, 3, 4):
                    acknowledged.append(log.append(query(number)))
            disk.power_cut(seed)
            with durable.use(disk):
                log = log_of(root)
                found = numbers(log)
                assert found in ([*acknowledged], [*acknowledged, len(acknowledged) + 1])
                assert log.read_after(0) == [(n, query(n)) for n in found]
                assert log.append(DropRequest("q")) == len(found) + 1
            assert numbers(log_of(root)) == [*found, len(found) + 1]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    got: list[int] = []

    def work(worker: int) -> None:
        for number in range(5):
            got.append(log.append(CreateRequest(Query(f"{worker} {number}", "", "s", ()))))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 41))
    log.close()
    records = log_of(tmp_path).read_after(0)
    assert [number for number, _ in records] == list(range(1, 41))
    made = [request.query for _, request in records if isinstance(request, CreateRequest)]
    for worker in range(8):
        assert [q.name for q in made if q.name.startswith(f"{worker} ")] == [f"{worker} {n}" for n in range(5)]


def test_of_two_logs_on_one_storage_one_wins(tmp_path: Path) -> None:
    one, other = log_of(tmp_path), log_of(tmp_path)
    assert one.append(query(1)) == 1
    for _ in range(2):
        with pytest.raises(StateError, match="another session has made it"):
            other.append(DropRequest("mine"))
    assert other.read_after(0) == []
    assert one.append(query(2)) == 2
    assert log_of(tmp_path).read_after(0) == [(1, query(1)), (2, query(2))]


VERBS = [
    *[(verb, nth) for verb in ("create", "write", "sync", "sync_directory") for nth in (0, 1)],
    *[("link", 0), ("replace", 0)],
]
"""Of one request: its object is made, then `requests/last` replaced."""


@pytest.mark.parametrize(("verb", "nth"), VERBS)
def test_a_failure_refuses_this_and_later_requests(tmp_path: Path, verb: str, nth: int) -> None:
    """What was acknowledged is there, and a new session can go on."""
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        log = fill(tmp_path, 1)
        start = disk.verbs
        log.append(query(2))
        steps = [step for step, (name, _) in enumerate(disk.trace[start:], 1) if name == verb]
        disk.fail_at(disk.verbs + steps[nth], errno.EIO, times=1, only=[verb])
        with pytest.raises(StateError, match="could not be made durable"):
            log.append(query(3))
        with pytest.raises(StateError, match="Input/output error"):
            log.append(query(4))
        assert numbers(log) == [1, 2]
        again = log_of(tmp_path)
        assert numbers(again) in ([1, 2], [1, 2, 3])
        assert again.append(DropRequest("q")) == again.last == len(numbers(again))
    disk.power_cut()
    assert numbers(log_of(tmp_path))[:2] == [1, 2]


def test_a_forgetting_that_fails_does_no_harm(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        log = fill(tmp_path, 3)
        disk.fail_at(disk.verbs + 1, errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output error"):
            log.forget_through(2)
        assert log.append(query(4)) == 4
    disk.power_cut()
    assert numbers(log_of(tmp_path)) == [1, 2, 3, 4]
    assert numbers(log_of(tmp_path, through=2)) == [3, 4]


def test_what_a_power_cut_brings_back_goes_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        fill(tmp_path, 3).forget_through(2)
    disk.power_cut()
    assert place(tmp_path, 1).exists()
    assert numbers(log_of(tmp_path, through=2)) == [3]
    assert not place(tmp_path, 1).exists()


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fill(tmp_path, 1)
    write = os.write

    def cut(descriptor: int, data: Any) -> int:
        return write(descriptor, data[:5])

    monkeypatch.setattr(os, "write", cut)
    assert log.append(query(2)) == 2
    monkeypatch.undo()
    assert log_of(tmp_path).read_after(1) == [(2, query(2))]


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = fill(tmp_path, 1)
    log.close()
    with pytest.raises(StateError, match="the session was stopped"):
        log.append(query(2))


# -- what earlier releases wrote


def line(value: dict[str, Any]) -> bytes:
    body = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def old_log(path: Path, count: int, base: int = 0) -> bytes:
    """As formats 2 to 4 had it, with requests after `base`."""
    lines = [line({"base": base})] if base else []
    for number in range(base + 1, base + count + 1):
        record = (
            {"op": "create", "query": msgspec.to_builtins(query(number).query)}
            if number % 2
            else {"op": "drop", "name": f"q{number}"}
        )
        lines.append(line({"sequence": number, "record": record}))
    data = b"".join(lines)
    (path / "changes.log").write_bytes(data)
    return data


def expected(first: int, last: int) -> list[tuple[int, Request]]:
    return [(n, query(n) if n % 2 else DropRequest(f"q{n}")) for n in range(first, last + 1)]


def test_an_old_log_is_read_and_gone_on_with(tmp_path: Path) -> None:
    old_log(tmp_path, 3, base=4)
    log = log_of(tmp_path, through=5)
    assert log.read_after(0) == expected(6, 7)
    assert log.append(query(8)) == 8
    again = log_of(tmp_path, through=5)
    assert again.read_after(0) == [*expected(6, 7), (8, query(8))]
    again.forget_through(8)
    assert not (tmp_path / "changes.log").exists()
    assert log_of(tmp_path, through=8).last == 8


def test_an_old_log_cut_at_every_byte_loses_only_the_torn_tail(tmp_path: Path) -> None:
    good = old_log(tmp_path, 3)
    for length in range(len(good) + 1):
        (tmp_path / "changes.log").write_bytes(good[:length])
        whole = good[:length].count(b"\n")
        assert log_of(tmp_path).read_after(0) == expected(1, whole)


def test_a_whole_line_with_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    """The last one, too: its end says that it was acknowledged."""
    good = old_log(tmp_path, 3)
    for at in range(len(good)):
        if good[at] == ord("\n"):
            continue
        changed = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        if changed.count(b"\n") != 3:
            continue
        (tmp_path / "changes.log").write_bytes(changed)
        with pytest.raises(StateError, match=r"changes\.log"):
            log_of(tmp_path)
    lines = good.splitlines(keepends=True)
    (tmp_path / "changes.log").write_bytes(lines[0] + lines[2])
    with pytest.raises(StateError, match="request 2"):
        log_of(tmp_path)


def test_old_requests_that_no_batch_has_taken_up_outlive_the_old_log(tmp_path: Path) -> None:
    """A batch that is repeated as its intent says takes only those up that it had taken up."""
    old_log(tmp_path, 3)
    log = log_of(tmp_path)
    log.forget_through(1)
    assert not (tmp_path / "changes.log").exists()
    assert log.read_after(0) == expected(2, 3)
    assert log_of(tmp_path, through=1).read_after(0) == expected(2, 3)
    place(tmp_path, 3).unlink()
    with pytest.raises(StateError, match=r"requests/0+3 is missing"):
        log_of(tmp_path, through=1)
