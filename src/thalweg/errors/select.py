"""SELECT over what there is, DESCRIBE and SHOW CREATE."""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.errors.family import NamingError, SqlError, UsageError

Span = tuple[int, int]
_CONTINUOUS = "a SELECT that goes on is a query: CREATE QUERY name AS SELECT ..."


def only_a_select(sql: str, span: Span) -> SqlError:
    return SqlError("only a SELECT can be answered at once", hint=_CONTINUOUS, sql=sql, span=span)


def select_refused(reason: str, sql: str, span: Span) -> SqlError:
    return SqlError(
        "this SELECT over results cannot be answered", detail=reason, sql=sql, span=span,
        hint=f"it is answered by DuckDB, in DuckDB's SQL; {_CONTINUOUS}",
    )  # fmt: skip


def select_of_a_stream(name: str, sql: str, span: Span) -> SqlError:
    return SqlError(
        f"the rows of the stream '{name}' are not kept to be looked at", sql=sql, span=span,
        detail="a SELECT alone is answered at once, over results of queries and over tables", hint=_CONTINUOUS,
    )  # fmt: skip


def select_of_a_sink(name: str, sink: str, sql: str, span: Span) -> SqlError:
    return SqlError(
        f"the results of the query '{name}' are not kept: they go into its sink, {sink}", sql=sql, span=span,
        hint="look at them there, or create a query without INTO",
    )  # fmt: skip


def select_of_two_cases(one: str, other: str, sql: str, span: Span) -> SqlError:
    return SqlError(
        f"one SELECT cannot tell '{one}' and '{other}' apart", sql=sql, span=span,
        detail="DuckDB, which answers it, takes great and small letters in names for the same",
        hint="write a SELECT for each",
    )  # fmt: skip


def select_of_nothing(name: str, known: Sequence[str], sql: str, span: Span) -> SqlError:
    listed = ", ".join(sorted(known)[:10])
    return SqlError(
        f"there is no query or table named '{name}'", sql=sql, span=span,
        hint=f"there are {listed}" if listed else "there are no results yet: CREATE QUERY name AS SELECT ...",
    )  # fmt: skip


def select_too_large(most: int, sql: str, span: Span) -> SqlError:
    return SqlError(
        f"this SELECT takes more than {most >> 20} MB",
        sql=sql,
        span=span,
        hint="add a WHERE, an aggregate or a LIMIT",
    )


def select_too_long(seconds: float, sql: str, span: Span) -> SqlError:
    return SqlError(
        f"this SELECT was stopped after {seconds:g} seconds", sql=sql, span=span,
        hint="add a WHERE, an aggregate or a LIMIT",
    )  # fmt: skip


def nothing_to_describe(kind: str | None, name: str, near: Sequence[str], sql: str, span: Span) -> NamingError:
    return NamingError(
        f"there is no {kind or 'stream, table or query'} named '{name}'", sql=sql, span=span,
        hint=f"did you mean {' or '.join(near)}?" if near else "SHOW STREAMS, SHOW TABLES and SHOW QUERIES tell",
    )  # fmt: skip


def not_of_a_statement(kind: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"no statement makes the {kind} '{name}': {why}", hint=f"DESCRIBE {name} tells what there is to say of it"
    )
