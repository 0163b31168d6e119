"""Unit: what epochs make of batches, and when an estimate gives way to another."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from thalweg.model.join_statistics import Estimate, FoundPerLook, JoinStatistics


def test_the_spread_is_that_of_a_plain_computation() -> None:
    rng = random.Random(1)
    batches = [(rng.randint(50, 500), rng.random()) for _ in range(12)]
    seen = FoundPerLook()
    for looked, ratio in batches:
        seen = seen.after(looked, looked * ratio)
    total = sum(looked for looked, _ in batches)
    mean = sum(looked * ratio for looked, ratio in batches) / total
    spread = sum(looked * (ratio - mean) ** 2 for looked, ratio in batches)
    assert seen.ratio == pytest.approx(mean)
    assert seen.spread == pytest.approx(spread)
    assert seen.error == pytest.approx(math.sqrt(spread / total / 11))


def test_one_batch_is_as_sure_as_its_counts() -> None:
    assert FoundPerLook().error == math.inf
    assert FoundPerLook().after(100, 400).error == pytest.approx(0.2)
    assert FoundPerLook().after(10_000, 40_000).error == pytest.approx(0.02)
    assert FoundPerLook().after(100, 0).error == pytest.approx(0.01)
    assert FoundPerLook().after(0, 0) == FoundPerLook()


def test_equal_batches_are_no_surer_than_counting() -> None:
    seen = FoundPerLook()
    for _ in range(4):
        seen = seen.after(10, 1)
    assert seen.error == pytest.approx(math.sqrt(4) / 40)


@pytest.mark.parametrize(
    ("before", "after", "refuted"),
    [
        ((1.0, 0.01), (1.2, 0.01), False),  # sure, but not far enough apart
        ((1.0, 0.01), (1.3, 0.01), True),
        ((1.0, 0.2), (1.5, 0.2), False),  # far apart, but not sure
        ((1.0, 0.2), (2.0, 0.2), True),
        ((1.0, 0.01), (0.7, 0.01), True),
        ((0.0, 0.001), (0.0001, 0.001), False),
        ((0.0, 0.001), (0.1, 0.001), True),
    ],
)
def test_only_what_clearly_differs_replaces(
    before: tuple[float, float], after: tuple[float, float], refuted: bool
) -> None:
    assert Estimate(*before, 8).is_refuted_by(Estimate(*after, 8)) == refuted


def tossed(rng: random.Random, chance: float, times: int) -> dict[str, tuple[float, float]]:
    return {"a": (times, sum(rng.random() < chance for _ in range(times)))}


def test_noise_replaces_nothing_and_a_change_does() -> None:
    """The same coin in every batch: after the first epoch no estimate is replaced, until the coin is another."""
    rng = random.Random(7)
    statistics = JoinStatistics()
    for _ in range(30 * 8):
        statistics = statistics.after(tossed(rng, 0.3, 500), 8)
        if statistics.epoch > 1:
            assert statistics.replaced == ()
    assert statistics.epoch == 30
    for _ in range(8):
        statistics = statistics.after(tossed(rng, 0.6, 500), 8)
    assert statistics.replaced == ("a",)
    assert statistics.estimates["a"].value == pytest.approx(0.6, abs=0.05)


def test_few_rows_seldom_replace_anything() -> None:
    """With ten rows a batch an epoch is often 25 % off by chance; two standard errors hold most of that back."""
    rng = random.Random(8)
    statistics, replaced, off = JoinStatistics(), 0, 0
    for _ in range(400):
        for _ in range(8):
            seen = statistics.seen.get("a", FoundPerLook())
            statistics = statistics.after(last := tossed(rng, 0.3, 10), 8)
        off += abs(seen.after(*last["a"]).ratio - 0.3) > 0.25 * 0.3
        replaced += bool(statistics.replaced)
    assert off > 400 * 0.1
    assert replaced < 400 * 0.06


def test_an_epoch_ends_after_its_batches_and_begins_anew() -> None:
    statistics = JoinStatistics()
    for _ in range(3):
        statistics = statistics.after({"a": (10, 5), "b": (0, 0)}, 4)
    assert (statistics.epoch, statistics.batches, dict(statistics.estimates)) == (0, 3, {})
    statistics = statistics.after({"a": (10, 5)}, 4)
    assert (statistics.epoch, statistics.batches, dict(statistics.seen)) == (1, 0, {})
    assert set(statistics.estimates) == {"a"}  # of b nothing was looked at
    assert statistics.only("b".__eq__).estimates == {}


def test_it_goes_through_a_manifest_unchanged() -> None:
    statistics = JoinStatistics()
    for batch in range(7):
        statistics = statistics.after({"a": (10 + batch / 3, 5), "b": (7, batch)}, 5)
    assert msgspec.json.decode(msgspec.json.encode(statistics), type=JoinStatistics) == statistics
    assert msgspec.json.decode("{}", type=JoinStatistics) == JoinStatistics()
