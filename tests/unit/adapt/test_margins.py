"""Tables fitted to sums: a known example, what no scaling can reach, and sums that are always exact."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.adapt.slot_assignment.margins import fit_margins


def test_odds_ratios_are_kept() -> None:
    """Scaling lines and columns leaves a*d / (b*c) as it is: that is what the sample says of agreement."""
    fitted = fit_margins(np.array([[8.0, 2.0], [3.0, 7.0]]), np.array([30.0, 70.0]), np.array([60.0, 40.0]))
    np.testing.assert_allclose(fitted.sum(axis=1), [30.0, 70.0])
    np.testing.assert_allclose(fitted.sum(axis=0), [60.0, 40.0])
    odds = fitted[0, 0] * fitted[1, 1] / (fitted[0, 1] * fitted[1, 0])
    np.testing.assert_allclose(odds, 8 * 7 / (2 * 3), rtol=1e-5)


def test_groups_that_were_never_sampled_are_taken_to_be_independent() -> None:
    fitted = fit_margins(np.diag([1.0, 1.0, 0.0]), np.array([50.0, 40.0, 10.0]), np.array([55.0, 45.0, 0.0]))
    np.testing.assert_allclose(fitted.sum(axis=1), [50.0, 40.0, 10.0])
    np.testing.assert_allclose(fitted.sum(axis=0), [55.0, 45.0, 0.0])
    np.testing.assert_allclose(fitted[2], [5.0, 5.0, 0.0])


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0.0, 1.0), st.sampled_from([1e-6, 1.0, 1e9]))
def test_sums_are_exact_whatever_the_table(seed: int, size: int, empty: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((size, size)) < empty, 0.0, rng.pareto(1.0, (size, size)))
    lines, columns = (rng.pareto(0.7, size) * (rng.random(size) < 0.7) for _ in range(2))
    lines[0] += 1.0
    columns[-1] += 1.0
    lines, columns = lines * (scale / lines.sum()), columns * (scale / columns.sum())
    fitted = fit_margins(table.astype(np.float32), lines, columns)
    assert (fitted >= 0.0).all()
    np.testing.assert_allclose(fitted.sum(axis=1), lines, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(fitted.sum(axis=0), columns, rtol=0, atol=1e-12 * scale)


def test_no_rows_give_no_table() -> None:
    assert not fit_margins(np.ones((3, 3)), np.zeros(3), np.zeros(3)).any()
