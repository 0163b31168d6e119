"""Containers: property test of the round trip, and every kind of damage is found and named."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.profiles import examples

from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.state import container
from thalweg.state.container import (
    ContainerWriter,
    container_bytes,
    delete_container,
    open_section,
    read_footer,
    read_section,
)
from thalweg.state.local_storage import LocalStorage

VALUES = st.lists(
    st.tuples(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), st.none() | st.text(max_size=9)),
    max_size=30,
)


def make_table(rows: list[tuple[Any, Any]]) -> pa.Table:
    columns = [pa.array([n for n, _ in rows], pa.int64()), pa.array([s for _, s in rows], pa.string())]
    return pa.table(columns, names=["n", "s"])


def write(storage: LocalStorage, name: str, *tables: pa.Table, **options: Any) -> tuple[Section, ...]:
    with ContainerWriter(storage, name, **options) as writer:
        for number, table in enumerate(tables):
            writer.add(f"t{number}", table)
        return writer.close()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.text(max_size=6), VALUES), max_size=5), st.sampled_from([None, "lz4"]))
def test_sections_come_back(parts: list[tuple[str, list[tuple[Any, Any]]]], compression: str | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = LocalStorage(directory)
        with ContainerWriter(storage, "deep/c.arrow", compression=compression) as writer:
            for name, rows in parts:
                whole = make_table(rows)
                writer.add(name, pa.concat_tables([whole.slice(0, 2), whole.slice(2)]))
            sections = writer.close()
        assert read_footer(storage, "deep/c.arrow") == sections
        assert tuple(msgspec.json.decode(msgspec.json.encode(s), type=Section) for s in sections) == sections
        for section, (name, rows) in zip(sections, parts, strict=True):
            table = read_section(storage, section)
            assert table.equals(make_table(rows))
            assert section.offset % 64 == 0
            assert (section.file, section.name, section.rows) == ("deep/c.arrow", name, len(rows))


@settings(max_examples=examples(30))
@given(st.text(max_size=6), VALUES)
def test_a_container_as_bytes_is_what_a_writer_writes(name: str, rows: list[tuple[Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = LocalStorage(directory)
        with ContainerWriter(storage, "c.arrow") as writer:
            section = writer.add(name, make_table(rows))
            writer.close()
        assert container_bytes(name, make_table(rows)) == storage.read("c.arrow")
        assert read_section(storage, section).equals(make_table(rows))


def test_tables_are_views_of_the_file_and_outlive_it(storage: LocalStorage, tmp_path: Path) -> None:
    rows = [(n, "x") for n in range(1000)]
    (section,) = write(storage, "c.arrow", make_table(rows))
    before = pa.total_allocated_bytes()
    table = read_section(storage, section)
    assert pa.total_allocated_bytes() - before < 1000
    assert table["n"].chunk(0).buffers()[1].address % 8 == 0
    (tmp_path / "c.arrow").unlink()
    assert table.equals(make_table(rows))


def test_nothing_appears_before_close(storage: LocalStorage, tmp_path: Path) -> None:
    with ContainerWriter(storage, "c.arrow") as writer:
        writer.add("t", make_table([]))
        assert not (tmp_path / "c.arrow").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(storage: LocalStorage, tmp_path: Path) -> None:
    (section,) = write(storage, "c.arrow", make_table([(1, "x")]))
    read_section(storage, section)
    (tmp_path / "c.arrow").unlink()
    with pytest.raises(StateError, match=r"c\.arrow is missing") as raised:
        read_section(storage, section)
    assert raised.value.hint


def test_every_changed_byte_of_a_section_is_found(storage: LocalStorage, tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    first, second = write(storage, "c.arrow", make_table([(1, "x")]), make_table([(2, "y")]))
    good = path.read_bytes()
    assert read_section(storage, second).num_rows == 1
    for at in range(second.offset, second.offset + second.length, 7):
        path.unlink()
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        with pytest.raises(StateError, match=f"checksum {second.crc:08x}") as raised:
            read_section(storage, second)
        assert "c.arrow" in str(raised.value)
        assert read_section(storage, first).num_rows == 1


def test_a_file_cut_anywhere_is_found(storage: LocalStorage, tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    (section,) = write(storage, "c.arrow", make_table([(1, "x")]))
    good = path.read_bytes()
    for length in (0, 5, 40, section.offset + 3, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(StateError, match="corrupt"):
            read_section(storage, section)
        with pytest.raises(StateError, match="corrupt"):
            read_footer(storage, "c.arrow")
    path.write_bytes(good)
    with pytest.raises(StateError, match="up to byte"):
        read_section(storage, replace(section, length=len(good)))


def test_a_changed_footer_is_found(storage: LocalStorage, tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    write(storage, "c.arrow", make_table([(1, "x")]))
    good = bytearray(path.read_bytes())
    good[-40] ^= 1
    path.write_bytes(good)
    with pytest.raises(StateError, match="footer"):
        read_footer(storage, "c.arrow")


def test_a_checksum_is_computed_once_per_process(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    (section,) = write(storage, "c.arrow", make_table([(1, "x")]))
    computed: list[int] = []
    crc32 = container.zlib.crc32
    monkeypatch.setattr(container.zlib, "crc32", lambda data: (computed.append(1), crc32(data))[1])
    for _ in range(3):
        read_section(storage, section)
    assert len(computed) == 1


def test_open_containers_are_bounded(storage: LocalStorage) -> None:
    containers = container._Containers(kept=2)
    for number in range(4):
        write(storage, f"{number}.arrow", make_table([(number, "x")]))
        containers.get(storage, f"{number}.arrow")
    assert [Path(place).name for place in containers._open] == ["2.arrow", "3.arrow"]


def test_one_that_is_deleted_is_let_go(storage: LocalStorage) -> None:
    (section,) = write(storage, "c.arrow", make_table([(1, "x")]))
    read_section(storage, section)
    assert storage.locate("c.arrow") in container._containers._open
    delete_container(storage, "c.arrow")
    assert storage.locate("c.arrow") not in container._containers._open
    assert storage.names("") == []
    delete_container(storage, "c.arrow")


def test_another_one_under_the_same_name_is_read_as_what_it_is(storage: LocalStorage) -> None:
    (old,) = write(storage, "c.arrow", make_table([(1, "x")]))
    table = read_section(storage, old)
    (new,) = write(storage, "c.arrow", make_table([(2, "y")]))
    assert read_section(storage, new).equals(make_table([(2, "y")]))
    with pytest.raises(StateError, match="checksum"):
        read_section(storage, old)
    assert table.equals(make_table([(1, "x")]))


def test_what_is_streamed_has_a_checksum_too(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_SMALL", 0)
    with ContainerWriter(storage, "c.arrow") as writer:
        writer.add("before", make_table([(0, "y")]))
        section = writer.stream("t", make_table([(1, "x")]))
        _, streamed = writer.close(durable=False)
    assert streamed == section
    body = storage.read("c.arrow", section.offset, section.length)
    assert section.crc == zlib.crc32(body)
    assert read_section(storage, section).equals(make_table([(1, "x")]))
    assert read_footer(storage, "c.arrow")[1] == section


@given(VALUES, st.integers(0, 30), st.integers(0, 30), st.integers(1, 3))
@settings(max_examples=examples(20), deadline=None)
def test_a_small_table_is_the_stream_that_a_stream_writer_writes(
    rows: list[tuple[Any, Any]], first: int, count: int, chunks: int
) -> None:
    """Also a slice of one, which takes no more of it along, and one in pieces."""
    table = pa.concat_tables([make_table(rows).append_column("b", pa.array([n is None for n, _ in rows]))] * chunks)
    table = table.slice(first, count)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    with tempfile.TemporaryDirectory() as name, ContainerWriter(LocalStorage(name), "c") as written:
        section = written.stream("t", table)
        written.close()
        assert (Path(name) / "c").read_bytes()[section.offset :][: section.length] == sink.getvalue().to_pybytes()


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_table_that_is_streamed_under_several_names_lies_there_once(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(container, "_SMALL", small)
    same, other = make_table([(1, "x" * (1 << 17)), (None, None)]), make_table([(2, "y")])
    with ContainerWriter(storage, "c") as writer:
        for name, table in (("a", same), ("b", same), ("c", other), ("d", same)):
            writer.stream(name, table)
        writer.add("e", other)
        writer.stream("f", same)
        sections = writer.close()
    assert read_footer(storage, "c") == sections
    assert [read_section(storage, section).equals(same) for section in sections] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    for section in sections:
        part = open_section(storage, section)
        part.need(["s"], [(0, 1)])
        assert part.table.column("s")[0].as_py() == ("y" if section.name in "ce" else "x" * (1 << 17))
    places = [section.offset for section in sections]
    assert places[0] == places[1] < places[2] < places[3] == places[5] < places[4]
