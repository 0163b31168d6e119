"""The sources that this program can name, and what is asked of them by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thalweg.errors import ThalwegError, unknown_source
from thalweg.kinds.registry import Registry
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.source import KINDS
from thalweg.source.contract import Source, SourceKind


def _unknown(name: str, known: tuple[str, ...], near: list[str]) -> ThalwegError:
    return unknown_source(name, [kind for kind in known if kind not in KINDS or SOURCES.get(kind).in_sql])


SOURCES: Registry[SourceKind[Any]] = Registry("source", SourceKind, KINDS, _unknown)


def kind_of(stream: Stream) -> SourceKind[Any]:
    return SOURCES.get(stream.source.kind)


def trouble_of(stream: Stream) -> str | None:
    """Why nothing can come from its source at the moment, but for a kind that this program does not have."""
    kind = SOURCES.find(stream.source.kind)
    return None if kind is None else kind.trouble(kind.options_of(stream.source))


def make_source(kind: str, stream: str, options: Mapping[str, str], schema: Schema | None) -> Source:
    """The source of `CREATE STREAM stream ... OPTIONS (source = kind, ...)`."""
    found = SOURCES.get(kind.lower())
    if not found.in_sql:
        raise _unknown(kind, SOURCES.names(), [])
    return found.make(stream, options, schema)


def is_same_source(known: SourceSpec, given: SourceSpec) -> bool:
    return known.kind == given.kind and SOURCES.get(known.kind).is_same(known, given)


def from_outside(streams: Iterable[Stream]) -> dict[str, SourceKind[Any]]:
    """The kinds of these streams that are not Thalweg's own: tasks elsewhere may not know them."""
    names = {s.source.kind for s in streams if not SOURCES.is_own(s.source.kind)}
    return {name: kind for name in sorted(names) if (kind := SOURCES.find(name)) is not None}
