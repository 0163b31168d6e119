"""Sampled rows against plain counting, how counts fade, and what holds of every snapshot."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.adapt.slot_assignment.sharing import (
    DECAY,
    FAINT,
    MOST_PAIRS,
    TENURE,
    TIDIED,
    KeyGroupSample,
    Shares,
    Sharing,
    gather,
)

KEYS = ("s(a)", "s(b)", "s(c)")
G = 16


def sample(
    rng: np.random.Generator,
    n: int,
    keys: tuple[str, ...] = KEYS,
    rows: float | None = None,
    counted: bool = False,
    width: int = G,
) -> KeyGroupSample:
    groups = rng.integers(0, width, (n, len(keys))) * rng.integers(0, 2, (n, 1))
    counts = rng.random((len(keys), width)) * 100 if counted else None
    return KeyGroupSample(keys, groups.astype(np.uint16), 10.0 * n if rows is None else rows, counts)


def seen(samples: list[KeyGroupSample], width: int = G, seed: int = 0) -> Sharing:
    sharing = Sharing(width, seed=seed)
    for one in samples:
        sharing = sharing.after(one)
    return sharing


def check_consistent(shares: Shares, rows: float) -> None:
    assert shares.rows == pytest.approx(rows)
    for counts in shares.counts.values():
        assert counts.sum() == pytest.approx(rows, rel=1e-12)
    for (first, second), table in shares.joint.items():
        assert (table >= 0.0).all()
        np.testing.assert_allclose(table.sum(axis=1), shares.counts[first], rtol=0, atol=1e-9 * max(rows, 1.0))
        np.testing.assert_allclose(table.sum(axis=0), shares.counts[second], rtol=0, atol=1e-9 * max(rows, 1.0))


def test_counts_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    batches = [gather([sample(rng, 101), sample(rng, 40, rows=4000.0)]) for _ in range(4)]
    sharing = seen(batches)
    for (i, first), (j, second) in combinations(enumerate(KEYS), 2):
        plain: Counter[tuple[int, int]] = Counter()
        for age, batch in zip(range(3, -1, -1), batches, strict=True):
            for row, weight in zip(batch.groups.tolist(), batch.weighted().tolist(), strict=True):
                plain[row[i], row[j]] += weight * DECAY**age  # type: ignore[assignment]
        found = sharing.joints[first, second].cells.sum(axis=0)
        for g, h in product(range(G), range(G)):
            assert found[g, h] == pytest.approx(plain[g, h], rel=1e-5)


def test_a_table_is_the_sampled_one_where_its_sums_are_the_counts() -> None:
    """Without exact counts and with one history for all pairs there is nothing to fit."""
    rng = np.random.default_rng(2)
    sharing = seen([sample(rng, 500), sample(rng, 500)])
    shares = sharing.held_out()
    for pair, table in shares.joint.items():
        raw = sharing.joints[pair].cells[1]
        np.testing.assert_allclose(table, raw * (shares.rows / raw.sum()), rtol=1e-4, atol=1e-4)


def test_halves_have_no_row_in_common() -> None:
    """Every row is a cell of its own here, so a common row would be a common cell."""
    groups = np.stack([np.repeat(np.arange(16), 16), np.tile(np.arange(16), 16)], axis=1).astype(np.uint16)
    joint = Sharing(16).after(KeyGroupSample(("a", "b"), groups, 256.0)).joints["a", "b"]
    assert not ((joint.cells[0] > 0) & (joint.cells[1] > 0)).any()
    np.testing.assert_array_equal(joint.cells.sum(axis=0), np.ones((16, 16)))
    assert joint.weight.tolist() == [128.0, 128.0]


def test_a_source_that_takes_turns_has_both_kinds_in_both_halves() -> None:
    groups = np.array([[0, 0], [1, 1]] * 500, np.uint16)
    sharing = Sharing(4).after(KeyGroupSample(("a", "b"), groups, 1000.0))
    for shares in (sharing.fitting(), sharing.held_out()):
        assert shares.counts["a"][0] == pytest.approx(500, abs=60)


def test_old_batches_fade() -> None:
    before = KeyGroupSample(("a", "b"), np.zeros((100, 2), np.uint16), 1000.0)
    now = KeyGroupSample(("a", "b"), np.ones((100, 2), np.uint16), 1000.0)
    shares = Sharing(2).after(before).after(now, decay=0.25).fitting()
    np.testing.assert_allclose(shares.joint["a", "b"], [[200.0, 0.0], [0.0, 800.0]], rtol=1e-6)
    assert shares.rows == 1000.0


def test_effective_sample_size() -> None:
    once = Sharing(G).after(sample(np.random.default_rng(3), 1000))
    assert once.sampled == pytest.approx(1000)
    rng = np.random.default_rng(3)
    assert seen([sample(rng, 1000) for _ in range(80)]).sampled == pytest.approx(1000 * 1.9 / 0.1, rel=1e-3)
    one_heavy = gather([sample(rng, 1, rows=1e9), sample(rng, 1001)])
    assert Sharing(G).after(one_heavy).sampled < 510


def test_a_batch_without_rows_fades_nothing() -> None:
    before = seen([sample(np.random.default_rng(4), 200)])
    idle = KeyGroupSample(KEYS, np.empty((0, 3), np.uint16), 0.0)
    after = before
    for _ in range(2000):
        after = after.after(idle)
    assert after.batches == 2001
    assert after.rows_per_batch < 1.0
    assert after.joints[KEYS[0], KEYS[1]].cells is before.joints[KEYS[0], KEYS[1]].cells
    check_consistent(after.fitting(), after.rows_per_batch)


def test_counted_rows_without_a_sample_change_only_the_counts() -> None:
    before = seen([sample(np.random.default_rng(4), 200, counted=True)])
    counted = np.zeros((3, G))
    counted[:, 5] = 1e6
    after = before.after(KeyGroupSample(KEYS, np.empty((0, 3), np.uint16), 1e6, counted))
    assert after.joints[KEYS[0], KEYS[1]].cells is before.joints[KEYS[0], KEYS[1]].cells
    assert after.fitting().counts[KEYS[0]].argmax() == 5
    check_consistent(after.held_out(), after.rows_per_batch)


def test_keys_that_remain_keep_what_is_known() -> None:
    rng = np.random.default_rng(5)
    before = seen([sample(rng, 300) for _ in range(5)])
    other = sample(rng, 300, keys=("s(d)", "s(b)", "s(a)"))
    after = before.after(other)
    assert set(after.joints) == {("s(a)", "s(b)"), ("s(a)", "s(d)"), ("s(b)", "s(d)")}
    assert after.joints["s(a)", "s(b)"].weight.sum() == pytest.approx(
        before.joints["s(a)", "s(b)"].weight.sum() * DECAY + other.rows
    )
    assert after.joints["s(a)", "s(d)"].weight.sum() == pytest.approx(other.rows)
    fresh = Sharing(G, batches=5).after(other).joints["s(a)", "s(b)"].cells
    np.testing.assert_allclose(
        after.joints["s(a)", "s(b)"].cells, before.joints["s(a)", "s(b)"].cells * DECAY + fresh, rtol=1e-5
    )
    check_consistent(after.fitting(), after.rows_per_batch)
    check_consistent(after.held_out(), after.rows_per_batch)


def test_exact_counts_are_the_same_in_both_halves_and_estimates_are_not() -> None:
    rng = np.random.default_rng(6)
    exact = seen([sample(rng, 300, counted=True)])
    np.testing.assert_array_equal(exact.fitting().counts[KEYS[0]], exact.held_out().counts[KEYS[0]])
    np.testing.assert_allclose(exact.counts[0], exact.fitting().counts[KEYS[0]])
    estimated = seen([sample(rng, 300)])
    assert (estimated.fitting().counts[KEYS[0]] != estimated.held_out().counts[KEYS[0]]).any()


def test_gathered_rows_stand_for_as_many_as_in_their_task() -> None:
    one = KeyGroupSample(("a",), np.zeros((10, 1), np.uint16), 1000.0)
    other = KeyGroupSample(("a",), np.ones((1000, 1), np.uint16), 1000.0)
    counted = KeyGroupSample(("a",), np.ones((1, 1), np.uint16), 500.0, np.array([[100.0, 400.0]]))
    both = one.add(other)
    assert both.rows == 2000.0
    assert both.weighted().sum() == pytest.approx(2000.0)
    np.testing.assert_allclose(Sharing(2).after(both).counts, [[1000.0, 1000.0]])
    np.testing.assert_allclose(gather([both, counted]).counts, [[1100.0, 1400.0]])  # type: ignore[arg-type]


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(1, 3)), min_size=1, max_size=6),
)
def test_every_snapshot_is_consistent(seed: int, batches: list[tuple[int, bool, int]]) -> None:
    rng = np.random.default_rng(seed)
    sharing = Sharing(G, seed=seed)
    for n, counted, keys in batches:
        names = tuple(rng.permutation(("s(a)", "s(b)", "s(c)", "s(d)"))[:keys].tolist())
        sharing = sharing.after(sample(rng, n, names, rows=float(rng.integers(n, 1000)), counted=counted))
    for shares in (sharing.fitting(), sharing.held_out()):
        if all(counts.any() for counts in shares.counts.values()):
            check_consistent(shares, sharing.rows_per_batch)
        assert set(shares.sampled) == set(shares.joint)


def many_keys(rng: np.random.Generator, count: int) -> KeyGroupSample:
    """Independent keys but for the last two, which are the same."""
    groups = rng.integers(0, G, (2000, count))
    groups[:, -1] = groups[:, -2]
    return KeyGroupSample(tuple(f"s(k{i:02d})" for i in range(count)), groups.astype(np.uint16), 2000.0)


def test_too_many_pairs_take_turns_and_the_strong_ones_stay() -> None:
    rng = np.random.default_rng(7)
    strong = ("s(k18)", "s(k19)")
    sharing = Sharing(G, seed=1)
    ever: set[tuple[str, str]] = set()
    arrived = False
    for _ in range(TENURE * 8):
        sharing = sharing.after(many_keys(rng, 20))
        assert len(sharing.joints) == MOST_PAIRS
        ever.update(sharing.joints)
        assert not arrived or strong in sharing.joints
        arrived = arrived or strong in sharing.joints
    assert arrived
    assert len(ever) == 190
    check_consistent(sharing.fitting(), 2000.0)


def test_rotation_depends_on_the_seed_alone() -> None:
    def pairs(seed: int) -> set[tuple[str, str]]:
        rng = np.random.default_rng(8)
        return set(seen([many_keys(rng, 20) for _ in range(TENURE + 1)], seed=seed).joints)

    assert pairs(1) == pairs(1)
    assert pairs(1) != pairs(2)


def test_keys_that_go_make_room() -> None:
    rng = np.random.default_rng(9)
    sharing = seen([many_keys(rng, 20)])
    kept = {pair for pair in sharing.joints if max(pair) < "s(k14)"}
    sharing = sharing.after(many_keys(rng, 14))
    assert kept < set(sharing.joints)
    assert len(sharing.joints) == MOST_PAIRS
    assert len(sharing.after(many_keys(rng, 12)).joints) == MOST_PAIRS
    assert len(sharing.after(many_keys(rng, 3)).joints) == 3


def test_what_has_long_been_gone_is_none() -> None:
    before = KeyGroupSample(("a", "b"), np.zeros((10, 2), np.uint16), 10.0)
    now = KeyGroupSample(("a", "b"), np.ones((10, 2), np.uint16), 10.0)
    sharing = Sharing(2).after(before)
    for _ in range(8 * TIDIED):
        sharing = sharing.after(now)
        cells = sharing.joints["a", "b"].cells
        assert ((cells == 0.0) | (cells > FAINT * DECAY**TIDIED / 2)).all()
    assert cells[:, 0, 0].tolist() == [0.0, 0.0]


def test_what_does_not_fit_is_refused() -> None:
    groups = np.zeros((4, 2), np.uint16)
    with pytest.raises(ValueError, match="key group 16"):
        Sharing(16).after(KeyGroupSample(("a", "b"), groups + np.uint16(16), 4.0))
    with pytest.raises(ValueError, match="counts of 8 key groups"):
        Sharing(16).after(KeyGroupSample(("a", "b"), groups, 4.0, np.ones((2, 8))))
    with pytest.raises(ValueError, match="for 1 route keys"):
        KeyGroupSample(("a",), groups, 4.0)
    with pytest.raises(ValueError, match="named twice"):
        KeyGroupSample(("a", "a"), groups, 4.0)
    with pytest.raises(ValueError, match="different route keys"):
        gather([KeyGroupSample(("a", "b"), groups, 4.0), KeyGroupSample(("b", "a"), groups, 4.0)])
