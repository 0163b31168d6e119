from __future__ import annotations

import json
from pathlib import Path

import pytest

from thalweg.errors import StateError
from thalweg.model.bucket import Bucket, Section
from thalweg.state.manifest import (
    Manifest,
    StreamProgress,
    latest_manifest,
    manifest_batches,
    read_intent,
    read_manifest,
    write_intent,
    write_manifest,
)

SECTION = Section("buckets/000000000003-1-ab.arrow", "g0", 64, 100, 7, 0xDEADBEEF, {"offsets": "zz"})
BUCKET = Bucket(SECTION, "g0", 1, 0, 2, 3, ((0, 10), (10, 10)), 7)


def manifest(batch: int) -> Manifest:
    return Manifest(
        batch=batch,
        groups=256,
        hash="thalweg-1",
        streams={"purchases": StreamProgress(17, 5, 1, 2), "quiet": StreamProgress()},
        buckets=(BUCKET,),
        queries={"q": {"since": 3}},
        lanes={"l": [1, 2]},
        extra={"epoch": 1},
    )


def test_a_manifest_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    assert latest_manifest(tmp_path) is None
    for batch in range(5):
        write_manifest(tmp_path, manifest(batch))
    assert latest_manifest(tmp_path) == manifest(4)
    assert manifest_batches(tmp_path) == [3, 4]
    assert read_manifest(tmp_path, 3) == manifest(3)
    assert (tmp_path / "manifests" / "000000000004.json").exists()


def test_committing_a_batch_again_keeps_the_one_before(tmp_path: Path) -> None:
    for batch in (3, 4, 4):
        write_manifest(tmp_path, manifest(batch))
    assert manifest_batches(tmp_path) == [3, 4]


@pytest.mark.slow
def test_a_newest_manifest_cut_at_any_byte_is_an_error(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(0))
    path = write_manifest(tmp_path, manifest(1))
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(StateError, match=r"000000000001\.json"):
            latest_manifest(tmp_path)


def test_a_changed_byte_is_an_error(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, manifest(1))
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"groups":256', b'"groups":257'))
    with pytest.raises(StateError, match="checksum"):
        latest_manifest(tmp_path)


def test_another_format_says_which_and_what_to_do(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, manifest(1))
    header, body = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps(json.loads(header) | {"format": 9}).encode() + b"\n" + body)
    with pytest.raises(StateError, match="format 9, this release reads 2, 3, 4") as raised:
        latest_manifest(tmp_path)
    assert raised.value.hint
    assert "release" in raised.value.hint


def test_the_format_before_is_read(tmp_path: Path) -> None:
    path = write_manifest(tmp_path, manifest(1))
    header, body = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps(json.loads(header) | {"format": 2}).encode() + b"\n" + body)
    found = latest_manifest(tmp_path)
    assert found == manifest(1)
    assert found is not None
    assert found.format == 2


def test_intents_are_kept_for_the_last_two_batches(tmp_path: Path) -> None:
    assert read_intent(tmp_path, 0) is None
    for batch in range(4):
        write_intent(tmp_path, batch, {"plan": batch})
    assert [read_intent(tmp_path, batch) for batch in range(4)] == [None, None, {"plan": 2}, {"plan": 3}]
    (tmp_path / "intents" / "000000000003.json").write_bytes(b"")
    with pytest.raises(StateError, match="corrupt"):
        read_intent(tmp_path, 3)
