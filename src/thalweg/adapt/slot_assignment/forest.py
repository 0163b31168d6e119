"""SASPAR's random forest: what pairs of route keys share that nobody has counted (Section IV, ML).

A cell is a key group of one route key and a key group of another one; the forest learns which share of the first
group's rows falls into the second one. Key groups are buckets of a hash, so their numbers mean nothing: a forest can
learn how skewed a key is, and dependence that follows the numbers, but not which group goes with which under a pair
it has never seen. It is therefore tested on whole pairs that it was not trained on, and not used where it fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thalweg.adapt.slot_assignment.margins import fit_margins
from thalweg.adapt.slot_assignment.merging import merged
from thalweg.adapt.slot_assignment.noise import of_sample
from thalweg.adapt.slot_assignment.sharing import Pair, Shares, rank

Floats = NDArray[np.float64]

TREES = 12
DEPTH = 16
LEAF = 8
"""Cells in a leaf at least: a single cell is mostly noise."""
MOST_CELLS = 60_000
TESTED = 5
"""One pair in this many is kept for the test."""
MOST_ERROR = 0.1
"""SASPAR Section V reports that its forest comes below this error; above it, ours is not used."""
LEAST_ROWS = 1000
"""Sampled rows of a pair below which it cannot test anything."""
SAMPLED = 0.01
"""A cell with more than this many sampled rows is a positive one; fitted tables have less than that in empty ones."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What a forest is trained on, a line for each cell."""

    features: NDArray[np.float32]
    """Source route key, its key group, target route key, its key group, batch."""
    shares: NDArray[np.float32]
    weights: NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        return cls(
            np.concatenate([np.empty((0, 5), np.float32), *(part.features for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.shares for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.weights for part in parts)]),
        )

    def only(self, kept: NDArray[Any]) -> Cells:
        return Cells(self.features[kept], self.shares[kept], self.weights[kept])


@dataclass(frozen=True)
class RegressionTree:
    """Node by node; a leaf has a negative feature."""

    features: tuple[int, ...]
    thresholds: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class CellForest:
    keys: tuple[str, ...]
    """In the order in which the trees number them."""
    groups: int
    batch: int
    """Of its latest cells, and that it predicts for."""
    trees: tuple[RegressionTree, ...]
    cells: Cells
    error: float
    """Rows that it puts into a wrong cell, on pairs that it was not trained on, as a share of their rows:
    sum |predicted - measured| / sum measured, less what the truth itself would show on a sample of that size.

    Over rows rather than shares: a wrong share of a key group without rows costs nothing. Over what is used: the
    shares times the counts of the source, fitted to both keys' counts. And the greatest over all resolutions,
    from single cells to 2 x 2 blocks of them: a cell has too few sampled rows to show a slight bias, and blocks
    of cells hide which key group goes with which. Pairs weigh as much as was sampled of them. Infinite where too
    little was measured to say anything.
    """

    @property
    def usable(self) -> bool:
        return self.error <= MOST_ERROR

    def predict(self, source: str, target: str) -> Floats:
        """G x G: which share of a key group's rows falls into each key group of the target."""
        place = {key: i for i, key in enumerate(self.keys)}
        shares = np.zeros((self.groups, self.groups))
        for tree in self.trees:
            _paint(tree, (place[source], 0, place[target], 0, self.batch), shares)
        sums = shares.sum(axis=1, keepdims=True)
        found: Floats = np.divide(shares, sums, out=np.full_like(shares, 1.0 / self.groups), where=sums > 0.0)
        return found

    def joint(self, pair: Pair, shares: Shares) -> Floats:
        """The pair's joint counts: predicted from either side, fitted to the counts of both keys."""
        first, second = pair
        lines, columns = shares.counts[first], shares.counts[second]
        there = lines[:, None] * self.predict(first, second)
        back = (columns[:, None] * self.predict(second, first)).T
        return fit_margins(there + back, lines, columns)


def fill(shares: Shares, forest: CellForest, pairs: Iterable[Pair] | None = None) -> Shares:
    """With joint counts for pairs that were not counted: all of them, or those of `pairs`.

    They have no entry in `sampled`. A forest that is not usable fills in nothing.
    """
    if not forest.usable:
        return shares
    known = sorted(key for key in forest.keys if key in shares.counts and shares.counts[key].any())
    wanted = set(combinations(known, 2))
    missing = sorted((wanted if pairs is None else wanted.intersection(pairs)).difference(shares.joint))
    return replace(shares, joint={**shares.joint, **{pair: forest.joint(pair, shares) for pair in missing}})


def train(shares: Shares, batch: int, previous: CellForest | None = None, seed: int = 0) -> CellForest:
    """Learns from the pairs that `shares` has counted, and from cells of the others that `previous` had seen."""
    keys = tuple(sorted(shares.counts))
    groups = len(next(iter(shares.counts.values()))) if keys else 0
    counted = [pair for pair, rows in shares.sampled.items() if rows > 0.0 and shares.joint[pair].any()]
    pairs = sorted(counted, key=lambda pair: rank(pair, seed))
    tested = pairs[: max(1, len(pairs) // TESTED)] if len(pairs) > 2 else []
    trained = pairs[len(tested) :]
    rng = np.random.default_rng((seed, batch))
    fresh = [_choose(shares, pair, keys, batch, MOST_CELLS // (2 * len(trained)), rng) for pair in trained]
    cells = Cells.joined(fresh)
    if previous is not None:
        older = _remaining(previous, keys, set(pairs))
        kept = rng.permutation(len(older.shares))[: MOST_CELLS // 2]
        cells = Cells.joined([cells, older.only(kept)])
    forest = CellForest(keys, groups, batch, _grow(cells, seed), cells, math.inf)
    return replace(forest, error=_error(forest, shares, tested))


def _choose(
    shares: Shares, pair: Pair, keys: tuple[str, ...], batch: int, room: int, rng: np.random.Generator
) -> Cells:
    """Cells of a pair in both directions: as many positive as empty ones, each weighing for those left out.

    Cells with many rows are likelier to be chosen: they are few, and most of what there is to learn.
    """
    dust = SAMPLED * shares.rows / shares.sampled[pair]
    parts = []
    for (source, target), table in ((pair, shares.joint[pair]), (pair[::-1], shares.joint[pair].T)):
        sums = table.sum(axis=1)
        positive = table > dust
        for kind in (positive, ~positive & (sums > 0.0)[:, None]):
            g, h = np.nonzero(kind)
            wanted = np.sqrt(np.maximum(table[g, h], dust))
            chance = np.minimum(wanted * (room / 2 / max(float(wanted.sum()), dust)), 1.0)
            taken = rng.random(len(g)) < chance
            g, h, chance = g[taken], h[taken], chance[taken]
            ids = (np.full(len(g), keys.index(source)), g, np.full(len(g), keys.index(target)), h)
            features = np.stack([*ids, np.full(len(g), batch)], axis=1).astype(np.float32)
            learnt = (table[g, h] / sums[g]).astype(np.float32)
            parts.append(Cells(features, learnt, (sums[g] / shares.rows / chance).astype(np.float32)))
    return Cells.joined(parts)


def _remaining(previous: CellForest, keys: tuple[str, ...], counted: set[Pair]) -> Cells:
    """Cells of pairs that are not counted now, renumbered. Pairs of the test are counted: no cell of them stays."""
    place = np.array([keys.index(key) if key in keys else -1 for key in previous.keys], np.intp)
    cells = previous.cells
    source, target = (place[cells.features[:, i].astype(np.intp)] for i in (0, 2))
    now = {(keys.index(a), keys.index(b)) for a, b in counted}
    codes = [a * len(keys) + b for pair in now for a, b in (pair, pair[::-1])]
    kept = (source >= 0) & (target >= 0) & ~np.isin(source * len(keys) + target, codes)
    features = cells.features.copy()
    features[:, 0], features[:, 2] = source, target
    return Cells(features, cells.shares, cells.weights).only(kept)


def can_grow() -> bool:
    """Whether scikit-learn is installed. A forest without trees takes keys for independent, and is judged as any."""
    return find_spec("sklearn") is not None


def _grow(cells: Cells, seed: int) -> tuple[RegressionTree, ...]:
    if not len(cells.shares) or not can_grow():
        return ()
    # Takes a second to load: only who trains a forest pays for it.
    from sklearn.ensemble import RandomForestRegressor  # type: ignore[import-untyped]

    grown = RandomForestRegressor(
        n_estimators=TREES, max_depth=DEPTH, min_samples_leaf=LEAF, random_state=seed, n_jobs=1
    ).fit(cells.features, cells.shares, sample_weight=cells.weights)
    return tuple(
        RegressionTree(
            tuple(tree.feature.tolist()),
            tuple(tree.threshold.tolist()),
            tuple(tree.children_left.tolist()),
            tuple(tree.children_right.tolist()),
            tuple(tree.value[:, 0, 0].tolist()),
        )
        for tree in (estimator.tree_ for estimator in grown.estimators_)
    )


def _paint(tree: RegressionTree, fixed: tuple[int, int, int, int, int], shares: Floats) -> None:
    """Adds what the tree says of all cells of one pair: leaf by leaf, as a leaf is a rectangle of cells."""
    size = len(shares)
    waiting = [(0, 0, size, 0, size)]
    while waiting:
        node, top, bottom, start, end = waiting.pop()
        feature, threshold = tree.features[node], tree.thresholds[node]
        if feature < 0:
            shares[top:bottom, start:end] += tree.values[node]
        elif feature == 1:
            cut = min(max(math.floor(threshold) + 1, top), bottom)
            waiting += [(tree.left[node], top, cut, start, end), (tree.right[node], cut, bottom, start, end)]
        elif feature == 3:
            cut = min(max(math.floor(threshold) + 1, start), end)
            waiting += [(tree.left[node], top, bottom, start, cut), (tree.right[node], top, bottom, cut, end)]
        else:
            child = tree.left if fixed[feature] <= threshold else tree.right
            waiting.append((child[node], top, bottom, start, end))


def _error(forest: CellForest, shares: Shares, tested: Sequence[Pair]) -> float:
    """See `CellForest.error`."""
    told = [pair for pair in tested if shares.sampled[pair] >= LEAST_ROWS]
    errors = [_errors(forest.joint(pair, shares), shares.joint[pair], shares.sampled[pair]) for pair in told]
    weights = [shares.sampled[pair] for pair in told]
    return max(0.0, float(np.average(errors, axis=0, weights=weights).max())) if errors else math.inf


def _errors(predicted: Floats, measured: Floats, sampled: float) -> list[float]:
    """Of one pair, from the finest resolution to the coarsest. All pairs of a stream have the same rows."""
    predicted, measured = predicted / predicted.sum(), measured / measured.sum()
    errors = []
    for size in [len(measured) >> i for i in range(len(measured).bit_length() - 1)]:
        predicted, measured = merged(predicted, size), merged(measured, size)
        errors.append(float(np.abs(predicted - measured).sum()) - of_sample(predicted, sampled))
    return errors
