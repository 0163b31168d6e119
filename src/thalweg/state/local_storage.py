"""State in a directory of a file system.

An object is a file, written under a temporary name, synced, then renamed or linked, and its directory synced. Files
and directories are for their owner alone, whatever the umask."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from thalweg.errors import cannot_create_once, missing_file
from thalweg.state.durable import Writer, create_atomic, delete, is_temporary, make_directory, settle, write_atomic
from thalweg.state.lock import DirectoryLock
from thalweg.state.ownership import check_directory, claim_directory
from thalweg.state.storage import Data, Hold, Holes, ObjectWriter, Stamp

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True)
class LocalStorage:
    place: str
    """The absolute path of the directory."""

    @property
    def root(self) -> Path:
        return Path(self.place)

    def claim(self) -> None:
        claim_directory(self.root)

    def check(self) -> None:
        if self.root.is_dir():
            check_directory(self.root)

    def hold(self) -> Hold:
        return DirectoryLock(self.root)

    def sweep(self) -> None:
        for path in _files(self.place):
            if is_temporary(Path(path)):
                delete(Path(path))

    def locate(self, name: str) -> str:
        return os.path.join(self.place, name)

    def stamp(self, name: str) -> Stamp | None:
        try:
            status = os.stat(self.locate(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            with open(self.locate(name), "rb") as file:
                file.seek(start)
                return file.read() if length is None else file.read(length)
        except FileNotFoundError as error:
            raise missing_file(self.locate(name)) from error

    def find(self, name: str) -> bytes | None:
        try:
            with open(self.locate(name), "rb") as file:
                found = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        settle(Path(self.locate(name)).parent)
        return found

    def open(self, name: str) -> pa.Buffer:
        try:
            with pa.memory_map(self.locate(name)) as file:
                return file.read_buffer()
        except FileNotFoundError as error:
            raise missing_file(self.locate(name)) from error

    def open_in_parts(self, name: str) -> Holes | None:
        return None

    def names(self, prefix: str) -> list[str]:
        start = len(os.path.join(self.place, ""))
        found = _files(os.path.join(self.place, prefix))
        return sorted(path[start:] for path in found if not is_temporary(path))

    def write(self, name: str, data: Data, durable: bool = True) -> None:
        write_atomic(self._place_for(name), data, durable, private=True)

    def create(self, name: str, data: Data) -> bool:
        path = self._place_for(name)
        try:
            return create_atomic(path, data, private=True)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise cannot_create_once(self.place, str(error)) from error
            raise

    def writer(self, name: str) -> ObjectWriter:
        return Writer(self._place_for(name), private=True)

    def delete(self, name: str) -> None:
        delete(Path(self.locate(name)))

    def _place_for(self, name: str) -> Path:
        path = Path(self.locate(name))
        make_directory(path.parent)
        return path


def _files(directory: str) -> Iterator[str]:
    """The files below a directory. Its names are durable afterwards: who made them may have died before that."""
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    settle(Path(directory))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        else:
            yield entry.path
