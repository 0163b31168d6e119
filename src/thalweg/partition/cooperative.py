"""Several Daltons learn together: Algorithm 2 as values that can travel.

Every partitioner exports what it has learned since the last time (the paper's SYNC message) and goes on with its
table as it is, keeping rewards for later (AWAIT). The reducer merges all exports into one policy. A partitioner that
adopts it replaces its table, applies the kept rewards and learns on (PREPARE). How values travel is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thalweg.errors import partitioner_option
from thalweg.model.message import decode, encode
from thalweg.partition.forwarding import Fragmentation
from thalweg.partition.q_table import INITIAL

Keys = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

SHORTEST, LONGEST = 1 << 10, 1 << 40
"""Bounds of the interval between two exports, in rows."""


@dataclass(frozen=True)
class Learned:
    """What one partitioner has learned and seen since it exported last."""

    round: int
    """Of the policy it works with; 0 before the first one."""
    rows: int
    loads: Counts
    """Worker: rows sent there."""
    keys: Keys
    """The hot keys."""
    values: Values
    """Hot key x worker: the Q-table."""
    start: Values
    """The same before what it has learned since the last policy."""
    kept: Values
    """How much of `start` is in `values`: (1 - step) to the number of rewards. The rest is what it has learned."""
    heavy: Counts
    """Hot key: the last round in which it was a heavy hitter of all partitioners together; -1: of this one only."""
    frequent: Keys
    """The most frequent keys, each once: those that are or were hot, and n others."""
    frequencies: Counts
    fragmentation: Fragmentation
    hot_share: float
    """From which share of a worker's part of the rows on a key is a heavy hitter."""
    interval: int
    """Rows between two exports, as it works now."""
    overdue: bool
    """Whether it still awaited a policy when this export was due: the interval is too short."""

    def to_bytes(self) -> bytes:
        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Learned:
        return decode(data, cls)


@dataclass(frozen=True)
class Policy:
    """What all partitioners go on with."""

    round: int
    members: int
    """How many partitioners have exported."""
    rows: int
    """Of all partitioners since the last round: GL."""
    loads: Counts
    keys: Keys
    values: Values
    heavy: Counts
    """Key: the last round in which it was a heavy hitter."""
    interval: int


def merge(exports: Sequence[Learned], *, weights: str = "rewards", idle: float = 0.0, busy: float = 0.0) -> Policy:
    """The reducer of the Q-tables. `idle` and `busy`: how long it waited and worked, in any unit.

    A key is in the policy when it was a heavy hitter of all rows together in this round or the one before. What each
    partitioner has learned of it counts by how many "rewards" it got for each worker, or by the key's "frequency".
    """
    if not exports or len({len(export.loads) for export in exports}) > 1:
        raise partitioner_option("dalton", "exports", len(exports), "at least one, all for the same workers")
    if weights not in _WEIGHTED:
        raise partitioner_option("dalton", "weights", weights, " or ".join(_WEIGHTED))
    workers = len(exports[0].loads)
    this_round = max(export.round for export in exports) + 1
    rows = sum(export.rows for export in exports)
    keys = np.unique(np.concatenate([part for export in exports for part in (export.keys, export.frequent)]))
    heavy = np.full(len(keys), -1, np.int64)
    totals = np.zeros(len(keys), np.int64)
    for export in exports:
        places = np.searchsorted(keys, export.keys)
        heavy[places] = np.maximum(heavy[places], export.heavy)
        totals[np.searchsorted(keys, export.frequent)] += export.frequencies
    heavy[(totals * workers >= rows * exports[0].hot_share) & (totals > 0)] = this_round
    stays = (heavy >= 0) & (heavy >= this_round - 1)
    values = _WEIGHTED[weights](exports, keys, workers)[stays]
    return Policy(
        this_round,
        len(exports),
        rows,
        np.sum([export.loads for export in exports], axis=0),
        keys[stays],
        values,
        heavy[stays],
        next_interval(exports[0].interval, any(export.overdue for export in exports), idle, busy),
    )


def _by_frequency(exports: Sequence[Learned], keys: Keys, workers: int) -> Values:
    """The paper's mean of the Q-tables by frequency; keys that nobody has learned start anew.

    The paper divides the weighted sum by GL and by the number of partitioners. That would draw all values towards 0
    and make what nobody has tried the best choice, so here the weights add up to 1.
    """
    return _mean(exports, keys, [export.values for export in exports], workers)


def _by_rewards(exports: Sequence[Learned], keys: Keys, workers: int) -> Values:
    """As if one partitioner had got the rewards of all.

    A mean of tables that have each learned a little has learned a little. n rewards at any partitioner together leave
    (1 - step)^n of the value before; the rest is their mean, by how much each partitioner has learned.
    """
    kept = np.ones((len(keys), workers))
    gained = np.zeros((len(keys), workers))
    learned = np.zeros((len(keys), workers))
    for export in exports:
        places = np.searchsorted(keys, export.keys)
        kept[places] *= export.kept
        gained[places] += export.values - export.kept * export.start
        learned[places] += 1.0 - export.kept
    start = _mean(exports, keys, [export.start for export in exports], workers)
    return kept * start + (1.0 - kept) * np.divide(gained, learned, out=np.zeros_like(gained), where=learned > 0)


def _mean(exports: Sequence[Learned], keys: Keys, tables: Sequence[Values], workers: int) -> Values:
    """By frequency, over those that know the key as hot; the initial value where nobody does."""
    sums = np.zeros((len(keys), workers))
    weights = np.zeros(len(keys))
    for export, table in zip(exports, tables, strict=True):
        seen = dict(zip(export.frequent.tolist(), export.frequencies.tolist(), strict=True))
        # Who has not seen a hot key since the last round still says what it knew, barely.
        weight = np.array([max(seen.get(key, 0), 1e-9) for key in export.keys.tolist()])
        places = np.searchsorted(keys, export.keys)
        sums[places] += weight[:, None] * table
        weights[places] += weight
    known = weights > 0
    values = np.full((len(keys), workers), INITIAL)
    values[known] = sums[known] / weights[known, None]
    return values


_WEIGHTED = {"rewards": _by_rewards, "frequency": _by_frequency}


def next_interval(interval: int, overdue: bool, idle: float, busy: float) -> int:
    """Adaptive DSYNC: twice as long when one had to wait, half as long while the reducer idles more than it works."""
    if overdue:
        return min(2 * interval, LONGEST)
    return max(interval // 2, SHORTEST) if idle > busy else interval
