"""The forest: usable where a stream can be learnt, unusable where not, and what it is never trained on."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from thalweg.adapt.slot_assignment import forest as module
from thalweg.adapt.slot_assignment.drift import drift_by_pair
from thalweg.adapt.slot_assignment.forest import CellForest, fill, train
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample, Shares, Sharing

G = 32
KEYS = tuple(f"s(k{i:02d})" for i in range(14))


@pytest.fixture(autouse=True, scope="module")
def fewer_cells() -> Iterator[None]:
    """Enough for few key groups, and quick. Loading scikit-learn is no test's own time."""
    importlib.import_module("sklearn.ensemble")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CELLS", 20_000)
        yield


def seen(kind: str, keys: tuple[str, ...] = KEYS, batches: int = 6, n: int = 12000) -> Shares:
    rng = np.random.default_rng(1)
    multipliers = np.random.default_rng(2).integers(1, 2**31, len(keys)) * 2 + 1
    sharing = Sharing(G)
    for _ in range(batches):
        if kind == "blocks":
            # Four kinds of rows, each in its own range of key groups under every key.
            row_kind = rng.choice(4, n, p=[0.5, 0.25, 0.15, 0.1])
            edges = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
            spread = rng.random((n, len(keys))) * (edges[row_kind + 1] - edges[row_kind])[:, None]
            groups = (edges[row_kind][:, None] + spread) * G
        elif kind == "hashed":
            # Under every key another hash of one value: fully dependent, and nothing to be learnt from numbers.
            value = rng.integers(0, 300, n)
            groups = (value[:, None] * multipliers) % 2**32 * G >> 32
        else:
            groups = rng.integers(0, G, (n, len(keys)))
        sharing = sharing.after(KeyGroupSample(keys, groups.astype(np.uint16), 10.0 * n))
    return sharing.fitting()


@cache
def trained(kind: str) -> tuple[Shares, CellForest]:
    shares = seen(kind)
    return shares, train(shares, batch=6)


@pytest.mark.slow
def test_usable_on_a_stream_that_can_be_learnt() -> None:
    shares, forest = trained("blocks")
    assert forest.error < 0.05
    assert forest.usable
    filled = fill(shares, forest)
    assert len(shares.joint) == 66
    assert len(filled.joint) == 91
    truth = next(iter(shares.joint.values()))
    for pair in filled.joint.keys() - shares.joint.keys():
        table = filled.joint[pair]
        np.testing.assert_allclose(table.sum(axis=1), shares.counts[pair[0]], atol=1e-9 * shares.rows)
        np.testing.assert_allclose(table.sum(axis=0), shares.counts[pair[1]], atol=1e-9 * shares.rows)
        # Every pair of this stream looks the same, and far from independent.
        alone = np.outer(shares.counts[pair[0]], shares.counts[pair[1]]) / shares.rows
        assert np.abs(table - truth).sum() / shares.rows < 0.2
        assert np.abs(alone - truth).sum() / shares.rows > 0.6


def test_usable_on_independent_keys() -> None:
    assert trained("independent")[1].usable


@pytest.mark.slow
def test_unusable_on_a_stream_that_cannot_be_learnt() -> None:
    shares, forest = trained("hashed")
    assert forest.error > 0.3
    assert not forest.usable
    assert fill(shares, forest) is shares


def test_unusable_where_too_little_was_measured() -> None:
    few = train(seen("blocks", batches=1, n=500), batch=1)
    assert few.error == math.inf
    pair = train(seen("blocks", keys=KEYS[:2]), batch=6)
    assert not pair.usable
    nothing = train(Shares(0.0, {}, {}, {}), batch=0)
    assert not nothing.usable
    assert nothing.trees == ()


@pytest.mark.slow
def test_pairs_of_the_test_are_never_trained_on() -> None:
    shares, forest = trained("blocks")
    learnt = {tuple(sorted((KEYS[int(a)], KEYS[int(b)]))) for a, b in forest.cells.features[:, [0, 2]]}
    assert learnt < set(shares.joint)
    assert len(learnt) == 53
    # Nor after they had been in the cells of a forest before.
    other = train(shares, batch=6, seed=5)
    again = train(shares, batch=7, previous=other, seed=0)
    assert {tuple(sorted((KEYS[int(a)], KEYS[int(b)]))) for a, b in again.cells.features[:, [0, 2]]} == learnt


@pytest.mark.slow
def test_rectangles_are_what_sklearn_predicts() -> None:
    from sklearn.ensemble import RandomForestRegressor

    forest = trained("blocks")[1]
    cells = forest.cells
    grown = RandomForestRegressor(
        n_estimators=module.TREES, max_depth=module.DEPTH, min_samples_leaf=module.LEAF, random_state=0, n_jobs=1
    ).fit(cells.features, cells.shares, sample_weight=cells.weights)
    g, h = (axis.ravel() for axis in np.indices((G, G)))
    features = np.stack([np.full(G * G, 3), g, np.full(G * G, 9), h, np.full(G * G, 6)], axis=1)
    wanted = grown.predict(features.astype(np.float32)).reshape(G, G)
    found = forest.predict(KEYS[3], KEYS[9])
    np.testing.assert_allclose(found, wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), np.ones(G))


def test_cells_of_pairs_that_are_not_counted_any_more_are_remembered() -> None:
    keys = KEYS[:6]
    shares = seen("blocks", keys, batches=2)
    before = train(shares, batch=2)
    gone = {pair for pair in shares.joint if keys[5] in pair}
    lost = {pair for pair in shares.joint if keys[0] in pair}
    left = Shares(
        shares.rows,
        {key: counts for key, counts in shares.counts.items() if key != keys[0]},
        {pair: table for pair, table in shares.joint.items() if pair not in gone | lost},
        {pair: sampled for pair, sampled in shares.sampled.items() if pair not in gone | lost},
    )
    after = train(left, batch=9, previous=before)
    assert after.keys == keys[1:]
    old = after.cells.features[after.cells.features[:, 4] == 2]
    assert len(old)
    assert {keys[5]} == {after.keys[int(max(a, b))] for a, b in old[:, [0, 2]]}
    was = before.cells.features
    remembered = (was[:, [0, 2]].max(axis=1) == 5) & (was[:, [0, 2]].min(axis=1) > 0)
    assert len(old) == remembered.sum()


def test_the_same_seed_grows_the_same_forest() -> None:
    shares = seen("blocks", KEYS[:4], batches=1)
    first, second, other = (train(shares, batch=1, seed=seed) for seed in (1, 1, 2))
    assert first.trees == second.trees
    assert first.error == second.error
    assert first.trees != other.trees


def test_what_a_forest_filled_in_is_no_measurement() -> None:
    shares, forest = trained("blocks")
    filled = fill(shares, forest)
    assert drift_by_pair(filled, filled).keys() == shares.joint.keys()
    wanted = next(iter(filled.joint.keys() - shares.joint.keys()))
    assert fill(shares, forest, [wanted]).joint.keys() == shares.joint.keys() | {wanted}


@pytest.mark.parametrize("name", ["sharing", "forest"])
def test_scikit_learn_is_loaded_only_to_train(name: str) -> None:
    code = f"import sys, thalweg.adapt.slot_assignment.{name}; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_scikit_learn_keys_count_as_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is held against what was measured, as any forest is."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    keys = KEYS[:4]
    for kind, usable in (("independent", True), ("blocks", False)):
        shares = seen(kind, keys, batches=2)
        forest = train(shares, batch=2)
        assert forest.trees == ()
        assert forest.usable == usable
        assert fill(shares, forest).joint.keys() >= shares.joint.keys()
