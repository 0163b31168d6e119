"""Unit: what compiled text is worth in DuckDB, for values of which Spark's answer is known.

tests/oracle/test_expressions.py asks Spark itself, over more.
"""

from __future__ import annotations

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
