"""How the stages of a batch are run."""

from __future__ import annotations

from enum import StrEnum


class Way(StrEnum):
    """How the stages of a batch are run. Results do not depend on it."""

    STAGES = "stages"
    """Tasks side by side, a shuffle of cells between two stages."""
    FUSED = "fused"
    """All in one task."""
    DRIVER = "driver"
    """All in the calling process."""
