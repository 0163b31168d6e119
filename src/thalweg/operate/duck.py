"""DuckDB, a vectorised engine over Arrow tables: one database per process, one connection to it per thread.

The database has no threads of its own: a statement runs on the thread that asks for it, and so do functions in it.

After an internal error DuckDB gives up a database, with all connections to it. Then there is a new one: what fails
there fails by its own fault.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

import duckdb
import pyarrow as pa

from thalweg.aggregates.contract import DuckFunction
from thalweg.aggregates.families import duck_functions
from thalweg.errors import over_memory, over_time
from thalweg.model.budget import Budget
from thalweg.operate.allowance import OverTimeError, within

Error = duckdb.Error
Database: TypeAlias = duckdb.DuckDBPyConnection
_RAISED = re.compile(r"^.*?Python exception occurred while executing the UDF: \w+: ")
_MIB = 1 << 20
_CONFIG = {
    "enable_external_access": "false",
    "lock_configuration": "false",
    "temp_directory": "",  # or it writes files where the process happens to be
}
_opening = threading.RLock()
"""Held by who opens the database, connects to it or adds a function."""


class OverBudgetError(duckdb.Error):  # type: ignore[misc]
    """The statement took more time or memory than it may."""


_functions: dict[str, DuckFunction] = {}
"""What every database of this process has, beside those of aggregates."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.database: Database | None = None
        self.connection: Database | None = None
        self.budget = Budget()


class _Current:
    """The database that statements go to. None: there is to be a new one."""

    database: Database | None = None
    memory = 0
    """Bytes that it was given."""


_of_thread = _OfThread()


def allow(budget: Budget) -> None:
    """What statements of this thread may cost from now on."""
    _of_thread.budget = budget


def connection() -> Database:
    """This thread's own."""
    mine = _of_thread
    if mine.connection is None or mine.database is not _Current.database:
        with _opening:
            mine.database = _database()
            mine.connection = mine.database.cursor()
    return mine.connection


def create_function(name: str, function: Callable[..., pa.Array], takes: list[str], gives: str) -> None:
    """A function over Arrow arrays, for every connection. It belongs to the database: threads end, and their
    connections with them."""
    with _opening:
        _functions[name] = added = DuckFunction(name, function, takes, gives)
        if _Current.database is not None:
            _add(added, _Current.database)


def _add(new: DuckFunction, database: Database) -> None:
    database.create_function(new.name, new.function, new.takes, new.gives, type="arrow", null_handling="special")


def _database() -> Database:
    if _Current.database is None:
        database = duckdb.connect(config=_CONFIG)
        database.execute("SET threads = 1")
        database.execute("SET preserve_insertion_order = false")
        for function in (*duck_functions(), *_functions.values()):
            _add(function, database)
        atexit.register(database.close)  # or DuckDB prints what it takes for leaks
        _Current.database, _Current.memory = database, 0
    return _Current.database


def _give_up() -> None:
    """The next statement has a new database. Statements of other threads may still be ending in the old one."""
    with _opening:
        if _Current.database is _of_thread.database:
            _Current.database = None


def run(sql: str, **tables: pa.Table) -> pa.Table:
    """The result of one statement over the named tables."""
    return run_over(sql, tables)


def run_over(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The same. Raises `Error`: what DuckDB says on a database that nothing has gone wrong in before."""
    try:
        return _run_once(sql, tables)
    except duckdb.FatalException:
        return _run_once(sql, tables)  # it was given up for another statement's fault, on another thread perhaps


def _run_once(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    con, budget, memory = connection(), _of_thread.budget, _share()
    try:
        _tell_share(con, memory)
        with within(budget, con, memory):
            return _ask(con, sql, tables)
    except (duckdb.FatalException, duckdb.InternalException):
        _give_up()
        raise
    except OverTimeError as error:
        raise OverBudgetError(str(over_time(budget.seconds or 0))) from error
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise OverBudgetError(str(over_memory(memory))) from error


def _ask(con: Database, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    for name, table in tables.items():
        con.register(name, table)
    try:
        return con.sql(sql).to_arrow_table()
    finally:
        with suppress(Error):  # of a database that is given up: what went wrong before is what counts
            for name in tables:
                con.unregister(name)


def _share() -> int:
    """The bytes that a statement may use."""
    return _of_thread.budget.memory or _default_share()


def _tell_share(con: Database, memory: int) -> None:
    if memory != _Current.memory:
        with _opening:
            con.execute(f"SET memory_limit = '{max(1, memory // _MIB)}MiB'")
            _Current.memory = memory


@lru_cache(maxsize=1)
def _default_share() -> int:
    """What DuckDB would take of the machine, or of the container, for itself, divided by the workers that may be
    there; a quarter at least: seldom do all need much at once."""
    with duckdb.connect() as fresh:
        text = fresh.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    number, unit = text.split()
    powers = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
    return int(float(number) * 2 ** powers[unit]) // min(4, os.cpu_count() or 1)


def reason(error: Exception) -> str:
    """What went wrong, without what DuckDB says of a function of ours that raised, or of a text that we gave it."""
    return _RAISED.sub("", str(error)).removeprefix("Invalid Input Error: ")


@lru_cache(maxsize=512)
def arrow_type(duck_type: str) -> pa.DataType:
    """The Arrow type in which DuckDB gives this type of its own."""
    return run(f"SELECT NULL::{duck_type} AS x").schema.field(0).type
