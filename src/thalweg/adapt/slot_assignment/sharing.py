"""What the rows of one stream have in common under its route keys: SASPAR's Card and SharedWith, measured.

INGEST samples rows of every batch, each as its key group under every route key. Their counts are kept per key and
per pair of keys, and fade: after a hundred batches a change of the stream has long been learnt. With G x G cells
and some thousand rows an optimiser always finds agreement that is only noise. So the sampled rows are kept in two
halves: a plan is fitted to the one, and what it is expected to save is checked on the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from thalweg.adapt.slot_assignment.margins import fit_margins

DECAY = 0.9
MOST_KEYS = 12
"""Up to this many route keys, every pair of them is counted in every batch."""
MOST_PAIRS = MOST_KEYS * (MOST_KEYS - 1) // 2
TENURE = 6
"""Where there are more pairs than can be counted: batches after which the weaker half of them makes room."""
FAINT = 1e-6
TIDIED = 64
"""Once in this many batches, what has faded below FAINT rows becomes none: numbers too small for float32 are slow."""

Floats = NDArray[np.float64]
Pair = tuple[str, str]
"""Two route keys in the order of their ids."""


@dataclass(frozen=True, eq=False)
class KeyGroupSample:
    """What INGEST tasks saw of one stream in one batch."""

    keys: tuple[str, ...]
    """The ids of the stream's route keys."""
    groups: NDArray[np.uint16]
    """(sampled rows, route keys): the key groups of each sampled row."""
    rows: float
    """How many rows the sample stands for."""
    counts: Floats | None = None
    """(route keys, G): rows per key group where all were counted; None: to be estimated from the sample."""
    weights: Floats | None = None
    """How many rows each sampled one stands for; None: all the same."""

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.shape[1] != len(self.keys):
            raise ValueError(f"groups of shape {self.groups.shape} for {len(self.keys)} route keys")
        if len(set(self.keys)) < len(self.keys):
            raise ValueError(f"a route key is named twice: {self.keys}")
        if self.counts is not None and (self.counts.ndim != 2 or len(self.counts) != len(self.keys)):
            raise ValueError(f"counts of shape {self.counts.shape} for {len(self.keys)} route keys")
        if self.weights is not None and self.weights.shape != (len(self.groups),):
            raise ValueError(f"{self.weights.size} weights for {len(self.groups)} sampled rows")

    @property
    def weight(self) -> float:
        """Of one sampled row where all weigh the same."""
        return self.rows / len(self.groups) if len(self.groups) else 0.0

    def weighted(self) -> Floats:
        return np.full(len(self.groups), self.weight) if self.weights is None else self.weights

    def add(self, other: KeyGroupSample) -> KeyGroupSample:
        return gather([self, other])


def gather(samples: Sequence[KeyGroupSample]) -> KeyGroupSample:
    """The samples of a batch's tasks as one: a sampled row stands for as many rows as it did in its task."""
    if not samples:
        raise ValueError("there is no sample to gather")
    first = samples[0]
    if len(samples) == 1:
        return first
    if any(sample.keys != first.keys for sample in samples):
        raise ValueError("samples of one batch have different route keys")
    width = next((sample.counts.shape[1] for sample in samples if sample.counts is not None), None)
    return KeyGroupSample(
        first.keys,
        np.concatenate([sample.groups for sample in samples]),
        sum(sample.rows for sample in samples),
        None if width is None else np.sum([_counts(sample, width) for sample in samples], axis=0),
        np.concatenate([sample.weighted() for sample in samples]),
    )


def _counts(sample: KeyGroupSample, width: int) -> Floats:
    """Rows per route key and key group: as counted, or else as the sample has them."""
    if sample.counts is not None:
        return sample.counts
    weights = sample.weighted()
    counts = np.array([np.bincount(column, weights, minlength=width) for column in sample.groups.T])
    return counts.reshape(len(sample.keys), width)


@dataclass(frozen=True, eq=False)
class Shares:
    """Rows per batch by key group and by pairs of key groups. The sums of every table are the counts of its keys."""

    rows: float
    counts: Mapping[str, Floats]
    """Route key -> rows of each key group."""
    joint: Mapping[Pair, Floats]
    """[g of the first, h of the second]; pairs that have not been counted are missing."""
    sampled: Mapping[Pair, float]
    """How many rows of equal weight would say as much of the pair as those it was counted on."""


@dataclass(frozen=True, eq=False)
class Joint:
    """One pair's faded counts on sampled rows. The first axis is the half."""

    cells: NDArray[np.float32]
    """(2, G, G)."""
    weight: Floats
    squares: Floats
    """Sums of the rows' weights and of their squares: the weight alone does not tell one row from a thousand."""

    def sampled(self, half: int, fitted: Floats | None = None) -> float:
        """Kish's effective sample size; less where fitting has given the rows unequal weights once more."""
        weight, squares = float(self.weight[half]), float(self.squares[half])
        if squares <= 0.0:
            return 0.0
        if fitted is None:
            return weight**2 / squares
        cells = self.cells[half]
        there = cells > 0.0
        spread = np.divide(np.square(fitted), cells, out=np.zeros_like(fitted), where=there).sum() * weight
        return float(weight**2 / squares * fitted.sum(where=there) ** 2 / spread) if spread > 0.0 else 0.0


@dataclass(frozen=True, eq=False)
class Sharing:
    """The faded statistics of one stream."""

    groups: int
    """G: the number of key groups of every route key."""
    keys: tuple[str, ...] = ()
    halves: Mapping[str, Floats] = field(default_factory=dict)
    """Route key -> (2, G): the two halves differ only where counts are estimated from sampled rows."""
    joints: Mapping[Pair, Joint] = field(default_factory=dict)
    rows: float = 0.0
    weight: float = 0.0
    """Faded sums of the rows of batches, and of batches."""
    batches: int = 0
    seed: int = 0
    cursor: int = -1
    """Where the rotation through the pairs stands, as a `rank`."""

    @property
    def rows_per_batch(self) -> float:
        return self.rows / self.weight if self.weight else 0.0

    @property
    def counts(self) -> Floats:
        """(K, G): rows per batch, of both halves."""
        counts = [self._scaled(halves.sum(axis=0)) for halves in self.halves.values()]
        return np.array(counts).reshape(len(self.keys), self.groups)

    @property
    def sampled(self) -> float:
        """The effective sample size of the pair that is known best, both halves."""
        return max((joint.sampled(0) + joint.sampled(1) for joint in self.joints.values()), default=0.0)

    def after(self, sample: KeyGroupSample, decay: float = DECAY) -> Sharing:
        """With what one more batch has shown. Route keys that are not in the sample are forgotten."""
        _check(sample, self.groups)
        known = replace(
            self,
            keys=sample.keys,
            halves={key: self.halves.get(key, np.zeros((2, self.groups))) for key in sample.keys},
            joints={pair: joint for pair, joint in self.joints.items() if set(pair) <= set(sample.keys)},
            rows=self.rows * decay + sample.rows,
            weight=self.weight * decay + 1.0,
            batches=self.batches + 1,
        )
        # A batch without rows says how many there are, and nothing of how they are shared: nothing fades.
        if sample.rows <= 0.0:
            return known
        pairs, cursor = known._pairs_to_count()
        rows = _SampledRows(sample, self.groups, (self.seed, self.batches))
        tidy = known.batches % TIDIED == 0
        return replace(
            known,
            halves={
                key: counts * decay + fresh
                for (key, counts), fresh in zip(known.halves.items(), rows.counts(sample.counts), strict=True)
            },
            joints={pair: rows.count(pair, known.joints.get(pair), decay, tidy) for pair in pairs},
            cursor=cursor,
        )

    def fitting(self) -> Shares:
        """The half that plans are fitted to."""
        return self._shares(0)

    def held_out(self) -> Shares:
        """The half that no plan has been fitted to: what a plan is expected to save is checked on it."""
        return self._shares(1)

    def _shares(self, half: int) -> Shares:
        """Every table is fitted to the counts of its keys.

        The sums of the sampled tables would be nearer at hand. But where all rows are counted these say more than
        the sample, and pairs that have been counted for a different number of batches (after a new route key, or
        in rotation) disagree on the sums of the key they have in common.
        """
        counts = self._counts(half)
        joints = {
            (a, b): joint
            for (a, b), joint in self.joints.items()
            if joint.weight[half] > 0.0 and counts[a].any() and counts[b].any()
        }
        tables = {(a, b): fit_margins(joint.cells[half], counts[a], counts[b]) for (a, b), joint in joints.items()}
        sampled = {pair: joint.sampled(half, tables[pair]) for pair, joint in joints.items()}
        return Shares(self.rows_per_batch, counts, tables, sampled)

    def _counts(self, half: int) -> dict[str, Floats]:
        """Of a half; where none of its rows has been sampled yet, of the other one."""
        return {
            key: self._scaled(halves[half] if halves[half].any() else halves[1 - half])
            for key, halves in self.halves.items()
        }

    def _scaled(self, counts: Floats) -> Floats:
        """As rows per batch. Every route key sees all rows of the stream, so each has the same total."""
        return counts * (self.rows_per_batch / (float(counts.sum()) or 1.0))

    def _pairs_to_count(self) -> tuple[list[Pair], int]:
        """The pairs of this batch, and where the rotation stands then.

        Where there are too many, the strong ones stay: only they are worth a plan, and a plan must not lose them
        because it was their turn to go. The others make room for the next ones of a seeded order.
        """
        every = list(combinations(sorted(self.keys), 2))
        if len(every) <= MOST_PAIRS:
            return every, self.cursor
        held = list(self.joints)
        if self.batches % TENURE == 0 and len(held) == MOST_PAIRS:
            held = sorted(held, key=lambda pair: -_strength(self.joints[pair]))[: MOST_PAIRS // 2]
        room = MOST_PAIRS - len(held)
        if not room:
            return held, self.cursor
        ranks = sorted((rank(pair, self.seed), pair) for pair in set(every).difference(held))
        waiting = [entry for entry in ranks if entry[0] > self.cursor] + ranks
        taken = list(dict.fromkeys(waiting))[:room]
        return held + [pair for _, pair in taken], taken[-1][0]


class _SampledRows:
    """The sampled rows of one batch, in halves, ready to be counted."""

    def __init__(self, sample: KeyGroupSample, width: int, seed: tuple[int, int]) -> None:
        self.width = width
        self.rows = sample.rows
        # In a seeded order every second row goes to the other half. In the order of the stream, a source that
        # takes turns between two kinds of rows would put one kind into each half.
        order = np.random.default_rng(seed).permutation(len(sample.groups))
        order = np.concatenate([order[::2], order[1::2]])
        self.middle = (len(order) + 1) // 2
        self.columns = dict(zip(sample.keys, sample.groups[order].T.astype(np.intp, order="C"), strict=True))
        self.weights = sample.weighted()[order]
        self.light = self.weights.astype(np.float32)
        self.weight = np.array([self.weights[half].sum() for half in self.halves()])
        self.squares = np.array([np.square(self.weights[half]).sum() for half in self.halves()])
        self.second = np.zeros(len(order), np.intp)
        self.second[self.middle :] = width * width
        self.lines: dict[str, NDArray[np.intp]] = {}

    def halves(self) -> Iterator[slice]:
        yield slice(None, self.middle)
        yield slice(self.middle, None)

    def counts(self, exact: Floats | None) -> Iterator[Floats]:
        """(2, G) for each route key. Either half stands for all rows: it counts twice where counts are estimated."""
        if exact is not None:
            yield from np.broadcast_to(exact[:, None, :], (len(exact), 2, self.width))
            return
        scale = 2.0 * self.rows / (float(self.weights.sum()) or 1.0)
        for column in self.columns.values():
            found = [np.bincount(column[half], self.weights[half], self.width) for half in self.halves()]
            yield np.array(found, np.float64) * scale

    def count(self, pair: Pair, known: Joint | None, decay: float, tidy: bool) -> Joint:
        """The pair's counts, faded, with these rows."""
        if not len(self.light):
            return known or Joint(np.zeros((2, self.width, self.width), np.float32), np.zeros(2), np.zeros(2))
        first, second = pair
        if first not in self.lines:
            self.lines[first] = self.columns[first] * self.width + self.second
        cells = (
            np.multiply(known.cells, np.float32(decay))
            if known
            else np.zeros((2, self.width, self.width), np.float32)
        )
        if tidy:
            cells[cells < FAINT] = 0.0
        # Adds to the few cells that have rows; a bincount over all 2 x G x G would take three times as long.
        np.add.at(cells.reshape(-1), self.lines[first] + self.columns[second], self.light)
        if not known:
            return Joint(cells, self.weight, self.squares)
        return Joint(cells, known.weight * decay + self.weight, known.squares * decay**2 + self.squares)


def _check(sample: KeyGroupSample, width: int) -> None:
    if len(sample.groups) and sample.groups.size and int(sample.groups.max()) >= width:
        raise ValueError(f"a sampled row is in key group {sample.groups.max()}, there are {width}")
    if sample.counts is not None and sample.counts.shape[1] != width:
        raise ValueError(f"counts of {sample.counts.shape[1]} key groups, there are {width}")


def rank(pair: Pair, seed: int) -> int:
    """A place in a seeded order of pairs that does not change when others come and go."""
    return zlib.crc32("|".join(pair).encode(), seed & 0xFFFFFFFF)


def _strength(joint: Joint) -> float:
    """How far from independent the two keys are: 0, or 1 where the key group of one says that of the other.

    A cell counts in proportion to its rows. The two halves are multiplied: their noise has mean 0 then, while a
    distance of one table from independence would be greatest where the fewest rows were sampled.
    """
    if not joint.weight.all():
        return 0.0
    first, second = (joint.cells[half] / np.float32(joint.weight[half]) for half in (0, 1))
    both = (first + second) / 2
    alone = np.outer(both.sum(axis=1), both.sum(axis=0))
    first -= alone
    second -= alone
    first *= second
    return float(np.divide(first, np.sqrt(alone), out=np.zeros_like(first), where=alone > 0.0).sum())
