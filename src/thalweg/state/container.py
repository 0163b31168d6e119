"""A container: an immutable file of several Arrow tables, its sections.

One task of one batch writes one file, however many buckets it makes: a file costs an fsync and an inode, a
section costs neither. Sections are mapped into memory and used as they lie.

    magic, padding
    section 0: an Arrow IPC stream          each section starts at a multiple of 64 bytes
    section 1: ...
    footer: JSON, the list of sections
    length of the footer u64, its crc32 u32, padding u32, magic
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from thalweg.errors import corrupt_file, missing_file
from thalweg.model.bucket import Section
from thalweg.state.durable import Writer

MAGIC = b"THALWEG\x01"
_ALIGNMENT = 64
_TAIL = struct.Struct("<QII8s")
_MAPS_KEPT = 512
UNCHECKED = -1
"""The checksum of a section that has none."""


class ContainerWriter:
    """Writes under a temporary name; the file exists once `close` returns, and never changes again."""

    def __init__(self, path: Path | str, *, root: Path | str | None = None, compression: str | None = None) -> None:
        """`root`: what sections' file names are relative to (the file's own directory when left out).
        `compression`: None, so that mapped buffers are used as they lie, or `lz4` for rarely read ones."""
        self.path = Path(path)
        self._file_name = self.path.relative_to(root).as_posix() if root is not None else self.path.name
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._sections: list[Section] = []
        self._file = Writer(self.path)
        self._length = 0
        self._write(MAGIC)

    def stream(self, name: str, table: pa.Table) -> Section:
        """Append a table as it lies, without a checksum: for what is read once, soon, in the same run."""
        self._write(bytes(-self._length % _ALIGNMENT))
        start = self._length
        with pa.ipc.new_stream(self._file, table.schema, options=self._options) as writer:
            writer.write_table(table)
        self._length = self._file.tell()
        section = Section(self._file_name, name, start, self._length - start, table.num_rows, UNCHECKED)
        self._sections.append(section)
        return section

    def add(self, name: str, table: pa.Table, meta: Mapping[str, Any] | None = None) -> Section:
        """Append a table. It lies in one piece: readers get one chunk per column."""
        body = _serialize(table, self._options)
        self._write(bytes(-self._length % _ALIGNMENT))
        section = Section(
            self._file_name, name, self._length, body.size, table.num_rows, zlib.crc32(body), dict(meta or {})
        )
        self._write(body)
        self._sections.append(section)
        return section

    def close(self, sync: bool = True) -> tuple[Section, ...]:
        """Finish the file and give it its name. `sync=False` for what a crash may take."""
        footer = json.dumps([s.to_json() for s in self._sections], separators=(",", ":")).encode()
        self._write(bytes(-self._length % 8))
        self._write(footer)
        self._write(_TAIL.pack(len(footer), zlib.crc32(footer), 0, MAGIC))
        self._file.finish(sync)
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


def _serialize(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table if len(table.to_batches()) < 2 else table.combine_chunks())
    return sink.getvalue()


def read_section(directory: Path | str, section: Section) -> pa.Table:
    """The table of a section, as views of the mapped file. Its checksum is verified once per process."""
    mapped = _maps.get(Path(directory) / section.file)
    body = mapped.slice(section)
    return pa.ipc.open_stream(body).read_all()


def read_footer(path: Path | str) -> tuple[Section, ...]:
    """The sections that a container says it has; their file names are as the writer gave them."""
    path = Path(path)
    buffer = _maps.get(path).buffer
    length, crc, _, _ = _TAIL.unpack(buffer[-_TAIL.size :])
    start = buffer.size - _TAIL.size - length
    if start < len(MAGIC):
        raise corrupt_file(path, "a footer", f"a footer length of {length} in a file of {buffer.size} bytes")
    footer = buffer.slice(start, length)
    if zlib.crc32(footer) != crc:
        raise corrupt_file(path, f"a footer with checksum {crc:08x}", f"{zlib.crc32(footer):08x}")
    return tuple(Section.from_json(value) for value in json.loads(footer.to_pybytes()))


class _Map:
    """An open container whose outline was checked, and the sections of it that were verified."""

    def __init__(self, path: Path, identity: tuple[int, int, int]) -> None:
        self.path = path
        self.identity = identity
        self._verified: set[tuple[int, int, int]] = set()
        if identity[1] < len(MAGIC) + _TAIL.size:
            raise corrupt_file(path, "a container", f"a file of {identity[1]} bytes")
        with pa.memory_map(str(path)) as file:
            self.buffer: pa.Buffer = file.read_buffer()
        head, tail = self.buffer[: len(MAGIC)].to_pybytes(), self.buffer[-len(MAGIC) :].to_pybytes()
        if head != MAGIC or tail != MAGIC:
            raise corrupt_file(path, f"{MAGIC!r} at both ends", f"{head!r} and {tail!r}")

    def slice(self, section: Section) -> pa.Buffer:
        end = section.offset + section.length
        if end > self.buffer.size:
            raise corrupt_file(
                self.path, f"section {section.name!r} up to byte {end}", f"a file of {self.buffer.size} bytes"
            )
        body = self.buffer.slice(section.offset, section.length)
        key = (section.offset, section.length, section.crc)
        if section.crc != UNCHECKED and key not in self._verified:
            found = zlib.crc32(body)
            if found != section.crc:
                raise corrupt_file(
                    self.path, f"section {section.name!r} with checksum {section.crc:08x}", f"{found:08x}"
                )
            self._verified.add(key)
        return body


class _Maps:
    """The containers this process read last. Never the truth: every look-up checks the file is still it."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._maps: OrderedDict[Path, _Map] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path) -> _Map:
        try:
            status = os.stat(path)
        except FileNotFoundError as error:
            raise missing_file(path) from error
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:
            found = self._maps.get(path)
            if found is None or found.identity != identity:
                found = self._maps[path] = _Map(path, identity)
            self._maps.move_to_end(path)
            while len(self._maps) > self._kept:
                self._maps.popitem(last=False)
        return found

    def forget(self, path: Path) -> None:
        with self._lock:
            self._maps.pop(path, None)


_maps = _Maps(_MAPS_KEPT)


def forget_file(path: Path) -> None:
    """Let go of a container that is being deleted, so that its disk space is freed."""
    _maps.forget(path)
