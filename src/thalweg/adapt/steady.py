"""Measurements that do not sway: noise must not make another plan."""

from __future__ import annotations

import math

STAYS = 1.8
"""A power of two is kept while the ratio is less than this many times away."""


def power_of_two(ratio: float, known: float | None) -> float:
    """The nearest one; the known one as long as it is not far off, so that what lies between two does not sway."""
    if known is not None and known / STAYS <= ratio <= known * STAYS:
        return known
    return 0.0 if ratio <= 0 else float(2.0 ** round(math.log2(ratio)))
