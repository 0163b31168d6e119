"""Unit: units keep their numbers through growth, crashes and restarts."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.errors import SourceError, StateError
from thalweg.model.stream import Schema, Stream
from thalweg.source import files as files_module
from thalweg.source import generate as generate_module
from thalweg.source.contract import ENDLESS, Source
from thalweg.source.files import files
from thalweg.source.generate import generate
from thalweg.source.inventory import Inventory
from thalweg.state.local_storage import LocalStorage
from thalweg.state.sealed import seal


def stream_of(source: Source, name: str = "s") -> Stream:
    return Stream(name, source.schema() or Schema(()), "ts", 10, source.spec())


def write(path: Path, rows: int = 3, mtime: int | None = None, **options: int) -> Path:
    pq.write_table(pa.table({"a": range(rows)}), path, **options)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def storage_of(path: Path) -> LocalStorage:
    return LocalStorage(str(path))


def test_files_are_numbered_by_time_then_path_and_hidden_ones_ignored(tmp_path: Path) -> None:
    for name, mtime in (("b", 50), ("a", 50), ("c", 40), ("_d", 10), (".e", 10)):
        write(tmp_path / f"{name}.parquet", mtime=mtime)
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), storage_of(tmp_path / "state"))
    assert inventory.available() == 3
    assert [Path(split.path).stem for split in inventory.splits(0, 3)] == ["c", "a", "b"]


def test_a_number_means_the_same_file_after_growth_and_restart(tmp_path: Path) -> None:
    write(tmp_path / "m.parquet", mtime=100)
    stream = stream_of(files(str(tmp_path / "*.parquet")))
    inventory = Inventory(stream, storage_of(tmp_path / "state"))
    assert inventory.available() == 1
    write(tmp_path / "a.parquet", mtime=1)
    assert inventory.available() == 2
    again = Inventory(stream, storage_of(tmp_path / "state"))
    assert [Path(s.path).stem for s in again.splits(0, 2)] == ["m", "a"]
    assert again.available() == 2


def test_known_files_are_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.parquet")
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), storage_of(tmp_path / "state"))
    inventory.available()

    def refuse(path: str) -> None:
        raise AssertionError(f"opened {path} again")

    monkeypatch.setattr(files_module.pq, "read_metadata", refuse)
    assert inventory.available() == 1


def test_max_files_per_batch(tmp_path: Path) -> None:
    inventory = Inventory(
        stream_of(files(str(tmp_path / "*.json"), max_files_per_batch=2)), storage_of(tmp_path / "st")
    )
    assert [inventory.limit(0, 5), inventory.limit(4, 5)] == [2, 5]


def test_a_large_parquet_file_is_cut_by_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows=200_000, row_group_size=20_000)
    inventory = Inventory(stream_of(files(str(path))), storage_of(tmp_path / "state"))
    inventory.available()
    splits = inventory.splits(0, 1, parts=2)
    assert [(s.start, s.end, s.rows) for s in splits] == [(0, 5, 100_000), (5, 10, 100_000)]


def test_a_large_text_file_is_cut_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_BYTES_PER_SPLIT", 100)
    (tmp_path / "a.csv").write_text("a\n" + "1\n" * 149)
    for multiline, expected in ((False, [(0, 100), (100, 200), (200, 300)]), (True, [(0, -1)])):
        source = files(str(tmp_path / "*.csv"), multiline=multiline)
        inventory = Inventory(stream_of(source), storage_of(tmp_path / f"state{multiline}"))
        inventory.available()
        assert [(s.start, s.end) for s in inventory.splits(0, 1)] == expected


def test_a_corrupt_file_is_a_unit_too(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    inventory = Inventory(
        Stream("s", Schema(()), "ts", 0, files(str(tmp_path / "*.parquet")).spec()), storage_of(tmp_path / "state")
    )
    assert inventory.available() == 1
    assert [(s.start, s.end) for s in inventory.splits(0, 1)] == [(0, -1)]


def test_a_name_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    inventory = Inventory(stream_of(files(str(tmp_path / "*.csv"))), storage_of(tmp_path / "state"))
    (tmp_path / os.fsdecode(b"a\xff.csv")).write_text("a\n1\n")
    with pytest.raises(SourceError, match=r"stream s has a name that is not UTF-8: .*a\\udcff\.csv"):
        inventory.available()


def test_a_directory_that_is_taken_away_has_nothing_new(tmp_path: Path) -> None:
    """It would stop all streams otherwise, since one process plans for them all."""
    directory = tmp_path / "in"
    directory.mkdir()
    write(directory / "a.parquet")
    inventory = Inventory(stream_of(files(f"{directory}/*.parquet")), storage_of(tmp_path / "state"))
    assert inventory.available() == 1
    directory.rename(tmp_path / "away")
    assert inventory.available() == 1
    (tmp_path / "away").rename(directory)
    write(directory / "b.parquet")
    assert inventory.available() == 2


def test_units_that_are_gone_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), storage_of(tmp_path / "state"))
    inventory.available()
    with pytest.raises(StateError, match="lost input"):
        inventory.splits(0, 2)


def test_generated_rows_are_units(tmp_path: Path) -> None:
    inventory = Inventory(stream_of(generate("facts", rows=1000, rows_per_batch=300)), storage_of(tmp_path))
    assert inventory.available() == 1000
    assert [inventory.limit(0, 1000), inventory.limit(900, 1000)] == [300, 1000]
    assert [(s.start, s.end) for s in inventory.splits(300, 600)] == [(300, 600)]
    large = inventory.splits(0, 1_000_000, parts=2)
    assert [(s.start, s.end) for s in large] == [(0, 500_000), (500_000, 1_000_000)]
    assert Inventory(stream_of(generate("facts")), storage_of(tmp_path)).available() == ENDLESS


def test_pace_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(generate_module.GeneratedUnits, "clock", staticmethod(lambda: now[0]))
    stream = stream_of(generate("facts", pace=10, rows=45))
    inventory = Inventory(stream, storage_of(tmp_path))
    assert inventory.available() == 0
    now[0] += 2
    assert inventory.available() == 20
    assert Inventory(stream, storage_of(tmp_path)).available() == 20
    now[0] += 100
    assert inventory.available() == 45


def test_the_pace_of_an_earlier_release_is_kept_and_a_lost_one_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(generate_module.GeneratedUnits, "clock", staticmethod(lambda: now[0]))
    stream, path = stream_of(generate("facts", pace=10)), tmp_path / "sources" / "s" / "pace.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"first_seen": 990.0}')
    inventory = Inventory(stream, storage_of(tmp_path))
    assert inventory.available() == 100
    mark = inventory.mark(100)
    now[0] = 980.0  # the clock was set back: nothing is lost
    assert Inventory(stream, storage_of(tmp_path), mark).available() < 0
    for text in (b"", b'{"first', b'{"first_seen": 991.0}', seal("pace", {"stream": "t", "first_seen": 990.0})):
        path.write_bytes(text)
        with pytest.raises(StateError, match=r"pace\.json"):
            Inventory(stream, storage_of(tmp_path), mark)
    path.unlink()
    with pytest.raises(StateError, match=r"pace\.json is missing"):
        Inventory(stream, storage_of(tmp_path), mark)
    assert Inventory(stream, storage_of(tmp_path)).available() == 0
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(StateError, match=r"pace\.json"):
            Inventory(stream, storage_of(tmp_path), mark)
