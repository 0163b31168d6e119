"""One session at a time on a state directory."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from types import TracebackType

import msgspec

from thalweg.errors import lost_lock, state_locked, unusable_directory
from thalweg.state.durable import make_directory

_HERE = ", which is this one"


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the lock file says: who wrote it last."""

    pid: int
    host: str


class DirectoryLock:
    """Held from construction to `release`, or until the process dies in whatever way.

    `flock` belongs to the open file, so a second session in the same process is refused as well. The file
    itself stays: deleting it would let a third process lock a name that the second no longer sees. Somebody else may
    delete it all the same: `check` says so.
    """

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self.path = os.path.join(make_directory(state_dir), "lock")
        while True:
            self._descriptor = self._lock(state_dir)
            if self._has_name():
                break
            self.release()  # of a file that was deleted before it was locked
        self._sign()

    def _lock(self, state_dir: str | os.PathLike[str]) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable_directory(state_dir, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise state_locked(state_dir, holder) from None
            raise unusable_directory(state_dir, error) from error
        return descriptor

    def _has_name(self) -> bool:
        """Whether the path leads to the file that is locked."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except OSError:
            return False

    def check(self) -> None:
        """Refuses to go on once the file is no longer there: another session may hold the directory by now."""
        if not self._has_name():
            raise lost_lock(self.path)

    def _sign(self) -> None:
        said = msgspec.json.encode(Holder(os.getpid(), socket.gethostname())) + b"\n"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, said, 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            # Closing would not do: a process that was forked meanwhile has the file open, too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _holder(descriptor: int) -> str:
    """Who wrote the lock file last, for the message only."""
    try:
        found = msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
        is_here = found.pid == os.getpid() and found.host == socket.gethostname()
        return f"process {found.pid} on host {found.host}{_HERE if is_here else ''}"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "another process"
