"""What is said of a name that is taken already."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IfThere:
    """What becomes of something that has the name, if it is not just taken up after a restart."""

    replace: bool = False
    keep: bool = False
