"""Statements of SQL, carried out: a list of them as a whole, or not at all."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from thalweg import errors
from thalweg.frontend.parse_statements import parse_statements
from thalweg.frontend.statements import (
    AlterStream,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    PauseQuery,
    ResetWatermark,
    ResumeQuery,
    SelectResults,
    Show,
    ShowCreate,
    Statement,
)
from thalweg.rehearsal import Trial
from thalweg.verbs import creating, describing, explaining, queries, selecting, showing, streams, tables
from thalweg.verbs.parts import SessionParts


def run_statements(parts: SessionParts, text: str) -> list[Any]:
    """Carries out the statements of a text: all of them, or, where one would be refused, none. What can only be known
    when it is done, such as a full disk, is raised with what has taken effect by then."""
    statements = parse_statements(text)
    if len(statements) < 2:
        return [execute(parts, statement, text) for statement in statements]
    done: list[str] = []
    results: list[Any] = []
    try:
        with parts.tried() as (trying, trial):
            for statement in statements:
                _try(trying, statement, text)
            trial.take_back(all_=False)
            for several in _together(statements):
                results += _execute_together(parts, several, text, trial)
                done += [_label(statement) for statement in several]
    except errors.ThalwegError as error:
        raise errors.of_a_list(error, done, len(statements)) from error.__cause__
    except BaseException as error:
        error.add_note(errors.statements_done(done, len(statements)))
        raise
    return results


def _together(statements: list[Statement]) -> list[list[Statement]]:
    """Queries that are created one after the other are created at once, but for those of one name."""
    groups: list[list[Statement]] = []
    names: set[str] = set()
    for statement in statements:
        name = statement.name.lower() if isinstance(statement, CreateQuery) else None
        if name is None or not names or name in names:
            groups.append([])
            names = set()
        groups[-1].append(statement)
        names |= {name} if name is not None else set()
    return groups


def _execute_together(parts: SessionParts, statements: list[Statement], text: str, trial: Trial) -> list[Any]:
    created = [statement for statement in statements if isinstance(statement, CreateQuery)]
    if created:
        return [*creating.create_queries_from(parts, created, text, trial.bound)]
    (statement,) = statements
    rows = trial.rows.popleft() if isinstance(statement, CreateTable) else None
    return [execute(parts, statement, text, rows)]


def _try(trying: SessionParts, statement: Statement, text: str) -> None:
    """Verbs that are not named here do not know parts that only try."""
    catalog = trying.catalog
    match statement:
        case CreateStream() | CreateTable() | CreateQuery() | AlterStream():
            execute(trying, statement, text)
        case DropStream() | DropTable() | DropQuery() | Describe() | ShowCreate():
            execute(trying, statement, text)
        case PauseQuery(name) | ResumeQuery(name):
            catalog.query(name)
        case ResetWatermark(stream):
            catalog.stream(stream)
        case SelectResults(select, offset):
            selecting.check(trying, select, text, offset)
        case Explain(name) if name is not None:
            catalog.query(name)


def _label(statement: Statement) -> str:
    """What it is called where many are listed."""
    verb = re.sub(r"(?<=.)(?=[A-Z])", " ", type(statement).__name__).upper()
    match statement:
        case Show(what):
            named: str | None = what.upper()
        case ShowCreate(kind, name):
            named = f"{kind.upper()} {name}"
        case ResetWatermark(stream):
            named = stream
        case SelectResults():
            named = None
        case _:
            named = statement.name
    return f"{verb} {named}" if named else verb


def execute(parts: SessionParts, statement: Statement, text: str, rows: pa.Table | None = None) -> Any:
    """Carries out one statement of the text. `rows`: of the table that it creates, if they have been read."""
    match statement:
        case CreateStream():
            return creating.create_stream_from(parts, statement)
        case CreateTable():
            return creating.create_table_from(parts, statement, rows)
        case CreateQuery():
            return creating.create_queries_from(parts, [statement], text, {})[0]
        case AlterStream(name, changes):
            return streams.alter_stream(parts, name, streams.Changes(**changes))
        case ResetWatermark(stream):
            return streams.reset_watermark(parts, stream)
        case DropStream(name, if_exists):
            return streams.drop_stream(parts, name, if_exists)
        case DropTable(name, if_exists):
            return tables.drop_table(parts, name, if_exists)
        case DropQuery(name, if_exists):
            return queries.drop_query(parts, name, if_exists)
        case PauseQuery(name):
            return queries.pause_query(parts, name)
        case ResumeQuery(name):
            return queries.resume_query(parts, name)
        case _:
            return _look(parts, statement, text)


def _look(parts: SessionParts, statement: Statement, text: str) -> Any:
    """What changes nothing."""
    match statement:
        case Show(what):
            return showing.show(parts, what)
        case ShowCreate(kind, name):
            return describing.show_create(parts, kind, name)
        case Describe():
            return describing.describe(parts, statement, text)
        case SelectResults(select, offset):
            return selecting.select(parts, select, text, offset)
        case Explain(name, form):
            return explaining.explain(parts, name, form)
    raise AssertionError(statement)
