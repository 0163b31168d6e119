"""Seeded streams of keys for the partitioners: those of the Holistic paper and of Dalton's, and some that change.

A distribution is Zipf over a number of keys; exponent 0 is uniform. For a real data set of which Dalton (Table 2)
tells the number of keys and the share of the most frequent one, it is the Zipf distribution that has both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]

SYNTHETIC_KEYS = 100_000


@dataclass(frozen=True)
class Distribution:
    name: str
    keys: int
    exponent: float

    @property
    def top_share(self) -> float:
        """The share of the most frequent key."""
        return float(1.0 / _weights(self.keys, self.exponent).sum())


def uniform(keys: int = SYNTHETIC_KEYS) -> Distribution:
    return Distribution("uniform", keys, 0.0)


def zipf(exponent: float, keys: int = SYNTHETIC_KEYS) -> Distribution:
    return Distribution(f"Zipf {exponent:.1f}", keys, exponent)


def with_top_share(name: str, keys: int, share: float) -> Distribution:
    """The Zipf distribution over `keys` keys whose first one has this share; found by halving."""
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        too_even = 1.0 / _weights(keys, middle).sum() < share
        low, high = (middle, high) if too_even else (low, middle)
    return Distribution(name, keys, (low + high) / 2)


def t4sa() -> Distribution:
    return with_top_share("T4SA-like", 450_000, 0.0269)


def elections() -> Distribution:
    return with_top_share("Elections-like", 200_000, 0.072)


def draw(distribution: Distribution, rows: int, seed: int, keys_seed: int | None = None) -> Keys:
    """Rows in random order. `keys_seed` says which keys are the frequent ones, if that is not to depend on `seed`."""
    chance = np.random.default_rng([seed, rows])
    if distribution.exponent == 0:
        ranks = chance.integers(0, distribution.keys, rows)
    else:
        below = np.cumsum(_weights(distribution.keys, distribution.exponent))
        # A sum over all weights need not be the last of the running sums to the last bit.
        ranks = np.minimum(np.searchsorted(below, chance.random(rows) * below[-1], "right"), distribution.keys - 1)
    return _named(ranks, seed if keys_seed is None else keys_seed)


def phases(distributions: Iterable[Distribution], rows: int, seed: int) -> Keys:
    """One distribution after the other, `rows` rows of each, every one with frequent keys of its own."""
    return np.concatenate([draw(each, rows, seed + 1000 * i) for i, each in enumerate(distributions)])


def alternating(rows: int, times: int, seed: int) -> Keys:
    """Uniform and Zipf 1.5 in turn (Dalton, Fig. 9a): something trends, and is forgotten."""
    return phases([uniform(), zipf(1.5)] * times, rows, seed)


def shifting(rows: int, times: int, seed: int) -> Keys:
    """Zipf with exponents drawn from 0.5 to 1.5, and other frequent keys each time (Dalton, Fig. 9d)."""
    exponents = np.random.default_rng(seed).uniform(0.5, 1.5, 2 * times)
    return phases([zipf(float(exponent)) for exponent in exponents], rows, seed)


def _weights(keys: int, exponent: float) -> npt.NDArray[np.float64]:
    return np.power(np.arange(1, keys + 1, dtype=np.float64), -exponent)


def _named(ranks: npt.NDArray[np.int64], seed: int) -> Keys:
    """Ranks as keys of 64 bits, different ones for each seed; one to one (SplitMix64)."""
    z = ranks.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)
