"""Unit: what earlier releases kept beside manifests, whole, missing or torn. Whole directories of theirs are frozen
in tests/recovery."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from thalweg.errors import StateError
from thalweg.model.manifest import ResultFile
from thalweg.model.measurements import Measurements, SlotAssignment
from thalweg.model.offsets import Offsets
from thalweg.state.local_storage import LocalStorage
from thalweg.state.migrate import OldIntent, find_old_intent, forget_old, read_old_manifest, read_old_offsets

WHOLE = 'v1\n{"batchWatermarkMs":0}\n{"tick": 2, "streams": {"r": 5, "s": 0}}'
OFFSETS = Offsets(2, {"r": 5, "s": 0})


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def keep(storage: LocalStorage, batch: int, text: str) -> Path:
    path = storage.root / "checkpoint" / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write(storage: LocalStorage, name: str, value: dict[str, Any], format_: int = 4) -> Path:
    """With the header line of formats 2 to 4."""
    body = json.dumps(value).encode()
    head = json.dumps({"format": format_, "crc": zlib.crc32(body), "length": len(body)}).encode()
    path = storage.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"\n" + body + b"\n")
    return path


def manifest(**extra: Any) -> dict[str, Any]:
    return {
        "batch": 7,
        "groups": 16,
        "hash": "h",
        "streams": {},
        "buckets": [],
        "queries": {},
        "lanes": {},
        "extra": extra,
    }


# -- offsets as Spark kept them


@pytest.mark.parametrize("end", ["", "\n"])
def test_an_offset_is_the_third_line(storage: LocalStorage, end: str) -> None:
    keep(storage, 7, WHOLE + end)
    assert read_old_offsets(storage, 7) == OFFSETS


def test_a_missing_one_is_named_with_a_way_out(storage: LocalStorage) -> None:
    with pytest.raises(StateError, match=r"offsets of batch 7 are missing: .*checkpoint/offsets/7") as raised:
        read_old_offsets(storage, 7)
    assert "bring back the state directory" in str(raised.value.hint)


@pytest.mark.parametrize(
    "torn",
    [
        "",
        "v1",
        'v1\n{"batchWatermarkMs":0}',
        WHOLE[:-1],
        WHOLE.replace("v1", "v9"),
        WHOLE.replace('"r": 5', '"r": []'),
        WHOLE.replace("tick", "tock"),
        "v1\n{}\n[]",
        "\0" * 80,
    ],
)
def test_a_torn_one_is_named_with_a_way_out(storage: LocalStorage, torn: str) -> None:
    path = keep(storage, 7, torn)
    with pytest.raises(StateError, match="offsets of batch 7 cannot be read") as raised:
        read_old_offsets(storage, 7)
    assert str(path) in raised.value.message
    assert "bring back the state directory" in str(raised.value.hint)


def test_bytes_that_are_no_text_are_torn_too(storage: LocalStorage) -> None:
    keep(storage, 0, "").write_bytes(b"v1\n\xff\xfe\n{}")
    with pytest.raises(StateError, match="cannot be read"):
        read_old_offsets(storage, 0)


def test_they_count_where_no_manifest_says_how_far_its_batch_goes(storage: LocalStorage) -> None:
    write(storage, "manifests/000000000007.json", manifest())
    with pytest.raises(StateError, match="offsets of batch 7 are missing"):
        read_old_manifest(storage, 7)
    keep(storage, 7, WHOLE)
    assert read_old_manifest(storage, 7).reached == OFFSETS
    write(storage, "manifests/000000000007.json", manifest(reached={"tick": 9, "streams": {}}))
    assert read_old_manifest(storage, 7).reached == Offsets(9)


# -- intents


def test_an_intent_says_what_its_batch_ran_with(storage: LocalStorage) -> None:
    assert find_old_intent(storage, 8) is None
    write(
        storage, "intents/000000000008.json", {"through": 3, "slots": 2, "reached": {"tick": 1, "streams": {"s": 4}}}
    )
    found = find_old_intent(storage, 8)
    measured = Measurements(slot_assignment=SlotAssignment(slots=2))
    assert found == OldIntent(3, Offsets(1, {"s": 4}), 2, measured, {}, {})
    assert find_old_intent(storage, 7) is None
    write(storage, "intents/000000000008.json", {"through": 3, "slots": 2})
    keep(storage, 8, WHOLE)
    found = find_old_intent(storage, 8)
    assert found is not None
    assert found.reached == OFFSETS


def test_a_damaged_intent_is_named_at_every_byte(storage: LocalStorage) -> None:
    path = write(storage, "intents/000000000008.json", {"through": 3, "reached": {"tick": 1, "streams": {}}})
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(StateError) as raised:
                find_old_intent(storage, 8)
            assert str(path) in str(raised.value)


# -- results


def test_results_are_those_up_to_the_manifest_and_none_twice(storage: LocalStorage) -> None:
    names = [
        "000000000000-000000000004.arrow",
        "000000000003.arrow",  # merged into the one before, which a crash left
        "000000000005.arrow",
        "000000000008.arrow",  # of a batch that has not happened
        "notes.txt",
    ]
    (storage.root / "results").mkdir()
    for name in names:
        (storage.root / "results" / name).write_bytes(b"")
    write(storage, "manifests/000000000007.json", manifest(reached={"tick": 9, "streams": {}}))
    assert read_old_manifest(storage, 7).results == (
        ResultFile("results/000000000000-000000000004.arrow", 0, 4, 1),
        ResultFile("results/000000000005.arrow", 5, 5, 0),
    )


# -- what goes


def test_what_is_of_no_use_any_more_goes_and_nothing_else(storage: LocalStorage) -> None:
    keep(storage, 0, WHOLE)
    write(storage, "manifests/000000000007.json", {})
    write(storage, "intents/000000000007.json", {})
    for name in ("control.json", "streams.json", "identity"):
        (storage.root / name).write_text("{}")
    kept = ["catalog.json", "changes.log", "manifests/000000000008", "sources/s/checkpoint/offsets/0", "timeline"]
    for name in kept:
        storage.write(name, b"")
    forget_old(storage)
    forget_old(storage)
    assert storage.names("") == kept
