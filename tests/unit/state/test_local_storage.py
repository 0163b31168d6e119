"""Unit: a directory as a storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError
from thalweg.state import durable
from thalweg.state.durable import temporary_name
from thalweg.state.local_storage import LocalStorage
from thalweg.state.places import open_storage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "state"))


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    storage = LocalStorage(str(tmp_path / "deep" / "state"))
    storage.claim()
    storage.write("a/written", b"1")
    storage.write("a/quick", b"1", durable=False)
    assert storage.create("b/c/created", b"2")
    writer = storage.writer("d/pieces")
    writer.write(b"3")
    writer.finish()
    assert storage.read("a/written") == b"1"
    found = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    modes = {path: path.stat().st_mode & 0o777 for path in found}
    assert len(modes) == 11
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


def test_an_object_comes_back_whole_and_in_parts(storage: LocalStorage) -> None:
    assert storage.find("a/b") is None
    assert storage.stamp("a/b") is None
    assert storage.names("") == []
    storage.write("a/b", b"0123456789")
    assert storage.find("a/b") == storage.read("a/b") == b"0123456789"
    assert storage.read("a/b", 2, 3) == b"234"
    assert storage.read("a/b", 8, 9) == b"89"
    assert storage.open("a/b").to_pybytes() == b"0123456789"
    assert storage.find("a/b/c") is None
    before = storage.stamp("a/b")
    storage.write("a/b", b"9876543210")
    assert storage.stamp("a/b") != before
    storage.delete("a/b")
    storage.delete("a/b")
    assert storage.find("a/b") is None


@pytest.mark.parametrize("verb", ["read", "open"])
def test_a_missing_object_is_named(storage: LocalStorage, verb: str) -> None:
    with pytest.raises(StateError, match=r"state/a/b is missing"):
        getattr(storage, verb)("a/b")


def test_a_name_is_given_once(storage: LocalStorage) -> None:
    assert storage.create("a/b", b"1")
    assert not storage.create("a/b", b"2")
    assert not storage.create("a/b", b"1")
    assert storage.read("a/b") == b"1"


def test_names_are_in_order_and_temporaries_are_none(storage: LocalStorage) -> None:
    for name in ("b/2", "b/10", "a", "b/c/1", "bb"):
        storage.write(name, b"")
    temporary_name(storage.root / "b" / "3").write_bytes(b"half")
    assert storage.names("") == ["a", "b/10", "b/2", "b/c/1", "bb"]
    assert storage.names("b/") == ["b/10", "b/2", "b/c/1"]
    assert storage.names("none/") == storage.names("a/") == []


def test_a_writer_that_is_given_up_leaves_nothing(storage: LocalStorage) -> None:
    writer = storage.writer("a/b")
    writer.write(b"1")
    assert storage.names("") == []
    writer.abandon()
    assert [*(storage.root / "a").iterdir()] == []


def test_a_sweep_takes_temporaries_of_every_kind_and_nothing_else(storage: LocalStorage) -> None:
    for name in ("buckets/000000000009-0-a.arrow", "manifests/000000000001", "parts/x", "results/y", ".draft.tmp"):
        storage.write(name, b"whole")
    kept = storage.names("")
    paths = [temporary_name(storage.root / name) for name in kept]
    for path in paths:
        path.write_bytes(b"half")
    storage.sweep()
    assert not any(path.exists() for path in paths)
    assert storage.names("") == kept


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_links_is_refused_as_what_it_is(storage: LocalStorage, code: int) -> None:
    storage.claim()
    disk = FaultyDisk(storage.root)
    disk.fail_at(1, code, only=["link"])
    with durable.use(disk), pytest.raises(StateError, match="of two writers of one name") as raised:
        storage.create("manifests/000000000001", b"1")
    assert "hard links" in str(raised.value.hint)
    assert storage.names("manifests/") == []


def test_a_disk_that_fails_is_no_such_file_system(storage: LocalStorage) -> None:
    storage.claim()
    disk = FaultyDisk(storage.root)
    disk.fail_at(1, errno.EIO, only=["link"])
    with durable.use(disk), pytest.raises(OSError, match="Input/output error"):
        storage.create("a", b"1")


def test_what_is_found_is_durable_even_if_who_made_it_died_before_that(storage: LocalStorage) -> None:
    storage.claim()
    for look in (lambda: storage.find("a/b"), lambda: storage.names("a/")):
        disk = FaultyDisk(storage.root)
        with durable.use(disk):
            disk.mkdir(storage.root / "a")
            disk.sync_directory(storage.root)
            handle = disk.open(storage.root / "a" / "b")
            handle.sync()
            handle.close()
            look()
        disk.power_cut()
        assert storage.find("a/b") == b""
        storage.delete("a/b")
        (storage.root / "a").rmdir()


def test_a_place_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("state") == open_storage(tmp_path / "state") == LocalStorage(str(tmp_path / "state"))
    assert open_storage("state").locate("a/b") == str(tmp_path / "state" / "a" / "b")
