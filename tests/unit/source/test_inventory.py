"""Unit: units keep their numbers through growth, crashes and restarts."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.errors import SourceError
from thalweg.model.stream import Schema, Stream
from thalweg.source import inventory as module
from thalweg.source.inventory import ENDLESS, Inventory
from thalweg.source.registry import load_streams, save_streams, source_dir
from thalweg.source.sources import Source, files, generate, memory


def stream_of(source: Source, name: str = "s") -> Stream:
    return Stream(name, source.schema() or Schema(()), "ts", 10, source.spec())


def write(path: Path, rows: int = 3, mtime: int | None = None, **options: int) -> Path:
    pq.write_table(pa.table({"a": range(rows)}), path, **options)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def test_the_registry_gives_back_what_it_was_given(tmp_path: Path) -> None:
    streams = [
        stream_of(generate("purchases", rows=10, start="2024-05-01T00:00:00")),
        stream_of(memory("a int"), "t"),
    ]
    assert load_streams(tmp_path) == {}
    save_streams(tmp_path, streams)
    assert load_streams(tmp_path) == {stream.name: stream for stream in streams}


def test_a_broken_registry_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "streams.json").write_text("{")
    with pytest.raises(SourceError, match=r"cannot read .*streams\.json"):
        load_streams(tmp_path)


def test_files_are_numbered_by_time_then_path_and_hidden_ones_ignored(tmp_path: Path) -> None:
    for name, mtime in (("b", 50), ("a", 50), ("c", 40), ("_d", 10), (".e", 10)):
        write(tmp_path / f"{name}.parquet", mtime=mtime)
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), tmp_path / "state")
    assert inventory.available() == 3
    assert [Path(split.path).stem for split in inventory.splits(0, 3)] == ["c", "a", "b"]


def test_a_number_means_the_same_file_after_growth_and_restart(tmp_path: Path) -> None:
    write(tmp_path / "m.parquet", mtime=100)
    stream = stream_of(files(str(tmp_path / "*.parquet")))
    inventory = Inventory(stream, tmp_path / "state")
    assert inventory.available() == 1
    write(tmp_path / "a.parquet", mtime=1)
    assert inventory.available() == 2
    again = Inventory(stream, tmp_path / "state")
    assert [Path(s.path).stem for s in again.splits(0, 2)] == ["m", "a"]
    assert again.available() == 2


def test_a_torn_line_is_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", mtime=1)
    stream = stream_of(files(str(tmp_path / "*.parquet")))
    Inventory(stream, tmp_path / "state").available()
    log = source_dir(tmp_path / "state", "s") / module.FILES_LOG
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"path": "/somewhere/with/a/very/long/name/that/was/never/finished')
    write(tmp_path / "b.parquet", mtime=2)
    assert Inventory(stream, tmp_path / "state").available() == 2
    assert log.read_bytes().startswith(whole)
    assert [Path(s.path).stem for s in Inventory(stream, tmp_path / "state").splits(0, 2)] == ["a", "b"]


def test_known_files_are_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.parquet")
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), tmp_path / "state")
    inventory.available()

    def refuse(path: str) -> None:
        raise AssertionError(f"opened {path} again")

    monkeypatch.setattr(module.pq, "read_metadata", refuse)
    assert inventory.available() == 1


def test_max_files_per_batch(tmp_path: Path) -> None:
    inventory = Inventory(stream_of(files(str(tmp_path / "*.json"), max_files_per_batch=2)), tmp_path / "st")
    assert [inventory.limit(0, 5), inventory.limit(4, 5)] == [2, 5]


def test_a_large_parquet_file_is_cut_by_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows=200_000, row_group_size=20_000)
    inventory = Inventory(stream_of(files(str(path))), tmp_path / "state")
    inventory.available()
    splits = inventory.splits(0, 1, parts=2)
    assert [(s.start, s.end, s.rows) for s in splits] == [(0, 5, 100_000), (5, 10, 100_000)]


def test_a_large_text_file_is_cut_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_SPLIT", 100)
    (tmp_path / "a.csv").write_text("a\n" + "1\n" * 149)
    for multiline, expected in ((False, [(0, 100), (100, 200), (200, 300)]), (True, [(0, -1)])):
        source = files(str(tmp_path / "*.csv"), multiline=multiline)
        inventory = Inventory(stream_of(source), tmp_path / f"state{multiline}")
        inventory.available()
        assert [(s.start, s.end) for s in inventory.splits(0, 1)] == expected


def test_a_corrupt_file_is_a_unit_too(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    inventory = Inventory(
        Stream("s", Schema(()), "ts", 0, files(str(tmp_path / "*.parquet")).spec()), tmp_path / "state"
    )
    assert inventory.available() == 1
    assert [(s.start, s.end) for s in inventory.splits(0, 1)] == [(0, -1)]


def test_a_directory_that_is_taken_away_has_nothing_new(tmp_path: Path) -> None:
    """It would stop all streams otherwise, since one process plans for them all."""
    directory = tmp_path / "in"
    directory.mkdir()
    write(directory / "a.parquet")
    inventory = Inventory(stream_of(files(f"{directory}/*.parquet")), tmp_path / "state")
    assert inventory.available() == 1
    directory.rename(tmp_path / "away")
    assert inventory.available() == 1
    (tmp_path / "away").rename(directory)
    write(directory / "b.parquet")
    assert inventory.available() == 2


def test_units_that_are_gone_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    inventory = Inventory(stream_of(files(str(tmp_path / "*.parquet"))), tmp_path / "state")
    inventory.available()
    with pytest.raises(SourceError, match="lost input"):
        inventory.splits(0, 2)


def test_memory_units_are_the_appends(tmp_path: Path) -> None:
    source = memory("a bigint")
    inventory = Inventory(stream_of(source), tmp_path)
    source.append(pa.table({"a": [1, 2]}))
    assert inventory.available() == 0
    source.bind(source_dir(tmp_path, "s"))
    source.append(pa.table({"a": [3]}))
    assert inventory.available() == 2
    assert [split.rows for split in inventory.splits(0, 2)] == [2, 1]
    again = memory("a bigint")
    again.bind(source_dir(tmp_path, "s"))
    again.append(pa.table({"a": [4, 5, 6]}))
    assert inventory.available() == 3
    assert [split.rows for split in Inventory(stream_of(source), tmp_path).splits(2, 3)] == [3]


def test_memory_units_that_are_read_are_given_back_and_still_counted(tmp_path: Path) -> None:
    directory = source_dir(tmp_path, "s")
    source = memory("a bigint")
    source.bind(directory)
    for a in range(3):
        source.append(pa.table({"a": [a] * (a + 1)}))
    inventory = Inventory(stream_of(source), tmp_path)
    inventory.release(2)
    assert [path.name for path in sorted(directory.glob("*.arrow"))] == ["0000000001.arrow", "0000000002.arrow"]
    restarted = Inventory(stream_of(source), tmp_path)
    assert restarted.available() == 3
    assert [split.rows for split in restarted.splits(2, 3)] == [3]
    restarted.release(3)
    assert [path.name for path in sorted(directory.glob("*.arrow"))] == ["0000000002.arrow"]
    again = memory("a bigint")
    again.bind(directory)
    again.append(pa.table({"a": [7, 7]}))
    assert restarted.available() == Inventory(stream_of(source), tmp_path).available() == 4
    assert [split.rows for split in restarted.splits(3, 4)] == [2]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_memory_unit_that_is_lost_is_an_error(tmp_path: Path, lost: int) -> None:
    source = memory("a bigint")
    source.bind(source_dir(tmp_path, "s"))
    for a in range(3):
        source.append(pa.table({"a": [a]}))
    inventory = Inventory(stream_of(source), tmp_path)
    assert inventory.available() == 3
    (source_dir(tmp_path, "s") / f"{lost:010d}.arrow").unlink()
    for planning in (inventory, Inventory(stream_of(source), tmp_path)):
        with pytest.raises(SourceError, match=f"lost input: unit {lost + 1} was planned"):
            planning.splits(0, 3)
    assert len(inventory.splits(2, 3)) == 1


def test_an_empty_append_is_a_unit_without_splits_to_read(tmp_path: Path) -> None:
    source = memory("a bigint")
    source.bind(source_dir(tmp_path, "s"))
    source.append(pa.table({"a": pa.array([], pa.int64())}))
    inventory = Inventory(stream_of(source), tmp_path)
    assert inventory.available() == 1
    assert sum(split.rows for split in inventory.splits(0, 1)) == 0


def test_generated_rows_are_units(tmp_path: Path) -> None:
    inventory = Inventory(stream_of(generate("facts", rows=1000, rows_per_batch=300)), tmp_path)
    assert inventory.available() == 1000
    assert [inventory.limit(0, 1000), inventory.limit(900, 1000)] == [300, 1000]
    assert [(s.start, s.end) for s in inventory.splits(300, 600)] == [(300, 600)]
    large = inventory.splits(0, 1_000_000, parts=2)
    assert [(s.start, s.end) for s in large] == [(0, 500_000), (500_000, 1_000_000)]
    assert Inventory(stream_of(generate("facts")), tmp_path).available() == ENDLESS


def test_pace_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module._Generate, "clock", staticmethod(lambda: now[0]))
    stream = stream_of(generate("facts", pace=10, rows=45))
    inventory = Inventory(stream, tmp_path)
    assert inventory.available() == 0
    now[0] += 2
    assert inventory.available() == 20
    assert Inventory(stream, tmp_path).available() == 20
    now[0] += 100
    assert inventory.available() == 45
