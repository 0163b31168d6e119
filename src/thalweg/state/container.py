"""A container: an immutable file of several Arrow tables, its sections.

One task of one batch writes one file, however many buckets it makes: a file costs an fsync and an inode, a
section costs neither. Sections are mapped into memory and used as they lie.

    magic, padding
    section 0: an Arrow IPC stream          each section starts at a multiple of 64 bytes
    section 1: ...
    footer: JSON, the list of sections, each with the checksums of its blocks
    length of the footer u64, its crc32 u32, padding u32, magic
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from thalweg.errors import corrupt_file, missing_file
from thalweg.model.bucket import Section
from thalweg.state.blocks import BLOCK, Blocks, block_sums, check_blocks
from thalweg.state.partly_read import PartlyRead
from thalweg.state.storage import Fetch, Stamp, Storage

MAGIC = b"THALWEG\x01"
_ALIGNMENT = 64
_TAIL = struct.Struct("<QII8s")
_CONTAINERS_KEPT = 512
_SMALL = 1 << 20
"""Bytes of a table up to which one copy of it costs less than to write it piece by piece."""
_NO_MORE = struct.pack("<Ii", 0xFFFFFFFF, 0)
"""How an Arrow stream ends."""


class ContainerWriter:
    """Writes under a temporary name; the file exists once `close` returns, and never changes again."""

    def __init__(self, storage: Storage, name: str, *, compression: str | None = None) -> None:
        """`compression`: None, so that mapped buffers are used as they lie, or `lz4` for rarely read ones."""
        self._name = name
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._sections: list[Section] = []
        self._entries: list[_Entry] = []
        self._streamed: tuple[pa.Table, _Entry] | None = None
        """The last."""
        self._file = storage.writer(name)
        self._length = 0
        self._write(MAGIC)

    def stream(self, name: str, table: pa.Table) -> Section:
        """Append a table as it lies, in as many chunks as it has, without a copy of it unless it is small. One that
        comes several times, under one name after another, lies there once."""
        if self._streamed is not None and self._streamed[0] is table:
            return self._note(replace(self._streamed[1], name=name))
        section = self.add(name, table) if table.nbytes <= _SMALL else self._stream(name, table)
        self._streamed = table, self._entries[-1]
        return section

    def _stream(self, name: str, table: pa.Table) -> Section:
        self._write(bytes(-self._length % _ALIGNMENT))
        start = self._length
        checked = _Checked(self._file)
        with pa.ipc.new_stream(pa.PythonFile(checked, mode="w"), table.schema, options=self._options) as writer:
            writer.write_table(table)
        self._length += checked.length
        return self._note(_Entry(name, start, checked.length, table.num_rows, checked.crc))

    def add(self, name: str, table: pa.Table) -> Section:
        """Append a table. It lies in one piece: readers get one chunk per column."""
        body = _serialize(table, self._options)
        self._write(bytes(-self._length % _ALIGNMENT))
        entry = _Entry(name, self._length, len(body), table.num_rows, *check_blocks(body))
        self._write(body)
        return self._note(entry)

    def _note(self, entry: _Entry) -> Section:
        self._entries.append(entry)
        self._sections.append(entry.section(self._name))
        return self._sections[-1]

    def close(self, durable: bool = True) -> tuple[Section, ...]:
        """Finish the object and give it its name. `durable=False` for what a crash may take."""
        self._write(_ending(self._length, self._entries))
        self._file.finish(durable)
        return tuple(self._sections)

    def abandon(self) -> None:
        self._file.abandon()

    def __enter__(self) -> ContainerWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A writer that was not closed leaves nothing behind."""
        if not self._file.closed:
            self.abandon()

    def _write(self, data: Any) -> None:
        self._file.write(data)
        self._length += len(data)


class _Checked(io.RawIOBase):
    """Passes on what is written, and counts it."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self.length = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.length += len(data)
        return len(data)


def _serialize(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> bytes | pa.Buffer:
    """An Arrow stream. Most are a schema and a batch, which are put together here: a stream writer takes longer to be
    opened than a small table to be written."""
    batches = table.to_batches()
    if len(batches) > 1:
        batches = table.combine_chunks().to_batches()
    if len(batches) == 1 and options.compression is None and not any(map(pa.types.is_dictionary, table.schema.types)):
        return b"".join((table.schema.serialize(), batches[0].serialize(), _NO_MORE))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _ending(length: int, entries: Sequence[_Entry]) -> bytes:
    """What follows the sections, which end at `length`."""
    footer = msgspec.json.encode(entries)
    return bytes(-length % 8) + footer + _TAIL.pack(len(footer), zlib.crc32(footer), 0, MAGIC)


def container_bytes(name: str, table: pa.Table) -> bytes:
    """A container of one section, for an object that has to be created exactly once."""
    body = _serialize(table, pa.ipc.IpcWriteOptions())
    start = -len(MAGIC) % _ALIGNMENT + len(MAGIC)
    entry = _Entry(name, start, len(body), table.num_rows, *check_blocks(body))
    return b"".join((MAGIC.ljust(start, b"\0"), body, _ending(start + len(body), [entry])))


def read_section(storage: Storage, section: Section) -> pa.Table:
    """The table of a section, as views of the object. Its checksum is verified once per process."""
    body = _containers.get(storage, section.file).whole(section)
    return pa.ipc.open_stream(body).read_all()


def open_section(storage: Storage, section: Section) -> PartlyRead:
    """The table of a section of which parts will be read."""
    return PartlyRead(_containers.get(storage, section.file), section)


def read_footer(storage: Storage, name: str) -> tuple[Section, ...]:
    """The sections that a container says it has."""
    return tuple(entry.section(name) for entry in _containers.get(storage, name).footer)


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a footer. Those of earlier releases say more."""

    name: str
    offset: int
    length: int
    rows: int
    crc: int
    blocks: bytes = b""
    """Checksums of blocks, of a section that is longer than one; nothing up to format 5 and where it is streamed."""

    def section(self, file: str) -> Section:
        return Section(file, self.name, self.offset, self.length, self.rows, self.crc)


class _Container:
    """An open container, and the parts of it that were verified. Where it is not at hand they are fetched first."""

    def __init__(self, place: str, buffer: pa.Buffer, stamp: Stamp, fetch: Fetch | None = None) -> None:
        self.place = place
        self.buffer = buffer
        self.stamp = stamp
        self._fetch = fetch
        self._verified: set[tuple[int, int, int]] = set()
        self._blocks: dict[int, Blocks] = {}
        """By the offset of the section."""
        if buffer.size < len(MAGIC) + _TAIL.size:
            raise corrupt_file(place, "a container", f"{buffer.size} bytes")
        if fetch is not None:
            fetch([(0, len(MAGIC)), (max(0, buffer.size - BLOCK), buffer.size)])
        head, tail = buffer[: len(MAGIC)].to_pybytes(), buffer[-len(MAGIC) :].to_pybytes()
        if head != MAGIC or tail != MAGIC:
            raise corrupt_file(place, f"{MAGIC!r} at both ends", f"{head!r} and {tail!r}")

    @cached_property
    def footer(self) -> list[_Entry]:
        buffer, place = self.buffer, self.place
        length, crc, _, _ = _TAIL.unpack(buffer[-_TAIL.size :])
        start = buffer.size - _TAIL.size - length
        if start < len(MAGIC):
            raise corrupt_file(place, "a footer", f"a footer length of {length} in {buffer.size} bytes")
        if self._fetch is not None:
            self._fetch([(start, start + length)])
        footer = buffer.slice(start, length)
        if zlib.crc32(footer) != crc:
            raise corrupt_file(place, f"a footer with checksum {crc:08x}", f"{zlib.crc32(footer):08x}")
        return msgspec.json.decode(footer, type=list[_Entry])

    @property
    def is_at_hand(self) -> bool:
        return self._fetch is None

    def slice(self, section: Section) -> pa.Buffer:
        """Its bytes, whether they were read and verified or not."""
        end = section.offset + section.length
        if end > self.buffer.size:
            raise corrupt_file(self.place, f"section {section.name!r} up to byte {end}", f"{self.buffer.size} bytes")
        return self.buffer.slice(section.offset, section.length)

    def whole(self, section: Section) -> pa.Buffer:
        """All its bytes, verified."""
        body = self.slice(section)
        key = (section.offset, section.length, section.crc)
        if key not in self._verified:
            if self._fetch is not None:
                self._fetch([(section.offset, section.offset + section.length)])
            found = zlib.crc32(body)
            if found != section.crc:
                raise corrupt_file(
                    self.place, f"section {section.name!r} with checksum {section.crc:08x}", f"{found:08x}"
                )
            self._verified.add(key)
        return body

    def need(self, section: Section, spans: Iterable[tuple[int, int]]) -> None:
        """Verifies these bytes of a section, from and to."""
        if (section.offset, section.length, section.crc) in self._verified:
            return
        blocks = self._blocks.get(section.offset)
        if blocks is None:
            entry = self._entry(section) if section.length > BLOCK else None
            if entry is None or not entry.blocks:
                self.whole(section)
                return
            blocks = self._blocks[section.offset] = Blocks(block_sums(entry.blocks), section.length)
        wanted = blocks.unread(spans)
        if not wanted:
            return
        body = self.slice(section)
        if self._fetch is not None:
            absent = [number for number in wanted if not blocks.is_right(body, number)]
            self._fetch([(section.offset + low, section.offset + high) for low, high in blocks.runs(absent)])
        for number in wanted:
            if not blocks.is_right(body, number):
                raise corrupt_file(
                    self.place, f"section {section.name!r}", f"another content in its block {number} of {BLOCK} bytes"
                )
        if blocks.are_right:
            self._verified.add((section.offset, section.length, section.crc))

    def _entry(self, section: Section) -> _Entry:
        """What the footer says of a section. Another container under the name would say something else."""
        for entry in self.footer:
            if entry.offset == section.offset and entry.section(section.file) == section:
                return entry
        raise corrupt_file(self.place, f"section {section.name!r} with checksum {section.crc:08x}", "another one")


class _Containers:
    """What this process read last. Never the truth: every look-up checks that the object is still it."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._open: OrderedDict[str, _Container] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, storage: Storage, name: str) -> _Container:
        place, stamp = storage.locate(name), storage.stamp(name)
        if stamp is None:
            raise missing_file(place)
        with self._lock:
            found = self._open.get(place)
            if found is None or found.stamp != stamp:
                found = self._open[place] = _open(storage, name, place, stamp)
            self._open.move_to_end(place)
            while len(self._open) > self._kept:
                self._open.popitem(last=False)
        return found

    def forget(self, place: str) -> None:
        with self._lock:
            self._open.pop(place, None)


def _open(storage: Storage, name: str, place: str, stamp: Stamp) -> _Container:
    holes = storage.open_in_parts(name)
    if holes is None:
        return _Container(place, storage.open(name), stamp)
    return _Container(place, holes.buffer, stamp, holes.fetch)


_containers = _Containers(_CONTAINERS_KEPT)


def delete_container(storage: Storage, name: str) -> None:
    """Delete it and let go of it, so that its space is freed."""
    _containers.forget(storage.locate(name))
    storage.delete(name)
