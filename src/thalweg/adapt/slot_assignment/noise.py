"""How far from each other tables of counts are that differ by chance alone: sums of |difference|, as shares."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LISTED = 64
STEPS = 32
"""Up to how many rows of a cell, and in how many steps per row, mean deviations are listed."""


def between_samples(first: Floats, second: Floats, before: float, now: float) -> float:
    """Of two samples of `before` and `now` rows, if all rows were of one stream and chance had put them into two.

    `first` and `second` are shares that add up to 1. Given that a cell has m rows in both samples together, those
    of the first are binomial: nothing unknown is left, also not for cells with a single row.
    """
    share = before / (before + now)
    deviations = _deviations(first * before + second * now, _binomial(round(share, 3)), share * (1.0 - share))
    return float(deviations.sum()) * (1.0 / before + 1.0 / now)


def of_sample(expected: Floats, sampled: float) -> float:
    """Of a sample of `sampled` rows from what it was drawn from, `expected` being shares that add up to 1."""
    return float(_deviations(expected * sampled, _poisson(), 1.0).sum()) / sampled


def _deviations(rows: Floats, listed: Floats, variance: float) -> Floats:
    """E|X - E X| of each cell: `listed` has it per row, `variance` is that of X per row, for the normal limit."""
    places = rows * STEPS
    found = listed.take(np.minimum(places, LISTED * STEPS, out=places).astype(np.int32))
    found *= rows
    many = rows > LISTED
    if many.any():
        found[many] = np.sqrt(2.0 / math.pi * variance * rows[many])
    return found


@lru_cache(maxsize=64)
def _binomial(share: float) -> Floats:
    """E|X - m p| / m by De Moivre's sum, at the middle of each step. Constant up to one row."""
    p = min(max(share, 1e-3), 1.0 - 1e-3)
    listed = [0.0]
    for m in range(1, LISTED + 2):
        k = math.floor(m * p) + 1
        ways = math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1)
        listed.append(2 * k * (1 - p) * math.exp(ways + k * math.log(p) + (m - k) * math.log(1 - p)))
    return np.interp(_middles(), np.arange(len(listed)), listed) / _middles()


@lru_cache(maxsize=1)
def _poisson() -> Floats:
    """E|X - m| / m of Poisson X, at the middle of each step."""
    return np.array(
        [2 * math.exp(math.floor(m) * math.log(m) - m - math.lgamma(math.floor(m) + 1)) for m in _middles()]
    )


def _middles() -> Floats:
    return (np.arange(LISTED * STEPS + 1) + 0.5) / STEPS
