"""Unit: values at the limits of their types, as batch Spark gives them (figures in `SPARK` are its own), whatever the
split into batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])
inf, nan = math.inf, math.nan
STATISTICS = """SELECT percentile(x, 0.25) AS a, median(x) AS b, var_pop(x) AS c, stddev(x) AS d, window.start AS w
    FROM s GROUP BY window(ts, '10 seconds')"""
SPARK = [
    ([-inf, 1.0, 2.0], (nan, 1.0, nan, nan)),
    ([-inf, 1.0], (nan, nan, nan, nan)),
    ([1.0, inf], (inf, inf, nan, nan)),
    ([-inf, -inf], (-inf, -inf, nan, nan)),
    ([0.1, 0.3, 0.7], (0.2, 0.3, 0.06222222222222222, 0.3055050463303893)),
    ([1e308, 1e308, 0.0], (5e307, 1e308, inf, inf)),
    ([1.7e308, 1.7e308], (1.7e308, 1.7e308, 0.0, 0.0)),
    ([1e200, -1e200], (-5e199, 0.0, inf, inf)),
    ([1e154, 0.0], (2.5e153, 5e153, 2.5e307, 7.071067811865475e153)),
    ([inf], (inf, inf, nan, None)),
]


def rows(values: list[float], second: int = 0) -> pa.Table:
    found = [{"ts": START + timedelta(seconds=second), "x": value} for value in values]
    return pa.Table.from_pylist(found, SCHEMA)


@pytest.mark.parametrize("at_once", [True, False])
def test_statistics_at_the_limits(local: Local, at_once: bool) -> None:
    session = local({"s": SCHEMA.empty_table()}, {"q": STATISTICS}, watermark="10 minutes")
    for number in range(1 if at_once else 3):
        for window, (values, _) in enumerate(SPARK):
            session.append("s", rows(values if at_once else values[number : number + 1], 10 * window))
        session.run_available()
    session.append("s", rows([0.0], 3600))
    found = sorted(session.results("q").to_pylist(), key=lambda row: row["w"])
    assert len(found) == len(SPARK)
    for (values, expected), row in zip(SPARK, found, strict=True):
        assert [shown(row[name]) for name in "abcd"] == [shown(value) for value in expected], values


def shown(value: float | None) -> str:
    return "NULL" if value is None else f"{value:.13e}"
