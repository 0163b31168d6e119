"""Unit: offsets as Spark kept them for earlier releases, whole, missing or torn."""

from __future__ import annotations

from pathlib import Path

import pytest
from thalweg.batch.checkpoint import forget_checkpoint, read_offset

from thalweg.errors import StateError

WHOLE = 'v1\n{"batchWatermarkMs":0}\n{"tick": 2, "streams": {"r": 5, "s": 0}}'


def keep(state_dir: Path, batch: int, text: str) -> Path:
    path = state_dir / "checkpoint" / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("end", ["", "\n"])
def test_an_offset_is_the_third_line(tmp_path: Path, end: str) -> None:
    keep(tmp_path, 7, WHOLE + end)
    assert read_offset(tmp_path, 7) == {"tick": 2, "streams": {"r": 5, "s": 0}}


def test_a_missing_one_is_named_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"offsets of batch 7 are missing: .*checkpoint/offsets/7") as raised:
        read_offset(tmp_path, 7)
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
def test_a_torn_one_is_named_with_a_way_out(tmp_path: Path, torn: str) -> None:
    path = keep(tmp_path, 7, torn)
    with pytest.raises(StateError, match="offsets of batch 7 cannot be read") as raised:
        read_offset(tmp_path, 7)
    assert str(path) in raised.value.message
    assert "bring back the state directory" in str(raised.value.hint)


def test_bytes_that_are_no_text_are_torn_too(tmp_path: Path) -> None:
    keep(tmp_path, 0, "").write_bytes(b"v1\n\xff\xfe\n{}")
    with pytest.raises(StateError, match="cannot be read"):
        read_offset(tmp_path, 0)


def test_what_is_of_no_use_any_more_goes_and_nothing_else(tmp_path: Path) -> None:
    keep(tmp_path, 0, WHOLE)
    (tmp_path / "control.json").write_text('{"tick":3}')
    (tmp_path / "catalog.json").write_text("{}")
    (tmp_path / "sources" / "s" / "checkpoint").mkdir(parents=True)
    forget_checkpoint(tmp_path)
    forget_checkpoint(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog.json", "sources"]
    assert (tmp_path / "sources" / "s" / "checkpoint").is_dir()
