"""A disk that dies, fails and forgets: the file layer below `state.durable`, for tests.

It works on a real directory, so that everything can be read as always, and keeps a model of what is durable:

- A file's content is durable as of its last `sync`. Of what was written or cut since, in order, a power cut leaves a
  first part; the rest is missing, or there in length only, as zeros.
- A name is durable as of the last `sync_directory` of its directory. Of what was created, renamed, deleted or made
  there since, a power cut leaves a first part: within a directory the order is kept, between directories it is not,
  nor between names and contents. A rename happens whole or not at all.
- After a sync that failed with EIO the file promises nothing more: later syncs of it return and do nothing.

This is what POSIX promises, with journaled names as of ext4 and XFS. Files that were there before count as durable.
Files that others write below the root (Spark, locks) are left as they are; so is everything outside of it.

    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        run()                       # disk.verbs: how many there are
    ...
    disk.die_at(17, seed=3)
    with durable.use(disk), pytest.raises(Death):
        run()
    disk.power_cut(seed=3)          # or disk.revive(): the process was killed, the machine was not
    with durable.use(disk):
        run()
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from thalweg.state.disk import Data, Disk, Handle, OperatingSystem
from thalweg.testing.faults import Death

Done = TypeVar("Done")

VERBS = (
    "open",
    "create",
    "write",
    "truncate",
    "sync",
    "replace",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "sync_directory",
)
_NEED_SPACE = ("create", "write", "mkdir")
"""What a full disk refuses. To cut, rename, delete and sync takes no space."""


@dataclass(eq=False)
class _File:
    durable: bytes
    """The content that a power cut leaves for sure."""
    since: list[bytes | int] = field(default_factory=list)
    """What happened to it after that: bytes that were appended, or a size to which it was cut."""
    is_broken: bool = False
    """A sync of it failed."""

    def content(self, steps: int | None = None) -> bytes:
        """With the first `steps` of what happened; all of them when left out."""
        found = bytearray(self.durable)
        for step in self.since[:steps]:
            if isinstance(step, int):
                found = found[:step].ljust(step, b"\0")
            else:
                found += step
        return bytes(found)

    def sync(self) -> None:
        if not self.is_broken:
            self.durable, self.since = self.content(), []


@dataclass(eq=False)
class _Directory:
    undo: list[dict[str, _File | _Directory | None] | _Move] = field(default_factory=list)
    """For each operation on its names that is not durable: what these names stood for before it."""


@dataclass(frozen=True)
class _Move:
    """Of a directory, with all that it holds."""

    old: Path
    new: Path


_Node = _File | _Directory


@dataclass
class _Failure:
    at: int
    code: int
    times: int | None
    only: Collection[str]
    below: str = ""
    has_torn: bool = False
    """A full disk took part of a write; the next write must fail."""

    def concerns(self, number: int, verb: str, path: str) -> bool:
        return number >= self.at and verb in self.only and path.startswith(self.below)


class FaultyDisk(Disk):
    """A `Disk` over the real directory `root`. Verbs are counted from 1, over all threads; to close is no verb."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(os.path.abspath(root))
        self.verbs = 0
        """How many were begun."""
        self.trace: list[tuple[str, str]] = []
        """The verb and the path below the root of each: `trace[n - 1]` is verb n."""
        self.refused: list[tuple[int, str, str]] = []
        """(number, verb, path below the root) of those that raised OSError because `fail_at` says so."""
        self._real = OperatingSystem()
        self._lock = threading.RLock()
        self._nodes: dict[Path, _Node] = {}
        """What is known of the names as they are now. A name that is missing here is as durable as it looks."""
        self._handles: list[_FaultyHandle] = []
        self._life = 0
        self._is_dead = False
        self._death: int | None = None
        self._tear = True
        self._chance = Random(0)
        self._failure: _Failure | None = None

    # -- what is to happen -----------------------------------------------------------------------------------

    def die_at(self, verb: int, seed: int = 0, tear: bool = True) -> None:
        """The process dies in the verb of that number: before its effect or after it, as the seed has it, and with
        `tear` in the middle of a write. From then on every verb raises `Death`, so that no clean-up changes anything.
        The third verb from now is `disk.verbs + 3`."""
        with self._lock:
            self._death, self._tear, self._chance = verb, tear, Random(seed)

    def fail_at(
        self,
        verb: int,
        code: int,
        times: int | None = None,
        only: Collection[str] = VERBS,
        seed: int = 0,
        below: str = "",
    ) -> None:
        """From the verb of that number on, `times` verbs (None: all until `heal`) raise OSError with `code`.
        ENOSPC concerns only what needs space, and a write may have put a part on the disk before; EIO and EROFS
        concern all. `only`: these verbs. `below`: on paths that begin so, below the root."""
        with self._lock:
            only = [name for name in only if code != errno.ENOSPC or name in _NEED_SPACE]
            self._failure, self._chance = _Failure(verb, code, times, only, below), Random(seed)

    def heal(self, below: str = "") -> None:
        """Nothing fails any more; or what was to fail `below` only does not."""
        with self._lock:
            if self._failure is not None and (not below or self._failure.below == below):
                self._failure = None

    def revive(self) -> None:
        """A new process on the same machine: what was not synced can be read and is still not durable. Handles of
        the process before stay dead; its threads must have ended."""
        with self._lock:
            for handle in list(self._handles):
                handle.close()
            self._life += 1
            self._is_dead, self._death = False, None

    def power_cut(self, seed: int | None = None) -> None:
        """Turn the real directory into one of the states that a power cut can leave; then as `revive`. The seed
        chooses what of the rest was lost. Without one all of it was."""
        with self._lock:
            chance = Random(seed)
            mood = 0 if seed is None else chance.choice((0, 1, 2, 2, 2))
            self._forget_names(lambda most: (0, most, chance.randint(0, most))[mood])
            self._forget_contents(chance, mood)
            self._nodes.clear()
            self.revive()

    @property
    def is_dead(self) -> bool:
        return self._is_dead or (self._death is not None and self.verbs >= self._death)

    @property
    def unsynced(self) -> list[str]:
        """The paths below the root, of files and directories, that a power cut could change."""
        with self._lock:
            return sorted(
                self._relative(path)
                for path, node in self._nodes.items()
                if (node.since if isinstance(node, _File) else node.undo)
            )

    # -- the verbs -------------------------------------------------------------------------------------------

    def open(self, path: Path, private: bool = False) -> Handle:
        path = _absolute(path)
        if not self._is_below(path):
            return self._outside(lambda: self._real.open(path, private))

        def effect() -> Handle:
            node = self._node(path)
            real = self._real.open(path, private)
            if node is None:
                node = _File(b"")
                self._note(path, node)
            assert isinstance(node, _File)
            handle = _FaultyHandle(self, path, node, real, self._life)
            self._handles.append(handle)
            return handle

        return self._do("open" if os.path.lexists(path) else "create", path, effect)

    def replace(self, old: Path, new: Path) -> None:
        old, new = _absolute(old), _absolute(new)
        if old.parent != new.parent:
            raise NotImplementedError(f"{old} and {new} are in two directories")
        if not self._is_below(old):
            return self._outside(lambda: self._real.replace(old, new))

        def effect() -> None:
            node, replaced = self._node(old), self._node(new)
            self._real.replace(old, new)
            if isinstance(node, _Directory):
                self._directory(old.parent).undo.append(_Move(old, new))
                self._rekey(old, new)
            elif node is None or node is not replaced:  # two names of one file both stay
                self._directory(old.parent).undo.append({old.name: node, new.name: replaced})
                self._nodes.pop(old, None)
                if node is not None:
                    self._nodes[new] = node

        return self._do("replace", new, effect)

    def link(self, old: Path, new: Path) -> None:
        old, new = _absolute(old), _absolute(new)
        if not self._is_below(old) or not self._is_below(new):
            return self._outside(lambda: self._real.link(old, new))

        def effect() -> None:
            node = self._node(old)
            self._real.link(old, new)
            self._note(new, node)

        return self._do("link", new, effect)

    def unlink(self, path: Path) -> None:
        path = _absolute(path)
        if not self._is_below(path):
            return self._outside(lambda: self._real.unlink(path))

        def effect() -> None:
            node = self._node(path)
            self._real.unlink(path)
            self._note(path, None, node)

        return self._do("unlink", path, effect)

    def mkdir(self, path: Path, private: bool = False) -> None:
        path = _absolute(path)
        if not self._is_below(path):
            return self._outside(lambda: self._real.mkdir(path, private))

        def effect() -> None:
            self._real.mkdir(path, private)
            self._note(path, _Directory())

        return self._do("mkdir", path, effect)

    def rmdir(self, path: Path) -> None:
        path = _absolute(path)
        if not self._is_below(path):
            return self._outside(lambda: self._real.rmdir(path))

        def effect() -> None:
            node = self._node(path)
            self._real.rmdir(path)
            self._note(path, None, node)

        return self._do("rmdir", path, effect)

    def sync_directory(self, path: Path) -> None:
        path = _absolute(path)
        if path != self.root and not self._is_below(path):
            return self._outside(lambda: None)

        def effect() -> None:
            if not path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._directory(path).undo.clear()

        return self._do("sync_directory", path, effect)

    # -- the model of names ----------------------------------------------------------------------------------

    def _node(self, path: Path) -> _Node | None:
        """What a name stands for now. What was not seen before is durable."""
        if path not in self._nodes and os.path.lexists(path):
            self._nodes[path] = _Directory() if path.is_dir() else _File(path.read_bytes())
        return self._nodes.get(path)

    def _directory(self, path: Path) -> _Directory:
        node = self._nodes.setdefault(path, _Directory())
        assert isinstance(node, _Directory)
        return node

    def _note(self, path: Path, now: _Node | None, before: _Node | None = None) -> None:
        self._directory(path.parent).undo.append({path.name: before})
        if now is None:
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = now

    def _forget_names(self, keep: Callable[[int], int]) -> None:
        """Parents first: a directory that comes back brings what was not durable of its own names. Else in the order
        of the verbs: names that are made up must not change what a seed does."""
        waiting = [path for path, node in self._nodes.items() if isinstance(node, _Directory)]
        waiting.sort(key=lambda path: len(path.parts))
        while waiting:
            path = waiting.pop(0)
            directory = self._nodes.get(path)
            if not isinstance(directory, _Directory):
                continue  # it went with a parent
            undo, directory.undo = directory.undo, []
            for names in reversed(undo[keep(len(undo)) :]):
                if isinstance(names, _Move):
                    os.rename(names.new, names.old)
                    self._rekey(names.new, names.old)
                    continue
                for name in names:
                    self._remove(path / name)
                for name, node in names.items():
                    self._restore(path / name, node)
            here = str(path)
            waiting += [c for c in self._nodes if os.path.dirname(c) == here and c not in waiting]

    def _rekey(self, old: Path, new: Path) -> None:
        """What is known of a directory that has moved."""
        for path in [path for path in self._nodes if _is_within(path, old)]:
            self._nodes[new / path.relative_to(old)] = self._nodes.pop(path)

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
        for known in [known for known in self._nodes if _is_within(known, path)]:
            del self._nodes[known]

    def _restore(self, path: Path, node: _Node | None) -> None:
        if isinstance(node, _Directory):
            path.mkdir()
        elif node is not None:
            path.write_bytes(node.content())
        if node is not None:
            self._nodes[path] = node

    def _forget_contents(self, chance: Random, mood: int) -> None:
        for path, node in self._nodes.items():
            if isinstance(node, _File) and node.since and mood != 1:
                # A new file: the old one may be mapped into memory by those who died.
                written = path.with_name(path.name + ".left")
                written.write_bytes(node.durable if mood == 0 else _part_of(node, chance))
                os.replace(written, path)

    # -- passing a verb --------------------------------------------------------------------------------------

    def _do(
        self,
        verb: str,
        path: Path,
        effect: Callable[[], Done],
        part: Callable[[], Done] | None = None,
        life: int | None = None,
    ) -> Done:
        """`part`: what a torn write or a full disk makes of it."""
        with self._lock:
            self._check_alive(life)
            self.verbs += 1
            self.trace.append((verb, self._relative(path)))
            if self._death is not None and self.verbs >= self._death:
                self._die(verb, path, effect, part)
            failure = self._failure
            if failure is not None and failure.concerns(self.verbs, *self.trace[-1]):
                return self._fail(failure, verb, path, part)
            return effect()

    def _outside(self, effect: Callable[[], Done]) -> Done:
        with self._lock:
            self._check_alive(None)
            return effect()

    def _check_alive(self, life: int | None) -> None:
        if self._is_dead or (life is not None and life != self._life):
            raise Death(f"dead since verb {self._death}" if self._is_dead else "a handle of a process that died")

    def _die(self, verb: str, path: Path, effect: Callable[[], Done], part: Callable[[], Done] | None) -> None:
        ends = ["before", "after", *(["within"] if part is not None and self._tear else [])]
        end = self._chance.choice(ends)
        try:
            if end == "after":
                effect()
            elif end == "within" and part is not None:
                part()
        finally:
            self._is_dead = True
        raise Death(f"{end} verb {self.verbs}: {verb} {self._relative(path)}")

    def _fail(self, failure: _Failure, verb: str, path: Path, part: Callable[[], Done] | None) -> Done:
        if failure.code == errno.ENOSPC and part is not None and not failure.has_torn and self._chance.random() < 0.5:
            failure.has_torn = True
            return part()
        failure.has_torn = False
        if failure.times is not None:
            failure.times -= 1
            if failure.times <= 0:
                self._failure = None
        self.refused.append((self.verbs, verb, self._relative(path)))
        raise OSError(failure.code, os.strerror(failure.code), str(path))

    def _is_below(self, path: Path) -> bool:
        return path != self.root and _is_within(path, self.root)

    def _relative(self, path: Path) -> str:
        return str(path)[len(str(self.root)) + 1 :] or "."


class _FaultyHandle(Handle):
    """An open file of a `FaultyDisk`, usable in one life."""

    def __init__(self, disk: FaultyDisk, path: Path, file: _File, real: Handle, life: int) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._real = real
        self._life = life

    def write(self, data: Data) -> int:
        def effect(length: int | None = None) -> int:
            written = bytes(memoryview(data)[:length])
            self._real.write(written)
            self._file.since.append(written)
            return len(written)

        size = memoryview(data).nbytes
        part = (lambda: effect(self._disk._chance.randrange(1, size))) if size > 1 else None
        return self._disk._do("write", self._path, effect, part, self._life)

    def truncate(self, size: int) -> None:
        def effect() -> None:
            self._real.truncate(size)
            self._file.since.append(size)

        self._disk._do("truncate", self._path, effect, life=self._life)

    def sync(self) -> None:
        try:
            self._disk._do("sync", self._path, self._file.sync, life=self._life)
        except OSError as error:
            # The kernel may have dropped what it could not write, and holds the rest for clean.
            self._file.is_broken |= error.errno == errno.EIO
            raise

    def close(self) -> None:
        with self._disk._lock:
            if self in self._disk._handles:
                self._disk._handles.remove(self)
                self._real.close()


def _part_of(file: _File, chance: Random) -> bytes:
    """One of the contents that a power cut can leave."""
    steps = chance.randint(0, len(file.since))
    found = file.content(steps)
    if steps < len(file.since):
        step = file.since[steps]
        if isinstance(step, bytes):
            there = chance.randint(0, len(step))
            found += step[:there]
            if chance.random() < 0.3:
                found += bytes(chance.randint(0, len(step) - there))
    return found


def _is_within(path: Path, directory: Path) -> bool:
    """Or the directory itself. By text: it is asked of all names for each verb."""
    text, above = str(path), str(directory)
    return text.startswith(above) and (len(text) == len(above) or text[len(above)] == os.sep)


def _absolute(path: Path) -> Path:
    text = str(path)
    found = os.path.abspath(text)
    return path if found == text else Path(found)
