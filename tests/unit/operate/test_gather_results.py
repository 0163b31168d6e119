"""Differential: results gathered together are what DuckDB gives each query of the same merged partials."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.columns import WINDOW, key
from thalweg.model.types import as_type, to_inner_arrow
from thalweg.operate import duck
from thalweg.operate.finish import _MergedTable
from thalweg.operate.gather_results import Places, Wanted, gather_lanes, gather_results
from thalweg.operate.plain_outputs import choice

PARTIALS = {"n": "BIGINT", "m": "BIGINT", "s": "DOUBLE", "t": "BIGINT", "l": "INTEGER", "d": "DATE", "x": "VARCHAR"}
COUNTS = ("n", "m")
OUTPUTS = {
    f'm."{key(0)}"': "int",
    f'm."{key(1)}"': "string",
    f'make_timestamp(m."{WINDOW}")': "timestamp",
    f'make_timestamp(m."{WINDOW}" + 10000000)': "timestamp",
    '("n")': "bigint",
    '(coalesce("m", 0))': "bigint",
    '("s")': "double",
    '("t")': "bigint",
    '("l")': "int",
    '("d")': "date",
    '("s" / nullif("n", 0))': "double",
    '("s" / nullif("m", 0))': "double",
}


def random_table(rng: random.Random) -> pa.Table:
    rows = rng.choice((0, 1, 7, 300))
    share = rng.choice((0.0, 0.0, 0.3))

    def column(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if rng.random() < share else value() for _ in range(rows)], kind)

    doubles = (0.0, -0.0, math.nan, math.inf, 0.25, -3.5)
    return pa.table(
        {
            WINDOW: pa.array([rng.randrange(10**6) for _ in range(rows)], pa.int64()),
            key(0): column(pa.int32(), lambda: rng.randint(-3, 3)),
            key(1): column(pa.string(), lambda: rng.choice("xyz")),
            "n": column(pa.int64(), lambda: rng.randint(0, 2)),
            "m": column(pa.int64(), lambda: rng.choice((0, 1, 2**62))),
            "s": column(pa.float64(), lambda: rng.choice(doubles)),
            "t": column(pa.int64(), lambda: rng.randint(-(2**62), 2**62)),
            "l": column(pa.int32(), lambda: rng.randint(-9, 9)),
            "d": column(pa.int32(), lambda: rng.randint(0, 9)).cast(pa.date32()),
            "x": column(pa.string(), lambda: rng.choice("xyz")),
        }
    )


def _wanted(present: str, outputs: Sequence[str], kinds: dict[str, str] = OUTPUTS) -> Wanted:
    choices = [choice(sql) for sql in outputs]
    return Wanted(present, tuple((c, kinds[sql]) for c, sql in zip(choices, outputs, strict=True) if c is not None))


def _by_duckdb(table: pa.Table, present: str, outputs: Sequence[str]) -> pa.Table:
    listed = ", ".join(f'{sql} AS "{i}"' for i, sql in enumerate(outputs))
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    found = duck.run(f'SELECT {listed} FROM m WHERE coalesce(m."{present}" > 0, FALSE) ORDER BY "row"', m=numbered)
    types = [to_inner_arrow(OUTPUTS[sql]) for sql in outputs]
    arrays = [as_type(column, kind) for column, kind in zip(found.columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=found.column_names)


@pytest.mark.parametrize("seed", range(20))
def test_each_of_many_is_what_duckdb_gives(seed: int) -> None:
    rng = random.Random(seed)
    table = random_table(rng)
    asked = [
        (rng.choice(COUNTS), rng.sample(sorted(OUTPUTS), rng.randint(1, 5))) for _ in range(rng.choice((1, 2, 30)))
    ]
    asked += asked[:2]
    found = gather_results([_wanted(*one) for one in asked], _MergedTable(table, PARTIALS))
    for (present, outputs), result in zip(asked, found, strict=True):
        expected = _by_duckdb(table, present, outputs)
        assert result is not None
        assert result.schema == expected.schema
        assert repr(result.to_pydict()) == repr(expected.to_pydict())  # NaN and -0.0 told apart
        result.validate(full=True)


def test_what_is_no_lane_is_left_and_nothing_else_is() -> None:
    table = random_table(random.Random(3))
    kinds = {**OUTPUTS, '("x")': "string", '("t" / nullif("n", 0))': "double"}
    asked = [("n", ['("x")']), ("n", ['("s")']), ("m", ['("t" / nullif("n", 0))', '("s")']), ("m", ['("t")'])]
    found = gather_results([_wanted(*one, kinds) for one in asked], _MergedTable(table, PARTIALS))
    assert [one is None for one in found] == [True, False, True, False]
    assert gather_results([], _MergedTable(table, PARTIALS)) == []


def test_results_are_slices_of_what_is_gathered_once() -> None:
    """The values of a key are in one buffer, whoever asks."""
    table = random_table(random.Random(5))
    assert table.num_rows
    asked = [("n", [f'm."{key(0)}"', '("s")']), ("m", [f'm."{key(0)}"', '("s")']), ("n", ['("s")'])]
    found = gather_results([_wanted(*one) for one in asked], _MergedTable(table, PARTIALS))
    keys = [one.column(0).chunk(0).buffers()[1].address for one in found[:2] if one is not None]
    sums = [one.column(-1).chunk(0) for one in found if one is not None]
    assert keys[0] == keys[1]
    assert len({array.buffers()[1].address for array in sums}) == 1
    assert sums[0].offset == sums[2].offset != sums[1].offset


def test_lanes_stand_one_after_the_other() -> None:
    merged = _MergedTable(
        pa.table({"t": pa.array([1, None, 3]), "u": pa.array([4, 5, 6])}), {"t": "BIGINT", "u": "BIGINT"}
    )
    t, u = merged.lane("t"), merged.lane("u")
    assert t is not None
    assert u is not None
    places: list[Places] = [np.array([2, 1]), np.array([0])]
    assert gather_lanes([(t, places[0]), (u, places[1])]).to_pylist() == [3, None, 4]
    assert t.column(places[0]).to_pylist() == [3, None]
