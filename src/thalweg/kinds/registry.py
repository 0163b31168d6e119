"""Kinds by name: those of this package, those that a program registers, and those that installed packages bring.

A kind is one object. This package lists its own as a packager lists entry points: `name -> "module:object"`, one line
each, loaded when it is first asked for. Another package lists its kinds under the entry-point group of their sort,
such as "thalweg.sinks"; a program calls `register`.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

import msgspec

from thalweg.errors import ThalwegError, kind_broken, kind_taken, not_a_kind

K = TypeVar("K")
_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
Unknown = Callable[[str, tuple[str, ...], list[str]], ThalwegError]
"""(name, those that are known, those with a similar name) -> the error that the user gets."""


class Registry(Generic[K]):
    """Kinds of one sort. Any thread may use it."""

    def __init__(self, sort: str, contract: type[Any], own: Mapping[str, str], unknown: Unknown) -> None:
        """`sort`: "source", "sink", "aggregate", "window". `own`: those of this package."""
        self._sort = sort
        self._contract = contract
        self._own = own
        self._unknown = unknown
        self._loaded: dict[str, K] = {}
        self._given: set[str] = set()
        """The names that a program has registered."""
        self._installed: dict[str, list[EntryPoint]] | None = None
        self._mutex = threading.RLock()

    @property
    def group(self) -> str:
        """Of entry points."""
        return f"thalweg.{self._sort}s"

    def register(self, kind: K, replace: bool = False) -> None:
        name = self._checked(kind)
        with self._mutex:
            if name in self._own or (name in self._given and not replace):
                raise kind_taken(self._sort, name, "Thalweg's own" if name in self._own else "one that is registered")
            if name in self._entries():
                raise kind_taken(self._sort, name, f"that of {_package(self._entries()[name][0])}")
            self._loaded[name] = kind
            self._given.add(name)

    def forget(self, name: str) -> None:
        """Takes back what was registered."""
        with self._mutex:
            if name in self._given:
                self._given.discard(name)
                del self._loaded[name]

    def get(self, name: str) -> K:
        with self._mutex:
            found = self.find(name)
            if found is None:
                known = self.names()
                raise self._unknown(name, known, difflib.get_close_matches(name, known, n=3))
            return found

    def find(self, name: str) -> K | None:
        with self._mutex:
            if name not in self._loaded:
                loaded = self._load(name)
                if loaded is None:
                    return None
                self._loaded[name] = loaded
            return self._loaded[name]

    def names(self) -> tuple[str, ...]:
        """Of all kinds: Thalweg's own in their order, then the others."""
        with self._mutex:
            return tuple(dict.fromkeys((*self._own, *sorted(self._given), *sorted(self._entries()))))

    def is_own(self, name: str) -> bool:
        return name in self._own

    def _load(self, name: str) -> K | None:
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            own: K = getattr(import_module(module), attribute)
            return own
        entries = self._entries().get(name)
        if not entries:
            return None
        if len(entries) > 1:
            raise kind_taken(self._sort, name, " and ".join(map(_package, entries)))
        try:
            found: Any = entries[0].load()
        except Exception as error:
            raise kind_broken(self._sort, name, _package(entries[0]), error) from error
        kind: K = found() if isinstance(found, type) else found
        if self._checked(kind) != name:
            raise not_a_kind(self._sort, name, f"it calls itself {getattr(kind, 'name', None)!r}")
        return kind

    def _entries(self) -> dict[str, list[EntryPoint]]:
        """What installed packages bring, looked up once."""
        if self._installed is None:
            found: dict[str, list[EntryPoint]] = {}
            for entry in entry_points(group=self.group):
                found.setdefault(entry.name, []).append(entry)
            for name in found:
                if name in self._own:
                    raise kind_taken(self._sort, name, f"Thalweg's own; {_package(found[name][0])} brings one, too")
            self._installed = found
        return self._installed

    def _checked(self, kind: object) -> str:
        """The name of a kind that fulfils its contract as far as can be seen."""
        if isinstance(kind, type) or not isinstance(kind, self._contract):
            shown = kind.__name__ if isinstance(kind, type) else type(kind).__name__
            raise not_a_kind(self._sort, shown, f"give an instance of a class derived from {self._contract.__name__}")
        name = getattr(kind, "name", None)
        if not isinstance(name, str) or not _NAME.match(name):
            raise not_a_kind(self._sort, type(kind).__name__, f"its name is {name!r}: write small letters, digits, _")
        options = getattr(kind, "options", None)
        if options is not None and not (isinstance(options, type) and issubclass(options, msgspec.Struct)):
            raise not_a_kind(self._sort, name, f"its options are {options!r}, not a msgspec.Struct")
        return name


def _package(entry: EntryPoint) -> str:
    return f"package {entry.dist.name}" if entry.dist is not None else entry.value
