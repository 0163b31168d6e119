"""A stable stream has not moved, however few rows were sampled of it; another stream has."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from thalweg.adapt.slot_assignment.drift import drift, drift_by_pair
from thalweg.adapt.slot_assignment.merging import merged
from thalweg.adapt.slot_assignment.noise import between_samples, of_sample
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample, Shares, Sharing

G = 64
KEYS = ("s(a)", "s(b)", "s(c)")


def rows(kind: str, rng: np.random.Generator, n: int, multiplier: int = 40503) -> NDArray[np.int64]:
    """The first two keys: independent, skewed, or both read off one value."""
    if kind == "independent":
        return rng.integers(0, G, (n, 3))
    value = rng.integers(0, 2000, n) if kind == "dependent" else np.minimum(rng.zipf(1.4, n), 2000)
    return np.stack([value * 9176 // 7 % G, value * multiplier // 13 % G, rng.integers(0, G, n)], axis=1)


def seen(kind: str, seed: int, n: int, batches: int, counted: bool, multiplier: int = 40503) -> Shares:
    rng = np.random.default_rng(seed)
    sharing = Sharing(G)
    for _ in range(batches):
        batch = rows(kind, rng, 10 * n, multiplier)
        exact = np.array([np.bincount(column, minlength=G) for column in batch.T], float) if counted else None
        sharing = sharing.after(KeyGroupSample(KEYS, batch[:n].astype(np.uint16), 10.0 * n, exact))
    return sharing.fitting()


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("n", "batches"), [(2000, 1), (2000, 20), (16384, 3)])
@pytest.mark.parametrize("kind", ["independent", "skewed", "dependent"])
def test_a_stable_stream_has_not_moved(kind: str, n: int, batches: int, counted: bool) -> None:
    old, new = seen(kind, 1, n, batches, counted), seen(kind, 2, n, batches, counted)
    assert drift(old, new) < 0.04


@pytest.mark.parametrize(("kind", "least"), [("dependent", 0.5), ("skewed", 0.3)])
def test_a_pair_that_shares_differently_has(kind: str, least: float) -> None:
    moved = drift_by_pair(seen(kind, 1, 4000, 10, False), seen(kind, 2, 4000, 10, False, multiplier=77777))
    assert moved["s(a)", "s(b)"] > least
    assert moved["s(a)", "s(c)"] < 0.05


def test_disjoint_streams_are_one_apart() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.integers(0, 32, (5000, 2)), rng.integers(32, 64, (5000, 2))
    old, new = (
        Sharing(G).after(KeyGroupSample(("a", "b"), g.astype(np.uint16), 5000.0)).fitting() for g in (low, high)
    )
    assert drift(old, new) == pytest.approx(1.0)
    assert drift(old, old) == 0.0


def test_one_key_is_compared_by_its_counts() -> None:
    def shares(seed: int, bias: int) -> Shares:
        groups = np.maximum(np.random.default_rng(seed).integers(0, G, (20000, 1)), bias)
        return Sharing(G).after(KeyGroupSample(("a",), groups.astype(np.uint16), 20000.0)).fitting()

    assert drift(shares(1, 0), shares(2, 0)) < 0.02
    assert drift(shares(1, 0), shares(2, 32)) == pytest.approx(0.5, abs=0.05)


def test_nothing_in_common() -> None:
    nothing = Shares(0.0, {}, {}, {})
    some = Sharing(2).after(KeyGroupSample(("a",), np.zeros((5, 1), np.uint16), 5.0)).fitting()
    other = Sharing(2).after(KeyGroupSample(("b",), np.zeros((5, 1), np.uint16), 5.0)).fitting()
    assert drift(nothing, nothing) == 0.0
    assert drift(nothing, some) == drift(some, other) == 1.0


@pytest.mark.parametrize(("before", "now"), [(300, 300), (5000, 200), (40000, 50000)])
def test_noise_is_what_samples_of_one_stream_show(before: int, now: int) -> None:
    rng = np.random.default_rng(3)
    truth = rng.dirichlet(np.full(500, 0.3))
    shown, expected, alone, listed = [], [], [], []
    for _ in range(200):
        first, second = rng.multinomial(before, truth) / before, rng.multinomial(now, truth) / now
        shown.append(np.abs(first - second).sum())
        expected.append(between_samples(first, second, before, now))
        alone.append(np.abs(first - truth).sum())
        listed.append(of_sample(truth, before))
    assert np.mean(expected) == pytest.approx(np.mean(shown), rel=0.02)
    assert np.mean(listed) == pytest.approx(np.mean(alone), rel=0.02)


def test_merged_groups_have_the_rows_of_their_parts() -> None:
    table = np.arange(49.0).reshape(7, 7)
    small = merged(table, 3)
    assert small.shape == (3, 3)
    assert small[0, 0] == table[:2, :2].sum()
    assert small.sum() == table.sum()
