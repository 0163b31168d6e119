"""Statements of SQL, carried out by a session."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thalweg import errors
from thalweg.frontend.delivery_options import QUERY_OPTIONS
from thalweg.frontend.listing import functions
from thalweg.frontend.statements import (
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropTable,
    Explain,
    PauseQuery,
    ResetWatermark,
    ResumeQuery,
    Show,
    Statement,
    parse,
)
from thalweg.handle import QueryHandle
from thalweg.model.spans import describe_span
from thalweg.model.stream import Schema, Stream
from thalweg.observe.shown import Shown
from thalweg.sink.kinds import delivery_of, parse_spec
from thalweg.source.kinds import make_source
from thalweg.state.catalog import Table

if TYPE_CHECKING:
    from thalweg.session import Session

_SHOW_STREAMS = pa.schema(
    [
        ("stream", pa.string()),
        ("source", pa.string()),
        ("time", pa.string()),
        ("watermark", pa.string()),
        ("columns", pa.string()),
    ]
)
_SHOW_QUERIES = pa.schema(
    [
        ("query", pa.string()),
        ("state", pa.string()),
        ("stream", pa.string()),
        ("sink", pa.string()),
        ("delivery", pa.string()),
        ("select", pa.string()),
        ("undelivered_rows", pa.int64()),
        ("error", pa.string()),
    ]
)


_SHOW_TABLES = pa.schema([("table", pa.string()), ("rows", pa.int64()), ("columns", pa.string())])
_SHOW_FUNCTIONS = pa.schema([("function", pa.string()), ("kind", pa.string()), ("arguments", pa.string())])


def run_statements(session: Session, text: str) -> list[Any]:
    """Carries out the statements of a text: all of them, or, where one would be refused, none. What can only be known
    when it is done, such as a full disk, is raised with what has taken effect by then."""
    statements = parse(text)
    if len(statements) < 2:
        return [execute(session, statement, text) for statement in statements]
    done: list[str] = []
    results: list[Any] = []
    try:
        with session.trial() as (trying, trial):
            for statement in statements:
                _try(trying, statement, text)
            trial.take_back(all_=False)
            for statement in statements:
                rows = trial.rows.popleft() if isinstance(statement, CreateTable) else None
                results.append(execute(session, statement, text, rows))
                done.append(_label(statement))
    except errors.ThalwegError as error:
        raise errors.of_a_list(error, done, len(statements)) from error.__cause__
    except BaseException as error:
        error.add_note(errors.statements_done(done, len(statements)))
        raise
    return results


def _try(trying: Session, statement: Statement, text: str) -> None:
    """Others than those that are named here have to be left out: only these know a session that tries."""
    match statement:
        case CreateStream() | CreateTable() | CreateQuery() | DropQuery() | DropTable():
            execute(trying, statement, text)
        case PauseQuery(name) | ResumeQuery(name):
            trying.query(name)
        case ResetWatermark(stream):
            trying.stream(stream)
        case Explain(name) if name is not None:
            trying.query(name)


def _label(statement: Statement) -> str:
    """What it is called where many are listed."""
    verb = re.sub(r"(?<=.)(?=[A-Z])", " ", type(statement).__name__).upper()
    match statement:
        case Show(what):
            named: str | None = what.upper()
        case ResetWatermark(stream):
            named = stream
        case _:
            named = statement.name
    return f"{verb} {named}" if named else verb


def execute(session: Session, statement: Statement, text: str, rows: pa.Table | None = None) -> Any:
    """Carries out one statement of the text. `rows`: of the table that it creates, if they have been read."""
    match statement:
        case CreateStream():
            return _create_stream_from(session, statement)
        case CreateQuery():
            return _create_query_from(session, statement, text)
        case ResetWatermark(stream):
            return session.reset_watermark(stream)
        case DropQuery(name):
            return session.drop_query(name)
        case PauseQuery(name):
            return session.pause_query(name)
        case ResumeQuery(name):
            return session.resume_query(name)
        case CreateTable():
            return _create_table_from(session, statement, rows)
        case DropTable(name):
            return session.drop_table(name)
        case Show(what):
            return show(session, what)
        case Explain(name, form):
            return session.explain(name, form)
    raise AssertionError(statement)


def _create_stream_from(session: Session, statement: CreateStream) -> Stream:
    options = dict(statement.options)
    kind = options.pop("source", "files")
    schema = None if statement.fields is None else Schema(statement.fields)
    delay = timedelta(microseconds=statement.delay_us)
    source = make_source(kind, statement.name, options, schema)
    limits: dict[str, Any] = dict(statement.limits)
    return session.create_stream(
        statement.name, source, time=statement.time, watermark=delay, schema=schema, **limits
    )


def _create_table_from(session: Session, statement: CreateTable, rows: pa.Table | None) -> Table:
    options = dict(statement.options)
    schema = None if statement.fields is None else Schema(statement.fields)
    path, kind = options.pop("path", ""), options.pop("format", None)
    if options:
        raise errors.bad_table(statement.name, f"there is no option {next(iter(options))!r}", "path, format")
    given = path if rows is None else rows
    return session.create_table(statement.name, given, schema=schema, format=kind, replace=statement.replace)


def _create_query_from(session: Session, statement: CreateQuery, text: str) -> QueryHandle:
    options = dict(statement.options)
    own = {name: options.pop(name) for name in QUERY_OPTIONS if statement.sink is not None and name in options}
    sink = parse_spec(statement.sink, options) if statement.sink is not None else None
    try:
        return session.create_query(
            statement.name,
            statement.select,
            sink,
            emit=statement.emit,
            options=own if sink is not None else options,
        )
    except errors.SqlError as error:
        raise errors.moved(error, text, statement.offset) from None


def show(session: Session, what: str) -> Shown:
    """`what`: queries, streams, tables or functions."""
    return Shown(_show(session, what))


def _show(session: Session, what: str) -> pa.Table:
    if what == "functions":
        listed = functions(session.own_aggregates)
        return pa.Table.from_pylist(
            [{"function": f.name, "kind": f.kind, "arguments": f.arguments} for f in listed], schema=_SHOW_FUNCTIONS
        )
    if what == "tables":
        return pa.Table.from_pylist(
            [
                {
                    "table": t.name,
                    "rows": t.version.rows,
                    "columns": ", ".join(f"{f.name} {f.type}" for f in t.schema.fields),
                }
                for t in session.tables.values()
            ],
            schema=_SHOW_TABLES,
        )
    if what == "streams":
        rows = [
            {
                "stream": s.name,
                "source": s.source.kind,
                "time": s.time,
                "watermark": f"{describe_span(s.delay_us)} behind {s.time}",
                "columns": ", ".join(f"{f.name} {f.type}" for f in s.schema.fields),
            }
            for s in session.streams.values()
        ]
        return pa.Table.from_pylist(rows, schema=_SHOW_STREAMS)
    rows = [
        {
            "query": name,
            "state": status.state,
            "stream": ", ".join(h.definition.streams),
            "sink": h.definition.sink.kind,
            "delivery": delivery_of(h.definition.sink),
            "select": h.definition.text,
            "undelivered_rows": status.undelivered.rows,
            "error": status.error and status.error.splitlines()[0],
        }
        for name, h in session.queries.items()
        for status in (h.status,)
    ]
    return pa.Table.from_pylist(rows, schema=_SHOW_QUERIES)
