"""A stream: a named source with a schema, an event-time column and a watermark delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thalweg.model.canonical import canonical
from thalweg.model.types import to_arrow, to_inner_arrow


@canonical("Field(name, type)")
@dataclass(frozen=True)
class Field:
    name: str
    type: str
    """Spark's name of the type, such as `bigint` or `decimal(10,2)`."""


@canonical("Schema(fields)")
@dataclass(frozen=True)
class Schema:
    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def type_of(self, name: str) -> str:
        return next(f.type for f in self.fields if f.name == name)

    def to_arrow(self) -> pa.Schema:
        """What users see: timestamps are instants in UTC."""
        return pa.schema([pa.field(f.name, to_arrow(f.type)) for f in self.fields])

    def to_inner_arrow(self) -> pa.Schema:
        """What the data path carries: timestamps are naive UTC microseconds."""
        return pa.schema([pa.field(f.name, to_inner_arrow(f.type)) for f in self.fields])


@canonical("SourceSpec(kind, options)")
@dataclass(frozen=True)
class SourceSpec:
    """A source as plain data: what is durable, and all that a reader in another process gets to know."""

    kind: str
    """The name of one of the kinds of `source/`."""
    options: Mapping[str, Any]
    """JSON values only."""


@canonical("Stream(name, schema, time, delay_us, source, max_ahead_us?, idle_us?, retain_rejected?, incarnation?)")
@dataclass(frozen=True, repr=False)
class Stream:
    name: str
    schema: Schema
    time: str
    """The event-time column, of type timestamp or timestamp_ntz."""
    delay_us: int
    """How far the watermark stays behind the greatest event time seen."""
    source: SourceSpec
    max_ahead_us: int | None = None
    """How far a row may be ahead of the wall clock of its batch; None: however far."""
    idle_us: int | None = None
    """After so long without rows it holds nobody else back; None: it always does."""
    retain_rejected: int | None = None
    """Bytes of rows set aside that are kept, the newest first; None: all."""
    incarnation: int = 0
    """The request by which the stream of this name before it was dropped; 0: there was none."""

    @property
    def place(self) -> str:
        """What the state calls it where it keeps what is the stream's own. No other stream ever has the same."""
        return f"{self.name}@{self.incarnation}" if self.incarnation else self.name

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema.fields)
        behind = f"watermark {self.delay_us / 1e6:g} s behind {self.time}"
        return f"<stream {self.name} ({columns}) from {self.source.kind}, {behind}>"


def name_in(place: str) -> str:
    """The name of the stream that has the place."""
    return place.partition("@")[0]
