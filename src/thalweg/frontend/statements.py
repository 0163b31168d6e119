"""Statements as values: what a user can tell a session, with every SELECT still as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.model.if_there import IfThere
from thalweg.model.stream import Field


@dataclass(frozen=True)
class CreateStream:
    name: str
    fields: tuple[Field, ...] | None
    """None: the source knows its columns."""
    time: str
    delay_us: int
    options: dict[str, str]
    """Of the source."""
    limits: dict[str, str] = field(default_factory=dict)
    """Of the stream: max_ahead, idle_timeout, retain_rejected."""
    if_there: IfThere = field(default_factory=IfThere)


@dataclass(frozen=True)
class AlterStream:
    name: str
    changes: dict[str, str]
    """watermark, idle_timeout, max_ahead."""


@dataclass(frozen=True)
class DropStream:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ResetWatermark:
    stream: str


@dataclass(frozen=True)
class CreateQuery:
    name: str
    select: str
    offset: int
    """Where the SELECT begins in the whole text."""
    sink: str | None
    options: dict[str, str]
    emit: str
    """final | updates."""
    if_there: IfThere = field(default_factory=IfThere)


@dataclass(frozen=True)
class CreateTable:
    name: str
    fields: tuple[Field, ...] | None
    """None: the files know their columns."""
    options: dict[str, str]
    if_there: IfThere = field(default_factory=IfThere)


@dataclass(frozen=True)
class DropTable:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class DropQuery:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class PauseQuery:
    name: str


@dataclass(frozen=True)
class ResumeQuery:
    name: str


@dataclass(frozen=True)
class Show:
    what: str
    """queries | streams | tables | functions."""


@dataclass(frozen=True)
class ShowCreate:
    kind: str
    """stream | table | query."""
    name: str


@dataclass(frozen=True)
class Describe:
    name: str
    offset: int
    """Where the name begins in the whole text."""
    kind: str | None = None
    """stream | table | query; None: whatever has the name."""


@dataclass(frozen=True)
class SelectResults:
    """Over what there is now: answered at once."""

    text: str
    offset: int
    """Where it begins in the whole text."""


@dataclass(frozen=True)
class Explain:
    name: str | None
    form: str = "text"
    """text | mermaid | graphviz."""


Statement = (
    CreateStream
    | CreateTable
    | CreateQuery
    | AlterStream
    | ResetWatermark
    | DropStream
    | DropTable
    | DropQuery
    | PauseQuery
    | ResumeQuery
    | Show
    | ShowCreate
    | Describe
    | SelectResults
    | Explain
)
