"""Rows ordered by key group, and several tables in one cell of Spark's shuffle.

A table ordered by key group with the offset of every group can be cut for any slot, under any routing table,
without touching a row.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view, kernel
from thalweg.model.address import Address
from thalweg.model.message import decoder, encode
from thalweg.route.lists import take_lists

Offsets = npt.NDArray[np.int32]


@kernel
def _count(groups: Any, offsets: Any) -> bool:
    """Fill `offsets` with where each group starts; say whether the rows are in order already."""
    ordered = True
    previous = groups[0]
    for group in groups:
        offsets[np.int64(group) + 1] += 1
        ordered &= previous <= group
        previous = group
    for g in range(1, offsets.size):
        offsets[g] += offsets[g - 1]
    return ordered


@kernel
def _place(groups: Any, offsets: Any, order: Any) -> None:
    """Counting sort: rows of a group keep their order, so a bucket is a function of its input alone."""
    free = offsets.copy()
    for row in range(groups.size):
        group = np.int64(groups[row])
        order[free[group]] = row
        free[group] += 1


def order_by_group(table: pa.Table, groups: npt.NDArray[Any], n_groups: int) -> tuple[pa.Table, Offsets]:
    """The rows ordered by key group, and `n_groups + 1` offsets: group g is rows o[g] to o[g+1]."""
    offsets = np.zeros(n_groups + 1, dtype=np.int32)
    if table.num_rows == 0:
        return table, offsets
    if table.num_rows != len(groups):
        raise ValueError(f"{len(groups)} key groups given for {table.num_rows} rows")
    if table.num_rows > np.iinfo(np.int32).max:
        raise ValueError(f"{table.num_rows} rows are more than one bucket can hold")
    if int(groups.max()) >= n_groups:
        raise ValueError(f"key group {groups.max()} is outside 0 to {n_groups - 1}")
    groups = frozen_view(groups.astype(np.uint16, copy=False))
    if _count(groups, offsets):
        return table, offsets
    order = np.empty(table.num_rows, dtype=np.uint32)
    _place(groups, offsets, order)
    return _take(table, order), offsets


def _take(table: pa.Table, order: npt.NDArray[np.uint32]) -> pa.Table:
    # Taking from many chunks looks every row's chunk up; one copy into one chunk costs far less.
    table = table.combine_chunks()
    lists = {i for i, kind in enumerate(table.schema.types) if pa.types.is_fixed_size_list(kind)}
    rest = table.select([i for i in range(table.num_columns) if i not in lists]).take(pa.array(order))
    others = iter(rest.columns)
    columns = [
        take_lists(column.chunk(0), order) if i in lists else next(others) for i, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


SEVERAL = 8
"""Pieces up to which a view of them is better than a copy: every chunk costs whoever reads it."""


def slice_groups(table: pa.Table, offsets: Offsets, ranges: Iterable[tuple[int, int]]) -> pa.Table:
    """The rows of the key groups in `ranges` (first, last exclusive) as a view of `table`."""
    pieces: list[tuple[int, int]] = []
    for first, last in ranges:
        start, end = int(offsets[first]), int(offsets[last])
        if start == end:
            continue
        if pieces and pieces[-1][1] == start:
            pieces[-1] = (pieces[-1][0], end)
        else:
            pieces.append((start, end))
    if len(pieces) == 1:
        start, end = pieces[0]
        return table if end - start == table.num_rows else table.slice(start, end - start)
    if not pieces:
        return table.slice(0, 0)
    if len(pieces) > SEVERAL:
        return _take(table, np.concatenate([np.arange(start, end, dtype=np.uint32) for start, end in pieces]))
    return pa.concat_tables([table.slice(start, end - start) for start, end in pieces])


def encode_offsets(offsets: Offsets) -> bytes:
    """Offsets as few bytes: most groups of a small bucket are empty."""
    return zlib.compress(np.diff(offsets).astype("<i4").tobytes(), 1)


def decode_offsets(data: bytes) -> Offsets:
    counts = np.frombuffer(zlib.decompress(data), dtype="<i4")
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


# A cell: header, directory, bodies; a body is an IPC message aligned to 64 bytes.
#   header     magic u32, number of schemas u32, number of tables u32, length of the directory u32
#   directory  per schema: its place; per table: schema number (or STREAM) u32, number of batches u32,
#              length of the address u32, the address, the place of each batch. A place is start and length, u64
#              each, counted from the first body.
# A schema is stored once however many tables have it: opening a stream per table would cost more than the
# rows of a small one.
_MAGIC = 0x31574C54
_HEADER = struct.Struct("<IIII")
_TABLE = struct.Struct("<III")
_PLACE = struct.Struct("<QQ")
_STREAM = 0xFFFFFFFF
COMPRESSED_FROM = 1 << 16
"""Tables from this size on travel compressed: slices and key groups repeat, counts are small, and the JVM copies
every byte several times."""
_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)
_ADDRESSES = decoder(Address)


class _Bodies:
    """Collects buffers at aligned offsets."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.length = 0

    def add(self, buffer: pa.Buffer) -> bytes:
        gap = -self.length % _ALIGNMENT
        start = self.length + gap
        self.parts += (_PADDING[:gap], buffer)
        self.length = start + buffer.size
        return _PLACE.pack(start, buffer.size)


def pack(pairs: Iterable[tuple[Address, pa.Table]], *, compressed: bool = True) -> bytes:
    """Several tables, each with what it is, as one binary value. `compressed`: whether large ones are worth it."""
    bodies = _Bodies()
    known: dict[bytes, int] = {}
    schemas: list[bytes] = []
    tables: list[bytes] = []
    for address, table in pairs:
        schema = table.schema
        if (compressed and table.nbytes >= COMPRESSED_FROM) or _has_dictionary(schema):
            number, places = _STREAM, [bodies.add(_as_stream(table))]
        else:
            serialized = schema.serialize()  # schemas are equal for Arrow that differ in the names of their lanes
            number = known.setdefault(serialized.to_pybytes(), len(known))
            if number == len(schemas):
                schemas.append(bodies.add(serialized))
            places = [bodies.add(batch.serialize()) for batch in _batches(table)]
        encoded = encode(address)
        tables.append(b"".join((_TABLE.pack(number, len(places), len(encoded)), encoded, *places)))
    directory = b"".join(schemas) + b"".join(tables)
    header = _HEADER.pack(_MAGIC, len(schemas), len(tables), len(directory))
    gap = -(len(header) + len(directory)) % _ALIGNMENT
    return b"".join((header, directory, _PADDING[:gap], *bodies.parts))


def unpack(buffer: pa.Buffer | bytes | memoryview) -> list[tuple[Address, pa.Table]]:
    """The tables of `pack`, as views of `buffer`; a cell that starts at an odd address is copied once."""
    cell = buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer)
    if cell.size < _HEADER.size or _HEADER.unpack_from(cell)[0] != _MAGIC:
        raise ValueError("not a cell of packed tables")
    if cell.address % 8:
        cell = _aligned(cell)
    _, n_schemas, n_tables, length = _HEADER.unpack_from(cell)
    at = _HEADER.size
    first_body = at + length + -(at + length) % _ALIGNMENT
    view = memoryview(cell)

    def body() -> pa.Buffer:
        nonlocal at
        start, size = _PLACE.unpack_from(view, at)
        at += _PLACE.size
        return cell.slice(first_body + start, size)

    schemas = [pa.ipc.read_schema(body()) for _ in range(n_schemas)]
    pairs: list[tuple[Address, pa.Table]] = []
    for _ in range(n_tables):
        number, n_batches, name_length = _TABLE.unpack_from(view, at)
        at += _TABLE.size
        address: Address = _ADDRESSES.decode(view[at : at + name_length])
        at += name_length
        messages = [body() for _ in range(n_batches)]
        if number == _STREAM:
            table = pa.ipc.open_stream(messages[0]).read_all()
        else:
            schema = schemas[number]
            batches = [pa.ipc.read_record_batch(message, schema) for message in messages]
            table = pa.Table.from_batches(batches, schema)
        pairs.append((address, table))
    return pairs


def _aligned(buffer: pa.Buffer) -> pa.Buffer:
    copy = pa.allocate_buffer(buffer.size)
    memoryview(copy).cast("B")[:] = memoryview(buffer).cast("B")
    return copy


def _has_dictionary(schema: pa.Schema) -> bool:
    return any(pa.types.is_dictionary(kind) for kind in schema.types)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = table.to_batches()
    if len(batches) > 1:
        batches = table.combine_chunks().to_batches()
    return batches


def _as_stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    compression = "lz4" if table.nbytes >= COMPRESSED_FROM else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()
