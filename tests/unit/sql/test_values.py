"""Unit: what compiled text is worth in DuckDB, for values of which Spark's answer is known.

tests/oracle/test_expressions.py asks Spark itself, over more.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from thalweg.model.expr import quote
from thalweg.model.types import to_inner_arrow
from thalweg.sql.code import Code
from thalweg.sql.compile import Compiler
from thalweg.sql.expressions import ExpressionParser
from thalweg.sql.tree import Column


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
