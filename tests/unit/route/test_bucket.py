"""Property tests: ordering by key group against a plain sort, packing against what went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.model.address import Address, NodeTuples, Partials, QueryRows, WholeRows
from thalweg.route.bucket import (
    decode_offsets,
    encode_offsets,
    order_by_group,
    pack,
    slice_groups,
    unpack,
)

ROWS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=5)), max_size=60)


def chunked(table: pa.Table, cut: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def make_table(rows: list[tuple[int, str | None]]) -> pa.Table:
    schema = pa.schema([("row", pa.int32()), ("text", pa.string())])
    return pa.table([range(len(rows)), [text for _, text in rows]], schema=schema)


@settings(max_examples=examples(100))
@given(ROWS, st.integers(0, 60), st.lists(st.integers(0, 9), unique=True).map(sorted))
def test_ordering_is_a_stable_sort_and_slices_are_its_groups(
    rows: list[tuple[int, str | None]], cut: int, wanted: list[int]
) -> None:
    groups = np.array([group for group, _ in rows], dtype=np.uint16)
    ordered, offsets = order_by_group(chunked(make_table(rows), cut), groups, 10)
    ordered.validate(full=True)
    expected = sorted(range(len(rows)), key=lambda row: rows[row][0])
    assert ordered["row"].to_pylist() == expected
    assert ordered["text"].to_pylist() == [rows[row][1] for row in expected]
    assert offsets.dtype == np.int32
    assert offsets.tolist() == [sum(g < limit for g, _ in rows) for limit in range(11)]
    assert decode_offsets(encode_offsets(offsets)).tolist() == offsets.tolist()

    part = slice_groups(ordered, offsets, [(group, group + 1) for group in wanted])
    assert part.schema == ordered.schema
    assert part["row"].to_pylist() == [row for row in expected if rows[row][0] in wanted]


def addresses(table: pa.Table) -> set[int]:
    return {chunk.buffers()[1].address for chunk in table["row"].chunks}


def test_slices_and_rows_already_ordered_are_not_copied() -> None:
    table = make_table([(group, "x") for group in (0, 0, 1, 3, 3)])
    ordered, offsets = order_by_group(table, np.array([0, 0, 1, 3, 3], dtype=np.uint16), 4)
    assert addresses(ordered) == addresses(table)
    part = slice_groups(ordered, offsets, [(0, 1), (2, 4)])
    assert part["row"].to_pylist() == [0, 1, 3, 4]
    assert addresses(part) == addresses(table)
    assert slice_groups(ordered, offsets, [(0, 2), (2, 4)])["row"].num_chunks == 1


def test_a_group_out_of_range_is_refused() -> None:
    table = make_table([(0, "x")])
    with pytest.raises(ValueError, match="outside"):
        order_by_group(table, np.array([4], dtype=np.uint16), 4)
    with pytest.raises(ValueError, match="2 key groups given for 1 rows"):
        order_by_group(table, np.array([0, 0], dtype=np.uint16), 4)


SCHEMAS = [
    pa.schema([("n", pa.int64()), ("s", pa.string())]),
    pa.schema([("s", pa.large_binary()), ("b", pa.bool_()), ("d", pa.decimal128(10, 2))]),
    pa.schema([("e", pa.dictionary(pa.int32(), pa.string()))]),
    pa.schema([]),
]


@st.composite
def tables(draw: Any) -> pa.Table:
    which = draw(st.integers(0, len(SCHEMAS) - 1))
    n = draw(st.integers(0, 12))
    values: dict[str, Any] = {
        "n": [None if i % 3 else i for i in range(n)],
        "s": [b"x" * i for i in range(n)] if which == 1 else ["é" * i for i in range(n)],
        "b": [i % 2 == 0 for i in range(n)],
        "d": [None] * n,
        "e": ["ab"[i % 2] for i in range(n)],
    }
    schema = SCHEMAS[which]
    table = pa.table([pa.array(values[f.name], f.type) for f in schema], schema=schema)
    start = draw(st.integers(0, n))
    return chunked(table.slice(start), draw(st.integers(0, n)))


NAMES = st.text(max_size=8)
ADDRESSES = st.one_of(
    st.builds(Partials, NAMES),
    st.builds(WholeRows, NAMES),
    st.builds(QueryRows, NAMES),
    st.builds(NodeTuples, NAMES, st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4).map(tuple)),
)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(ADDRESSES, tables()), max_size=8), st.integers(0, 16))
def test_packed_tables_come_back(pairs: list[tuple[Address, pa.Table]], shift: int) -> None:
    cell = pack(pairs)
    moved = pa.py_buffer(b"\0" * shift + cell).slice(shift)
    found = unpack(moved)
    assert [address for address, _ in found] == [address for address, _ in pairs]
    for (_, expected), (_, table) in zip(pairs, found, strict=True):
        table.validate(full=True)
        buffers = [b for column in table.columns for chunk in column.chunks for b in chunk.buffers() if b]
        assert all(buffer.address % 8 == 0 for buffer in buffers)
        assert table.schema == expected.schema
        assert table.to_pylist() == expected.to_pylist()


def test_unpacked_tables_are_views_of_an_aligned_cell() -> None:
    cell = pack([(Partials("a"), make_table([(0, "x")] * 100)), (WholeRows("b"), make_table([(0, "y")] * 5))])
    buffer = pa.allocate_buffer(len(cell))
    memoryview(buffer).cast("B")[:] = cell
    for _, table in unpack(buffer):
        (address,) = addresses(table)
        assert buffer.address <= address < buffer.address + buffer.size
        assert address % 8 == 0


def test_a_schema_is_packed_once() -> None:
    small = make_table([(0, "x")])
    one, many = len(pack([(Partials("a"), small)])), len(pack([(Partials("a"), small)] * 100))
    assert many < 60 * one


def test_other_bytes_are_refused() -> None:
    for junk in (b"", b"1234", b"x" * 64):
        with pytest.raises(ValueError, match="not a cell"):
            unpack(junk)


def test_tables_that_differ_in_what_their_fields_say_keep_it() -> None:
    """For Arrow their schemas are equal: one grouping's lanes were taken for another's."""
    tables = []
    for name in ("one", "two"):
        field = pa.field("x", pa.list_(pa.int64(), 2), metadata={"lanes": name})
        tables.append(pa.table([pa.array([[1, 2]], field.type)], schema=pa.schema([field])))
    found = unpack(pack([(Partials(str(i)), table) for i, table in enumerate(tables)]))
    assert [table.schema.field("x").metadata for _, table in found] == [{b"lanes": b"one"}, {b"lanes": b"two"}]
