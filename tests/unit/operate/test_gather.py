"""Fetching values by row number: the loop and Arrow's take must agree, whatever the column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from thalweg.operate import gather
from thalweg.operate.gather import StoreColumn, take_columns

COLUMNS = {
    "int": pa.chunked_array(
        [pa.array([1, 2, 3], pa.int32()), pa.array([], pa.int32()), pa.array([-4, 5], pa.int32())]
    ),
    "sliced": pa.chunked_array(
        [pa.array([9, 1, 2, 3], pa.int64()).slice(1), pa.array([4, 5, 9], pa.int64()).slice(0, 2)]
    ),
    "double": pa.chunked_array([pa.array([1.5, float("nan"), 3.0]), pa.array([4.0, -0.0])]),
    "time": pa.chunked_array([pa.array([1, 2, 3, 4, 5], pa.int64()).cast(pa.timestamp("us"))]),
    "nulls": pa.chunked_array([pa.array([1, None, 3], pa.int16()), pa.array([None, 5], pa.int16())]),
    "string": pa.chunked_array([pa.array(["a", "b", None]), pa.array(["d", "e"])]),
    "bool": pa.chunked_array([pa.array([True, False, True]), pa.array([False, True])]),
    "decimal": pa.chunked_array([pa.array([1, 2, 3, 4, 5]).cast(pa.decimal128(30, 2))]),
}
NUMBERS = np.array([4, 0, 0, 3, 2, 1], dtype=np.int64)


@pytest.mark.parametrize("small", [0, 1 << 22])
@pytest.mark.parametrize("name", COLUMNS)
def test_take_equals_arrow(name: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "SMALL", small)
    column = StoreColumn(COLUMNS[name])
    for numbers in (NUMBERS[:0], NUMBERS[:1], NUMBERS, NUMBERS):
        wanted = COLUMNS[name].take(pa.array(numbers)).combine_chunks()
        taken = column.take(numbers)
        assert taken.type == wanted.type
        assert repr(taken.to_pylist()) == repr(pa.chunked_array([wanted]).to_pylist())


def test_columns_together_are_the_columns_apart() -> None:
    wanted = [(StoreColumn(column), NUMBERS) for column in COLUMNS.values()]
    together = take_columns(wanted)
    for column, taken in zip(COLUMNS.values(), together, strict=True):
        assert repr(taken.to_pylist()) == repr(column.take(pa.array(NUMBERS)).to_pylist())
    assert take_columns([]) == []
