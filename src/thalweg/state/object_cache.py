"""Copies of immutable objects on a local disk, for the processes of one host. Never the truth: losing it costs time.

A file holds the content of an object, then what tells whether it still is that content:

    content
    tag: the etag that the store gave the object
    length of the content u64, crc32 of content and tag u32, length of the tag u16, magic

Files appear whole, by a rename, and never change. The least recently used go when there are too many bytes.

Of an object that is fetched in parts there is a file as long as the object, with holes. Every process that needs a
part looks whether it is there, by its checksum, and puts it there if it is not: two that do so write the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import secrets
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from thalweg.errors import unsafe_cache
from thalweg.state.storage import Data, Stamp

PLACE = "THALWEG_CACHE"
"""The environment's name for the directory that the cache lies in."""
LIMIT = 2 << 30
_MAGIC = b"THALOBJ\x01"
_TAIL = struct.Struct("<QIH8s")
_TEMPORARY = ".tmp"
_ABANDONED_SECONDS = 3600
_MOST_KNOWN = 1 << 17


class ObjectCache:
    """In a directory for this user alone. Other processes may add and drop files at any time."""

    def __init__(self, directory: str | os.PathLike[str], limit: int = LIMIT) -> None:
        """`limit`: bytes. Each further process may go over it by a sixteenth, until it looks again."""
        self.directory = os.fspath(directory)
        self.limit = limit
        self._stamps: dict[str, Stamp] = {}
        """Of the objects that this process has verified or written, also when their files have gone."""
        self._verified: dict[str, int] = {}
        """The inodes of files whose checksum was right."""
        self._added = limit
        _make_private(self.directory)

    def stamp(self, place: str) -> Stamp | None:
        """That of the object at this URL if it is here; the store is not asked."""
        known = self._stamps.get(place)
        if known is None and (found := self._map(place)) is not None:
            known = found[1]
        return known

    def note(self, place: str, stamp: Stamp) -> None:
        """What the store has said of an object that never changes."""
        self._stamps.setdefault(place, stamp)

    def has(self, place: str) -> bool:
        """Whether the whole object may be here."""
        return os.path.exists(self._path(place))

    def open_copy(self, place: str, stamp: Stamp) -> Copy:
        """What is here of an object that is fetched in parts."""
        return Copy(self, self._path(f"{place}\n{stamp[0]}"), int(stamp[1]))

    def add(self, length: int) -> None:
        """So many bytes more are kept."""
        self._added += length
        if self._added > self.limit // 16:
            self._trim()

    def find(self, place: str) -> pa.Buffer | None:
        """The object's content, mapped into memory. A damaged file is dropped."""
        found = self._map(place)
        if found is not None:
            with contextlib.suppress(OSError):
                os.utime(self._path(place))
            return found[0]
        return None

    def _map(self, place: str) -> tuple[pa.Buffer, Stamp] | None:
        path = self._path(place)
        try:
            inode = os.stat(path).st_ino
            with pa.memory_map(path) as file:
                whole = file.read_buffer()
        except (OSError, pa.ArrowInvalid):
            return None
        found = _parse(whole, verify=self._verified.get(place) != inode)
        if found is None:
            self.drop(place)
            return None
        self._know(place, found[1], inode)
        return found

    def spool(self) -> Spool:
        """A file for content that is still on its way."""
        return Spool(os.path.join(self.directory, f"{os.getpid()}-{secrets.token_hex(8)}{_TEMPORARY}"))

    def keep(self, place: str, spool: Spool, tag: str) -> None:
        """Take a spool's file for the object's, unless it is too large or the disk does not want it."""
        if spool.length > self.limit // 4:
            self.drop(place)
            return
        try:
            spool.seal(tag)
            inode = os.fstat(spool.descriptor).st_ino
            os.replace(spool.path, self._path(place))
        except OSError:
            self.drop(place)
            return
        self._know(place, (tag, spool.length), inode)
        self.add(spool.length)

    def drop(self, place: str) -> None:
        self._stamps.pop(place, None)
        self._verified.pop(place, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(place))

    def _know(self, place: str, stamp: Stamp, inode: int) -> None:
        if len(self._stamps) >= _MOST_KNOWN:
            self._stamps.clear()
            self._verified.clear()
        self._stamps[place] = stamp
        self._verified[place] = inode

    def _trim(self) -> None:
        """Down to what leaves room until the next look."""
        self._added = 0
        held = 0
        for _, size, path in sorted(_files(self.directory), reverse=True):
            held += size
            if held > self.limit - self.limit // 16:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _path(self, place: str) -> str:
        return os.path.join(self.directory, hashlib.blake2b(place.encode(), digest_size=20).hexdigest())


class Copy:
    """A file with holes, as long as an object. Whether there is a hole only a checksum tells."""

    def __init__(self, cache: ObjectCache, path: str, length: int) -> None:
        self._cache = cache
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = io.FileIO(descriptor, "r+")  # closed when it is let go
        if os.fstat(descriptor).st_size != length:
            os.ftruncate(descriptor, length)
        with contextlib.suppress(OSError):
            os.utime(path)
        self.content = pa.py_buffer(mmap.mmap(descriptor, length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))

    def fill(self, spans: Sequence[tuple[int, int]], parts: Sequence[memoryview]) -> None:
        """`parts`: the bytes of each span, from and to."""
        for (low, high), part in zip(spans, parts, strict=True):
            if len(part) != high - low:
                raise OSError(errno.EIO, f"{len(part)} of {high - low} bytes came")
            while part:
                written = os.pwrite(self._file.fileno(), part, low)
                low, part = low + written, part[written:]
        self._cache.add(sum(high - low for low, high in spans))


class Spool(io.RawIOBase):
    """A file that goes when it is closed, unless the cache has taken it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.length = 0
        self.is_abandoned = False
        self._crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.is_abandoned:
            return len(view)
        written = os.write(self.descriptor, view)
        self._crc = zlib.crc32(view[:written], self._crc)
        self.length += written
        return written

    def write_all(self, data: Data) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.write(rest) :]

    def tell(self) -> int:
        return self.length

    def content(self) -> pa.Buffer:
        """What was written, mapped; it stays readable after the file has gone."""
        if not self.length:
            return pa.py_buffer(b"")
        return pa.py_buffer(mmap.mmap(self.descriptor, self.length, prot=mmap.PROT_READ))

    def seal(self, tag: str) -> None:
        """Append what tells whether this is still the content."""
        mark = tag.encode()
        tail = mark + _TAIL.pack(self.length, zlib.crc32(mark, self._crc), len(mark), _MAGIC)
        if os.write(self.descriptor, tail) != len(tail):
            raise OSError("the disk took a part of the tail")

    def close(self) -> None:
        if not self.closed:
            super().close()
            with contextlib.suppress(OSError):  # it has another name if it was kept
                os.unlink(self.path)
            os.close(self.descriptor)


def _parse(whole: pa.Buffer, verify: bool) -> tuple[pa.Buffer, Stamp] | None:
    if whole.size < _TAIL.size:
        return None
    length, crc, tag_length, magic = _TAIL.unpack(whole[-_TAIL.size :])
    if magic != _MAGIC or whole.size != length + tag_length + _TAIL.size:
        return None
    if verify and zlib.crc32(whole[: length + tag_length]) != crc:
        return None
    tag = whole[length : length + tag_length].to_pybytes().decode(errors="replace")
    return whole[:length], (tag, length)


def _files(directory: str) -> list[tuple[int, int, str]]:
    """(last use, size, path) of all files. What a writer that died has left is deleted."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not entry.name.endswith(_TEMPORARY):
                    taken = min(status.st_size, status.st_blocks * 512)  # holes take nothing
                    found.append((status.st_mtime_ns, taken, entry.path))
                elif status.st_mtime < time.time() - _ABANDONED_SECONDS:
                    os.unlink(entry.path)
    return found


def _make_private(directory: str) -> None:
    """A directory below one for everybody may have been made by somebody else, who would then give us our state."""
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, mode=0o700)
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise unsafe_cache(directory, "it is not a directory of this user")
        if status.st_mode & 0o077:
            os.chmod(directory, 0o700)
    except OSError as error:
        raise unsafe_cache(directory, str(error)) from error


_caches: dict[str, ObjectCache] = {}


def worker_cache() -> ObjectCache:
    """The cache of this host and user. Processes share the files and nothing else, so a fork does no harm."""
    directory = os.path.join(os.environ.get(PLACE) or tempfile.gettempdir(), f"thalweg-cache-{os.geteuid()}")
    found = _caches.get(directory)
    if found is None:
        found = _caches[directory] = ObjectCache(directory)
    return found
