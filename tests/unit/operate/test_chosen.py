"""Differential: what is chosen without a statement is what DuckDB gives for the same text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thalweg.operate import duck
from thalweg.operate.chosen import choose
from thalweg.operate.columns import WINDOW

TABLE = pa.table(
    {
        WINDOW: pa.array([0, 10_000_000, -5_000_000, 1_700_000_000_000_001], pa.int64()),
        ".k0": pa.array([1, None, 3, 4], pa.int32()),
        "p_1": pa.array([0, None, 7, -1], pa.int64()),
        'p "2"': pa.array([0.5, None, float("nan"), -0.0]),
    }
)
CHOICES = (
    'm.".k0"',
    '("p_1")',
    '("p ""2""")',
    '(coalesce("p_1", 0))',
    'coalesce(m."p_1" > 0, FALSE)',
    f'make_timestamp(m."{WINDOW}")',
    f'make_timestamp(m."{WINDOW}" + 10000000)',
)


@pytest.mark.parametrize("sql", CHOICES)
def test_a_choice_is_what_the_statement_gives(sql: str) -> None:
    found = choose([sql], TABLE)
    assert found is not None
    wanted = duck.run(f"SELECT {sql} AS c FROM m", m=TABLE).column(0)
    assert found[0].type == wanted.type
    assert str(found[0].to_pylist()) == str(wanted.to_pylist())  # NaN and -0.0 told apart


@pytest.mark.parametrize(
    "sql",
    [
        '("p_1" / 2)',
        '("p_1") + ("p_1")',
        'CASE WHEN coalesce(m."p_1" > 0, FALSE) THEN ("p_1") END',
        '(coalesce("p_1", 1))',
        f'make_timestamp(m."{WINDOW}" - 1)',
        "(42)",
        'coalesce(f0."x", 0)',
    ],
)
def test_whatever_is_more_is_left_to_the_statement(sql: str) -> None:
    assert choose([*CHOICES, sql], TABLE) is None
