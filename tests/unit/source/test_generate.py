"""Unit: generated rows depend on the seed and their number, and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.errors import SourceError
from thalweg.source.generate import check_options, generate
from thalweg.source.generators import generate_rows, schema_of


def rows(name: str, low: int, high: int, **options: Any) -> pa.Table:
    return generate_rows(check_options(name, options), low, high)


@pytest.mark.parametrize("name", ["purchases", "ads", "ajoin", "facts"])
@pytest.mark.parametrize("options", [{}, {"zipf": 1.1, "out_of_order": 2.5, "seed": 9}])
def test_any_range_is_the_same_range(name: str, options: dict[str, Any]) -> None:
    whole = rows(name, 0, 3000, **options)
    assert whole.schema == schema_of(check_options(name, options)).to_inner_arrow()
    assert rows(name, 1234, 2345, **options) == whole.slice(1234, 1111)


def test_pinned_rows() -> None:
    """Another release must make the same stream: results are compared across them."""
    table = rows("facts", 0, 2, seed=1)
    assert table.select(["id", "a", "b", "d"]).to_pylist() == PINNED


PINNED = [{"id": 0, "a": 269, "b": 149, "d": 94943}, {"id": 1, "a": 39, "b": 93, "d": 18832}]


def test_seeds_and_streams_differ() -> None:
    assert rows("ajoin", 0, 100, seed=1) != rows("ajoin", 0, 100, seed=2)
    first, second = rows("ajoin", 0, 100, stream=1), rows("ajoin", 0, 100, stream=2)
    assert first["a0"] != second["a0"]
    assert first["a0"] != first["a1"]


def test_values_are_spread_evenly() -> None:
    counts = np.bincount(rows("facts", 0, 500_000)["a"].to_numpy(), minlength=500)
    assert len(counts) == 500
    assert abs(counts - 1000).max() < 200
    values = rows("facts", 0, 100_000)["v"].to_numpy()
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01


def test_columns_are_not_correlated() -> None:
    table = rows("facts", 0, 100_000)
    assert abs(np.corrcoef(table["a"].to_numpy(), table["b"].to_numpy())[0, 1]) < 0.02


def test_zipf_makes_the_first_keys_hot() -> None:
    counts = np.bincount(rows("facts", 0, 100_000, keys=100, zipf=1.0)["a"].to_numpy(), minlength=100)
    harmonic = sum(1 / i for i in range(1, 101))
    assert counts[0] == pytest.approx(100_000 / harmonic, rel=0.05)
    assert counts[9] == pytest.approx(10_000 / harmonic, rel=0.15)


def test_packs_follow_from_users_if_asked() -> None:
    table = rows("ads", 0, 50_000, users=100, packs=500, packs_per_user=2)
    packs = table.group_by("userID").aggregate([("gemPackID", "count_distinct")])
    assert pc.max(packs["gemPackID_count_distinct"]).as_py() <= 2
    free = rows("ads", 0, 50_000, users=100, packs=500)
    packs = free.group_by("userID").aggregate([("gemPackID", "count_distinct")])
    assert pc.min(packs["gemPackID_count_distinct"]).as_py() > 100


def test_prices_are_prices() -> None:
    prices = rows("purchases", 0, 10_000)["price"].to_numpy()
    assert prices.min() > 0
    assert np.array_equal(np.round(prices, 2), prices)


def test_event_time() -> None:
    table = rows("facts", 0, 2001, rows_per_second=1000, start="2024-01-01T00:00:00+01:00")
    times = table["ts"].to_pylist()
    assert str(times[0]) == "2023-12-31 23:00:00"
    assert (times[2000] - times[0]).total_seconds() == 2
    late = rows("facts", 0, 2001, rows_per_second=1000, start="2024-01-01T00:00:00+01:00", out_of_order=0.5)
    behind = pc.subtract(table["ts"].cast(pa.int64()), late["ts"].cast(pa.int64()))
    assert pc.min(behind).as_py() >= 0
    assert 400_000 < pc.max(behind).as_py() <= 500_000


def test_an_unknown_generator_is_told_how_to_name_one() -> None:
    with pytest.raises(SourceError, match="there is no generator named 's'") as refused:
        generate("s")
    assert "generator = 'purchases'" in (refused.value.hint or "")
    assert "name of the stream" in (refused.value.detail or "")
