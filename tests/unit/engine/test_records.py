"""Unit: who has written last to a place that Spark writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from thalweg.engine.hadoop import HadoopFiles
from thalweg.engine.records import SinkRecords
from thalweg.errors import SinkError
from thalweg.sink.contract import SinkContext

CONTEXT = SinkContext("q", "timeline", term="term-1", known_terms=frozenset({"term-1"}))


class Files:
    """Local ones, of which a write can have no answer."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.is_silent = False

    def names(self, name: str) -> list[str]:
        place = Path(self.root) / name
        return sorted(path.name for path in place.iterdir()) if place.exists() else []

    def read(self, name: str) -> bytes:
        return (Path(self.root) / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = Path(self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if self.is_silent:
            raise OSError("no answer")


def records(files: Any) -> SinkRecords:
    return SinkRecords(cast(HadoopFiles, files), CONTEXT, "q@1")


def test_a_first_record_whose_write_had_no_answer_is_found_again(tmp_path: Path) -> None:
    """The sink was opened before the first manifest."""
    files = Files(tmp_path)
    mine = records(files)
    assert mine.newest(0) == -1
    files.is_silent = True
    with pytest.raises(OSError, match="no answer"):
        mine.write(0)
    files.is_silent = False
    assert mine.newest(0) == 0
    mine.write(1)
    assert mine.newest(2) == 1


def test_a_later_record_is_of_a_state_that_knows_more(tmp_path: Path) -> None:
    files = Files(tmp_path)
    mine = records(files)
    records(files).write(1)
    with pytest.raises(SinkError, match="holds results of batch 1, but the state has got only as far as batch 0"):
        mine.newest(0)
