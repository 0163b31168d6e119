"""What the operating system does to files, as few verbs as `durable` needs.

Only `durable` calls these. A test puts another layer in its place with `durable.use`: `testing.disk` has one that
dies, fails and forgets what was not synced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, TypeAlias

Data: TypeAlias = bytes | bytearray | memoryview


class Handle(Protocol):
    """An open file. It only grows at its end or is cut."""

    def write(self, data: Data) -> int:
        """Append `data`, or a first part of it; the number of bytes appended."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the content durable. The name is durable after `Disk.sync_directory` of its directory."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, private: bool = False) -> Handle:
        """Open a file to append to it. It is created, empty, if it is not there. `private`: nobody else may read
        it."""
        ...

    def replace(self, old: Path, new: Path) -> None:
        """Rename within one directory; a file that has the new name goes. Also of a directory, to a new name."""
        ...

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name on its file system. FileExistsError if somebody has that name."""
        ...

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path, private: bool = False) -> None: ...

    def rmdir(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable: those that came and those that went."""
        ...


class _Descriptor(Handle):
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: Data) -> int:
        return os.write(self._descriptor, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class OperatingSystem(Disk):
    """The real disk."""

    def open(self, path: Path, private: bool = False) -> Handle:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600 if private else 0o666)
        if private:  # the umask of the program may take away what its owner needs
            os.fchmod(descriptor, 0o600)
        return _Descriptor(descriptor)

    def replace(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path, private: bool = False) -> None:
        os.mkdir(path, 0o700 if private else 0o777)
        if private:
            os.chmod(path, 0o700)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
