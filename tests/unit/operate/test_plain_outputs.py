"""Differential: what is chosen without a statement is what DuckDB gives for the same text."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.columns import WINDOW
from thalweg.operate import duck
from thalweg.operate.plain_outputs import choose

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
    '("p ""2""" / nullif("p_1", 0))',
    'coalesce(m."p_1" > 0, FALSE)',
    f'make_timestamp(m."{WINDOW}")',
    f'make_timestamp(m."{WINDOW}" + 10000000)',
)
MORE = (
    '("p_1" / 2)',
    '("p_1") + ("p_1")',
    'CASE WHEN coalesce(m."p_1" > 0, FALSE) THEN ("p_1") END',
    '(coalesce("p_1", 1))',
    f'make_timestamp(m."{WINDOW}" - 1)',
    "(42)",
    'coalesce(f0."x", 0)',
    '("p_1" / nullif("p_1", 0))',
    '("p_1" / nullif("p ""2""", 0))',
    '("p ""2""" / nullif("p_1", 1))',
    '("p ""2""" / "p_1")',
)


@pytest.mark.parametrize("sql", CHOICES)
def test_a_choice_is_what_the_statement_gives(sql: str) -> None:
    (found,) = choose([sql], TABLE)
    assert found is not None
    wanted = duck.run(f"SELECT {sql} AS c FROM m", m=TABLE).column(0)
    assert found.type == wanted.type
    assert str(found.to_pylist()) == str(wanted.to_pylist())  # NaN and -0.0 told apart


@pytest.mark.parametrize("sql", MORE)
def test_whatever_is_more_is_left_to_the_statement_and_nothing_else_is(sql: str) -> None:
    found = choose([*CHOICES, sql, *CHOICES], TABLE)
    assert [column is None for column in found] == [False] * len(CHOICES) + [True] + [False] * len(CHOICES)


EXTREME_TOTALS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    5e-324,
    1.7976931348623157e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    None,
)
EXTREME_COUNTS = (0, 1, 3, 2**53 - 1, 2**53 + 1, 2**54 + 3, 2**62 + 255, 2**63 - 1, None)


def _mean(totals: list[float | None], counts: list[int | None]) -> tuple[list[bytes | None], list[bytes | None]]:
    """As chosen and as the statement gives it, bit for bit."""
    table = pa.table({"t": pa.array(totals, pa.float64()), "n": pa.array(counts, pa.int64())})
    (found,) = choose(['("t" / nullif("n", 0))'], table)
    assert found is not None
    wanted = duck.run('SELECT ("t" / nullif("n", 0)) AS c FROM m', m=table).column(0)
    assert found.type == wanted.type == pa.float64()
    return _bits(found), _bits(wanted)


def _bits(column: pa.ChunkedArray) -> list[bytes | None]:
    return [None if x is None else b"nan" if x != x else struct.pack("d", x) for x in column.to_pylist()]


def test_means_of_extremes_are_the_statements_to_the_last_bit() -> None:
    pairs = [(total, count) for total in EXTREME_TOTALS for count in EXTREME_COUNTS]
    found, wanted = _mean([total for total, _ in pairs], [count for _, count in pairs])
    assert found == wanted
    assert [x is None for x in found] == [total is None or not count for total, count in pairs]


@pytest.mark.parametrize("seed", range(5))
def test_random_means_are_the_statements_to_the_last_bit(seed: int) -> None:
    rng = random.Random(seed)
    bits = [rng.getrandbits(64) for _ in range(2000)]
    any_totals = np.array(bits, np.uint64).view(np.float64).tolist()
    totals = [rng.choice([None, x, x, x]) for x in any_totals]
    counts = [rng.choice([None, 0, rng.randrange(1, 50), rng.getrandbits(rng.randrange(1, 63))]) for _ in bits]
    found, wanted = _mean(totals, counts)
    assert found == wanted
