"""A SELECT over the results of queries and over static tables: DuckDB answers it at once, alone in a database of its
own that sees neither files nor anything else of the process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb
import msgspec
import pyarrow as pa

from thalweg import errors
from thalweg.frontend.lex import Token, lex
from thalweg.model.types import to_arrow
from thalweg.observe.shown import Shown
from thalweg.sink.kinds import keeps_results
from thalweg.state.reader import StateReader
from thalweg.verbs.looking import results_of
from thalweg.verbs.parts import SessionParts

MOST_BYTES = 256 << 20
"""Of a result, and of what DuckDB may take to make it."""
_SECONDS = 60.0
_ROWS = 65_536
_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
    "memory_limit": f"{MOST_BYTES >> 20}MB",
    "threads": "2",
}
_SETTINGS = ("python_enable_replacements = false", "TimeZone = 'UTC'", "errors_as_json = true")


class _Told(msgspec.Struct):
    """An error of DuckDB."""

    exception_message: str
    exception_type: str = ""
    position: str | None = None


_LATE = {"INTERRUPT": duckdb.InterruptException, "Out of Memory": duckdb.OutOfMemoryException}
"""By what DuckDB calls them."""
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")


def select(parts: SessionParts, text: str, whole: str, offset: int) -> Shown:
    """`offset`: where the SELECT begins in the whole text of the statements."""
    with _database(parts, text, whole, offset, with_rows=True) as database:
        timer = threading.Timer(_SECONDS, database.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return Shown(_bounded(database.sql(text).to_arrow_reader(_ROWS), text, whole, offset))
        finally:
            timer.cancel()


def check(parts: SessionParts, text: str, whole: str, offset: int) -> None:
    """Whether it can be answered, as far as that can be told without the rows."""
    with _database(parts, text, whole, offset, with_rows=False) as database:
        database.sql(text)  # bound, and not run


@contextmanager
def _database(
    parts: SessionParts, text: str, whole: str, offset: int, with_rows: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """With what the SELECT names, and nothing else."""
    names = {token.value or token.text: token for token in lex(text) if token.kind in ("name", "quoted", "string")}
    with duckdb.connect(":memory:", config=_CONFIG) as database:
        for setting in _SETTINGS:
            database.execute(f"SET {setting}")
        known: dict[str, str] = {}
        for name, rows in _tables(parts, names, with_rows):
            if (other := known.setdefault(name.lower(), name)) != name:
                start, end = names[name].span
                raise errors.select_of_two_cases(other, name, whole, (offset + start, offset + end))
            database.register(name, rows)
        database.execute("SET lock_configuration = true")
        try:
            found = database.extract_statements(text)
            if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
                raise errors.only_a_select(whole, (offset, offset + len(text)))
            yield database
        except duckdb.Error as error:
            raise _refused(parts, error, text, whole, offset, names) from None


def _tables(parts: SessionParts, names: dict[str, Token], with_rows: bool) -> Iterator[tuple[str, pa.Table]]:
    for name in names:
        if name in parts.catalog.tables:
            table = parts.catalog.tables[name]
            if with_rows:
                yield name, StateReader(parts.storage).read(table.version)
            else:
                yield name, table.schema.to_arrow().empty_table()
        elif name in parts.catalog.queries and keeps_results((handle := parts.catalog.queries[name]).definition.sink):
            if with_rows:
                yield name, results_of(parts, handle)
            else:
                outputs = handle.definition.outputs
                yield name, pa.schema([(o.name, to_arrow(o.expr.type)) for o in outputs]).empty_table()


def _bounded(reader: pa.RecordBatchReader, text: str, whole: str, offset: int) -> pa.Table:
    batches, size = [], 0
    for batch in _batches(reader):
        batches.append(batch)
        size += batch.nbytes
        if size > MOST_BYTES:
            raise errors.select_too_large(MOST_BYTES, whole, (offset, offset + len(text)))
    return pa.Table.from_batches(batches, reader.schema)


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """What DuckDB raises after the first of them is Arrow's by then."""
    try:
        yield from reader
    except (pa.ArrowException, OSError) as error:
        kind = _LATE.get(_told(str(error)).exception_type, duckdb.Error)
        raise kind(str(error)) from None


def _refused(
    parts: SessionParts, error: duckdb.Error, text: str, whole: str, offset: int, names: dict[str, Token]
) -> errors.SqlError:
    said, at = _said(error)
    span = (offset + at, offset + at + 1) if at is not None and at < len(text) else (offset, offset + len(text))
    if isinstance(error, duckdb.InterruptException):
        return errors.select_too_long(_SECONDS, whole, span)
    if isinstance(error, duckdb.OutOfMemoryException):
        return errors.select_too_large(MOST_BYTES, whole, span)
    missing = _NO_TABLE.search(said)
    if missing is None:
        return errors.select_refused(said, whole, span)
    name, catalog = missing[1], parts.catalog
    if name in names:
        span = (offset + names[name].start, offset + names[name].end)
    there = [n for n, h in catalog.queries.items() if keeps_results(h.definition.sink)] + [*catalog.tables]
    if name in there:  # looked for in another place
        return errors.select_refused(said, whole, span)
    if name in catalog.streams:
        return errors.select_of_a_stream(name, whole, span)
    if name in catalog.queries:
        return errors.select_of_a_sink(name, catalog.queries[name].definition.sink.kind, whole, span)
    return errors.select_of_nothing(name, there, whole, span)


def _said(error: duckdb.Error) -> tuple[str, int | None]:
    """What it says, and where in the SELECT."""
    told = _told(str(error))
    return told.exception_message, None if told.position is None else int(told.position)


def _told(text: str) -> _Told:
    _, brace, body = text.partition("{")
    if brace:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(brace + body, type=_Told)
    said = text.partition("\n\nLINE ")[0].partition("\nLINE ")[0]
    return _Told(said.partition("Error: ")[2] or said)
