"""Unit: which slice a row is in, against whole numbers of Python; which rows a condition admits, with and without a
statement."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.expr import Expr
from thalweg.model.failure import Failures
from thalweg.model.plan import Computed
from thalweg.operate.columns import Columns
from thalweg.operate.combine import Slices
from thalweg.operate.comparison import Comparisons

YEAR_2, YEAR_9999 = -62_104_060_800_000_000, 253_370_764_799_999_999


def check(times: list[int], width: int, origin: int) -> None:
    grid: Any = SimpleNamespace(slice_us=width, slice_start_us=origin)
    slices = Slices.of(np.array(times, dtype=np.int64), grid)
    wanted = [(time - origin) // width * width + origin for time in times]
    assert slices.starts.tolist() == wanted
    assert slices.first == min(wanted)
    assert slices.key.values.tolist() == [(start - min(wanted)) // width for start in wanted]
    assert (slices.key.low, slices.key.width) == (0, (max(wanted) - min(wanted)) // width + 1)


@pytest.mark.parametrize("seed", range(10))
def test_slices_of_random_times(seed: int) -> None:
    """Around the edges of slices, where a product instead of a division is off by one; also years so far apart that a
    double does not hold the microseconds between them."""
    rng = random.Random(seed)
    for _ in range(50):
        width = rng.choice([1, 2, 3, 7, 1000, 999_983, 10_000_000, 3_600_000_000, rng.randrange(1, 10**12)])
        origin = rng.choice([0, rng.randrange(width)])
        first = rng.choice([YEAR_2, -5, 0, 1_700_000_000_000_000, rng.randrange(YEAR_2, YEAR_9999)])
        slices = rng.choice([1, 10, 10**6, 10**9])
        edges = [first // width * width + origin + rng.randrange(slices) * width for _ in range(20)]
        times = [edge + rng.choice([-1, 0, 1, rng.randrange(width)]) for edge in edges]
        check([min(time, YEAR_9999) for time in times], width, origin)


def test_slices_of_all_times_that_are_let_in() -> None:
    for width in (1, 7, 86_400_000_000):
        check([YEAR_2, -1, 0, 1, YEAR_9999], width, 0)


CONDITIONS = (
    '("i" < CAST(3 AS INTEGER))',
    '(("i" < CAST(3 AS INTEGER)) AND (NOT ("l" = CAST(2 AS BIGINT))))',
    '(("i" < CAST(3 AS INTEGER)) OR ("l" > "i"))',
    '("l" % 2 = 0)',
)


def test_flags_are_those_of_the_column() -> None:
    rng = random.Random(5)
    values = {name: [rng.choice([None, *range(6)]) for _ in range(200)] for name in "il"}
    rows = pa.table({"i": pa.array(values["i"], pa.int32()), "l": pa.array(values["l"], pa.int64())})
    computed = {sql: Computed(sql, Expr(sql, "boolean", ("i", "l"))) for sql in CONDITIONS}
    failures: Failures = {}
    found, stated = (Columns(rows, "s", computed, failures) for _ in range(2))
    found.compute_expressions()
    assert (
        [*found._made] == [sql for sql in CONDITIONS if not Comparisons(rows).understands(sql)] == [*CONDITIONS[2:]]
    )
    for sql in CONDITIONS:
        flags = [value is True for value in stated.column(sql).to_pylist()]
        assert stated.filter(sql).tolist() == found.filter(sql).tolist() == flags
        assert not found.filter(sql).flags.writeable
    assert found.column(CONDITIONS[0]).to_pylist() == stated.column(CONDITIONS[0]).to_pylist()
    assert failures == {}
