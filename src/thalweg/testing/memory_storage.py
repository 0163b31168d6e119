"""State in memory, with faults on cue: for tests of what happens around a storage.

storage = MemoryStorage("memory://a-test")
run(storage)                             # storage.world.verbs: how many there are
storage.world.die_at(17, seed=3)
with pytest.raises(Death):
    run(storage)
storage.world.revive()
run(MemoryStorage("memory://a-test"))    # a new session opens what is left
"""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from thalweg.errors import missing_file
from thalweg.state.ownership import check_objects, mark_objects
from thalweg.state.storage import Data, Hold, Holes, NoHold, ObjectWriter, Stamp
from thalweg.testing.faults import Death

Done = TypeVar("Done")


class World:
    """What all storages of one place share. Verbs are counted from 1, over all threads."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        """Content and the number of the verb that made it."""
        self.verbs = 0
        self.trace: list[tuple[str, str]] = []
        """The verb and the name of each: `trace[n - 1]` is verb n."""
        self.in_parts = False
        """Whether buckets are fetched in parts, as those of an object store are."""
        self.fetched: dict[str, int] = {}
        """Name -> bytes that were read of it."""
        self._lock = threading.RLock()
        self._is_dead = False
        self._death: int | None = None
        self._chance = Random(0)
        self._failing = range(0)

    def die_at(self, verb: int, seed: int = 0) -> None:
        """The process dies in the verb of that number, before its effect or after it, as the seed has it. From then
        on every verb raises `Death`."""
        self._death, self._chance = verb, Random(seed)

    def fail_at(self, verb: int, times: int = 1) -> None:
        """`times` verbs from that number on raise OSError and do nothing."""
        self._failing = range(verb, verb + times)

    def revive(self) -> None:
        """A new process; nothing fails any more."""
        self._is_dead, self._death, self._failing = False, None, range(0)

    def do(self, verb: str, name: str, effect: Callable[[], Done]) -> Done:
        with self._lock:
            if self._is_dead:
                raise Death
            self.verbs += 1
            self.trace.append((verb, name))
            if self.verbs in self._failing:
                raise OSError(errno.EIO, "as the test wants it", name)
            self._is_dead = self.verbs == self._death
            if not self._is_dead:
                return effect()
            if self._chance.random() < 0.5:
                effect()
            raise Death

    def count(self, name: str, length: int) -> None:
        with self._lock:
            self.fetched[name] = self.fetched.get(name, 0) + length

    def put(self, name: str, data: Data) -> None:
        self.objects[name] = (bytes(data), self.verbs)

    def put_new(self, name: str, data: Data) -> bool:
        if name in self.objects:
            return False
        self.put(name, data)
        return True


@dataclass(frozen=True)
class MemoryStorage:
    """A value like the others: within a process all of one place see the same objects."""

    place: str
    _worlds: ClassVar[dict[str, World]] = {}

    def forget(self) -> None:
        """Let go of all that is kept at the place."""
        self._worlds.pop(self.place, None)

    @property
    def world(self) -> World:
        return self._worlds.setdefault(self.place, World())

    def claim(self) -> None:
        self.check()
        mark_objects(self)

    def check(self) -> None:
        check_objects(self, lambda: sorted({name.split("/")[0] for name in self.names("")}))

    def hold(self) -> Hold:
        return NoHold()

    def sweep(self) -> None:
        pass

    def locate(self, name: str) -> str:
        return f"{self.place}/{name}"

    def stamp(self, name: str) -> Stamp | None:
        found = self._get("stamp", name)
        return None if found is None else (found[1],)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._read("read", name)[start : None if length is None else start + length]

    def find(self, name: str) -> bytes | None:
        found = self._get("find", name)
        return None if found is None else found[0]

    def open(self, name: str) -> pa.Buffer:
        data = self._read("open", name)
        self.world.count(name, len(data))
        return pa.py_buffer(data)

    def open_in_parts(self, name: str) -> Holes | None:
        if not self.world.in_parts or not name.startswith("buckets/"):
            return None
        data = self._read("open", name)
        parts = bytearray(b"\xa5" * len(data))  # nobody takes what was not fetched for rows

        def fetch(spans: Sequence[tuple[int, int]]) -> None:
            for low, high in spans:
                parts[low:high] = data[low:high]
                self.world.count(name, high - low)

        return Holes(pa.py_buffer(parts), fetch)

    def names(self, prefix: str) -> list[str]:
        objects = self.world.objects
        return self.world.do("names", prefix, lambda: sorted(name for name in objects if name.startswith(prefix)))

    def write(self, name: str, data: Data, durable: bool = True) -> None:
        self.world.do("write", name, lambda: self.world.put(name, data))

    def create(self, name: str, data: Data) -> bool:
        return self.world.do("create", name, lambda: self.world.put_new(name, data))

    def writer(self, name: str) -> ObjectWriter:
        return _MemoryWriter(lambda data: self.world.do("finish", name, lambda: self.world.put(name, data)))

    def delete(self, name: str) -> None:
        self.world.do("delete", name, lambda: self.world.objects.pop(name, None))

    def _get(self, verb: str, name: str) -> tuple[bytes, int] | None:
        return self.world.do(verb, name, lambda: self.world.objects.get(name))

    def _read(self, verb: str, name: str) -> bytes:
        found = self._get(verb, name)
        if found is None:
            raise missing_file(self.locate(name))
        return found[0]


class _MemoryWriter(ObjectWriter):
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._pieces = _Pieces()
        super().__init__(self._pieces)

    def finish(self, durable: bool = True) -> None:
        self.close()
        self._put(bytes(self._pieces.data))

    def abandon(self) -> None:
        self.close()


class _Pieces(io.RawIOBase):
    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)

    def tell(self) -> int:
        return len(self.data)
