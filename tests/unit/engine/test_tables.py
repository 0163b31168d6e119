"""Unit, on Spark: static tables are read by the names of their columns, and what does not fit refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from thalweg.engine.tables import read_rows
from thalweg.errors import UsageError
from thalweg.source.schema import parse_schema

SCHEMA = parse_schema("k int, price double")


def test_columns_of_csv_are_taken_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Price,note,k\n1.5,x,100\n2.5,y,200\n")
    found = read_rows(spark, "t", path, SCHEMA, None)
    assert found.to_pylist() == [{"k": 100, "price": 1.5}, {"k": 200, "price": 2.5}]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", "k,price\nabc,1.5\n", "cannot be read as csv"),
        ("t.csv", "k,cost\n1,1.5\n", "has no column price"),
        ("t.json", '{"k": 1, "price": "dear"}\n', "cannot be read as json"),
        ("t.json", '{"k": 1, "price": \n', "cannot be read as json"),
    ],
)
def test_what_does_not_fit_refuses_the_table(
    spark: SparkSession, tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=said):
        read_rows(spark, "t", tmp_path / name, SCHEMA, None)
