"""Unit: an appended table is a unit: there once, whole, counted, and missed if it is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError, UsageError
from thalweg.model.stream import Stream
from thalweg.source.inventory import Inventory
from thalweg.source.memory import Memory, memory
from thalweg.source.memory_units import MemoryUnits
from thalweg.source.read import read
from thalweg.state import durable
from thalweg.state.container import container_bytes
from thalweg.state.local_storage import LocalStorage
from thalweg.state.sealed import seal
from thalweg.testing.faults import Death


def storage_of(path: Path) -> LocalStorage:
    return LocalStorage(str(path))


def table(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def bound(path: Path, *tables: pa.Table, stream: str = "s") -> Memory:
    source = memory("a bigint")
    source.attach(storage_of(path), stream)
    for appended in tables:
        source.append(appended)
    return source


def inventory_of(path: Path) -> Inventory:
    source = memory("a bigint")
    return Inventory(Stream("s", source.schema(), "a", 0, source.spec()), storage_of(path))


def values(path: Path, start: int = 0, end: int | None = None) -> list[int]:
    inventory = inventory_of(path)
    splits = inventory.splits(start, inventory.available() if end is None else end)
    return [
        value
        for split in splits
        for chunk in read(split, inventory.stream, ["a"], storage_of(path))
        for value in chunk.table["a"].to_pylist()
    ]


def folder(path: Path) -> Path:
    return path / "sources" / "s"


def unit(path: Path, number: int) -> Path:
    return folder(path) / f"{number:010d}.arrow"


def numbers(path: Path) -> list[int]:
    return sorted(int(found.stem) for found in folder(path).glob("*.arrow"))


def test_units_are_the_appends(tmp_path: Path) -> None:
    source = memory("a bigint")
    source.append(table(1, 2))
    inventory = inventory_of(tmp_path)
    assert inventory.available() == 0
    source.attach(storage_of(tmp_path), "s")
    source.append(table(3))
    assert inventory.available() == 2
    assert [split.rows for split in inventory.splits(0, 2)] == [2, 1]
    bound(tmp_path, table(4, 5, 6))
    assert inventory.available() == 3
    assert values(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_units_that_are_read_are_given_back_and_still_counted(tmp_path: Path) -> None:
    bound(tmp_path, table(0), table(1, 1), table(2, 2, 2))
    inventory_of(tmp_path).release(2)
    assert numbers(tmp_path) == [1, 2]
    restarted = inventory_of(tmp_path)
    assert restarted.available() == 3
    assert [split.rows for split in restarted.splits(2, 3)] == [3]
    restarted.release(3)
    assert numbers(tmp_path) == [2]
    bound(tmp_path, table(7, 7))
    assert restarted.available() == inventory_of(tmp_path).available() == 4
    assert values(tmp_path, 3) == [7, 7]


def test_an_empty_append_is_a_unit_without_splits_to_read(tmp_path: Path) -> None:
    bound(tmp_path, table())
    assert inventory_of(tmp_path).available() == 1
    assert inventory_of(tmp_path).splits(0, 1) == []


def test_a_large_unit_is_cut_by_rows(tmp_path: Path) -> None:
    bound(tmp_path, table(*range(200_000)))
    splits = inventory_of(tmp_path).splits(0, 1, parts=2)
    assert [(split.start, split.end, split.rows) for split in splits] == [
        (0, 100_000, 100_000),
        (100_000, 200_000, 100_000),
    ]
    assert values(tmp_path) == list(range(200_000))


# -- handles -------------------------------------------------------------------------------------------------


def test_two_handles_never_write_the_same_unit(tmp_path: Path) -> None:
    first, second = bound(tmp_path, table(1)), bound(tmp_path)
    first.append(table(2))
    with pytest.raises(StateError, match=r"0000000001\.arrow is there already"):
        second.append(table(3))
    assert values(tmp_path) == [1, 2]
    second.append(table(3))  # told once, it looks where the units end
    assert values(tmp_path) == [1, 2, 3]


def test_after_the_session_has_stopped_an_append_is_refused(tmp_path: Path) -> None:
    told: list[str] = []
    source = memory("a bigint")
    source.detach()
    source.append(table(1))
    source.attach(storage_of(tmp_path), "s", lambda: told.append("s"))
    source.append(table(2))
    source.detach()
    with pytest.raises(UsageError, match="the session that reads stream s has stopped"):
        source.append(table(3))
    source.attach(storage_of(tmp_path), "s")
    source.append(table(4))
    assert values(tmp_path) == [1, 2, 4]
    assert told == ["s"]


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_refused_append_has_left_nothing_when_it_is_tried_again(tmp_path: Path, code: int, times: int) -> None:
    disk, unsure = FaultyDisk(tmp_path), 0
    with durable.use(disk):
        source = bound(tmp_path, table(0))
        before = disk.verbs
        source.append(table(1))
        verbs = disk.verbs - before
        for verb in range(1, verbs + 1):
            disk.fail_at(disk.verbs + verb, code, times)
            appended = False
            while not appended:
                try:
                    source.append(table(verb + 1))
                    appended = True
                except OSError:
                    disk.heal()  # to look takes a sync, where a name was made and not synced
                    appended = values(tmp_path)[-1] == verb + 1  # it was counted, so it stays
                    unsure += appended
            disk.heal()
        source.append(table(verbs + 2))
        disk.power_cut()
    assert values(tmp_path) == list(range(verbs + 3))
    assert unsure == (1 if times == 3 and code != errno.ENOSPC else 0)


# -- damage --------------------------------------------------------------------------------------------------


def swap(path: Path, other: Path) -> None:
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "of another stream": lambda path: swap(path, path.parents[1] / "t" / path.name),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_a_unit_is_named(tmp_path: Path, number: int, damage: str) -> None:
    for stream in "st":
        bound(tmp_path, table(1), table(2), table(3), stream=stream)
    DAMAGE[damage](unit(tmp_path, number))
    with pytest.raises(StateError, match=unit(tmp_path, number).name):
        values(tmp_path)


def test_units_that_are_swapped_are_named(tmp_path: Path) -> None:
    bound(tmp_path, table(1), table(2))
    swap(unit(tmp_path, 0), unit(tmp_path, 1))
    with pytest.raises(StateError, match=unit(tmp_path, 0).name):
        values(tmp_path)


@pytest.mark.slow
def test_no_flipped_bit_changes_a_value(tmp_path: Path) -> None:
    """Those in the padding change nothing."""
    bound(tmp_path, table(1, 2, 3))
    path = unit(tmp_path, 0)
    data = path.read_bytes()
    noticed = 0
    for at in range(len(data)):
        other = path.with_name("other")  # another file: this process knows the one it has read
        other.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        other.replace(path)
        found: object
        try:
            found = values(tmp_path)
        except StateError as error:
            found, noticed = path.name in str(error), noticed + 1
        assert found in (True, [1, 2, 3])
    assert noticed > len(data) * 0.8


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_the_count_is_named(tmp_path: Path, damage: str) -> None:
    for stream in "st":
        bound(tmp_path, table(1), table(2), stream=stream)
    DAMAGE[damage](folder(tmp_path) / "units")
    for look in (inventory_of, bound):
        with pytest.raises(StateError, match="s/units"):
            look(tmp_path)


def test_a_lost_newest_unit_is_noticed_by_whoever_opens(tmp_path: Path) -> None:
    bound(tmp_path, table(1), table(2))
    unit(tmp_path, 1).unlink()
    for look in (inventory_of, bound):
        with pytest.raises(StateError, match=r"0000000001\.arrow is missing"):
            look(tmp_path)


def test_a_gap_behind_the_count_is_named(tmp_path: Path) -> None:
    bound(tmp_path, table(1))
    name = "sources/s/0000000002.arrow"
    storage_of(tmp_path).create(name, container_bytes(name, table(3)))
    with pytest.raises(StateError, match=r"0000000001\.arrow is missing"):
        bound(tmp_path)


def test_a_unit_that_was_not_counted_is_taken_up_by_the_next_handle(tmp_path: Path) -> None:
    bound(tmp_path, table(1), table(2))
    storage_of(tmp_path).write("sources/s/units", seal("count of units", {"stream": "s", "units": 1}))
    assert values(tmp_path) == [1]
    bound(tmp_path, table(3))
    assert values(tmp_path) == [1, 2, 3]


# -- what earlier releases wrote -----------------------------------------------------------------------------


def write_old(path: Path, number: int, rows: pa.Table) -> None:
    folder(path).mkdir(parents=True, exist_ok=True)
    with pa_ipc.new_file(unit(path, number), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)


def test_units_of_an_earlier_release_are_read_and_counted(tmp_path: Path) -> None:
    for number in (3, 4):  # those before were given back
        write_old(tmp_path, number, table(number, number + 10, number + 20))
    assert inventory_of(tmp_path).available() == 5
    assert values(tmp_path, 3) == [3, 13, 23, 4, 14, 24]
    bound(tmp_path, table(5))
    assert values(tmp_path, 3) == [3, 13, 23, 4, 14, 24, 5]
    assert MemoryUnits(storage_of(tmp_path), "s").count() == 6


@pytest.mark.parametrize("damage", ["missing", "empty", "cut short", "half", "zeros"])
def test_damage_of_an_old_unit_is_named(tmp_path: Path, damage: str) -> None:
    for number in range(3):
        write_old(tmp_path, number, table(number))
    bound(tmp_path)
    DAMAGE[damage](unit(tmp_path, 1))
    with pytest.raises(StateError, match=unit(tmp_path, 1).name):
        values(tmp_path)


# -- deaths --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True])
def test_a_death_at_any_verb_loses_nothing_acknowledged(tmp_path: Path, cut: bool) -> None:
    class Life:
        def __init__(self, root: Path) -> None:
            root.mkdir()
            write_old(root, 0, table(0))
            self.root, self.disk, self.acknowledged = root, FaultyDisk(root), 1

        def live(self) -> None:
            with durable.use(self.disk):
                source, found = bound(self.root), values(self.root)
                assert found == list(range(len(found)))
                assert len(found) >= self.acknowledged
                for number in range(len(found), 5):
                    source.append(table(number))
                    self.acknowledged = number + 1
                assert values(self.root) == list(range(5))

    undisturbed = Life(tmp_path / "undisturbed")
    undisturbed.live()
    for verb in range(1, undisturbed.disk.verbs + 1):
        life = Life(tmp_path / str(verb))
        life.disk.die_at(verb, seed=verb)
        with pytest.raises(Death):
            life.live()
        life.disk.power_cut(verb) if cut else life.disk.revive()
        life.live()
        life.disk.power_cut()
        life.live()
