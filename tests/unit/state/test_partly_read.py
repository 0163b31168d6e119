"""Parts of sections: what is needed is read and checked, and nothing else."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.state import blocks, container, object_storage
from thalweg.state.blocks import BLOCK, Blocks, block_sums, check_blocks
from thalweg.state.container import ContainerWriter, open_section, read_footer, read_section
from thalweg.state.local_storage import LocalStorage
from thalweg.state.object_cache import worker_cache
from thalweg.state.object_storage import ObjectStorage
from thalweg.state.places import open_storage
from thalweg.state.storage import Storage
from thalweg.testing.memory_storage import MemoryStorage

NAME = "buckets/0"
SMALL = 64


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocks, container):
        monkeypatch.setattr(module, "BLOCK", SMALL)


@pytest.fixture
def parts() -> Iterator[MemoryStorage]:
    storage = MemoryStorage(f"memory://{secrets.token_hex(6)}")
    storage.world.in_parts = True
    yield storage
    storage.forget()


def rows(count: int) -> pa.Table:
    every = range(count)
    return pa.table(
        {
            "n": pa.array(every, pa.int64()),
            "small": pa.array([i % 100 for i in every], pa.int8()),
            "seldom": pa.array([None if i % 3 else i for i in every], pa.int32()),
            "flag": pa.array([i % 2 == 0 for i in every]),
            "text": pa.array([None if i % 7 == 0 else "x" * (i % 11) for i in every]),
            "bytes": pa.array([bytes([i % 256]) * (i % 5) for i in every], pa.large_binary()),
            "price": pa.array([Decimal(i) / 4 for i in every], pa.decimal128(12, 2)),
            "bits": pa.array([bytes([i % 256, 1]) for i in every], pa.binary(2)),
            "nested": pa.array([{"a": i, "b": [i] * (i % 3)} for i in every]),
        }
    )


def write(storage: Storage, *tables: pa.Table) -> tuple[Section, ...]:
    with ContainerWriter(storage, NAME) as writer:
        for number, table in enumerate(tables):
            writer.add(f"t{number}", table)
        return writer.close()


def take(storage: Storage, section: Section, columns: list[str], *wanted: tuple[int, int]) -> pa.Table:
    stored = open_section(storage, section)
    stored.need(columns, wanted)
    return pa.concat_tables([stored.table.select(columns).slice(low, high - low) for low, high in wanted])


@given(st.binary(max_size=300))
@settings(max_examples=examples(100))
def test_the_checksum_of_the_whole_follows_from_those_of_blocks(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 16)
        crc, packed = check_blocks(data)
        assert crc == zlib.crc32(data)
        assert len(packed) == (0 if len(data) <= 16 else 4 * -(-len(data) // 16))
        found = Blocks(block_sums(packed), len(data))
        assert all(found.is_right(data, number) for number in range(len(packed) // 4))


def test_a_long_section_has_the_checksum_it_always_had(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (section,) = write(storage, pa.table({"n": range(50_000)}))
    assert section.length > 5 * BLOCK
    assert section.crc == zlib.crc32(storage.read(NAME, section.offset, section.length))


@pytest.mark.parametrize("column", rows(1).column_names)
@pytest.mark.parametrize("wanted", [[(0, 1)], [(199, 200)], [(3, 11), (64, 65), (90, 140)], [(0, 200)], [(5, 5)]])
def test_rows_of_a_column_are_what_was_written(
    small_blocks: None, parts: MemoryStorage, column: str, wanted: list[tuple[int, int]]
) -> None:
    _, section = write(parts, rows(10), rows(200))
    expected = pa.concat_tables([rows(200).select([column]).slice(low, high - low) for low, high in wanted])
    assert take(parts, section, [column], *wanted).equals(expected)


def test_a_part_costs_its_own_bytes(small_blocks: None, parts: MemoryStorage) -> None:
    _, section = write(parts, rows(1000), rows(1000))
    open_section(parts, section)
    opened = parts.world.fetched[NAME]
    take(parts, section, ["n"], (500, 600))
    assert 800 <= parts.world.fetched[NAME] - opened <= 800 + 2 * SMALL
    read = parts.world.fetched[NAME]
    take(parts, section, ["n"], (510, 600))
    assert parts.world.fetched[NAME] == read, "what is there is not fetched again"
    take(parts, section, ["text"], (500, 600))
    assert 0 < parts.world.fetched[NAME] - read < 100 * (5 + 6) + 6 * SMALL


@pytest.mark.parametrize("count", [0, 1, 5])
def test_short_sections_and_empty_ones_are_read_whole(parts: MemoryStorage, count: int) -> None:
    (section,) = write(parts, rows(count))
    stored = open_section(parts, section)
    stored.need(stored.table.column_names, [(0, count)])
    assert stored.table.equals(rows(count))


def test_what_is_needed_is_checked_and_nothing_else(small_blocks: None, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    (section,) = write(storage, pa.table({"n": range(1000)}))
    place = Path(storage.locate(NAME))
    data = bytearray(place.read_bytes())
    data[section.offset + section.length - 1000] ^= 1  # in the last rows
    place.write_bytes(data)
    assert take(storage, section, ["n"], (0, 100)).column(0).to_pylist() == list(range(100))
    with pytest.raises(StateError, match="buckets/0") as raised:
        take(storage, section, ["n"], (0, 1000))
    assert "block" in str(raised.value)
    with pytest.raises(StateError, match="buckets/0"):
        read_section(storage, section)


def test_another_container_under_the_name_is_found(small_blocks: None, parts: MemoryStorage) -> None:
    (section,) = write(parts, pa.table({"n": range(1000)}))
    write(parts, pa.table({"n": range(1, 1001)}))
    with pytest.raises(StateError, match="another one"):
        take(parts, section, ["n"], (0, 10))


@pytest.mark.parametrize("offset", [-1, -13, -30, -200])
def test_a_damaged_footer_is_found(small_blocks: None, parts: MemoryStorage, offset: int) -> None:
    (section,) = write(parts, pa.table({"n": range(1000)}))
    data = bytearray(parts.read(NAME))
    data[offset] ^= 1
    parts.write(NAME, bytes(data))
    with pytest.raises(StateError, match="buckets/0"):
        take(parts, section, ["n"], (0, 10))


def test_sections_without_checksums_of_blocks_are_read_whole(
    small_blocks: None, parts: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of format 5 before."""
    monkeypatch.setattr(container, "check_blocks", lambda data: (zlib.crc32(data), b""))
    (section,) = write(parts, pa.table({"n": range(1000)}))
    assert b"blocks" not in parts.read(NAME)
    assert take(parts, section, ["n"], (7, 9)).column(0).to_pylist() == [7, 8]
    assert parts.world.fetched[NAME] > section.length


def test_a_footer_of_format_5_is_read(parts: MemoryStorage) -> None:
    old: dict[str, Any] = {"file": NAME, "name": "t", "offset": 64, "length": 8, "rows": 1, "crc": 3, "meta": {}}
    footer = msgspec.json.encode([old])
    tail = container._TAIL.pack(len(footer), zlib.crc32(footer), 0, container.MAGIC)
    parts.write(NAME, container.MAGIC.ljust(72, b"\0") + footer + tail)
    assert read_footer(parts, NAME) == (Section(NAME, "t", 64, 8, 1, 3),)


# -- an object store


@pytest.fixture
def counted(new_place: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> tuple[ObjectStorage, list[int]]:
    """A store whose objects this host has not seen, and the bytes of every part that was fetched."""
    storage = open_storage(new_place())
    assert isinstance(storage, ObjectStorage)
    fetched: list[int] = []
    read = ObjectStorage._read_spans

    def read_spans(self: ObjectStorage, name: str, spans: Any) -> Any:
        fetched.extend(high - low for low, high in spans)
        return read(self, name, spans)

    monkeypatch.setattr(ObjectStorage, "_read_spans", read_spans)
    monkeypatch.setattr(ObjectStorage, "_open_cached", lambda self, name: pytest.fail("it was fetched whole"))
    return storage, fetched


def as_another_host(storage: ObjectStorage) -> None:
    worker_cache().drop(storage.locate(NAME))
    as_another_process(storage)


def as_another_process(storage: ObjectStorage) -> None:
    container._containers.forget(storage.locate(NAME))


@pytest.mark.slow
def test_an_object_store_sends_the_parts_that_are_needed(counted: tuple[ObjectStorage, list[int]]) -> None:
    storage, fetched = counted
    table = pa.table({"n": range(500_000), "m": range(500_000)})
    _, section = write(storage, table, table)
    as_another_host(storage)
    assert take(storage, section, ["m"], (100_000, 150_000)).equals(table.select(["m"]).slice(100_000, 50_000))
    assert 400_000 < sum(fetched) < 400_000 + 6 * BLOCK < section.length / 4
    # What one process has fetched is there for the others of the host, but for the end of the object.
    as_another_process(storage)
    fetched.clear()
    assert take(storage, section, ["m"], (100_000, 150_000)).equals(table.select(["m"]).slice(100_000, 50_000))
    assert sum(fetched) < 3 * BLOCK
    # The copy is never the truth.
    for path in Path(worker_cache().directory).iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    as_another_process(storage)
    assert take(storage, section, ["m"], (100_000, 150_000)).equals(table.select(["m"]).slice(100_000, 50_000))


@pytest.mark.slow
def test_an_object_that_is_gone_is_missing(counted: tuple[ObjectStorage, list[int]]) -> None:
    storage, _ = counted
    (section,) = write(storage, pa.table({"n": range(500_000)}))
    as_another_host(storage)
    stored = open_section(storage, section)
    object_storage.ObjectStorage.delete(storage, NAME)
    with pytest.raises(StateError, match="missing"):
        stored.need(["n"], [(200_000, 300_000)])
