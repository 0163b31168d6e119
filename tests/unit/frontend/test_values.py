"""Unit: what compiled text is worth in DuckDB, for values of which Spark's answer is known.

tests/oracle/test_expressions.py asks Spark itself, over more.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from thalweg.aggregates.contract import ComputedColumns
from thalweg.aggregates.families import take_apart
from thalweg.frontend.code import Code
from thalweg.frontend.compile import Compiler
from thalweg.frontend.expressions import ExpressionParser
from thalweg.frontend.tree import Column
from thalweg.model.expr import Expr, quote
from thalweg.model.query import Aggregate
from thalweg.model.types import to_inner_arrow


def value(text: str, type_: str, given: Any) -> Any:
    """The expression over a column `c` of the type that has the value."""

    def resolve(column: Column) -> Code:
        return Code(quote(column.name), type_, frozenset((column.name,)))

    code = Compiler(text, resolve).compile(ExpressionParser(text).expression())
    rows = pa.table({"c": pa.array([given], to_inner_arrow(type_))})
    with duckdb.connect() as con:
        con.register("rows", rows)
        ((found,),) = con.execute(f"SELECT {code.sql} FROM rows").fetchall()
    return found


@pytest.mark.parametrize(
    ("text", "given", "sparks"),
    [
        ("round(c, 1)", 0.35, pytest.approx(0.3)),
        ("round(c, 1)", -0.35, pytest.approx(-0.3)),
        ("round(c, 2)", 0.35, pytest.approx(0.35)),
        ("CAST(c AS DECIMAL(3,1))", 0.35, Decimal("0.3")),
        ("CAST(c AS DECIMAL(20,10))", 0.1, Decimal("0.1000000015")),
        ("CAST(c AS DECIMAL(20,10))", 0.7, Decimal("0.6999999881")),
        ("try_cast(c AS DECIMAL(20,10))", 0.7, Decimal("0.6999999881")),
    ],
)
def test_a_float_is_rounded_as_the_double_that_it_is(text: str, given: float, sparks: object) -> None:
    assert value(text, "float", given) == sparks


@pytest.mark.parametrize(
    ("given", "sparks"),
    [
        ("2024-02-29", "2024-02-29"),
        ("2020-1-5", "2020-01-05"),
        ("2020-01-05 10:11:12", "2020-01-05"),
        ("2020-01-05T", "2020-01-05"),
        ("2020-01-05 \n anything", "2020-01-05"),
        ("2024", "2024-01-01"),
        ("2024-03", "2024-03-01"),
        ("2024-3", "2024-03-01"),
        (" \t2024-03\n", "2024-03-01"),
        *(
            (text, None)
            for text in ("2023-02-30", "2024-13", "2024-00", "2024-", "2024-03-", "2024-03-123", "2024-1-1-1")
        ),
        *(
            (text, None)
            for text in ("2024 ago", "2024-03 1", "2024T", "24-03", "202", "20240301", "2024/03", "x", "")
        ),
    ],
)
def test_dates_in_strings(given: str, sparks: str | None) -> None:
    day = None if sparks is None else dt.date.fromisoformat(sparks)
    assert value("try_cast(c AS DATE)", "string", given) == day
    if day is None:
        with pytest.raises(duckdb.Error):
            value("CAST(c AS DATE)", "string", given)
    else:
        assert value("to_date(c)", "string", given) == day
        assert value(f"DATE '{sparks}' = c", "string", given) is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "type_", "given"),
    [
        ("c" + " + 1L" * 199, "bigint", 1),
        ("c" + " % 1.5" * 199, "decimal(10,2)", Decimal("7.25")),
        ("- " * 200 + "c", "decimal(10,2)", Decimal("7.25")),
        ("c" + " + INTERVAL 1 HOUR" * 200, "timestamp", dt.datetime(2024, 1, 1)),
        ("sign(" * 60 + "c" + ")" * 60 + " / 2" * 100, "double", 1.0),
        (" OR ".join(f"c = {k}" for k in range(2000)), "int", 1),
    ],
)
def test_what_may_be_compiled_is_not_too_deep_for_duckdb(text: str, type_: str, given: Any) -> None:
    assert value(text, type_, given) is not None


def mean(precision: int, scale: int, total: int, count: int) -> Decimal:
    """avg of a decimal column, from the merged sum (without its point) and count."""
    result = f"decimal({min(38, precision + 4)},{min(38, scale + 4)})"
    argument = Expr('"x"', f"decimal({precision},{scale})", ("x",))
    parts = take_apart(Aggregate("avg", (argument,), result), None, "ts", ComputedColumns({}))
    sum_, seen = parts.partials
    given = f"'{exact(total, scale)}'::{sum_.type} AS {quote(sum_.name)}, {count}::BIGINT AS {quote(seen.name)}"
    ((found,),) = duckdb.sql(f"SELECT {parts.finish} FROM (SELECT {given})").fetchall()
    return Decimal(found)


def exact(unscaled: int, scale: int) -> str:
    with localcontext(prec=120):
        return f"{Decimal(unscaled).scaleb(-scale):f}"


def test_the_mean_of_wide_decimals_is_there_where_it_fits() -> None:
    """Two rows of 5000000000000000: their sum has 38 digits as soon as four more places are wanted."""
    assert mean(38, 18, 10**34, 2) == Decimal("5000000000000000")
    assert mean(38, 18, -(10**34), 2) == Decimal("-5000000000000000")
    with pytest.raises(duckdb.Error):
        mean(38, 18, 10**36, 2)  # 5 * 10^17, which DECIMAL(38,22) does not hold


@pytest.mark.parametrize(("precision", "scale"), [(38, 18), (10, 2), (5, 5), (1, 0), (38, 36)])
def test_a_mean_is_rounded_half_away_from_zero(precision: int, scale: int) -> None:
    rng = random.Random(3)
    places = min(38, scale + 4)
    for _ in range(40):
        count = rng.choice((1, 2, 3, 7, 8, 32, 1000, 20_000, 12_345))
        total = rng.choice((1, -1)) * rng.randrange(10 ** min(precision, 16))
        with localcontext(prec=120):
            wanted = (Decimal(total).scaleb(-scale) / count).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        assert mean(precision, scale, total, count) == wanted
