"""One DuckDB connection per process: a vectorised engine over Arrow tables, on the one thread of its task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import duckdb
import pyarrow as pa

Error = duckdb.Error


@lru_cache(maxsize=1)
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "false"})
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
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


@lru_cache(maxsize=512)
def arrow_type(duck_type: str) -> pa.DataType:
    """The Arrow type in which DuckDB gives this type of its own."""
    return run(f"SELECT NULL::{duck_type} AS x").schema.field(0).type
