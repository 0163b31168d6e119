"""Unit: rows told apart by comparisons of a column, against each comparison by itself."""

from __future__ import annotations

import math
import random
import struct

import pyarrow as pa
import pytest

from thalweg.operate.classes import Cuts
from thalweg.operate.comparison import Comparisons, ranges_of

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
KINDS = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64()}
GREATEST = (1 << 63) - 1


def whole(column: str, op: str, constant: int, kind: str) -> str:
    return f'("{column}" {op} CAST({constant} AS {kind}))'


def double(column: str, op: str, constant: float) -> str:
    return f"(\"{column}\" {op} CAST('{constant!r}' AS DOUBLE))"


def admitted(table: pa.Table, sqls: list[str], of: list[str]) -> dict[str, list[bool]]:
    """By classes: `of` those of `sqls` that are looked at together."""
    ranges = {sql: ranges_of(sql) for sql in sqls}
    known = {sql: r for sql, r in ranges.items() if r is not None}
    classes = Cuts.of(table.column("v"), list(known.values())).classes({sql: known[sql] for sql in of})
    numbers = classes.numbers.tolist()
    return {sql: [any(a <= n < b for a, b in classes.spans[sql]) for n in numbers] for sql in of}


def one_by_one(table: pa.Table, sqls: list[str]) -> dict[str, list[bool]]:
    comparisons = Comparisons(table)
    found = {}
    for sql in sqls:
        column = comparisons.compare(sql)
        assert column is not None
        found[sql] = [value is True for value in column.to_pylist()]
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    bound = 1 << (KINDS[kind].bit_width - 1)
    near = rng.choice([3, 40, bound])
    ends = [-bound, -bound + 1, bound - 2, bound - 1]

    def number() -> int:
        return rng.choice(ends) if rng.random() < 0.1 else rng.randint(-min(near, bound), min(near, bound) - 1)

    values = [None if rng.random() < 0.1 else number() for _ in range(rng.choice([1, 50, 400]))]
    table = pa.table({"v": pa.array(values, KINDS[kind])})
    sqls = [whole("v", rng.choice(OPERATORS), number(), kind) for _ in range(rng.randint(1, 30))]
    sqls = [sql for sql in sqls if ranges_of(sql) is not None]
    of = rng.sample(sqls, rng.randint(0, len(sqls)))
    assert admitted(table, sqls, of) == one_by_one(table, of)


@pytest.mark.parametrize("seed", range(20))
def test_doubles(seed: int) -> None:
    rng = random.Random(seed)
    special = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308]
    some = [round(rng.uniform(-5, 5), 1) for _ in range(10)]

    def near(x: float) -> float:
        return rng.choice([x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf)])

    values = [rng.choice([None, rng.choice(special), near(rng.choice(some)), rng.uniform(-5, 5)]) for _ in range(300)]
    table = pa.table({"v": pa.array(values, pa.float64())})
    constants = [near(rng.choice(some)) if rng.random() < 0.6 else rng.choice(special[4:]) for _ in range(20)]
    sqls = [double("v", rng.choice(OPERATORS), c) for c in constants]
    sqls = [sql for sql in sqls if ranges_of(sql) is not None]
    assert len(sqls) > 10
    assert admitted(table, sqls, sqls) == one_by_one(table, sqls)


def test_any_nan_is_above_all() -> None:
    (odd,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))
    table = pa.table({"v": pa.array([math.nan, odd, 1.0])})
    sqls = [double("v", op, 2.0) for op in OPERATORS]
    assert admitted(table, sqls, sqls) == one_by_one(table, sqls)


def test_many_rows_are_classed_by_a_table() -> None:
    rng = random.Random(4)
    table = pa.table({"v": pa.array([rng.choice([None, rng.randint(-500, 500)]) for _ in range(20_000)], pa.int32())})
    sqls = [whole("v", rng.choice(OPERATORS), rng.randint(-510, 510), "INTEGER") for _ in range(40)]
    assert admitted(table, sqls, sqls) == one_by_one(table, sqls)


def test_nothing_is_said_of_what_is_above_the_greatest_number() -> None:
    assert ranges_of(whole("v", ">", GREATEST, "BIGINT")) is None
    assert ranges_of(whole("v", ">", GREATEST - 1, "BIGINT")) is not None
