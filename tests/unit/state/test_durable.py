from __future__ import annotations

import os
from pathlib import Path

import pytest

from thalweg.errors import StateError
from thalweg.state.durable import make_directory, read_json, write_atomic, write_json


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
