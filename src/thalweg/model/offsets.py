"""How far a pipeline has read its streams, and what it knows of their sources."""

from __future__ import annotations

import msgspec


class Offsets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a batch ends, and the next one begins."""

    tick: int = 0
    """Grows with every request for a batch without data."""
    streams: dict[str, int] = {}
    """Units consumed, by stream. One that nothing was ever read from is missing."""


NOTHING = Offsets()


class SourceMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source had offered when a batch was committed: a number must mean the same unit ever after."""

    units: int
    """How many units were durably known, consumed or not."""
    crc: int
    """Of what the source has written down about them."""
