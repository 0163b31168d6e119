"""DuckDB, a vectorised engine over Arrow tables: one database per process, one connection to it per thread.

The database has no threads of its own: a statement runs on the thread that asks for it, and so do functions in it.
"""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache

import duckdb
import pyarrow as pa

from thalweg.model.plan import QUANTILE
from thalweg.operate.quantile import quantile_of_counts

Error = duckdb.Error
_RAISED = re.compile(r"^.*?Python exception occurred while executing the UDF: \w+: ")
_of_thread = threading.local()
_opening = threading.RLock()
"""Held by who opens the database, connects to it or adds a function."""


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's own."""
    if not hasattr(_of_thread, "connection"):
        with _opening:
            _of_thread.connection = _database().cursor()
    opened: duckdb.DuckDBPyConnection = _of_thread.connection
    return opened


def create_function(name: str, function: Callable[..., pa.Array], takes: list[str], gives: str) -> None:
    """A function over Arrow arrays, for every connection. It belongs to the database: threads end, and their
    connections with them."""
    with _opening:
        _database().create_function(name, function, takes, gives, type="arrow", null_handling="special")


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "false"})
    atexit.register(database.close)  # or DuckDB prints what it takes for leaks
    database.execute("SET threads = 1")
    database.execute("SET preserve_insertion_order = false")
    database.create_function(
        QUANTILE,
        quantile_of_counts,
        ["DOUBLE[]", "BIGINT[]", "DOUBLE"],
        "DOUBLE",
        type="arrow",
        null_handling="special",
    )
    return database


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
