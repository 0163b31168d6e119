"""One DuckDB connection per process: a vectorised engine over Arrow tables, on the one thread of its task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import duckdb
import pyarrow as pa

from thalweg.model.plan import QUANTILE
from thalweg.operate.quantile import quantile_of_counts

Error = duckdb.Error
_RAISED = re.compile(r"^.*?Python exception occurred while executing the UDF: \w+: ")


@lru_cache(maxsize=1)
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "false"})
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    connection.create_function(
        QUANTILE,
        quantile_of_counts,
        ["DOUBLE[]", "BIGINT[]", "DOUBLE"],
        "DOUBLE",
        type="arrow",
        null_handling="special",
    )
    return connection


def run(sql: str, **tables: pa.Table) -> pa.Table:
    """The result of one statement over the named tables."""
    return run_over(sql, tables)


def run_over(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    con = connection()
    for name, table in tables.items():
        con.register(name, table)
    try:
        return con.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            con.unregister(name)


def reason(error: duckdb.Error) -> str:
    """What went wrong, without what DuckDB says of a function of ours that raised."""
    return _RAISED.sub("", str(error))


@lru_cache(maxsize=512)
def arrow_type(duck_type: str) -> pa.DataType:
    """The Arrow type in which DuckDB gives this type of its own."""
    return run(f"SELECT NULL::{duck_type} AS x").schema.field(0).type
