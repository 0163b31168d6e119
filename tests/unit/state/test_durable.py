from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.errors import StateError
from thalweg.state import durable
from thalweg.state.container import ContainerWriter
from thalweg.state.durable import make_directory, read_json, write_atomic, write_json
from thalweg.testing.disk import Death, FaultyDisk


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"n": 1})
    write_json(path, {"n": 2})
    assert read_json(path) == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_file_and_directory_are_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        seen.append("sync " + ("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append("rename"), replace(*names)))
    write_atomic(tmp_path / "x", b"data")
    assert seen == ["sync file", "rename", "sync directory"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(tmp_path / "x", b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(tmp_path / "x", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"none\.json is missing"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(StateError, match=r"bad\.json"):
        read_json(tmp_path / "bad.json")
    with pytest.raises(StateError, match="cannot be used"):
        make_directory(tmp_path / "bad.json" / "below")


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(StateError, match="cannot be used"):
        make_directory(tmp_path / "x")


def test_every_directory_that_is_made_is_synced_into_its_parent(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        make_directory(tmp_path / "a" / "b" / "c")
    disk.power_cut()
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert disk.trace == [
        *[("mkdir", "a"), ("sync_directory", ".")],
        *[("mkdir", "a/b"), ("sync_directory", "a")],
        *[("mkdir", "a/b/c"), ("sync_directory", "a/b")],
    ]


def test_a_directory_that_a_dead_process_made_is_synced_once(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    disk.die_at(2, seed=0)
    with durable.use(disk), pytest.raises(Death):
        make_directory(tmp_path / "a")
    disk.revive()
    assert (tmp_path / "a").is_dir()
    with durable.use(disk):
        for _ in range(3):
            make_directory(tmp_path / "a")
    disk.power_cut()
    assert (tmp_path / "a").is_dir()
    assert disk.trace[2:] == [("sync_directory", ".")]


def test_a_parent_that_may_not_be_read_does_no_harm(tmp_path: Path) -> None:
    """The directory was given to us as it is."""
    (tmp_path / "state").mkdir()
    disk = FaultyDisk(tmp_path)
    disk.fail_at(1, errno.EACCES)
    with durable.use(disk):
        assert make_directory(tmp_path / "state").is_dir()


def test_a_full_disk_leaves_no_temporaries(tmp_path: Path) -> None:
    """Whatever is still to be written when a file is given up is not written."""
    for verb in range(1, 6):
        disk = FaultyDisk(tmp_path)
        disk.fail_at(verb, errno.ENOSPC, only=["create", "write"])
        with durable.use(disk), contextlib.suppress(OSError), ContainerWriter(tmp_path / "x") as writer:
            writer.add("rows", pa.table({"n": range(2000)}))
            writer.close()
        assert [path for path in tmp_path.iterdir() if durable.is_temporary(path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sync", "replace", "sync_directory"])
def test_a_container_that_cannot_be_finished_leaves_no_temporary(tmp_path: Path, verb: str) -> None:
    disk = FaultyDisk(tmp_path)
    disk.fail_at(1, errno.EIO, times=1, only=[verb])
    with durable.use(disk), ContainerWriter(tmp_path / "x") as writer:
        writer.add("rows", pa.table({"n": [1]}))
        with pytest.raises(OSError, match="Input/output error"):
            writer.close()
    assert [path for path in tmp_path.iterdir() if durable.is_temporary(path)] == []


def test_a_tree_is_deleted_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_bytes(b"1")
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "y").write_bytes(b"2")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    durable.delete_tree(tmp_path / "tree")
    durable.delete_tree(tmp_path / "link")
    durable.delete_tree(tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]
    assert (tmp_path / "kept" / "x").exists()


def test_a_torn_piece_is_cut_before_the_next_even_if_that_could_not_be_done_at_once(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk), durable.Appender(tmp_path / "log", 0) as file:
        file.append(b"one\n")
        for seed in range(20):
            disk.fail_at(disk.verbs + 1, errno.ENOSPC, times=1, seed=seed)
            with pytest.raises(OSError, match=r"No space|bytes written"):
                file.append(b"torn\n")
            disk.heal()
        with (tmp_path / "log").open("ab") as real:
            real.write(b"to")
        disk.fail_at(disk.verbs + 1, errno.EIO, times=2)
        with pytest.raises(OSError, match="Input/output error"):
            file.append(b"torn\n")
        file.append(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_the_disk_is_the_real_one_again_afterwards(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    disk.die_at(1)
    with pytest.raises(Death), durable.use(disk):
        write_atomic(tmp_path / "x", b"1")
    write_atomic(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"2"
