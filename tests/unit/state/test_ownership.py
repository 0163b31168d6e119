"""Unit: a directory that is not ours is refused as it is; ours are known, those of earlier releases included."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from thalweg.batch.tables import clean_tables
from thalweg.errors import StateError
from thalweg.model.manifest import Manifest
from thalweg.state.collect import collect_garbage
from thalweg.state.durable import is_temporary, temporary_name
from thalweg.state.local_storage import LocalStorage
from thalweg.state.lock import DirectoryLock
from thalweg.state.manifest import Manifests
from thalweg.state.ownership import MARKER, claim_directory, is_state_directory


def listing(root: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


def make_project(root: Path) -> None:
    """What the audit lost: names that look like a state directory's, and are somebody's own."""
    for name in ("tables/customers.csv", "tables/old/a.csv", "spill/notes.txt", ".draft.tmp", "buckets/1.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_a_directory_of_somebody_else_is_refused_as_it_is(tmp_path: Path) -> None:
    make_project(tmp_path)
    before = listing(tmp_path)
    with pytest.raises(StateError, match="neither empty nor a state directory") as caught:
        claim_directory(tmp_path)
    assert ".draft.tmp, buckets, spill, tables" in str(caught.value)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("changes.log", b""),
        ("changes.log", b"2026-01-01 fixed a bug\n"),
        ("lock", b""),
        ("lock", b'{"pid": 1}'),
        ("manifests/000.json", b"{}"),
        ("manifests/package.json", b"{}"),
        (MARKER, b'{"name": "a program that is called so"}'),
        (MARKER, b""),
        (".hidden", b""),
    ],
)
def test_names_alone_do_not_make_a_state_directory(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StateError, match="neither empty"):
        claim_directory(tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_a_new_and_an_empty_one_are_marked_first(tmp_path: Path) -> None:
    claim_directory(tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a" / "b") == [MARKER]
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    temporary_name(tmp_path / "volume" / MARKER).write_bytes(b"")  # its writer died
    claim_directory(tmp_path / "volume")
    assert is_state_directory(tmp_path / "volume")
    (tmp_path / "volume" / "notes.txt").write_text("whatever else is put there later")
    claim_directory(tmp_path / "volume")


def with_lock(path: Path) -> None:
    DirectoryLock(path).release()


def with_changes(path: Path) -> None:
    """As formats 2 to 4 had them, and the same when all of them were applied."""
    write_line(path, {"sequence": 1, "record": {"op": "drop", "name": "q"}})


def with_shortened_changes(path: Path) -> None:
    write_line(path, {"base": 1})


def write_line(path: Path, value: object) -> None:
    body = json.dumps(value, separators=(",", ":")).encode()
    (path / "changes.log").write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))


def with_manifest(path: Path) -> None:
    (path / "manifests").mkdir()
    (path / "manifests" / f"{0:012d}.json").write_text("{}")


@pytest.mark.parametrize("make", [with_lock, with_changes, with_shortened_changes, with_manifest])
def test_those_of_earlier_releases_are_known_and_marked(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path)
    assert is_state_directory(tmp_path)
    claim_directory(tmp_path)
    assert (tmp_path / MARKER).exists()


def test_in_a_state_directory_only_names_of_ours_are_deleted(tmp_path: Path) -> None:
    claim_directory(tmp_path)
    make_project(tmp_path)
    before = listing(tmp_path)
    ours = [
        "tables/packs-0123456789ab.arrow",
        "spill/000000000004-1-0123456789ab.arrow",
        "buckets/000000000005-1-0123456789ab.arrow",
        *(temporary_name(tmp_path / name / "x").relative_to(tmp_path).as_posix() for name in ("", "tables", "spill")),
    ]
    for name in ours:
        (tmp_path / name).write_bytes(b"left by a process that died")
    storage = LocalStorage(str(tmp_path))
    storage.sweep()
    clean_tables(storage, {}, {})
    collect_garbage(storage, Manifest(5, 16, "h"))
    Manifests(storage).sweep()
    assert listing(tmp_path) == before


def test_temporaries_are_known_by_their_whole_name(tmp_path: Path) -> None:
    assert is_temporary(temporary_name(tmp_path / "a.json"))
    for name in (".draft.tmp", "a.tmp", ".a.12-0123456.tmp", ".a.x-01234567.tmp", ".12-01234567.tmp"):
        assert not is_temporary(tmp_path / name)


def test_a_link_to_nothing_and_a_file_are_told_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path / "link", tmp_path / "link" / "state"):
        with pytest.raises(StateError, match=r"symbolic link to .*gone, which does not exist"):
            claim_directory(path)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StateError, match="file is a file"):
            claim_directory(path)
    (tmp_path / "there").mkdir()
    (tmp_path / "link2").symlink_to(tmp_path / "there")
    claim_directory(tmp_path / "link2")
    assert (tmp_path / "there" / MARKER).exists()
