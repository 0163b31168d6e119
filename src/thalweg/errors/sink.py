"""Sinks: what cannot be written."""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.errors.family import SinkError, SinkRefusedError, ThalwegError, UsageError
from thalweg.foreign import brief, said_by

_RESUME = (
    "The results are kept, the other queries go on. It is tried again for a while; if the query is paused then, mend "
    "what the detail says and RESUME QUERY {}: it goes on with this batch."
)


def unwritable_sink(query: str, place: object, reason: object) -> SinkError:
    return SinkError(
        f"query {query}: results cannot be written to {place}",
        detail=_reason(reason),
        hint="Give a place that this user may write.",
    )


def failed_sink(query: str, place: object, reason: object) -> SinkError:
    return SinkError(
        f"query {query}: results could not be written to {place}",
        detail=_reason(reason),
        hint=_RESUME.format(query),
    )


def _reason(reason: object) -> str:
    return said_by(reason) if isinstance(reason, BaseException) else brief(str(reason))


def sink_raised(query: str, place: object, error: BaseException) -> SinkError:
    """What is no error of ours."""
    return failed_sink(query, place, error)


def sink_directory_taken(query: str, place: object, owner: str) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: {place} already holds the results of {owner}",
        detail="Files are named by batch, so two queries in one directory would overwrite each other.",
        hint="Give each query a directory of its own, or empty this one.",
    )


def missing_connector(query: str, format_: str, reason: str, hint: str) -> SinkError:
    return SinkError(f"query {query}: Spark has no writer {format_!r}", detail=reason, hint=hint)


def missing_writer_option(query: str, format_: str, option: str, hint: str) -> SinkError:
    return SinkError(f"query {query}: Spark's writer {format_!r} needs the option {option!r}", hint=hint)


def unfit_for_writer(query: str, format_: str, reason: str, hint: str) -> SinkError:
    return SinkError(f"query {query}: Spark's writer {format_!r} cannot take its results: {reason}", hint=hint)


def unwritable_for_spark(query: str, path: str, reason: str) -> SinkError:
    return SinkError(
        f"query {query}: Spark cannot write to {path}",
        detail=reason,
        hint="Give a directory that Spark may write, by a scheme that it knows (file:, hdfs:; s3a: with hadoop-aws).",
    )


def unknown_sink(kind: str, known: Sequence[str], meant: str | None = None) -> SinkError:
    hint = f"Use one of: {', '.join(known)}." if meant is None else f"Write {meant}."
    return SinkError(f"there is no sink {kind!r}", hint=hint)


def bad_sink_option(kind: str, option: str, reason: str, hint: str | None = None) -> SinkError:
    return SinkError(f"sink {kind}: option {option!r} {reason}", hint=hint)


def unwritable_column(query: str, column: str, column_type: object, file_format: str) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: column {column!r} of type {column_type} cannot be written as {file_format}",
        hint="Select its parts as columns of their own, or write Parquet.",
    )


def missing_callback(query: str) -> SinkError:
    return SinkError(
        f"query {query}: its Python callable is gone",
        detail="A callable is not part of the state directory and must be given again after a restart.",
        hint="Create the session's queries with their callables before starting it.",
    )


def unusable_callback(query: str, reason: str, hint: str) -> SinkError:
    return SinkError(f"query {query}: its callable {reason}", hint=hint)


def failed_callback(query: str, batch_id: int, error: BaseException) -> SinkError:
    return SinkError(
        f"query {query}: its callable failed on batch {batch_id}",
        detail=said_by(error),
        hint=_RESUME.format(query),
    )


def nothing_to_pause(query: str, kind: str) -> UsageError:
    return UsageError(
        f"query {query} has no sink that could be kept from its results: they go into {kind}",
        hint="only delivery can be paused; DROP QUERY ends a query",
    )


def sink_silent(query: str, seconds: float) -> SinkError:
    return SinkError(
        f"query {query}: its sink has not returned for {seconds:g} s",
        detail="A call cannot be ended from outside. No other is made before it returns or is given up.",
        hint=_RESUME.format(query),
    )


def no_place_left(query: str, batch: int, rows: int, limit: int) -> SinkError:
    return SinkError(
        f"query {query}: results of batch {batch} and later are missing",
        detail=f"{rows:,} rows of batch {batch} were not kept: what waits for the sink would have been more than "
        f"undelivered_bytes = {limit:,}. What was kept before is still there.",
        hint=f"Mend the sink, or make it faster, then RESUME QUERY {query}: it delivers what was kept, and computes "
        "the query again from then on. The gap stays.",
    )


def also(error: ThalwegError, other: ThalwegError) -> ThalwegError:
    """Both at once, under what the first says."""
    said = ". ".join(part for part in (error.detail, f"Also: {other.message}", other.detail) if part)
    hints = "; ".join(hint for hint in (error.hint, other.hint) if hint)
    return type(error)(error.message, detail=said, hint=hints or None)


def wrong_sink(query: str, given: object) -> UsageError:
    return UsageError(
        f"results of query '{query}' cannot go to a {type(given).__name__}",
        hint="give None, thalweg.to_files(...) or the like, or a callable (table, batch_id)",
    )


def not_in_memory(query: str, kind: str) -> UsageError:
    return UsageError(
        f"the results of query '{query}' are not kept in memory",
        detail=f"they go to its sink of kind {kind}",
        hint="a query without a sink keeps them; the same SELECT a second time costs next to nothing",
    )


def array_in_text(query: str, column: str, format_: object) -> SinkError:
    return SinkError(
        f"query '{query}': the array '{column}' cannot be written as {format_}",
        hint="write parquet, or let the aggregate give a string",
    )


def sink_not_installed(query: str, kind: str) -> SinkError:
    return SinkError(
        f"query {query}: there is no sink {kind!r} in this program",
        detail="The query was created by a program that had it. Its results are kept until it is there.",
        hint=f"Install the package that brings it, or call thalweg.register_sink first; or DROP QUERY {query}.",
    )
