"""How far batches have read their sources."""

from __future__ import annotations

from msgspec import Struct


class Offsets(Struct, frozen=True, forbid_unknown_fields=True):
    tick: int = 0
    """Grows with every request for a batch."""
    streams: dict[str, int] = {}
    """stream -> units consumed."""


class SourceMark(Struct, frozen=True, forbid_unknown_fields=True):
    """What a manifest knows of a source's units, so that missing ones are noticed."""

    units: int
    """How many are durably known."""
    crc: int
    """A running checksum over the entries of those that were consumed."""


NOTHING = Offsets()
