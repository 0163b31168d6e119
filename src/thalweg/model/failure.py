"""What has gone wrong in a batch, and with what.

A computed column and a partial are shared: what fails there concerns every query that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct


class OfQuery(Struct, frozen=True, array_like=True, tag="query"):
    query: str
    """Its id."""


class OfColumn(Struct, frozen=True, array_like=True, tag="column"):
    """A computed column."""

    stream: str
    column: str


class OfPartial(Struct, frozen=True, array_like=True, tag="partial"):
    grouping: str
    partial: str


Failing: TypeAlias = OfQuery | OfColumn | OfPartial
Failures: TypeAlias = dict[Failing, str]
"""What went wrong with each, in words."""


def failed_columns(failures: Mapping[Failing, str], stream: str) -> set[str]:
    """Of a stream, by name."""
    return {failing.column for failing in failures if isinstance(failing, OfColumn) and failing.stream == stream}
