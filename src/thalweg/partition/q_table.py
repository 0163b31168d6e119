"""What Dalton has learned of its hot keys: the expected reward of each worker for each of them (3.2).

A key's values are by arm: arm 0 is its home worker, arm i the i-th worker after that. Where values are equal the
lowest arm is taken, so a key that becomes hot stays where it is until something better has been explored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.partition.joint_kernel import part

INITIAL = -2.0
"""Below every reward: a worker that is explored once is not preferred at once (Dalton, "Initial Values")."""


class QTable(NamedTuple):
    values: npt.NDArray[np.float64]
    """Entry of a hot key x arm."""
    best: npt.NDArray[np.int32]
    """Entry: the arm of the highest value."""
    ceiling: npt.NDArray[np.float64]
    """Entry: no other arm's value is above this one. The best arm is looked for only when it falls to it."""
    start: npt.NDArray[np.float64]
    """Entry x arm: the value before the rewards that are counted in `rewards`."""
    rewards: npt.NDArray[np.int32]
    """Entry x arm: rewards learned since the key became hot or a merged policy was adopted."""


class Learning(NamedTuple):
    """The constants of the bandit."""

    step: float
    """Gamma of Eq. 5."""
    explore: int
    """Epsilon, as a share of 2^32."""
    balance: float
    """p1 of the reward; p2 is the rest to 1."""
    hot_share: float
    """A key is hot from this share of a worker's part of the rows on; Def. 3.3 has 1."""
    seed: np.uint64


def new_q_table(workers: int, entries: int) -> QTable:
    return QTable(
        np.full((entries, workers), INITIAL),
        np.zeros(entries, np.int32),
        np.full(entries, INITIAL),
        np.full((entries, workers), INITIAL),
        np.zeros((entries, workers), np.int32),
    )


@part
def random_bits(seed: np.uint64, number: int) -> int:
    """64 random bits of a seed and a row's number: SplitMix64."""
    z = seed + np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[return-value]


@part
def choose(table: QTable, entry: int, bits: int, explore: int) -> int:
    """Epsilon-greedy: the high half of the bits decides whether to explore, the low half which arm."""
    if np.int64(np.uint64(bits) >> np.uint64(32)) < explore:
        arms = np.uint64(table.values.shape[1])
        return int(np.int64(((np.uint64(bits) & np.uint64(0xFFFFFFFF)) * arms) >> np.uint64(32)))
    return int(table.best[entry])


@part
def reward(load: int, total: int, workers: int, spread: int, balance: float) -> float:
    """Eq. 3 and 4, after the row: how far the worker is above the average, and in how many workers the key lies."""
    scaled = load * workers
    imbalance = (scaled - total) / max(scaled, total)
    fragmentation = spread / workers
    return -(balance * imbalance + (1.0 - balance) * fragmentation)


@part
def learn(table: QTable, entry: int, arm: int, gained: float, step: float) -> None:
    """Eq. 5."""
    value = table.values[entry, arm]
    value += step * (gained - value)
    table.values[entry, arm] = value
    table.rewards[entry, arm] += 1
    best = table.best[entry]
    if arm == best:
        if value <= table.ceiling[entry]:
            find_best(table, entry)
    elif value > table.values[entry, best] or (value == table.values[entry, best] and arm < best):
        table.ceiling[entry] = table.values[entry, best]
        table.best[entry] = arm
    elif value > table.ceiling[entry]:
        table.ceiling[entry] = value


@part
def find_best(table: QTable, entry: int) -> None:
    """The first of the highest values, and the next highest.

    Four lanes, each with its two highest, without branches: one lane would wait for itself arm after arm.
    """
    arms = table.values.shape[1]
    a = b = c = d = second = -np.inf
    for arm in range(0, arms - 3, 4):
        v, w = table.values[entry, arm], table.values[entry, arm + 1]
        x, y = table.values[entry, arm + 2], table.values[entry, arm + 3]
        lower = higher(lesser(a, v), lesser(b, w))
        second = higher(second, higher(lower, higher(lesser(c, x), lesser(d, y))))
        a, b, c, d = higher(a, v), higher(b, w), higher(c, x), higher(d, y)
    for arm in range(arms - arms % 4, arms):
        v = table.values[entry, arm]
        second = higher(second, lesser(a, v))
        a = higher(a, v)
    left, right = higher(a, b), higher(c, d)
    second = higher(higher(second, lesser(left, right)), higher(lesser(a, b), lesser(c, d)))
    highest = higher(left, right)
    best = 0
    while table.values[entry, best] < highest:
        best += 1
    table.best[entry] = best
    table.ceiling[entry] = second


@part
def higher(a: float, b: float) -> float:
    return a if a > b else b


@part
def lesser(a: float, b: float) -> float:
    return a if a < b else b


@part
def start_value(table: QTable, entry: int, arm: int, value: float) -> None:
    table.values[entry, arm] = value
    table.start[entry, arm] = value
    table.rewards[entry, arm] = 0


@part
def start_values(table: QTable, entry: int) -> None:
    for arm in range(table.values.shape[1]):
        start_value(table, entry, arm, INITIAL)
    table.best[entry] = 0
    table.ceiling[entry] = INITIAL


@part
def move_values(table: QTable, source: int, target: int) -> None:
    for arm in range(table.values.shape[1]):
        table.values[target, arm] = table.values[source, arm]
        table.start[target, arm] = table.start[source, arm]
        table.rewards[target, arm] = table.rewards[source, arm]
    table.best[target] = table.best[source]
    table.ceiling[target] = table.ceiling[source]
