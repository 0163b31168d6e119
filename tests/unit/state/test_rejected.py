"""Unit: rows that could not be read are kept with their reasons; files of them that are missing are noticed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.errors import StateError
from thalweg.state.container import ContainerWriter
from thalweg.state.local_storage import LocalStorage
from thalweg.state.rejected import (
    SCHEMA,
    Batched,
    delete_rejected,
    forget_rejected,
    keep_rejected,
    kept_rejected,
    read_rejected,
    rejected_name,
)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def keep(storage: LocalStorage, stream: str, batch: int, part: str, *rows: str) -> Path:
    name = rejected_name(stream, batch, part)
    table = pa.table({"reason": ["no number"] * len(rows), "line": [*range(1, len(rows) + 1)], "row": [*rows]})
    keep_rejected(storage, name, stream, table, "/in/a.csv", 1_000_000)
    return storage.root / name


def keep_as_before(storage: LocalStorage, stream: str, batch: int, *rows: str) -> None:
    """As earlier releases did."""
    with ContainerWriter(storage, rejected_name(stream, batch, "old")) as writer:
        writer.add(stream, pa.table({"reason": ["no number"] * len(rows), "row": [*rows]}))
        writer.close()


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


def test_what_an_attempt_that_did_not_count_wrote_late_is_not_told_twice(storage: LocalStorage) -> None:
    """It had cut the same file otherwise."""
    keep(storage, "s", 1, "0", "a", "b", "b")
    keep(storage, "s", 2, "0", "a")
    assert texts(storage, 2, 4) == ["a", "b", "b", "a"]
    keep(storage, "s", 1, "1", "a", "b")
    keep(storage, "s", 1, "2", "a", "b", "b")
    assert texts(storage, 2, 4) == ["a", "b", "b", "a"]


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


def test_each_says_where_it_came_from(storage: LocalStorage) -> None:
    keep(storage, "s", 7, "0", "a")
    assert read_rejected(storage, "s", 7, 1).to_pylist() == [
        {
            "file": "/in/a.csv",
            "line": 1,
            "batch": 7,
            "reason": "no number",
            "row": "a",
            "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "stream": "s",
        }
    ]


def test_objects_of_earlier_releases_are_read(storage: LocalStorage) -> None:
    keep_as_before(storage, "s", 3, "a", "b")
    keep(storage, "s", 4, "0", "c")
    found = read_rejected(storage, "s", 4, 3)
    assert found.schema == SCHEMA
    assert found["row"].to_pylist() == ["a", "b", "c"]
    assert found["file"].to_pylist() == [None, None, "/in/a.csv"]
    assert found["batch"].to_pylist() == [3, 3, 4]
    assert found["line"].to_pylist() == [None, None, 1]


def test_those_of_early_batches_are_counted_and_deleted(storage: LocalStorage) -> None:
    keep_as_before(storage, "s", 1, "a", "b")
    keep(storage, "s", 2, "0", "c")
    keep(storage, "s", 2, "1", "d")
    keep(storage, "s", 3, "0", "not yet")
    found = kept_rejected(storage, "s", 2)
    assert [(b.batch, b.rows) for b in found] == [(1, 2), (2, 2)]
    assert all(isinstance(b, Batched) and b.bytes > 0 for b in found)
    delete_rejected(storage, "s", 2)
    assert read_rejected(storage, "s", 2, 2, first=2)["row"].to_pylist() == ["c", "d"]
    assert [b.batch for b in kept_rejected(storage, "s", 2)] == [2]
