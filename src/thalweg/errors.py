"""The one family of errors: a primary line, a detail, a hint, and the place in the SQL underlined.

Every error a user can cause is raised through a named constructor below, so that the wording of the whole
system can be read in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.foreign import brief, plain_lines, redact, redact_in_place, said_by


class ThalwegError(Exception):
    """What happened, where in the SQL, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sql: str | None = None,
        span: tuple[int, int] | None = None,
    ) -> None:
        """`span` is the half-open range of characters of `sql` that the message is about."""
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sql = sql
        self.span = span
        super().__init__(self._render())

    def _render(self) -> str:
        """What is shown and kept of it: values, names and what libraries say can be part of it."""
        lines = [redact(self.message)]
        if self.sql is not None and self.span is not None:
            lines += underline(self.sql, self.span)
        if self.detail:
            lines.append(f"  detail: {redact(self.detail)}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return plain_lines("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.detail, self.hint, self.sql, self.span))


def _rebuild(
    kind: type[ThalwegError],
    message: str,
    detail: str | None,
    hint: str | None,
    sql: str | None,
    span: tuple[int, int] | None,
) -> ThalwegError:
    return kind(message, detail=detail, hint=hint, sql=sql, span=span)


class SqlError(ThalwegError):
    """The text of a statement is at fault."""


class NamingError(ThalwegError):
    """A stream or query name is unknown or taken."""


class StateError(ThalwegError):
    """The state directory is at fault: locked, of another version, corrupt or incomplete."""


class SourceError(ThalwegError):
    """A source cannot be read."""


class SinkError(ThalwegError):
    """A sink cannot be written."""


class SinkRefusedError(SinkError):
    """A sink cannot be written, and trying again would not help."""


class UsageError(ThalwegError):
    """The Python interface was called in a way it cannot serve."""


class InternalError(ThalwegError):
    """Thalweg itself is at fault."""


_WIDEST = 2_000
"""Characters of a line that an error shows."""


def underline(sql: str, span: tuple[int, int]) -> list[str]:
    """The line of `sql` that holds the span, with a caret under each of its characters."""
    start, end = span
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line_end = len(sql) if line_end < 0 else line_end
    number = sql.count("\n", 0, start) + 1
    prefix = f"  line {number}: "
    width = max(1, min(end, line_end) - start)
    if line_end - line_start > _WIDEST:  # around the place: nobody reads more
        line_start = max(line_start, start - _WIDEST // 4)
        line_end = min(line_end, line_start + _WIDEST)
        prefix += "... " if line_start > 0 else ""
        width = min(width, line_end - start)
    line = redact_in_place(sql[line_start:line_end].replace("\t", " "))
    return [prefix + line, " " * (len(prefix) + start - line_start) + "^" * width]


# ingest


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


def source_failed(stream: str, kind: str, error: BaseException) -> SourceError:
    return SourceError(f"the source of stream {stream}, of kind {kind!r}, has failed", detail=said_by(error))


def source_not_installed(stream: str, kind: str) -> SourceError:
    return SourceError(
        f"stream {stream}: there is no source of kind {kind!r} in this program",
        hint="Install the package that brings it, or call thalweg.register_source first.",
    )


def source_generator_unknown(name: str, known: tuple[str, ...]) -> SourceError:
    return SourceError(f"there is no generator named {name!r}", hint=f"Known: {', '.join(known)}.")


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


# kinds


def kind_taken(sort: str, name: str, by: str) -> UsageError:
    return UsageError(
        f"there is a {sort} {name!r} already: {by}",
        hint=f"Give the new one another name; register_{sort}(..., replace=True) replaces one that was registered.",
    )


def not_a_kind(sort: str, name: object, reason: str) -> UsageError:
    return UsageError(f"{name} cannot be registered as a {sort}", detail=reason)


def kind_broken(sort: str, name: str, package: str, error: BaseException) -> UsageError:
    return UsageError(f"the {sort} {name!r} of {package} cannot be loaded", detail=said_by(error))


def aggregate_not_installed(name: str) -> SqlError:
    return SqlError(
        f"there is no aggregate {name!r} in this program",
        detail="The query was created by a program that had it.",
        hint="Install the package that brings it, or call thalweg.register_aggregate before connect.",
    )


# model


def no_canonical_form(name: str) -> InternalError:
    return InternalError(
        f"no id can be made from {name}",
        detail="Ids are durable, so everything in them has a form that is declared, which this class has not.",
        hint="Declare its form with @canonical (thalweg/model/canonical.py), or leave it out of the id.",
    )


# --- testing and the command line ---


def bad_fault_setting(variable: str, setting: str) -> UsageError:
    return UsageError(
        f"{variable} names no fault point: {setting!r}",
        hint="Write the name of a point, or name:n for its n-th passage, such as manifest:2.",
    )


def statements_unreadable(path: str, reason: str) -> UsageError:
    return UsageError(f"cannot read the statements in {path}", detail=reason)


def oracle_select_unsupported(reason: str, select: str) -> UsageError:
    return UsageError(f"the oracle cannot evaluate this SELECT: {reason}", detail=select)


# state


def unusable_directory(path: object, error: OSError) -> StateError:
    return StateError(
        f"the state directory {path} cannot be used",
        detail=str(error),
        hint="Give a directory on a local disk that this user may write.",
    )


def landing_wanted(stream: str, place: object) -> SourceError:
    return SourceError(
        f"the streaming DataFrame of stream {stream!r} needs a directory to land in",
        detail=f"Spark writes its rows as files, and the state is in {place}",
        hint="connect(..., landing='/a/directory/that/all/workers/see')",
    )


def cannot_create_once(place: object, reason: str) -> StateError:
    return StateError(
        f"{place} cannot hold the state: of two writers of one name it cannot refuse the second",
        detail=reason,
        hint="Give a directory on a file system with hard links, or an object store with conditional writes.",
    )


def unknown_scheme(place: str, known: Iterable[str]) -> StateError:
    return StateError(
        f"{place} is not a place for state",
        detail=f"known are paths, file:// and {', '.join(f'{scheme}://' for scheme in known)}",
        hint="Give a directory, or the URL of a bucket and a prefix, such as s3://bucket/pipeline.",
    )


def url_as_path(place: str) -> StateError:
    return StateError(
        f"{place} is a path that was meant to be a URL",
        detail="a Path makes one slash of two",
        hint="Give the URL as a text, such as 's3://bucket/pipeline'.",
    )


def secrets_in_url(place: str) -> StateError:
    """`place`: without them."""
    return StateError(
        f"the URL of {place} holds a password or a query",
        detail="a URL is stored, sent and printed",
        hint="Give credentials by the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )


def no_object_stores(place: str) -> StateError:
    return StateError(
        f"{place} cannot be opened: the library for object stores is missing",
        hint="Install it: pip install obstore.",
    )


def unusable_store(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} cannot be used",
        detail=detail,
        hint="See what its URL, endpoint and region should be; they come from the URL and the environment.",
    )


def unreachable_store(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} does not answer",
        detail=detail,
        hint="Check the network and the endpoint in the environment, such as AWS_ENDPOINT_URL (and AWS_ALLOW_HTTP).",
    )


def store_refuses(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} does not let this user in",
        detail=detail,
        hint="Check the credentials in the environment; they must allow to list, read, write and delete objects.",
    )


def missing_bucket(place: str, detail: str) -> StateError:
    return StateError(
        f"the bucket of {place} does not exist",
        detail=detail,
        hint="Create it, or correct the URL.",
    )


def forked_store(place: str) -> StateError:
    return StateError(
        f"{place} cannot be used here: this process was forked from one that had opened an object store",
        detail="the threads of the library do not survive a fork; the first request would wait for ever",
        hint="Start processes with the method 'spawn' or 'forkserver'.",
    )


def unsafe_cache(path: object, reason: str) -> StateError:
    return StateError(
        f"the cache of objects {path} cannot be used",
        detail=reason,
        hint="Remove it, or name another directory in THALWEG_CACHE.",
    )


def dangling_link(path: object, link: object, target: str) -> StateError:
    return StateError(
        f"the state directory {path} cannot be made",
        detail=f"{link} is a symbolic link to {target}, which does not exist",
        hint=f"Create {target}, or remove the link.",
    )


def file_in_the_way(path: object, file: object) -> StateError:
    return StateError(
        f"the state directory {path} cannot be used",
        detail=f"{file} is a file",
        hint="Give a directory, or a path at which there is nothing yet.",
    )


def foreign_directory(path: object, held: list[str]) -> StateError:
    more = f" and {len(held) - 5} more" if len(held) > 5 else ""
    return StateError(
        f"{path} is neither empty nor a state directory",
        detail=f"it holds {', '.join(held[:5])}{more}, and nothing that Thalweg has written",
        hint=f"Give a directory of its own, such as {path}/state: what lies in a state directory is Thalweg's.",
    )


def state_locked(path: object, holder: str) -> StateError:
    return StateError(
        f"the state directory {path} is in use by {holder}",
        detail="A state directory belongs to one session at a time.",
        hint="stop() the session that was connected to it before; in a notebook a new kernel helps, too."
        if holder.endswith("this one")
        else "Stop that session, or give this one a directory of its own.",
    )


def lost_lock(path: object) -> StateError:
    return StateError(
        f"this session no longer holds its state directory: {path} was removed or replaced",
        detail="Another session may have opened the directory since. Nothing of this batch was given to a sink.",
        hint="Stop this session, see to it that no other one uses the directory, then connect again.",
    )


def lost_manifest(path: object, batch: int) -> StateError:
    return StateError(
        f"another session has run batch {batch}: {path} is there already",
        detail="Of two sessions on one state the first to commit a batch counts. Nothing of this session's batch was "
        "given to a sink.",
        hint="Stop this session. The other one goes on; if there should be none, connect again once it has ended.",
    )


def newer_term(path: object, mine: int, newest: int) -> StateError:
    return StateError(
        f"another session has opened this state since: {path}",
        detail=f"this session is number {mine}, the newest is {newest}; nothing of this batch was given to a sink",
        hint="Stop this session. To go on here instead, end the other one and connect again.",
    )


def sink_ahead(query: str, place: object, batch: int, newest: int) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: {place} holds results of batch {newest}, but the state has got only as far as batch {batch}",
        detail="The state is a copy, or was restored from one: its batches would be other ones under the same names.",
        hint="Go on with the newest state, or connect(..., fork=True) and give the query a new place.",
    )


def sink_of_a_copy(query: str, place: object) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: another copy of this state writes to {place}",
        detail="Both would give the same names to other batches.",
        hint="Stop one of the two, or connect(..., fork=True) and give its queries new places.",
    )


def missing_file(path: object) -> StateError:
    return StateError(
        f"the state is incomplete: {path} is missing",
        detail="The manifest names this file, so it was there when the last batch was committed.",
        hint="Put the file back from a copy of the whole state directory, or start with an empty directory.",
    )


def missing_rejected(place: object, expected: int, found: int) -> StateError:
    return StateError(
        f"the state is incomplete: files in {place} are missing",
        detail=f"{expected} rows were set aside as unreadable, {found} are there",
        hint="Put the files back from a copy of the whole state directory.",
    )


def corrupt_file(path: object, expected: str, found: str) -> StateError:
    return StateError(
        f"the state is corrupt: {path} is not what was written",
        detail=f"expected {expected}, found {found}",
        hint="Restore the whole state directory from a copy, or start with an empty directory; check the disk.",
    )


def wrong_state_format(path: object, found: object, read: Iterable[int]) -> StateError:
    return StateError(
        f"the state directory was written in format {found}, this release reads {', '.join(map(str, read))}",
        detail=f"in {path}",
        hint="Open it with the release that wrote it, or start with an empty state directory.",
    )


def old_windows_of_joins(state_dir: object, found: int, queries: Iterable[str]) -> StateError:
    return StateError(
        f"the state directory was written in format {found}: open windows of joins cannot be gone on with",
        detail=f"in {state_dir}, of {', '.join(queries)}",
        hint="Drop these queries with the release that wrote it, or start with an empty state directory.",
    )


def unwritable_request(path: object, error: object) -> StateError:
    return StateError(
        f"the request could not be made durable in {path}",
        detail=str(error),
        hint="Free disk space or repair the disk, then start the session again; the request was not taken.",
    )


# sink

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


def sink_not_installed(query: str, kind: str) -> SinkError:
    return SinkError(
        f"query {query}: there is no sink {kind!r} in this program",
        detail="The query was created by a program that had it. Its results are kept until it is there.",
        hint=f"Install the package that brings it, or call thalweg.register_sink first; or DROP QUERY {query}.",
    )


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


# sql


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


# joins


def ambiguous_column(name: str, candidates: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(f"column '{name}' is ambiguous", sql=sql, span=span, hint=f"write {' or '.join(candidates)}")


def repeated_relation(name: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"FROM has two entries named '{name}'", sql=sql, span=span, hint=f"give one an alias: {name} AS other"
    )


def cross_product(name: str, others: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"no equality connects '{name}' with {', '.join(others)}: a cross product is not supported",
        sql=sql,
        span=span,
        hint=f"add one, such as {others[0]}.key = {name}.key",
    )


def unbounded_join(
    name: str, other: str, times: tuple[str, str], detail: str, sql: str, span: tuple[int, int]
) -> SqlError:
    own, others = times
    return SqlError(
        f"a join without a time bound: rows of '{other}' and '{name}' would be kept for ever",
        detail=detail,
        sql=sql,
        span=span,
        hint=f"add WITHIN 5 SECONDS after ON, or {own} BETWEEN {others} - INTERVAL 5 SECONDS "
        f"AND {others} + INTERVAL 5 SECONDS",
    )


def empty_bound(names: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"the time bounds of {' and '.join(names)} contradict each other: the join has no result",
        sql=sql,
        span=span,
    )


def bounds_nothing(name: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"WITHIN bounds nothing here: the condition before it has no equality with '{name}'",
        sql=sql,
        span=span,
        hint="equate a column of it with one of another stream in the same ON",
    )


def incompatible_keys(left: str, right: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"join keys of types {left} and {right} cannot be equal", sql=sql, span=span, hint="cast one of them"
    )


def too_many_streams(most: int, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(f"a query joins at most {most} streams", sql=sql, span=span)


def no_stream(sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        "a continuous query reads at least one stream",
        sql=sql,
        span=span,
        hint="query tables alone with Spark itself",
    )


def bad_join_query(query: object, reason: str, hint: str | None = None) -> UsageError:
    return UsageError(f"the join query {query!r} cannot be planned", detail=reason, hint=hint)


def disconnected_join(query: str, parts: list[str]) -> UsageError:
    return UsageError(
        f"the join query {query!r} is not connected: a cross product is not supported",
        detail=f"no predicate joins {' with '.join(parts)}",
        hint="add a predicate between them, or make them queries of their own",
    )


def missing_rate(query: str, relation: str) -> UsageError:
    return UsageError(
        f"there is no rate of relation {relation!r}, which the join query {query!r} reads",
        hint="give its rows per window in Statistics.rates",
    )


def missing_selectivity(query: str, predicate: tuple[str, str]) -> UsageError:
    return UsageError(
        f"there is no selectivity of {predicate[0]} = {predicate[1]}, by which the join query {query!r} joins",
        hint="give it in Statistics.selectivity, either way round: the share of all pairs that are equal",
    )


def bad_join_planning(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"join planning: {name} is {value!r}", hint=f"{name} must be {needed}")


def too_many_join_plans(queries: int, most: int) -> UsageError:
    return UsageError(
        f"the plans of {queries} join queries are too many to try them all",
        detail=f"there are more than {most}",
        hint='plan them with method="auto"',
    )


def not_in_join_plan(name: object, known: list[str]) -> UsageError:
    return UsageError(f"the plan has no join query {name!r}", hint=f"it has {', '.join(known) or 'none'}")


# -- session and engine


def pipeline_failed(
    reason: str,
    batch: int | None = None,
    times: int = 1,
    *,
    file: str | None = None,
    stream: str | None = None,
    queries: Sequence[str] = (),
) -> ThalwegError:
    """`times`: how often this batch has failed since the session was opened. `file`, `stream`, `queries`: what the
    task was at, where it is known."""
    what = "the batch" if batch is None else f"batch {batch}"
    if times > 1:
        hint = f"{what} has failed {times} times: starting again will not help by itself. "
        hint += _way_out(file, stream, queries)
    else:
        hint = f"mend what the detail says, then start again: {what} is run again from its beginning"
    return ThalwegError(
        "the pipeline has stopped" + ("" if batch is None else f" in batch {batch}"),
        detail=reason.strip() or "unknown reason",
        hint=hint,
    )


def _way_out(file: str | None, stream: str | None, queries: Sequence[str]) -> str:
    """What lets the other queries go on."""
    if queries:
        others = ", and so on with the others that the detail names," if len(queries) > 1 else ""
        return f"PAUSE QUERY {queries[0]} or DROP QUERY {queries[0]}{others} then start again"
    over = f"pause or drop the queries over stream '{stream}'"
    if file is not None:
        return f"Mend the file {file} or move it away, or {over}, then start again"
    if stream is not None:
        return f"{over[0].upper()}{over[1:]} (PAUSE QUERY, DROP QUERY), then start again"
    return (
        "If the detail names a file of input, move it away or mend it; else pause or drop the queries that it is "
        "about (PAUSE QUERY, DROP QUERY), then start again"
    )


def name_taken(kind: str, name: str) -> NamingError:
    hint = f"choose another name{', or DROP QUERY ' + name + ' first' if kind == 'query' else ''}"
    return NamingError(f"there is already a {kind} named '{name}'", hint=hint)


def definition_differs(kind: str, name: str) -> NamingError:
    return NamingError(
        f"the {kind} '{name}' in the state directory is defined differently",
        detail="a restarted program must define what it had before in the same way",
        hint=f"DROP QUERY {name} first, and it sees rows from then on; or use another name"
        if kind == "query"
        else "use another name or another state directory",
    )


def unknown_name(kind: str, name: str, near: list[str], known: Iterable[str] = ()) -> NamingError:
    """`known`: those that there are."""
    listed = sorted(known)
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    there = f"there are {', '.join(listed[:10])}{more}" if listed else f"there is no {kind} yet"
    hint = f"did you mean {' or '.join(near)}?" if near else there
    return NamingError(f"there is no {kind} named '{name}'", hint=hint)


def bad_name(kind: str, name: object) -> NamingError:
    return NamingError(
        f"{name!r} cannot be the name of a {kind}",
        hint="use letters, digits and underscores, not starting with a digit",
    )


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


def not_a_span(given: object) -> UsageError:
    return UsageError(
        f"{given!r} is not a length of time",
        hint="write a number and a unit, such as '10 seconds', or give a datetime.timedelta",
    )


def also(error: ThalwegError, other: ThalwegError) -> ThalwegError:
    """Both at once, under what the first says."""
    said = ". ".join(part for part in (error.detail, f"Also: {other.message}", other.detail) if part)
    hints = "; ".join(hint for hint in (error.hint, other.hint) if hint)
    return type(error)(error.message, detail=said, hint=hints or None)


def bad_limit(stream: str, option: str, given: object, wanted: str) -> UsageError:
    return UsageError(f"stream {stream!r}: {option} cannot be {given!r}", hint=f"Give {wanted}.")


def reserved_column(stream: str, column: str) -> NamingError:
    return NamingError(
        f"column '{column}' of stream '{stream}' begins with a dot",
        hint="such names are Thalweg's own: rename the column",
    )


def bad_columns(kind: str, name: str, reason: str) -> SourceError:
    return SourceError(
        f"the columns of {kind} '{name}' cannot be used",
        detail=reason,
        hint="give every column a name that differs in more than case, and a type that Spark knows",
    )


def unusable_entry(path: object, error: SourceError) -> StateError:
    return StateError(
        f"{path} holds what cannot be used: {error.message}",
        detail=error.detail,
        hint="an earlier release let it in: take the entry out of the file, or start with a new state directory",
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


def already_running() -> UsageError:
    return UsageError(
        "the pipeline is already running",
        hint="there is nothing to start: new queries take part from the next batch on, and progress() says how far "
        "it is. session.await_termination() waits for its end. session.stop() ends the session; after it, "
        "thalweg.connect(...) to the same directory goes on",
    )


def bad_trigger(given: str) -> UsageError:
    return UsageError(
        f"the trigger {given!r} is below 0",
        hint="give the least time between two batches, such as '1 second'; '0 seconds' for none",
    )


def session_stopped() -> UsageError:
    return UsageError("the session is stopped", hint="thalweg.connect(...) again")


def only_rehearsed() -> UsageError:
    return UsageError("the session only tries statements out", hint="thalweg.connect(...) makes one that can run")


def source_not_given(stream: str) -> UsageError:
    return UsageError(
        f"stream '{stream}' reads a streaming DataFrame, which a restart cannot bring back",
        hint=f"call create_stream('{stream}', dataframe, ...) again before starting",
    )


def session_as_directory(kind: str) -> UsageError:
    return UsageError(
        f"the first argument of connect is the state directory, not a {kind}",
        hint='thalweg.connect("state/", spark=spark)',
    )


def spark_connect() -> UsageError:
    return UsageError(
        "a session of Spark Connect cannot run Thalweg",
        detail="batches need the driver's own JVM: its shuffle, its broadcasts, its jobs",
        hint="give a classic session, or none: thalweg.connect(directory) makes a local one",
    )


def settings_too_late(names: list[str]) -> UsageError:
    return UsageError(
        f"Spark is running in this process, and takes no other settings: {', '.join(names)}",
        detail="a process has one Spark, which all its sessions share",
        hint="stop() the sessions that use it first, or leave the settings out; a Spark session of your own is given "
        "as connect(..., spark=spark)",
    )


def java_missing(looked: str) -> UsageError:
    return UsageError(
        "there is no Java, which Spark needs",
        detail=looked,
        hint="install Java 17 or newer, such as Debian's openjdk-17-jre-headless, or set JAVA_HOME to where it is",
    )


def java_failed(java: str, said: str) -> UsageError:
    return UsageError(
        "Spark's Java process has ended while it started",
        detail=f"{java}: {said}",
        hint="Spark needs Java 17 or newer; what it printed may say more",
    )


def workers_differ(found: str, here: str) -> UsageError:
    return UsageError(
        "the Python of Spark's workers is another one than this program's",
        detail=f"workers run {found}, this program {here}",
        hint="set PYSPARK_PYTHON to the same minor version, with thalweg installed, before Spark starts; on one "
        "machine: os.environ['PYSPARK_PYTHON'] = sys.executable",
    )


def workers_lack(module: str) -> UsageError:
    return UsageError(
        f"Spark's workers cannot import {module}",
        detail="tasks run in Spark's Python workers, which need the package thalweg and what it depends on",
        hint="install thalweg for the Python that PYSPARK_PYTHON names (spark.pyspark.python), on every machine; if "
        "that is this program's: os.environ['PYSPARK_PYTHON'] = sys.executable before Spark starts",
    )


def workers_do_not_start(reason: str) -> UsageError:
    return UsageError(
        "Spark cannot run Python in its workers",
        detail=reason,
        hint="set PYSPARK_PYTHON (spark.pyspark.python) to a Python that every worker has, before Spark starts",
    )


def unknown_source(kind: str, known: Sequence[str]) -> SourceError:
    return SourceError(
        f"there is no source of kind '{kind}'",
        hint=f"source = one of {', '.join(known)}; what Spark can read as a stream, such as Kafka, in Python: "
        "session.create_stream(name, spark.readStream.format(...).load(), time=..., watermark=...)",
    )


def moved(error: SqlError, sql: str, offset: int) -> SqlError:
    """The same error, pointing into the statement that the SELECT is a part of."""
    span = None if error.span is None else (error.span[0] + offset, error.span[1] + offset)
    return type(error)(error.message, detail=error.detail, hint=error.hint, sql=sql, span=span)


def of_a_list(error: ThalwegError, done: list[str], total: int) -> ThalwegError:
    """The same error, with what has become of the other statements."""
    said = statements_done(done, total)
    detail = said if not error.detail else f"{error.detail.rstrip('.')}. {said}"
    return type(error)(error.message, detail=detail, hint=error.hint, sql=error.sql, span=error.span)


def statements_done(done: list[str], total: int) -> str:
    if not done:
        return f"None of the {total} statements has taken effect."
    which = f"the first {len(done)} have" if len(done) > 1 else "the first has"
    return f"Of {total} statements {which} taken effect: {', '.join(done)}."


def state_directory_wanted() -> UsageError:
    return UsageError("there is nothing to run", hint="Name a file of statements, or a --state to go on with.")


def bench_tree_missing(folder: str) -> UsageError:
    return UsageError(
        f"there are no benchmarks in {folder}",
        hint="Benchmarks come with the source tree, not with the installed package: run ./dev bench there.",
    )


def bench_unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(f"unknown benchmark {name}", hint=f"Known: {', '.join(known) or 'none yet'}.")


def wrong_hash(path: object, found: str, needed: str) -> StateError:
    return StateError(
        f"the state in {path} is laid out by another hash",
        detail=f"it says {found}, this release uses {needed}",
        hint="use the release that wrote it, or start with a new state directory",
    )


def wrong_listener(given: object) -> UsageError:
    return UsageError(
        f"{given!r} is not a listener",
        hint="give an object with a method on_progress(progress), and on_terminated(error) if you like",
    )


def stopped_inside_batch() -> UsageError:
    return UsageError(
        "a sink or a listener cannot stop the session that is calling it",
        hint="note that it is time to stop, and call stop() from elsewhere",
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


def updates_are_unordered(query: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot order or limit its updates",
        detail="EMIT UPDATES gives the rows that changed, and a change can move others in or out of a top-k",
        hint="leave out ORDER BY and LIMIT, or EMIT UPDATES",
    )


def repeated_column(query: str, column: str) -> SinkError:
    return SinkError(
        f"the results of query '{query}' have two columns named '{column}'",
        detail="a file cannot hold them both",
        hint="give one of them another name with AS",
    )


def bad_table(table: str, reason: str, hint: str | None) -> UsageError:
    return UsageError(f"the table '{table}' cannot be made: {reason}", hint=hint)


def table_in_use(table: str, what: str) -> UsageError:
    return UsageError(f"queries are joined with the table '{table}': {what}", hint="drop those queries first")


def bad_option(query: str, option: str, value: str, meaning: str, wanted: str = "a number above 0") -> UsageError:
    return UsageError(f"query '{query}': {option} = '{value}' is not {wanted}", detail=f"{option}: {meaning}")


def bad_size(query: str, option: str, value: str) -> UsageError:
    return UsageError(
        f"query '{query}': {option} = '{value}' is not a size",
        hint="give a number of bytes above 0, or one with a unit, such as '500 MB' or '1 GiB'",
    )


def unknown_form(given: object, known: tuple[str, ...]) -> UsageError:
    return UsageError(f"there is no form {given!r} of EXPLAIN", hint=f"use one of {', '.join(known)}")


def bad_slots(given: object) -> UsageError:
    return UsageError(
        f"slots={given!r} is not a number of slots", hint='give a whole number above 0, "auto", or None: one per core'
    )


def bad_memory(given: object) -> UsageError:
    return UsageError(
        f"worker_memory={given!r} is not an amount of memory",
        hint='give bytes, or a text such as "2 GB"; 64 MB at least',
    )


def bad_small_batches(given: object, known: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"small_batches={given!r} does not say where small batches run", hint=f"give one of {', '.join(known)}"
    )


def bad_join_epoch(given: object) -> UsageError:
    return UsageError(
        f"join_epoch={given!r} is not a number of batches",
        hint="give a whole number of 1 or more, or None to leave the orders of joins unplanned",
    )


def nothing_to_partition(query: str, partitioner: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot have the partitioner '{partitioner}'",
        detail="a partitioner deals out the rows of keys, and the query has no GROUP BY with keys beside its window",
        hint="leave the option out, or group by a key",
    )


def updates_stay_whole(query: str, partitioner: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot have the partitioner '{partitioner}'",
        detail="with EMIT UPDATES every batch tells what has changed, so all rows of a key have to be in one slot",
        hint="use 'hash', 'combine' or 'auto', or emit final results",
    )


# partitioning


def bad_counts(route_key: object, reason: str) -> UsageError:
    return UsageError(
        f"the counts of route key {_route_key(route_key)} cannot be used",
        detail=reason,
        hint="give the rows of every key group: one finite number of 0 or more each, as many for every route key",
    )


def bad_joint(first: object, second: object, reason: str) -> UsageError:
    return UsageError(
        f"the joint counts of {_route_key(first)} and {_route_key(second)} cannot be used",
        detail=reason,
        hint="joint[g, h] is the rows in key group g of the first and h of the second, both of one stream",
    )


def bad_equal(route_key: object) -> UsageError:
    return UsageError(
        f"an unknown route key is to have the slots of another: {_route_key(route_key)}",
        hint="give its counts too",
    )


def bad_assignment(route_key: object, reason: str) -> UsageError:
    return UsageError(
        f"the slots of route key {_route_key(route_key)} cannot be used",
        detail=reason,
        hint="give a slot for every key group of every route key",
    )


def bad_partitioning(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"partitioning: {name} is {value!r}", hint=f"{name} must be {needed}")


def _route_key(route_key: object) -> str:
    """purchases(userID), or what was given instead of a route key."""
    if isinstance(route_key, tuple) and len(route_key) == 2:
        return f"{route_key[0]}({route_key[1]})"
    return repr(route_key)


# -- partitioners


def partitioner_unknown(name: str, known: tuple[str, ...]) -> ThalwegError:
    return ThalwegError(
        f"there is no partitioner {name!r}", detail=f"known: {', '.join(known)}", hint="names are lower case"
    )


def partitioner_option(name: str, option: str, value: object, wanted: str) -> ThalwegError:
    return ThalwegError(f"partitioner {name}: {option} = {value!r} cannot be", detail=f"wanted: {wanted}")


# -- aggregates that users define


def bad_aggregate(name: object, reason: str, hint: str | None = None) -> UsageError:
    return UsageError(f"the aggregate {name!r} cannot be defined: {reason}", hint=hint)


def aggregate_of_unknown_type(name: str, detail: str) -> UsageError:
    return UsageError(
        f"the aggregate {name!r} does not say what type it gives",
        detail=detail,
        hint="name the SQL type, for example returns='double'",
    )


def aggregate_missing(query: str, name: str) -> UsageError:
    return UsageError(
        f"query '{query}' uses the aggregate {name!r}, which this program has not defined",
        detail="Python functions are not part of the state directory and must be given again after a restart",
        hint=f"call thalweg.aggregate({name!r}, ...) first; nothing is lost",
    )


def aggregate_type_differs(query: str, name: str, was: str, is_: str) -> UsageError:
    return UsageError(
        f"query '{query}' was created with an aggregate {name!r} of type {was}, which is now {is_}",
        hint="define it with the type it had, or drop the query and create it anew",
    )


def aggregate_failed(name: str, step: str, error: BaseException, place: str | None) -> UsageError:
    where = "" if place is None else f" ({place})"
    return UsageError(f"aggregate {name}: {step} raised {said_by(error)}{where}")


def over_time(seconds: float) -> UsageError:
    return UsageError(
        f"it took more than {seconds:g} s of a processor for the rows of one task (connect: expression_time)"
    )


def over_memory(limit: int) -> UsageError:
    return UsageError(f"it needs more memory than the {limit / 2**20:,.0f} MiB of a worker (connect: worker_memory)")


def aggregate_wrong_value(name: str, value: object, wanted: str) -> UsageError:
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return UsageError(f"aggregate {name}: finish gave {shown}, which is not of the type {wanted}")


def aggregate_state_unfit(name: str, found: str) -> UsageError:
    return UsageError(
        f"aggregate {name}: its state holds {found}, which cannot be kept: give encode= and decode=",
        detail="kept are plain Python values and collections, NumPy arrays and Arrow values: nothing that is code",
        hint="encode(state) gives such a value, and decode(value) gives the state again",
    )


def aggregate_state_refused(name: str, found: str) -> StateError:
    return StateError(
        f"aggregate {name}: a state in the state directory is a pickle that asks for {found}, which is not run",
        detail="earlier releases pickled states; of those, only plain values and NumPy arrays are read",
        hint="drop the query and create it anew",
    )


def aggregate_state_unreadable(name: str, error: Exception) -> StateError:
    return StateError(f"aggregate {name}: a state in the state directory cannot be read: {said_by(error)}")


def bad_clustering(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"correlation clustering: {name} is {value!r}", hint=f"{name} must be {needed}")


def array_in_text(query: str, column: str, format_: object) -> SinkError:
    return SinkError(
        f"query '{query}': the array '{column}' cannot be written as {format_}",
        hint="write parquet, or let the aggregate give a string",
    )


def needs_spark(what: str, instead: str) -> UsageError:
    """Of a session that runs in the calling process."""
    return UsageError(
        f"{what} needs Spark",
        detail="a LocalSession runs in the calling process, without a JVM",
        hint=f"{instead}, or use thalweg.connect",
    )


def answer_not_recorded(asked: str, path: object, chore: str) -> UsageError:
    """Of a session that has no Spark to ask. `path`: of the answers; None where it was given none. `chore`: what
    records them in Thalweg itself."""
    return UsageError(
        "what Spark's analyser says to this is not recorded",
        detail=f"{path or 'LocalSession without recorded=DIRECTORY'} has no answer to: {asked}",
        hint="call thalweg.testing.record(...) once, or LocalSession(..., record=True), where Spark is installed; "
        f"in the tests of Thalweg itself: {chore}",
    )


def result_not_recorded(select: str, streams: Iterable[str], path: object) -> UsageError:
    """Of a test that compares with what batch Spark SQL gives, and has no Spark to ask."""
    return UsageError(
        "what batch Spark SQL gives for this query is not recorded",
        detail=f"{path} has no result, over these rows of {', '.join(streams)}, of: {select}",
        hint="./dev test --record asks Spark; commit what it writes",
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
