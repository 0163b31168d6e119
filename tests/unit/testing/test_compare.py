"""Unit: the comparison of results passes what is equal and catches what is not."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from thalweg.testing.compare import difference, rows_equal


def test_order_and_rounding_do_not_count() -> None:
    left = pa.table({"k": ["a", "b", "b"], "x": [0.1 + 0.2, math.nan, None]})
    right = pa.table({"k": ["b", "b", "a"], "x": [None, math.nan, 0.3]})
    assert rows_equal(left, right)


def test_floats_that_sort_apart_by_rounding_still_find_their_partner() -> None:
    left = pa.table({"x": [1.0, 1.0 + 1e-13], "y": [5.0, 7.0]})
    right = pa.table({"x": [1.0, 1.0 + 1e-13], "y": [7.0, 5.0]})
    assert rows_equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"x": [1, 2]}, {"x": [1, 1]}),
        ({"x": [1, 1]}, {"x": [1]}),
        ({"x": [None]}, {"x": [0]}),
        ({"x": [1.0]}, {"x": [1.0 + 1e-6]}),
        ({"x": [math.nan]}, {"x": [None]}),
        ({"x": [math.nan]}, {"x": [1.0]}),
    ],
)
def test_other_rows_are_told_apart(left: dict[str, list[object]], right: dict[str, list[object]]) -> None:
    schema = pa.schema([("x", pa.float64() if any(isinstance(v, float) for v in left["x"]) else pa.int64())])
    with pytest.raises(AssertionError, match=r"missing|not expected"):
        rows_equal(pa.table(left, schema=schema), pa.table(right, schema=schema))


def test_types_and_names_count() -> None:
    ints = pa.table({"x": pa.array([1], pa.int32())})
    longs = pa.table({"x": pa.array([1], pa.int64())})
    assert "int32" in str(difference(ints, longs))
    assert "! y int64 | x int64" in str(difference(longs.rename_columns(["y"]), longs))


def test_diff_names_the_rows() -> None:
    text = difference(pa.table({"k": ["a"], "n": [1]}), pa.table({"k": ["a"], "n": [2]}))
    assert text is not None
    assert "missing: ('a', 2)" in text
    assert "not expected: ('a', 1)" in text


def test_window_structs_and_instants() -> None:
    instant = pa.timestamp("us", tz="UTC")
    kind = pa.struct([("start", instant), ("end", instant)])
    windows = [{"start": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2026, 1, 2, tzinfo=UTC)}, None]
    table = pa.table({"window": pa.array(windows, kind)})
    assert rows_equal(table, table.take([1, 0]))
    assert difference(table, table.slice(0, 1)) is not None


def test_estimates_have_room() -> None:
    left, right = pa.table({"n": [103]}), pa.table({"n": [98]})
    assert rows_equal(left, right, approximate={"n"})
    assert difference(left, right) is not None
