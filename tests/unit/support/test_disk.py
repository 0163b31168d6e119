"""Unit: the faulty disk keeps what it promises, and no more."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk

from thalweg.state import durable
from thalweg.state.disk import Disk
from thalweg.testing.faults import Death

SEEDS = range(100)


def tree(root: Path) -> dict[str, bytes | None]:
    """All below `root`: the content of files, None for directories."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


def outcomes(tmp_path: Path, act: Callable[[FaultyDisk, Path], None]) -> list[dict[str, bytes | None]]:
    """What is left after `act` and a power cut, by seed; the last is the loss of all that was not synced."""
    found = []
    for seed in [*SEEDS, None]:
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk(root)
        act(disk, root)
        disk.power_cut(seed)
        found.append(tree(root))
    return found


def put(disk: Disk, path: Path, *data: bytes, sync: bool = False) -> None:
    handle = disk.open(path)
    for piece in data:
        assert handle.write(piece) == len(piece)
    if sync:
        handle.sync()
    handle.close()


# -- power cuts ----------------------------------------------------------------------------------------------


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"old")
    disk = FaultyDisk(tmp_path)
    disk.power_cut()
    assert tree(tmp_path) == {"d": None, "d/x": b"old"}


def test_content_is_lost_in_part_until_it_is_synced(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"abc", sync=True)
        disk.sync_directory(root)
        put(disk, root / "x", b"def", b"ghi")

    found = [left["x"] or b"" for left in outcomes(tmp_path, act)]
    assert found[-1] == b"abc"
    assert {b"abc", b"abcdef", b"abcdefghi"} < set(found)
    assert any(len(data) % 3 for data in found)
    assert any(data.endswith(b"\0") for data in found)
    for data in found:
        assert data.startswith(b"abc")
        assert b"abcdefghi".startswith(data.rstrip(b"\0"))


def test_a_cut_is_lost_like_a_write(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"abcdef", sync=True)
        disk.sync_directory(root)
        handle = disk.open(root / "x")
        handle.truncate(2)
        handle.write(b"XY")
        handle.close()

    found = outcomes(tmp_path, act)
    assert found[-1] == {"x": b"abcdef"}
    assert {b"abcdef", b"ab", b"abXY"} <= {left["x"] for left in found}
    assert b"abcdefXY" not in {left["x"] for left in found}


def test_a_new_name_is_lost_until_its_directory_is_synced(tmp_path: Path) -> None:
    found = outcomes(tmp_path, lambda disk, root: put(disk, root / "x", b"abc", sync=True))
    assert found[-1] == {}
    assert {frozenset(left) for left in found} == {frozenset(), frozenset({"x"})}
    assert all(left.get("x", b"abc") == b"abc" for left in found)


def test_a_rename_is_old_or_new(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"old", sync=True)
        put(disk, root / "t", b"new", sync=True)
        disk.sync_directory(root)
        disk.replace(root / "t", root / "x")

    found = outcomes(tmp_path, act)
    before, after = {"x": b"old", "t": b"new"}, {"x": b"new"}
    assert found[-1] == before
    assert all(left in (before, after) for left in found)
    assert after in found


def test_a_rename_before_the_sync_of_the_file_may_leave_an_empty_one(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "t", b"new")
        disk.replace(root / "t", root / "x")
        disk.sync_directory(root)

    found = outcomes(tmp_path, act)
    assert found[-1] == {"x": b""}
    assert all(list(left) == ["x"] for left in found)


def test_a_second_name_is_lost_until_its_directory_is_synced(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "t", b"new", sync=True)
        disk.sync_directory(root)
        disk.link(root / "t", root / "x")
        disk.unlink(root / "t")

    found = outcomes(tmp_path, act)
    assert found[-1] == {"t": b"new"}
    possible = [{"t": b"new"}, {"t": b"new", "x": b"new"}, {"x": b"new"}]
    assert all(left in possible for left in found)
    assert all(left in found for left in possible)


def test_a_second_name_before_the_sync_of_the_file_may_leave_an_empty_one(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "t", b"new")
        disk.link(root / "t", root / "x")
        disk.unlink(root / "t")
        disk.sync_directory(root)

    found = outcomes(tmp_path, act)
    assert found[-1] == {"x": b""}
    assert all(list(left) == ["x"] for left in found)


def test_a_name_that_is_taken_is_not_given_to_another(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"old", sync=True)
        put(disk, root / "t", b"new", sync=True)
        disk.sync_directory(root)
        with pytest.raises(FileExistsError):
            disk.link(root / "t", root / "x")

    assert all(left == {"x": b"old", "t": b"new"} for left in outcomes(tmp_path, act))


def test_a_deleted_file_may_be_back(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"abc", sync=True)
        disk.sync_directory(root)
        disk.unlink(root / "x")

    found = outcomes(tmp_path, act)
    assert found[-1] == {"x": b"abc"}
    assert {} in found


def test_a_deletion_that_was_synced_stays(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        put(disk, root / "x", b"abc")
        disk.unlink(root / "x")
        disk.sync_directory(root)

    assert all(left == {} for left in outcomes(tmp_path, act))


def test_names_of_one_directory_keep_their_order(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        for name in "abc":
            put(disk, root / name, b"1", sync=True)

    found = {"".join(sorted(left)) for left in outcomes(tmp_path, act)}
    assert found == {"", "a", "ab", "abc"}


def test_a_directory_is_lost_with_all_it_holds_until_its_parent_is_synced(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        disk.mkdir(root / "d")
        put(disk, root / "d" / "x", b"abc", sync=True)
        disk.sync_directory(root / "d")

    found = outcomes(tmp_path, act)
    assert found[-1] == {}
    assert all(left in ({}, {"d": None, "d/x": b"abc"}) for left in found)
    assert {"d": None, "d/x": b"abc"} in found


def test_a_tree_that_was_deleted_may_be_back_in_part(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        disk.mkdir(root / "d")
        disk.sync_directory(root)
        put(disk, root / "d" / "x", b"abc", sync=True)
        disk.sync_directory(root / "d")
        with durable.use(disk):
            durable.delete_tree(root / "d")
        assert tree(root) == {}

    found = outcomes(tmp_path, act)
    assert found[-1] == {"d": None, "d/x": b"abc"}
    assert all(left in ({}, {"d": None}, {"d": None, "d/x": b"abc"}) for left in found)


def test_what_a_power_cut_left_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    put(disk, tmp_path / "x", b"abc")
    assert disk.unsynced == [".", "x"]
    disk.power_cut(seed=next(seed for seed in SEEDS if keeps_all(tmp_path / "try", seed)))
    assert tree(tmp_path)["x"] == b"abc"
    assert disk.unsynced == []
    disk.power_cut()
    assert tree(tmp_path)["x"] == b"abc"


def keeps_all(root: Path, seed: int) -> bool:
    root.mkdir(exist_ok=True)
    disk = FaultyDisk(root)
    put(disk, root / "x", b"abc")
    disk.power_cut(seed)
    kept = tree(root) == {"x": b"abc"}
    (root / "x").unlink(missing_ok=True)
    return kept


def test_what_others_wrote_is_left_alone(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "root")
    (tmp_path / "root").mkdir()
    put(disk, tmp_path / "root" / "mine", b"1")
    (tmp_path / "root" / "theirs").write_bytes(b"2")
    put(disk, tmp_path / "outside", b"3")
    disk.power_cut()
    assert tree(tmp_path) == {"root": None, "root/theirs": b"2", "outside": b"3"}


def test_the_same_seed_leaves_the_same(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        for name in "abcdef":
            put(disk, root / name, b"123456789")

    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    assert outcomes(tmp_path / "1", act) == outcomes(tmp_path / "2", act)


def test_names_do_not_change_what_a_seed_leaves(tmp_path: Path) -> None:
    """Those of temporaries are made up anew in every run."""

    def act(names: str) -> Callable[[FaultyDisk, Path], None]:
        def write(disk: FaultyDisk, root: Path) -> None:
            for number, name in enumerate(names):
                put(disk, root / name, bytes([number]) * 9)

        return write

    left = []
    for names in ("abcdef", "fcadeb"):
        (tmp_path / names).mkdir()
        left.append([sorted(tree.values(), key=repr) for tree in outcomes(tmp_path / names, act(names))])
    assert left[0] == left[1]


# -- deaths --------------------------------------------------------------------------------------------------


def test_every_verb_can_be_the_last_and_nothing_happens_after_it(tmp_path: Path) -> None:
    def act(disk: FaultyDisk, root: Path) -> None:
        with durable.use(disk):
            durable.make_directory(root / "d")
            durable.write_atomic(root / "d" / "x", b"abc")
            durable.create_atomic(root / "d" / "y", b"abc")
            durable.delete_tree(root / "d")

    tmp = tmp_path / "whole"
    tmp.mkdir()
    whole = FaultyDisk(tmp)
    act(whole, tmp)
    verbs = [verb for verb, _ in whole.trace]
    assert verbs == [
        *("mkdir", "sync_directory"),
        *("create", "write", "sync", "replace", "sync_directory"),
        *("create", "write", "sync", "link", "unlink", "sync_directory"),
        *("unlink", "unlink", "rmdir"),
    ]
    assert whole.verbs == len(verbs)
    for number in range(1, whole.verbs + 1):
        for seed in range(6):
            root = tmp_path / f"{number}-{seed}"
            root.mkdir()
            disk = FaultyDisk(root)
            disk.die_at(number, seed)
            with pytest.raises(Death):
                act(disk, root)
            assert disk.is_dead
            assert [verb for verb, _ in disk.trace] == verbs[:number]
            left = tree(root)
            for verb in (lambda: disk.mkdir(root / "e"), lambda: disk.open(root / "y")):  # noqa: B023
                with pytest.raises(Death):
                    verb()
            assert tree(root) == left


def test_a_death_is_before_after_or_within_a_write(tmp_path: Path) -> None:
    found: set[bytes] = set()
    for seed in SEEDS:
        disk = FaultyDisk(tmp_path)
        path = tmp_path / str(seed)
        handle = disk.open(path)
        disk.die_at(2, seed)
        with pytest.raises(Death, match=r"verb 2: write"):
            handle.write(b"abc")
        found.add(path.read_bytes())
    assert found == {b"", b"a", b"ab", b"abc"}


def test_without_tearing_a_write_is_whole_or_not(tmp_path: Path) -> None:
    found: set[bytes] = set()
    for seed in SEEDS:
        disk = FaultyDisk(tmp_path)
        path = tmp_path / str(seed)
        handle = disk.open(path)
        disk.die_at(2, seed, tear=False)
        with pytest.raises(Death):
            handle.write(b"abc")
        found.add(path.read_bytes())
    assert found == {b"", b"abc"}


def test_a_killed_process_leaves_what_it_wrote_and_a_later_power_cut_takes_it(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    handle = disk.open(tmp_path / "x")
    handle.write(b"abc")
    disk.die_at(disk.verbs + 1)
    with pytest.raises(Death):
        disk.mkdir(tmp_path / "d")
    disk.revive()
    assert (tmp_path / "x").read_bytes() == b"abc"
    with pytest.raises(Death, match="a process that died"):
        handle.write(b"def")
    put(disk, tmp_path / "y", b"1", sync=True)
    disk.power_cut()
    assert tree(tmp_path) == {}


def test_no_clean_up_of_the_dead_changes_anything(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    disk.die_at(3)
    with durable.use(disk), pytest.raises(Death):
        durable.write_atomic(tmp_path / "x", b"abc")
    assert [durable.is_temporary(path) for path in tmp_path.iterdir()] == [True]


def test_threads_die_with_the_process(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    deaths: list[str] = []

    def work(name: str) -> None:
        try:
            for number in range(1000):
                durable.write_atomic(tmp_path / name, str(number).encode())
        except Death:
            deaths.append(name)

    disk.die_at(100)
    with durable.use(disk):
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(deaths) == ["a", "b", "c"]
    assert disk.verbs == 100


# -- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_all_verbs_fail_until_it_heals(tmp_path: Path, code: int) -> None:
    disk = FaultyDisk(tmp_path)
    put(disk, tmp_path / "x", b"1", sync=True)
    handle = disk.open(tmp_path / "x")
    disk.fail_at(disk.verbs + 1, code)
    left = tree(tmp_path)
    for verb in (
        lambda: disk.open(tmp_path / "y"),
        lambda: handle.write(b"2"),
        lambda: handle.truncate(0),
        lambda: disk.replace(tmp_path / "x", tmp_path / "z"),
        lambda: disk.link(tmp_path / "x", tmp_path / "z"),
        lambda: disk.unlink(tmp_path / "x"),
        lambda: disk.mkdir(tmp_path / "d"),
        lambda: disk.sync_directory(tmp_path),
        lambda: handle.sync(),
    ):
        with pytest.raises(OSError) as raised:
            verb()
        assert raised.value.errno == code
    assert tree(tmp_path) == left
    disk.heal()
    put(disk, tmp_path / "y", b"2")
    assert tree(tmp_path)["y"] == b"2"


def test_it_fails_as_often_as_asked(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    disk.fail_at(2, errno.EIO, times=2)
    disk.mkdir(tmp_path / "a")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            disk.mkdir(tmp_path / "b")
    disk.mkdir(tmp_path / "b")
    disk.fail_at(disk.verbs + 1, errno.EIO, only=["unlink"])
    disk.mkdir(tmp_path / "c")


def test_a_full_disk_refuses_what_needs_space_and_takes_part_of_a_write(tmp_path: Path) -> None:
    written: set[int] = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk(root)
        handle = disk.open(root / "x")
        disk.fail_at(2, errno.ENOSPC, times=1, seed=seed)
        with pytest.raises(OSError, match="No space left"):
            durable.write_all(handle, b"abcd")
        left = (root / "x").read_bytes()
        written.add(len(left))
        assert b"abcd".startswith(left)
        disk.fail_at(disk.verbs + 1, errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            disk.open(root / "y")
        with pytest.raises(OSError, match="No space left"):
            disk.mkdir(root / "d")
        disk.open(root / "x").truncate(0)
        handle.sync()
        disk.replace(root / "x", root / "z")
        disk.sync_directory(root)
        disk.unlink(root / "z")
    assert written == {0, 1, 2, 3}


def test_a_file_whose_sync_failed_promises_nothing_more(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    handle = disk.open(tmp_path / "x")
    disk.sync_directory(tmp_path)
    handle.write(b"abc")
    disk.fail_at(disk.verbs + 1, errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output error"):
        handle.sync()
    handle.sync()
    disk.power_cut()
    assert tree(tmp_path) == {"x": b""}
