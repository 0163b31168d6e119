from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError
from thalweg.state import durable
from thalweg.state.container import ContainerWriter
from thalweg.state.durable import create_atomic, make_directory, write_atomic
from thalweg.state.local_storage import LocalStorage
from thalweg.testing.faults import Death


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b'{"n":1}')
    write_atomic(path, b'{"n":2}')
    assert path.read_bytes() == b'{"n":2}'
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


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    for path in (tmp_path / "x", tmp_path / "x" / "below"):
        with pytest.raises(StateError, match="cannot be used"):
            make_directory(path)


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
        with (
            durable.use(disk),
            contextlib.suppress(OSError),
            ContainerWriter(LocalStorage(str(tmp_path)), "x") as writer,
        ):
            writer.add("rows", pa.table({"n": range(2000)}))
            writer.close()
        assert [path for path in tmp_path.iterdir() if durable.is_temporary(path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sync", "replace", "sync_directory"])
def test_a_container_that_cannot_be_finished_leaves_no_temporary(tmp_path: Path, verb: str) -> None:
    disk = FaultyDisk(tmp_path)
    disk.fail_at(1, errno.EIO, times=1, only=[verb])
    with durable.use(disk), ContainerWriter(LocalStorage(str(tmp_path)), "x") as writer:
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


def test_the_disk_is_the_real_one_again_afterwards(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    disk.die_at(1)
    with pytest.raises(Death), durable.use(disk):
        write_atomic(tmp_path / "x", b"1")
    write_atomic(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"2"


# -- files that are made once


def test_of_all_who_make_a_file_at_once_one_wins(tmp_path: Path) -> None:
    for turn in range(20):
        path, barrier = tmp_path / f"{turn}", threading.Barrier(8)
        won: list[int] = []

        def work(worker: int, path: Path = path, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            if create_atomic(path, b"%d" % worker * 1000):
                won.append(worker)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert path.read_bytes() == b"%d" % won[0] * 1000
    assert len([*tmp_path.iterdir()]) == 20


def test_a_file_that_is_made_once_is_whole_and_durable_before_it_has_its_name(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        assert create_atomic(tmp_path / "x", b"one")
        verbs = [verb for verb, _ in disk.trace]
        assert verbs == ["create", "write", "sync", "link", "unlink", "sync_directory"]
        assert not create_atomic(tmp_path / "x", b"another")
    disk.power_cut()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"one"}


@pytest.mark.slow
def test_after_a_death_anywhere_a_file_that_is_made_once_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    for verb in range(1, 7):
        for seed in range(8):
            root = tmp_path / f"{verb}-{seed}"
            root.mkdir()
            disk = FaultyDisk(root)
            disk.die_at(verb, seed=seed)
            with durable.use(disk), pytest.raises(Death):
                create_atomic(root / "x", b"one")
            disk.power_cut(seed)
            found = [path for path in root.iterdir() if not durable.is_temporary(path)]
            assert [path.read_bytes() for path in found] in ([], [b"one"])
            with durable.use(disk):
                made = create_atomic(root / "x", b"two")
            assert made == (not found)
            disk.power_cut()
            assert (root / "x").read_bytes() == (b"one" if found else b"two")


@pytest.mark.parametrize("verb", ["create", "write", "sync", "link"])
def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path: Path, verb: str) -> None:
    disk = FaultyDisk(tmp_path)
    disk.fail_at(1, errno.EIO, times=1, only=[verb])
    with durable.use(disk):
        with pytest.raises(OSError, match="Input/output error"):
            create_atomic(tmp_path / "x", b"one")
        assert [*tmp_path.iterdir()] == []
        assert create_atomic(tmp_path / "x", b"two")


def test_a_name_whose_sync_failed_is_synced_before_anybody_acts_on_it(tmp_path: Path) -> None:
    """By who makes it again, and by who finds it."""
    for at, act in enumerate((lambda s: s.create("d/x", b"one"), lambda s: s.find("d/x"), lambda s: s.names("d/"))):
        root = tmp_path / f"{at}"
        root.mkdir()
        disk, storage = FaultyDisk(root), LocalStorage(str(root))
        with durable.use(disk):
            storage.create("d/w", b"")
            assert storage.names("d/") == ["d/w"]
            disk.fail_at(disk.verbs + 1, errno.EIO, times=1, only=["sync_directory"])
            with pytest.raises(OSError, match="Input/output error"):
                storage.create("d/x", b"one")
            act(storage)
        disk.power_cut()
        assert (root / "d" / "x").read_bytes() == b"one"
