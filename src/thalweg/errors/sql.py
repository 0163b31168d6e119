"""The text of a statement."""

from __future__ import annotations

from thalweg.errors.family import SqlError, ThalwegError, UsageError


def statements_unreadable(path: str, reason: str) -> UsageError:
    return UsageError(f"cannot read the statements in {path}", detail=reason)


def bad_syntax(message: str, sql: str, span: tuple[int, int], hint: str | None = None) -> SqlError:
    return SqlError(message, sql=sql, span=span, hint=hint)


def not_supported(
    what: str, sql: str, span: tuple[int, int], hint: str | None = None, detail: str | None = None
) -> SqlError:
    return SqlError(f"{what} is not supported", sql=sql, span=span, hint=hint, detail=detail)


def too_many(what: str, given: int, most: int, sql: str, span: tuple[int, int]) -> SqlError:
    hint = (
        "a table that is joined holds more values" if "IN" in what else "make several queries of it: they share work"
    )
    return SqlError(f"a query of {given:,} {what}: {most:,} are the most", sql=sql, span=span, hint=hint)


def nested_too_deeply(sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError("this is nested too deeply", sql=sql, span=span, hint="nest fewer operators, calls and brackets")


def expression_too_large(detail: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        "this expression is too large",
        sql=sql,
        span=span,
        detail=detail,
        hint="nest fewer operators and functions; some of them write out their argument several times",
    )


def unknown_function(
    name: str, near: list[str], sql: str, span: tuple[int, int], instead: str | None = None
) -> SqlError:
    """`instead`: what does here what the function does elsewhere."""
    listed = "SHOW FUNCTIONS lists those there are, and so does docs/functions.md"
    hint = instead or (f"did you mean {', '.join(near)}?" if near else listed)
    return SqlError(
        f"function '{name}' is not on the list of functions a continuous query may use",
        sql=sql,
        span=span,
        hint=hint,
    )


def bad_arguments(name: str, expected: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(f"{name} takes {expected}", sql=sql, span=span)


def bad_deviation(least: float, most: float, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"the relative deviation of approx_count_distinct is a number from {least} to {most}",
        sql=sql,
        span=span,
        hint="to count without any, write count(DISTINCT x)",
    )


def unknown_stream(
    name: str, near: list[str], sql: str | None = None, span: tuple[int, int] | None = None
) -> SqlError:
    hint = (
        f"did you mean {', '.join(near)}?" if near else "SHOW STREAMS lists those there are; CREATE STREAM makes one"
    )
    return SqlError(f"unknown stream '{name}'", sql=sql, span=span, hint=hint)


def query_as_stream(name: str, sql: str | None, span: tuple[int, int] | None) -> SqlError:
    return SqlError(
        f"'{name}' is a query, and queries cannot be read by queries yet",
        sql=sql,
        span=span,
        hint="write its SELECT over the streams that it reads: what two queries have in common is computed once",
    )


def unknown_column(
    name: str, near: list[str], sql: str, span: tuple[int, int], instead: str | None = None
) -> SqlError:
    hint = instead or (f"did you mean {', '.join(near)}?" if near else None)
    return SqlError(f"unknown column '{name}'", sql=sql, span=span, hint=hint)


def analysis_failed(
    message: str, sql: str | None = None, span: tuple[int, int] | None = None, hint: str | None = None
) -> SqlError:
    return SqlError(message, sql=sql, span=span, hint=hint)


def bad_type(name: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"unknown type '{name}'",
        sql=sql,
        span=span,
        hint="flat Spark types: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), "
        "string, varchar(n), binary, date, timestamp, timestamp_ntz",
    )


def bad_interval(text: str, reason: str, hint: str | None = None) -> SqlError:
    return SqlError(
        f"not an interval: {text!r}",
        detail=reason,
        hint=hint or "write a number and a unit, such as '10 seconds' or '1 minute 30 seconds'",
    )


def interval_too_long(sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        "this is longer than 73,000 years",
        sql=sql,
        span=span,
        detail="event times are microseconds in 64 bits, and have to stay so when lengths of time are added to them",
        hint="write a shorter one",
    )


def needs_window(what: str, time: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"{what} needs a window: a stream has no end",
        sql=sql,
        span=span,
        hint=f"add a window to the grouping: GROUP BY window({time}, '1 minute')",
    )


def place_without_window(time: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        "GROUP BY needs a window, and none of these places of the SELECT is one",
        sql=sql,
        span=span,
        hint=f"write window({time}, '1 minute') itself there, or in GROUP BY; `window` alone names its result",
    )


def bad_window(message: str, sql: str, span: tuple[int, int], hint: str | None = None) -> SqlError:
    return SqlError(message, sql=sql, span=span, hint=hint)


def moved(error: SqlError, sql: str, offset: int) -> SqlError:
    """The same error, pointing into the statement that the SELECT is a part of."""
    span = None if error.span is None else (error.span[0] + offset, error.span[1] + offset)
    return type(error)(error.message, detail=error.detail, hint=error.hint, sql=sql, span=span)


def of_a_list(error: ThalwegError, done: list[str], total: int) -> ThalwegError:
    """The same error, with what has become of the other statements."""
    said = statements_done(done, total)
    detail = said if not error.detail else f"{error.detail.rstrip('.')}. {said}"
    return type(error)(error.message, detail=detail, hint=error.hint, sql=error.sql, span=error.span)


def of_queries(error: ThalwegError, place: int, name: object, total: int) -> ThalwegError:
    """The same error, with which of the queries of a list it is of."""
    said = f"This is query {place + 1:,} of {total:,}, {name!r}; none of them has been created."
    detail = said if not error.detail else f"{error.detail.rstrip('.')}. {said}"
    return type(error)(error.message, detail=detail, hint=error.hint, sql=error.sql, span=error.span)


def statements_done(done: list[str], total: int) -> str:
    if not done:
        return f"None of the {total} statements has taken effect."
    which = f"the first {len(done)} have" if len(done) > 1 else "the first has"
    return f"Of {total} statements {which} taken effect: {', '.join(done)}."
