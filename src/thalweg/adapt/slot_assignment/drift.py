"""How far a stream has moved from what a plan was fitted to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thalweg.adapt.slot_assignment.merging import merged
from thalweg.adapt.slot_assignment.noise import between_samples
from thalweg.adapt.slot_assignment.sharing import Pair, Shares

Floats = NDArray[np.float64]

MOST_NOISE = 0.35
"""Key groups are merged until two samples of one and the same stream would be no further apart than this."""
COARSEST = 4


def drift(old: Shares, new: Shares) -> float:
    """0 where the stream is as it was, 1 where it has nothing in common with it: the mean over the pairs.

    The route keys alone are compared where no pair is known on both sides.
    """
    moved = drift_by_pair(old, new)
    if moved:
        return float(np.mean(list(moved.values())))
    common = [key for key in old.counts if key in new.counts and old.counts[key].any() and new.counts[key].any()]
    if not common:
        return float(bool(old.counts) or bool(new.counts))
    sizes = [max(shares.sampled.values(), default=shares.rows) for shares in (old, new)]
    return float(np.mean([_moved(old.counts[key], new.counts[key], *sizes) for key in common]))


def drift_by_pair(old: Shares, new: Shares) -> dict[Pair, float]:
    """Of every pair that was counted on both sides; what a forest has filled in is no measurement."""
    return {
        pair: _moved(table, new.joint[pair], old.sampled[pair], new.sampled[pair])
        for pair, table in old.joint.items()
        if min(old.sampled.get(pair, 0.0), new.sampled.get(pair, 0.0)) > 0.0 and table.any() and new.joint[pair].any()
    }


def _moved(old: Floats, new: Floats, before: float, now: float) -> float:
    """Total variation distance, less what samples of `before` and `now` rows of one stream show of it.

    Two samples of few rows over many cells hardly have a cell in common, so the distance of any two is almost 1
    and says nothing. Merged key groups show less of a change, but what they show is there.
    Rows that both samples contain make them more alike than the noise suggests: then the result is 0.
    """
    first, second = old / old.sum(), new / new.sum()
    size = len(first)
    while (noise := between_samples(first, second, before, now) / 2) > MOST_NOISE and size > COARSEST:
        size = max(size // 2, COARSEST)
        first, second = merged(first, size), merged(second, size)
    distance = float(np.abs(first - second).sum()) / 2
    return min(max((distance - noise) / max(1.0 - noise, 1e-9), 0.0), 1.0)
