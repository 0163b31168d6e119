"""Unit: the log of a source keeps its numbers through merges, deaths and restarts, and damage is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError
from thalweg.model.offsets import SourceMark
from thalweg.source import log as module
from thalweg.source.log import FILES, LANDED, File, Landed, Log
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.sealed import seal
from thalweg.testing.faults import Death


def file(number: int) -> File:
    return File(f"/in/{number}.parquet", number, number)


def storage_of(path: Path) -> LocalStorage:
    return LocalStorage(str(path))


def log_of(path: Path) -> Log[File]:
    return Log(storage_of(path), "s", FILES)


def folder(path: Path) -> Path:
    return path / "sources" / "s" / "files"


def names(path: Path) -> list[str]:
    return sorted(found.name for found in folder(path).iterdir())


def sizes(path: Path) -> list[int]:
    return [file.size for file in log_of(path).entries]


def fill(path: Path, appends: int, each: int = 1) -> Log[File]:
    log = log_of(path)
    for _ in range(appends):
        first = len(log.entries)
        log.append([file(number) for number in range(first, first + each)])
        log.tidy()
    return log


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGE", 3)


def test_an_append_is_an_object(tmp_path: Path) -> None:
    log = fill(tmp_path, 3, each=2)
    log.append([])
    assert names(tmp_path) == ["000000000000", "000000000002", "000000000004"]
    again = log_of(tmp_path)
    assert again.entries == log.entries == [file(number) for number in range(6)]
    assert again.mark() == log.mark()
    assert log_of(tmp_path / "other").mark() == SourceMark(0, 0)


def test_a_reader_sees_what_a_writer_appends(tmp_path: Path) -> None:
    writer, reader = log_of(tmp_path), log_of(tmp_path)
    writer.append([file(0)])
    writer.append([file(1), file(2)])
    assert reader.read_new() == [file(0), file(1), file(2)]
    assert reader.read_new() == []
    assert reader.mark() == writer.mark()


@pytest.mark.usefixtures("three")
def test_neighbours_are_merged_level_by_level(tmp_path: Path) -> None:
    log = fill(tmp_path, 9 + 3 + 2, each=2)
    merged = ["000000000000-000000000017", "000000000018-000000000023", "000000000024", "000000000026"]
    assert names(tmp_path) == merged
    assert log_of(tmp_path).mark() == log.mark()
    assert sizes(tmp_path) == list(range(28))
    for number in (28, 30):  # also after a restart
        again = log_of(tmp_path)
        again.append([file(number), file(number + 1)])
        again.tidy()
    assert names(tmp_path) == [*merged[:2], "000000000024-000000000029", "000000000030"]
    assert sizes(tmp_path) == list(range(32))


@pytest.mark.usefixtures("three")
def test_who_reads_may_merge_what_another_appends(tmp_path: Path) -> None:
    writer, reader = log_of(tmp_path), log_of(tmp_path)
    for number in range(7):
        writer.append([file(number)])
    reader.read_new()
    reader.tidy()
    writer.append([file(7)])
    assert [entry.size for entry in reader.read_new()] == [7]
    assert names(tmp_path) == [
        "000000000000-000000000002",
        "000000000003-000000000005",
        "000000000006",
        "000000000007",
    ]


def test_the_number_of_objects_stays_small(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(200):
        log.append([file(number)])
        log.tidy()
    assert len(names(tmp_path)) == 3 + 200 % 64


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first, second = log_of(tmp_path), log_of(tmp_path)
    first.append([file(0)])
    with pytest.raises(StateError, match="files/000000000000 is there already"):
        second.append([file(1)])
    assert log_of(tmp_path).entries == [file(0)]


@pytest.mark.usefixtures("three")
def test_a_log_that_is_merged_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merger = log_of(tmp_path)
    for number in range(3):
        merger.append([file(number)])
    listed = LocalStorage.names

    def names_then_merge(self: LocalStorage, prefix: str) -> list[str]:
        found = listed(self, prefix)
        merger.tidy()
        return found

    monkeypatch.setattr(LocalStorage, "names", names_then_merge)
    assert sizes(tmp_path) == [0, 1, 2]


# -- damage --------------------------------------------------------------------------------------------------

OBJECTS = ("000000000000-000000000005", "000000000006", "000000000008")


def swap(path: Path, other: Path) -> None:
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "cut to the header": lambda path: path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n"),
    "of another stream": lambda path: swap(path, path.parents[2] / "t" / "files" / path.name),
    "of another kind": lambda path: path.write_bytes(seal("landed log", {})),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    mark = fill(tmp_path, 5, each=2).mark()
    other = Log(storage_of(tmp_path), "t", FILES)
    for number in range(5):
        other.append([file(90 + number), file(80 + number)])
        other.tidy()
    assert names(tmp_path) == list(OBJECTS)
    DAMAGE[damage](folder(tmp_path) / name)
    with pytest.raises(StateError, match=name[:12]):
        log_of(tmp_path).check(mark)


@pytest.mark.usefixtures("three")
def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    for name in names(tmp_path):
        path = folder(tmp_path) / name
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            with pytest.raises(StateError, match=name):
                log_of(tmp_path)
        path.write_bytes(data)


def test_objects_that_are_swapped_are_noticed(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    swap(folder(tmp_path) / "000000000000", folder(tmp_path) / "000000000002")
    with pytest.raises(StateError, match="000000000000"):
        log_of(tmp_path)


def test_a_mark_tells_of_entries_that_are_missing_or_other_ones(tmp_path: Path) -> None:
    mark = fill(tmp_path, 3).mark()
    log_of(tmp_path).check(mark)
    (folder(tmp_path) / "000000000002").unlink()
    log = log_of(tmp_path)
    with pytest.raises(StateError, match="000000000002 is missing"):
        log.check(mark)
    log.append([file(7)])
    with pytest.raises(StateError, match=r"files/ is not what was written"):
        log.check(mark)
    log.check(SourceMark(2, log_of(tmp_path)._crcs[2]))


@pytest.mark.usefixtures("three")
def test_an_overlap_that_is_no_merge_is_named(tmp_path: Path) -> None:
    log = fill(tmp_path, 3)
    part = "sources/s/files/000000000002"
    for entries in ([file(7)], [file(2), file(3)]):
        log._storage.write(part, seal("files log", {"name": part, "level": 0, "entries": entries}))
        with pytest.raises(StateError, match=r"files/000000000002 is not what was written"):
            log_of(tmp_path)


@pytest.mark.usefixtures("three")
def test_parts_that_a_merge_has_left_are_ignored_and_go(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(3):
        log.append([file(number)])
    parts = {path: path.read_bytes() for path in folder(tmp_path).iterdir()}
    log.tidy()
    for path, data in list(parts.items())[:2]:
        path.write_bytes(data)
    again = log_of(tmp_path)
    assert again.mark() == log.mark()
    assert len(names(tmp_path)) == 3
    again.tidy()
    assert names(tmp_path) == ["000000000000-000000000002"]


# -- what earlier releases wrote -----------------------------------------------------------------------------


def old_line(number: int) -> str:
    return json.dumps({"path": f"/in/{number}.parquet", "size": number, "rows": number, "groups": 0})


def write_old(path: Path, text: str, name: str = "files.log") -> Path:
    old = path / "sources" / "s" / name
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text(text)
    return old


def test_lines_of_an_earlier_release_become_the_first_object(tmp_path: Path) -> None:
    old = write_old(tmp_path, "".join(old_line(number) + "\n" for number in range(3)) + old_line(3)[:9])
    log = log_of(tmp_path)
    assert log.entries == [file(number) for number in range(3)]
    assert not old.exists()
    log.append([file(3)])
    assert names(tmp_path) == ["000000000000", "000000000003"]
    write_old(tmp_path, old_line(0) + "\n")  # a power cut has brought it back
    assert log_of(tmp_path).mark() == log.mark()
    assert not old.exists()


def test_landings_of_an_earlier_release(tmp_path: Path) -> None:
    write_old(tmp_path, '{"batch": 4, "files": [["b4/p.parquet", 10, 700, 2]]}\n', "landed.log")
    log = Log(storage_of(tmp_path), "s", LANDED)
    assert log.entries == [Landed(4, (File("b4/p.parquet", 700, 10, 2),))]
    assert log.entries[0].offsets_crc is None


@pytest.mark.parametrize("text", ["{\n", "[]\n", '{"path": 1}\n', '{"path": "a", "size": 1, "row": 2}\n'])
def test_damaged_lines_of_an_earlier_release_are_named(tmp_path: Path, text: str) -> None:
    write_old(tmp_path, text)
    with pytest.raises(StateError, match=r"files\.log"):
        log_of(tmp_path)


def test_lines_that_the_log_does_not_begin_with_are_named(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    write_old(tmp_path, old_line(0) + "\n" + old_line(9) + "\n")
    with pytest.raises(StateError, match=r"files\.log"):
        log_of(tmp_path)


# -- deaths --------------------------------------------------------------------------------------------------

APPENDS = 10
AFTER: dict[str, Callable[[FaultyDisk, int], None]] = {
    "killed": lambda disk, seed: disk.revive(),
    "cut off": lambda disk, seed: disk.power_cut(seed),
    "cut off, all unsynced lost": lambda disk, seed: disk.power_cut(),
}


class Life:
    """A log that goes on after every death, and the entries that were acknowledged."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        write_old(root, "".join(old_line(number) + "\n" for number in range(2)))
        self.root, self.disk = root, FaultyDisk(root)
        self.marks = [SourceMark(0, 0)]

    def live(self) -> None:
        with durable.use(self.disk):
            log = log_of(self.root)
            log.check(self.marks[-1])
            while True:
                assert [entry.size for entry in log.entries] == list(range(len(log.entries)))
                self.marks.append(log.mark())
                if len(log.entries) >= APPENDS:
                    return
                log.append([file(len(log.entries))])
                log.tidy()


@pytest.mark.slow
@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("after", AFTER)
def test_a_death_at_any_verb_loses_nothing_and_doubles_nothing(tmp_path: Path, after: str) -> None:
    undisturbed = Life(tmp_path / "undisturbed")
    undisturbed.live()
    for verb in range(1, undisturbed.disk.verbs + 1):
        life, seed = Life(tmp_path / str(verb)), 3 * verb + list(AFTER).index(after)
        life.disk.die_at(verb, seed)
        with pytest.raises(Death):
            life.live()
        AFTER[after](life.disk, seed)
        life.live()
        life.disk.power_cut()
        life.live()
        with durable.use(life.disk):
            log_of(life.root).tidy()
        assert not (life.root / "sources" / "s" / "files.log").exists()
        assert [name for name in names(life.root) if not name.startswith(".")] == names(undisturbed.root)
