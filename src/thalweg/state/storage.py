"""Where state lives: the one door to it. Nobody else knows whether it is a directory, memory or an object store.

An object has a name such as `manifests/000000000041`: parts that are divided by `/`, relative to the place. It is
there whole or not at all, durable once the verb that made it returns, and found under one name. There are no
directories to make and none to clean up.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

Data: TypeAlias = bytes | bytearray | memoryview
Stamp: TypeAlias = tuple[int | str, ...]


class ObjectWriter(io.BufferedWriter, ABC):
    """An object that is written in pieces. It has its name once `finish` returns."""

    @abstractmethod
    def finish(self, durable: bool = True) -> None:
        """`durable=False` for what a crash may take. If it fails, nothing is left behind."""

    @abstractmethod
    def abandon(self) -> None:
        """Leave nothing behind, and write nothing more."""


class Hold(Protocol):
    """That one session has the place to itself, as far as the place can see to it."""

    def check(self) -> None:
        """Raises if that has come to an end."""
        ...

    def release(self) -> None: ...


class NoHold:
    """Of a place that cannot see who uses it. Terms and objects that are created once keep sessions apart."""

    def check(self) -> None:
        pass

    def release(self) -> None:
        pass


Fetch: TypeAlias = Callable[[Sequence[tuple[int, int]]], None]
"""Puts these bytes of an object, from and to, where they belong."""


@dataclass(frozen=True)
class Holes:
    """An object that is not at hand, as long as it is; where nothing was fetched there may be anything."""

    buffer: pa.Buffer
    fetch: Fetch


class Storage(Protocol):
    """A value: tasks get it with their work, in other processes and on other machines."""

    @property
    def place(self) -> str:
        """What users call it: the path of a directory, or a URL."""
        ...

    def claim(self) -> None:
        """Make the place, or take it if it is empty or holds the state of a pipeline. Any other is refused, and left
        as it is."""
        ...

    def check(self) -> None:
        """Refuses a place that is neither empty nor holds a state. Only looks."""
        ...

    def hold(self) -> Hold:
        """Refuses a place that another session holds."""
        ...

    def sweep(self) -> None:
        """Take away what writers that died have left. Only for who has the place to itself and has not begun."""
        ...

    def locate(self, name: str) -> str:
        """Where an object lies, for messages."""
        ...

    def stamp(self, name: str) -> Stamp | None:
        """Another one whenever the object is another; None where there is none."""
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it, which is shorter where the object ends. A missing one is a StateError."""
        ...

    def find(self, name: str) -> bytes | None:
        """An object, durable; None where there is none."""
        ...

    def open(self, name: str) -> pa.Buffer:
        """An object that never changes, without a copy of it where that can be."""
        ...

    def open_in_parts(self, name: str) -> Holes | None:
        """An object that never changes and is worth fetching in parts; None where `open` is as good."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The names below `prefix`, which ends with `/` or is empty, in order. What they name is durable."""
        ...

    def write(self, name: str, data: Data, durable: bool = True) -> None:
        """Make the object, or replace it."""
        ...

    def create(self, name: str, data: Data) -> bool:
        """Make the object if the name is free; False if it is not. Of all who try at once, one gets True."""
        ...

    def writer(self, name: str) -> ObjectWriter: ...

    def delete(self, name: str) -> None:
        """Delete an object if it is there. After a power cut it may be back."""
        ...
