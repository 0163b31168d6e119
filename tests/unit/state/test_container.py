"""Containers: property test of the round trip, and every kind of damage is found and named."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.state import container
from thalweg.state.container import ContainerWriter, read_footer, read_section

VALUES = st.lists(
    st.tuples(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), st.none() | st.text(max_size=9)),
    max_size=30,
)
META = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3)


def make_table(rows: list[tuple[Any, Any]]) -> pa.Table:
    columns = [pa.array([n for n, _ in rows], pa.int64()), pa.array([s for _, s in rows], pa.string())]
    return pa.table(columns, names=["n", "s"])


def write(path: Path, *tables: pa.Table, **options: Any) -> tuple[Section, ...]:
    with ContainerWriter(path, **options) as writer:
        for number, table in enumerate(tables):
            writer.add(f"t{number}", table, {"number": number})
        return writer.close()


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.text(max_size=6), VALUES, META), max_size=5), st.sampled_from([None, "lz4"]))
def test_sections_come_back(
    parts: list[tuple[str, list[tuple[Any, Any]], dict[str, Any]]], compression: str | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "deep" / "c.arrow"
        path.parent.mkdir()
        with ContainerWriter(path, root=directory, compression=compression) as writer:
            for name, rows, meta in parts:
                whole = make_table(rows)
                writer.add(name, pa.concat_tables([whole.slice(0, 2), whole.slice(2)]), meta)
            sections = writer.close()
        assert read_footer(path) == sections
        assert tuple(Section.from_json(s.to_json()) for s in sections) == sections
        for section, (name, rows, meta) in zip(sections, parts, strict=True):
            table = read_section(directory, section)
            assert table.equals(make_table(rows))
            assert section.offset % 64 == 0
            assert (section.file, section.name, section.rows) == ("deep/c.arrow", name, len(rows))
            assert section.meta == meta


def test_tables_are_views_of_the_file_and_outlive_it(tmp_path: Path) -> None:
    rows = [(n, "x") for n in range(1000)]
    (section,) = write(tmp_path / "c.arrow", make_table(rows))
    before = pa.total_allocated_bytes()
    table = read_section(tmp_path, section)
    assert pa.total_allocated_bytes() - before < 1000
    assert table["n"].chunk(0).buffers()[1].address % 8 == 0
    (tmp_path / "c.arrow").unlink()
    assert table.equals(make_table(rows))


def test_nothing_appears_before_close(tmp_path: Path) -> None:
    with ContainerWriter(tmp_path / "c.arrow") as writer:
        writer.add("t", make_table([]))
        assert not (tmp_path / "c.arrow").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (section,) = write(tmp_path / "c.arrow", make_table([(1, "x")]))
    read_section(tmp_path, section)
    (tmp_path / "c.arrow").unlink()
    with pytest.raises(StateError, match=r"c\.arrow is missing") as raised:
        read_section(tmp_path, section)
    assert raised.value.hint


def test_every_changed_byte_of_a_section_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    first, second = write(path, make_table([(1, "x")]), make_table([(2, "y")]))
    good = path.read_bytes()
    assert read_section(tmp_path, second).num_rows == 1
    for at in range(second.offset, second.offset + second.length, 7):
        path.unlink()
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        with pytest.raises(StateError, match=f"checksum {second.crc:08x}") as raised:
            read_section(tmp_path, second)
        assert "c.arrow" in str(raised.value)
        assert read_section(tmp_path, first).num_rows == 1


def test_a_file_cut_anywhere_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    (section,) = write(path, make_table([(1, "x")]))
    good = path.read_bytes()
    for length in (0, 5, 40, section.offset + 3, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(StateError, match="corrupt"):
            read_section(tmp_path, section)
        with pytest.raises(StateError, match="corrupt"):
            read_footer(path)
    path.write_bytes(good)
    with pytest.raises(StateError, match="up to byte"):
        read_section(tmp_path, replace(section, length=len(good)))


def test_a_changed_footer_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    write(path, make_table([(1, "x")]))
    good = bytearray(path.read_bytes())
    good[-40] ^= 1
    path.write_bytes(good)
    with pytest.raises(StateError, match="footer"):
        read_footer(path)


def test_a_checksum_is_computed_once_per_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (section,) = write(tmp_path / "c.arrow", make_table([(1, "x")]))
    computed: list[int] = []
    crc32 = container.zlib.crc32
    monkeypatch.setattr(container.zlib, "crc32", lambda data: (computed.append(1), crc32(data))[1])
    for _ in range(3):
        read_section(tmp_path, section)
    assert len(computed) == 1


def test_open_maps_are_bounded(tmp_path: Path) -> None:
    maps = container._Maps(kept=2)
    for number in range(4):
        write(tmp_path / f"{number}.arrow", make_table([(number, "x")]))
        maps.get(tmp_path / f"{number}.arrow")
    assert [path.name for path in maps._maps] == ["2.arrow", "3.arrow"]
