"""Unit: rows that could not be read are kept with their reasons; files of them that are missing are noticed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.errors import StateError
from thalweg.state.container import ContainerWriter
from thalweg.state.local_storage import LocalStorage
from thalweg.state.rejected import SCHEMA, forget_rejected, read_rejected, rejected_name


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def keep(storage: LocalStorage, stream: str, batch: int, part: str, *rows: str) -> Path:
    name = rejected_name(stream, batch, part)
    with ContainerWriter(storage, name) as writer:
        writer.add("rejected", pa.table([["no number"] * len(rows), list(rows)], schema=SCHEMA))
        writer.close()
    return storage.root / name


def texts(storage: LocalStorage, through: int, rows: int) -> list[str]:
    found = read_rejected(storage, "s", through, rows)
    assert found.schema == SCHEMA
    listed: list[str] = found["row"].to_pylist()
    return listed


def test_those_of_batches_that_have_happened_are_read_in_order(storage: LocalStorage) -> None:
    assert texts(storage, 5, 0) == []
    keep(storage, "s", 2, "0", "c")
    keep(storage, "s", 1, "1", "b")
    keep(storage, "s", 1, "0", "a", "aa")
    keep(storage, "s", 3, "0", "not yet")
    keep(storage, "ss", 1, "0", "another stream")
    assert texts(storage, 2, 4) == ["a", "aa", "b", "c"]
    assert texts(storage, 3, 5)[-1] == "not yet"


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_file_is_noticed(storage: LocalStorage, lost: int) -> None:
    paths = [keep(storage, "s", batch, "0", f"{batch}") for batch in range(3)]
    paths[lost].unlink()
    with pytest.raises(StateError, match=r"files in .*rejected/s are missing") as raised:
        read_rejected(storage, "s", 2, 3)
    assert "3 rows were set aside as unreadable, 2 are there" in str(raised.value)


def test_a_damaged_file_is_named(storage: LocalStorage) -> None:
    path = keep(storage, "s", 0, "0", "a")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StateError, match=str(path)):
        read_rejected(storage, "s", 0, 1)


def test_an_earlier_attempt_is_forgotten_of_all_streams_and_no_other_batch(storage: LocalStorage) -> None:
    kept = [keep(storage, "s", 1, "0", "a"), keep(storage, "t", 12, "0", "b")]
    gone = [keep(storage, "s", 2, "0", "c"), keep(storage, "t", 2, "1", "d")]
    forget_rejected(storage, 2)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone)


def test_a_file_of_somebody_else_is_left_alone(storage: LocalStorage) -> None:
    keep(storage, "s", 1, "0", "a")
    notes = storage.root / "rejected" / "s" / "notes.txt"
    notes.write_text("mine")
    assert texts(storage, 1, 1) == ["a"]
    forget_rejected(storage, 1)
    assert notes.exists()
