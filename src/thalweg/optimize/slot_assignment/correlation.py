"""How much one route key says about another, and which pairs are worth counting common rows of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RouteKey = tuple[str, str]
"""(stream, attributes)"""
Pair = tuple[RouteKey, RouteKey]

DIGITS = 12
"""Mutual information is compared to this many decimals: what equals but for rounding is a tie."""


def count_rows(things: NDArray[np.int64], rows: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The sum of the rows of each thing, of `count` things."""
    return np.bincount(things, rows, minlength=count).astype(np.float64, copy=False)


def information(joint: Any) -> float:
    """The mutual information of two route keys, in nats, from their joint counts as a sparse matrix."""
    total = joint.data.sum()
    if not total > 0.0:
        return 0.0
    # As a sum of entropies: one logarithm for each cell.
    margins = (np.asarray(joint.sum(axis=axis)).ravel() / total for axis in (0, 1))
    return round(sum(map(_entropy, margins)) - _entropy(joint.data / total), DIGITS)


def _entropy(shares: NDArray[np.float64]) -> float:
    shares = shares[shares > 0.0]
    # Not a product of vectors, for which BLAS would wake threads that fight over busy cores.
    return -float((shares * np.log(shares)).sum())


def grow_forest(keys: Sequence[RouteKey], weights: Mapping[Pair, float]) -> list[Pair]:
    """The spanning forest of greatest weight (Chow and Liu); of equal pairs, the first in the order of `keys`."""
    place = {key: i for i, key in enumerate(keys)}
    pairs = [pair for pair in weights if pair[0] in place]
    pairs.sort(key=lambda pair: (-weights[pair], *sorted((place[pair[0]], place[pair[1]]))))
    tree_of = {key: {key} for key in keys}
    forest = []
    for first, second in pairs:
        if tree_of[first] is not tree_of[second]:
            forest.append((first, second))
            tree_of[first] |= tree_of[second]
            for key in tree_of[second]:
                tree_of[key] = tree_of[first]
    return forest


def choose_pivot(keys: Sequence[RouteKey], weights: Mapping[Pair, float]) -> RouteKey:
    """The route key that says most about all the others; of equals, the first."""
    total = dict.fromkeys(keys, 0.0)
    for pair, weight in weights.items():
        for key in pair:
            if key in total:
                total[key] += weight
    return max(keys, key=lambda key: round(total[key], DIGITS))
