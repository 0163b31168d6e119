"""Writing files so that after a crash each is there whole or not at all.

Everything the package writes into a state directory or into a directory of a `files` sink goes through here, and from
here through one `Disk`, which a test can replace. Locks, and what Spark writes, do not.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thalweg.errors import StateError, dangling_link, file_in_the_way, unusable_directory
from thalweg.state.disk import Data, Disk, Handle, OperatingSystem
from thalweg.state.storage import ObjectWriter

AnyPath = str | os.PathLike[str]
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


def is_temporary(path: AnyPath) -> bool:
    """Whether the name is one of those above: hidden files of others are not."""
    return _TEMPORARY.fullmatch(os.path.basename(path)) is not None


# -- directories ---------------------------------------------------------------------------------------------


def make_directory(path: AnyPath) -> Path:
    """A directory of the state, as `make_directories` makes it, for nobody else to look into."""
    try:
        return make_directories(Path(path), private=True)
    except OSError as error:
        raise _no_directory(Path(path), error) from error


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


def delete_tree(place: AnyPath) -> None:
    """Delete a directory with all that it holds, as far as that can be done."""
    path = Path(place)
    if path.is_symlink():
        return
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                delete_tree(entry.path)
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


def write_atomic(place: AnyPath, data: Data, sync: bool = True, private: bool = False) -> None:
    """Replace what is at `place` by `data`: temporary file, fsync, rename, fsync of the directory."""
    path = Path(place)
    temporary = temporary_name(path)
    try:
        _write_temporary(temporary, data, sync, private)
        publish(temporary, path, sync)
    except BaseException:
        delete(temporary)
        raise


def link(old: Path, new: Path) -> None:
    """Give a file a second name. It is durable after `sync_directory`."""
    _disk.link(old, new)


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


def sync_file(path: Path) -> None:
    """Make durable what others wrote and closed."""
    handle = _disk.open(path)
    try:
        handle.sync()
    finally:
        handle.close()
