"""Writing files so that after a crash each is there whole or not at all.

Everything the package writes into a state directory or into a directory of a `files` sink goes through here, and from
here through one `Disk`, which a test can replace. Locks, and what Spark writes, do not.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from thalweg.errors import (
    StateError,
    corrupt_file,
    dangling_link,
    file_in_the_way,
    missing_file,
    unusable_directory,
)
from thalweg.state.disk import Data, Disk, Handle, OperatingSystem
from thalweg.state.storage import ObjectWriter

TEMPORARY_SUFFIX = ".tmp"
_TEMPORARY = re.compile(rf"\..+\.\d+-[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}")
_disk: Disk = OperatingSystem()
_settled: set[Path] = set()
"""The directories whose names this process knows to be durable."""
_looked_at: set[Path] = set()
"""The directories whose names were made durable before this process acted on them."""
_UNSYNCABLE = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP)
"""Of a directory above ours: it is not to be opened, or its file system has nothing to sync."""


@contextlib.contextmanager
def use(disk: Disk) -> Iterator[None]:
    """Let every thread of this process write to `disk` instead of the real one. For tests; one life of a process is
    one `with`."""
    global _disk
    before = _disk
    _disk = disk
    _settled.clear()
    _looked_at.clear()
    try:
        yield
    finally:
        _disk = before
        _settled.clear()
        _looked_at.clear()


# -- names ---------------------------------------------------------------------------------------------------


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no reader looks at and no other writer has chosen."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


def is_temporary(path: Path) -> bool:
    """Whether the name is one of those above: hidden files of others are not."""
    return _TEMPORARY.fullmatch(path.name) is not None


# -- directories ---------------------------------------------------------------------------------------------


def make_directory(path: Path) -> Path:
    """A directory of the state, as `make_directories` makes it, for nobody else to look into."""
    try:
        return make_directories(path, private=True)
    except OSError as error:
        raise _no_directory(path, error) from error


def make_directories(path: Path, private: bool = False) -> Path:
    """Create `path` and its parents, each of them durably. `private`: of those that are new."""
    if path in _settled and path.is_dir():
        return path
    if path.is_dir():
        _settle(path)
    else:
        if path.parent != path:
            make_directories(path.parent, private)
        _make(path, private)
    _settled.add(path)
    return path


def _make(path: Path, private: bool) -> None:
    try:
        _disk.mkdir(path, private)
    except FileExistsError:
        if not path.is_dir():  # or another process was quicker
            raise
    sync_directory(path.parent)


def _settle(path: Path) -> None:
    """A process that died may have made the directory and not synced its name."""
    try:
        sync_directory(path.parent)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise


def _no_directory(path: Path, error: OSError) -> StateError:
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            return dangling_link(path, place, os.readlink(place))
        if place.is_file():
            return file_in_the_way(path, place)
    return unusable_directory(path, error)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename is not until its directory is synced."""
    _disk.sync_directory(path)


def settle(path: Path) -> None:
    """Once in a life of this process: the names in a directory may be of one that died before it synced them."""
    if path not in _looked_at:
        sync_directory(path)
        _looked_at.add(path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """If giving a name fails half way, whoever finds it has to make it durable first."""
    try:
        yield
    except BaseException:
        _looked_at.discard(path.parent)
        raise


def delete(path: Path) -> None:
    """Delete a file if it is there. After a power cut it may be back."""
    with contextlib.suppress(FileNotFoundError):
        _disk.unlink(path)


def delete_tree(path: Path) -> None:
    """Delete a directory with all that it holds, as far as that can be done."""
    if path.is_symlink():
        return
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                delete_tree(Path(entry.path))
            else:
                with contextlib.suppress(OSError):
                    _disk.unlink(Path(entry.path))
        _disk.rmdir(path)


# -- whole files ---------------------------------------------------------------------------------------------


def publish(temporary: Path, path: Path, sync: bool = True) -> None:
    """Give a finished, synced temporary file its name."""
    with _naming(path):
        _disk.replace(temporary, path)
        if sync:
            sync_directory(path.parent)


def write_atomic(path: Path, data: Data, sync: bool = True, private: bool = False) -> None:
    """Replace `path` by `data`: temporary file, fsync, rename, fsync of the directory."""
    temporary = temporary_name(path)
    try:
        _write_temporary(temporary, data, sync, private)
        publish(temporary, path, sync)
    except BaseException:
        delete(temporary)
        raise


def create_atomic(path: Path, data: Data, private: bool = False) -> bool:
    """Make `path` of `data`, unless it is there: temporary file, fsync, link, fsync of the directory. What is there
    is durable then, too: an attempt that failed may have made it."""
    temporary = temporary_name(path)
    is_new = True
    with _naming(path):
        try:
            _write_temporary(temporary, data, True, private)
            _disk.link(temporary, path)
        except FileExistsError:
            is_new = False
        finally:
            delete(temporary)
        sync_directory(path.parent)
    return is_new


def _write_temporary(path: Path, data: Data, sync: bool, private: bool) -> None:
    handle = _disk.open(path, private)
    try:
        write_all(handle, data)
        if sync:
            handle.sync()
    finally:
        handle.close()


def write_all(handle: Handle, data: Data) -> None:
    """The operating system may take large data in pieces."""
    rest = memoryview(data)
    while rest:
        rest = rest[handle.write(rest) :]


class Writer(ObjectWriter):
    """A file that is written in pieces. It has its name once `finish` returns."""

    def __init__(self, path: Path, private: bool = False) -> None:
        self._path = path
        self._temporary = temporary_name(path)
        self._file = _Raw(_disk.open(self._temporary, private))
        super().__init__(self._file)

    def finish(self, durable: bool = True) -> None:
        try:
            self.flush()
            if durable:
                self._file.handle.sync()
            self.close()
            publish(self._temporary, self._path, durable)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """The disk may be full: nothing is written any more."""
        self._file.is_abandoned = True
        self.close()
        delete(self._temporary)


class _Raw(io.RawIOBase):
    """A handle as Python's buffered files want it."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.is_abandoned = False
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = len(data) if self.is_abandoned else self.handle.write(data)
        self._length += written
        return written

    def tell(self) -> int:
        return self._length

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.handle.close()


# -- files that grow -----------------------------------------------------------------------------------------


class Appender:
    """A file that grows by whole pieces: what follows a torn one could not be told from damage."""

    def __init__(self, path: Path, length: int) -> None:
        """`length`: where the last whole piece ends. Behind it a crash may have left part of another."""
        self._path = path
        self._length = length
        self._handle = _disk.open(path)
        self._inode = path.stat().st_ino
        self._is_torn = path.stat().st_size > length

    def append(self, data: bytes) -> None:
        """All of it or, if that fails, nothing. Durable after `sync`."""
        self.cut()
        self._is_torn = True
        try:
            written = self._handle.write(data)
            if written < len(data):
                raise OSError(f"{written} of {len(data)} bytes written")
        except OSError:
            with contextlib.suppress(OSError):  # else before the next piece
                self.cut()
            raise
        self._is_torn = False
        self._length += len(data)

    def cut(self) -> None:
        """Take away what is behind the last whole piece."""
        if self._is_torn:
            self._handle.truncate(self._length)
            self._is_torn = False

    def sync(self) -> None:
        self._handle.sync()

    def settle(self) -> None:
        """Make durable, with the name, what a process that died may have written and not synced."""
        self.cut()
        self._handle.sync()
        sync_directory(self._path.parent)

    @property
    def has_name(self) -> bool:
        """Whether the path still leads to this file."""
        return self._path.exists() and self._path.stat().st_ino == self._inode

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sync_file(path: Path) -> None:
    """Make durable what others wrote and closed."""
    handle = _disk.open(path)
    try:
        handle.sync()
    finally:
        handle.close()


# -- reading -------------------------------------------------------------------------------------------------


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise missing_file(path) from error


def write_json(path: Path, value: Any, private: bool = False) -> None:
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode(), private=private)


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise corrupt_file(path, "JSON", str(error)) from error
