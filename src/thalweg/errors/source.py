"""Sources and streams: what cannot be read, or not be defined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.errors.family import MissingArgumentError, NamingError, SourceError, StateError, UsageError
from thalweg.foreign import said_by


def source_path_missing(path: str) -> SourceError:
    return SourceError(
        f"no such directory: {path}",
        detail="A files source needs the directory part of its path to exist; files may come later.",
        hint="Create the directory, or correct the path.",
    )


def source_url(pattern: str) -> SourceError:
    return SourceError(
        f"a files source reads directories of this machine, not {pattern}",
        hint="Mount it and give its path; or give a streaming DataFrame: spark.readStream.schema(...).parquet(...).",
    )


def source_file_vanished(path: str, stream: str) -> SourceError:
    return SourceError(
        f"file of stream {stream} has vanished: {path}",
        detail="The file was found and is part of a batch, but can no longer be opened.",
        hint="Put the file back with the same content; files may be removed only after their batch is done.",
    )


def source_file_unreadable(path: str, stream: str, reason: str) -> SourceError:
    return SourceError(f"file of stream {stream} cannot be opened: {path}", detail=reason)


def source_name_unusable(path: str, stream: str) -> SourceError:
    return SourceError(
        f"a file of stream {stream} has a name that is not UTF-8: {path}",
        hint="Rename the file, or move it away.",
    )


def source_format_unknown(path: str, known: tuple[str, ...]) -> SourceError:
    return SourceError(
        f"cannot tell the format of {path}",
        hint=f"Give format= one of {', '.join(known)}.",
    )


def columns_left_out(path: str, columns: Sequence[str]) -> str:
    """A warning. `columns`: each with its type."""
    one = len(columns) == 1
    return (
        f"{', '.join(columns)}: {'this column is' if one else 'these columns are'} left out of the stream, since "
        f"{'its type' if one else 'their types'} cannot be read yet; seen in {path}"
    )


def source_schema_unreadable(path: str, reason: str, schema: str | None = None) -> SourceError:
    """`schema`: the columns as far as they can be told."""
    given = schema or "id bigint, ts timestamp"
    return SourceError(
        f"cannot read a schema from {path}",
        detail=reason,
        hint=f'Give the columns, as in schema="{given}", or CREATE STREAM name (id BIGINT, ts TIMESTAMP): rows that '
        "do not fit are set aside with their reason. Or correct the file.",
    )


def source_option_invalid(source: str, option: str, reason: str, hint: str | None = None) -> SourceError:
    return SourceError(f"{source}: option {option!r} {reason}", hint=hint)


def source_generator_unknown(name: str, known: tuple[str, ...]) -> SourceError:
    return SourceError(
        f"there is no generator named {name!r}",
        detail=f"known: {', '.join(known)}; in SQL it is the name of the stream unless another is given",
        hint=f"name one: WITH (source = 'generate', generator = '{known[0]}'), or thalweg.generate('{known[0]}')",
    )


def source_append_mismatch(detail: str) -> SourceError:
    return SourceError(
        "the appended rows do not fit the schema of the memory source",
        detail=detail,
        hint="Append a table with the source's columns, in types that can be cast without loss.",
    )


def source_schema_invalid(text: str, detail: str) -> SourceError:
    return SourceError(f"not a schema: {text}", detail=detail, hint="Write it as in SQL: 'a bigint, ts timestamp'.")


def source_units_missing(stream: str, wanted: int, found: int) -> StateError:
    return StateError(
        f"stream {stream} has lost input: unit {wanted} was planned, {found} are there",
        detail="What the source has kept is older than the offsets of the pipeline.",
        hint="Restore the whole state from one moment.",
    )


def source_object_taken(place: str) -> StateError:
    return StateError(
        f"{place} is there already: somebody else writes to this state",
        detail="Another session has written it, or an attempt of this one that failed.",
        hint="See to it that one session uses the state, then connect again.",
    )


def source_unbound(stream: str) -> UsageError:
    return UsageError(
        f"the session that reads stream {stream} has stopped: nothing was appended",
        hint="Connect again, create the stream with this source, and append then.",
    )


def landing_offsets_lost(stream: str, batch: int, place: str) -> SourceError:
    return SourceError(
        f"the DataFrame of stream {stream} has lost its offsets: Spark plans its batch {batch} anew, with other rows",
        detail=f"Rows of that batch have landed already. Spark keeps the offsets below {place}.",
        hint="Restore the whole state from one moment; or make the stream anew, under another name.",
    )


def landing_log_behind(place: str, batch: int) -> StateError:
    return StateError(
        f"the state is incomplete: {place} does not tell of batch {batch}, which has landed",
        hint="Restore the whole state from one moment.",
    )


def source_column_nested(stream: str, column: str, kind: str) -> SourceError:
    return SourceError(
        f"column {column} of stream {stream} is nested: {kind}",
        hint="Select the flat fields that the queries need, such as col('a.b').alias('b').",
    )


def source_not_streaming(stream: str) -> SourceError:
    return SourceError(
        f"the DataFrame of stream {stream} is not a streaming one",
        hint="Make it with spark.readStream, or write it to files and use thalweg.files(...).",
    )


def source_query_failed(stream: str, reason: str) -> SourceError:
    return SourceError(f"the query that feeds stream {stream} has failed", detail=reason)


def missing_time_column(stream: str, column: str, columns: tuple[str, ...]) -> NamingError:
    return NamingError(
        f"stream '{stream}' has no column '{column}' to take event time from",
        detail=f"its columns are {', '.join(columns)}",
        hint="name a column of type timestamp in time=... or WATERMARK FOR",
    )


def bad_time_column(
    stream: str, column: str, found: str, because: str | None = None, schema: str | None = None
) -> NamingError:
    """`because`: where the source has what made it that type; `schema`: the columns that were meant."""
    if schema is not None:
        hint = f'say that it is one: schema="{schema}"; rows with other values are set aside, with their reason'
    elif found in ("bigint", "int", "double"):
        hint = "numbers since the epoch cannot be event time yet: let whoever writes the rows write timestamps"
    else:
        hint = "event time is a timestamp or timestamp_ntz"
    return NamingError(
        f"column '{column}' of stream '{stream}' cannot be its event time",
        detail=f"it is of type {found}" + ("" if because is None else f", for {because} is no time"),
        hint=hint,
    )


def stream_incomplete(stream: str, missing: Sequence[str]) -> MissingArgumentError:
    """`missing`: of what a stream must be given."""
    said = {"time": "no event time", "watermark": "no watermark"}
    return MissingArgumentError(
        f"stream '{stream}' has {' and '.join(said[name] for name in missing)}",
        detail=f"create_stream needs {' and '.join(f'{name}=' for name in missing)}: the column that says when a row "
        "happened, and how long to wait for rows that come out of order",
        hint=f"create_stream('{stream}', source, time='ts', watermark='10 seconds'); in SQL: WATERMARK FOR ts AS ts "
        "- INTERVAL 10 SECONDS",
    )


def bad_limit(stream: str, option: str, given: object, wanted: str) -> UsageError:
    return UsageError(f"stream {stream!r}: {option} cannot be {given!r}", hint=f"Give {wanted}.")


def reserved_column(stream: str, column: str) -> NamingError:
    return NamingError(
        f"column '{column}' of stream '{stream}' begins with a dot",
        hint="such names are Thalweg's own: rename the column",
    )


def unknown_schema(stream: str) -> SourceError:
    return SourceError(
        f"the columns of stream '{stream}' are not known",
        detail="no file is there yet to take them from",
        hint="give them: CREATE STREAM name (column TYPE, ...) or schema=...",
    )


def wrong_source(stream: str, given: object) -> UsageError:
    return UsageError(
        f"stream '{stream}' cannot be made from a {type(given).__name__}",
        hint="give thalweg.files(...), thalweg.memory(...), thalweg.generate(...) or a streaming DataFrame",
    )


def source_not_given(stream: str) -> UsageError:
    return UsageError(
        f"stream '{stream}' reads a streaming DataFrame, which a restart cannot bring back",
        hint=f"call create_stream('{stream}', dataframe, ...) again before starting",
    )


def unknown_source(kind: str, known: Sequence[str]) -> SourceError:
    return SourceError(
        f"there is no source of kind '{kind}'",
        hint=f"source = one of {', '.join(known)}; what Spark can read as a stream, such as Kafka, in Python: "
        "session.create_stream(name, spark.readStream.format(...).load(), time=..., watermark=...)",
    )


_BRING_BACK = "bring back the state directory as a whole from a copy, or start with a new one"


def missing_offsets(path: object, batch: int) -> StateError:
    return StateError(
        f"the offsets of batch {batch} are missing: {path}",
        detail="an earlier release wrote this state; only that file says how far its streams have been read",
        hint=_BRING_BACK,
    )


def unreadable_offsets(path: object, batch: int, found: str) -> StateError:
    return StateError(
        f"the offsets of batch {batch} cannot be read: {path}",
        detail=f"{found}; an earlier release wrote this state; only that file says how far streams have been read",
        hint=_BRING_BACK,
    )


def wrong_rows(stream: str, reason: str) -> UsageError:
    return UsageError(
        f"the rows of stream {stream!r} are not a table",
        detail=reason,
        hint="give a pyarrow.Table, a RecordBatch or a list of dictionaries",
    )


def no_event_time(stream: str, times: Iterable[str]) -> UsageError:
    return UsageError(
        f"which column of stream {stream!r} is its event time?",
        detail=f"it has {', '.join(times) or 'no timestamp'}",
        hint="say time='...'",
    )


def source_failed(stream: str, kind: str, error: BaseException) -> SourceError:
    return SourceError(f"the source of stream {stream}, of kind {kind!r}, has failed", detail=said_by(error))


def source_not_installed(stream: str, kind: str) -> SourceError:
    return SourceError(
        f"stream {stream}: there is no source of kind {kind!r} in this program",
        hint="Install the package that brings it, or call thalweg.register_source first.",
    )
