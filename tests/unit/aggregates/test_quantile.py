"""Unit: percentiles of counted values, against the values written out and sorted."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from thalweg.aggregates.quantile import MANY, quantile_of_counts
from thalweg.operate import duck


def by_hand(values: list[float], counts: list[int], share: float) -> float:
    """As Spark's `percentile` does it: NaN is the greatest of all."""
    rows = sorted(
        (v for v, n in zip(values, counts, strict=True) for _ in range(n)), key=lambda v: (math.isnan(v), v)
    )
    position = (len(rows) - 1) * share
    lower, higher = math.floor(position), math.ceil(position)
    low, high = rows[lower], rows[higher]
    if lower == higher or low == high or (math.isnan(low) and math.isnan(high)):
        return low
    return low + (high - low) * (position - lower)


def lists(groups: list[list[float]], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(groups, pa.list_(kind))])


@pytest.mark.parametrize("seed", range(12))
def test_counted_values_are_as_good_as_rows(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 3, 10, 200, MANY, MANY + 5]) for _ in range(20)]
    values = [[rng.choice([rng.randrange(9), rng.random(), math.nan, math.inf, -math.inf, -0.0]) for _ in range(n)]
              for n in sizes]  # fmt: skip
    once = seed % 3 == 0
    counts = [[1 if once else rng.randint(1, 5) for _ in range(n)] for n in sizes]
    share = rng.choice([0.0, 0.25, 0.5, 0.99, 1.0, rng.random()])
    shares = pa.chunked_array([pa.array([share] * len(sizes))])
    found = quantile_of_counts(lists(values, pa.float64()), lists(counts, pa.int64()), shares).to_pylist()
    wanted = [by_hand(v, n, share) for v, n in zip(values, counts, strict=True)]
    np.testing.assert_array_equal(found, wanted)


def test_sliced_lists_and_groups_without_values() -> None:
    values = pa.array([[9.0], [1.0, 2.0, 3.0], None, [5.0], []], pa.list_(pa.float64()))
    counts = pa.array([[1], [1, 1, 5], None, [2], []], pa.list_(pa.int64()))
    shares = pa.chunked_array([pa.array([0.5] * 4)])
    found = quantile_of_counts(pa.chunked_array([values[1:]]), pa.chunked_array([counts[1:]]), shares)
    assert found.to_pylist() == [3.0, None, 5.0, None]


def test_in_a_statement() -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.integers(0, 3_000, 40_000), rng.integers(0, 50, 40_000).astype(float)
    rows = pa.table({"k": keys, "v": values})
    counted = duck.run("SELECT k, v, count(*) AS n FROM rows GROUP BY k, v", rows=rows)
    text = "SELECT k, quantile_of_counts(list(v), list(n), 0.3) AS q FROM t GROUP BY k ORDER BY k"
    wanted = duck.run("SELECT k, quantile_cont(v, 0.3) AS q FROM t GROUP BY k ORDER BY k", t=rows)
    np.testing.assert_allclose(duck.run(text, t=counted).column(1).to_numpy(), wanted.column(1).to_numpy())
