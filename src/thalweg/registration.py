"""Kinds that a program brings: registered by a call. Installed packages list theirs as entry points.

    [project.entry-points."thalweg.sinks"]
    letters = "my_package.letters:LettersKind"

The groups are thalweg.sources, thalweg.sinks, thalweg.aggregates and thalweg.windows; an entry names an object or a
class of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thalweg.aggregates.contract import AggregateFamily
from thalweg.aggregates.families import FAMILIES, arities
from thalweg.errors import kind_taken, not_a_kind
from thalweg.frontend.functions import is_reserved
from thalweg.frontend.window_kinds import WINDOWS, WindowKind
from thalweg.model.query import SinkSpec
from thalweg.sink.contract import SinkKind
from thalweg.sink.kinds import SINKS
from thalweg.source.contract import Source, SourceKind
from thalweg.source.kinds import SOURCES

__all__ = [
    "AggregateFamily",
    "SinkKind",
    "SourceKind",
    "WindowKind",
    "register_aggregate",
    "register_sink",
    "register_source",
    "register_window",
]


def register_source(kind: SourceKind[Any], *, replace: bool = False) -> Callable[..., Source]:
    """Makes a kind of source known: CREATE STREAM ... OPTIONS (source = NAME, ...). What is returned makes such
    a source in Python, from its options as keywords; `schema` beside them gives the columns."""
    SOURCES.register(kind, replace)

    def make(*, schema: Any = None, **options: Any) -> Source:
        from thalweg.source.schema import as_schema

        return kind.make("", options, None if schema is None else as_schema(schema))

    return make


def register_sink(kind: SinkKind[Any], *, replace: bool = False) -> Callable[..., SinkSpec]:
    """Makes a kind of sink known: CREATE QUERY ... INTO NAME OPTIONS (...). What is returned names such a sink in
    Python, from its options as keywords."""
    SINKS.register(kind, replace)
    return kind.spec


def register_aggregate(family: AggregateFamily, *, replace: bool = False) -> None:
    """Makes aggregates known that DuckDB can combine and merge. One of Python functions is `thalweg.aggregate`."""
    known = FAMILIES.find(getattr(family, "name", "")) if replace else None
    for name in getattr(family, "names", ()):
        if name != name.lower() or (is_reserved(name) and not (known is not None and name in known.names)):
            taken = name in arities()
            raise kind_taken("aggregate", name, "it has that name" if taken else "the name has a meaning in SQL")
    if isinstance(family, AggregateFamily) and family.returns is None:
        raise not_a_kind("aggregate", family.name, "Spark does not know it: `returns` has to say which type it gives")
    FAMILIES.register(family, replace)


def register_window(kind: WindowKind, *, replace: bool = False) -> None:
    """Makes another spelling of windows known: GROUP BY NAME(time, lengths ...)."""
    if is_reserved(getattr(kind, "name", "")) and not replace:
        raise kind_taken("window", kind.name, "the name has a meaning in SQL")
    WINDOWS.register(kind, replace)
