"""CREATE statements, carried out: their options and columns become what the verbs take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa

from thalweg import errors
from thalweg.frontend.delivery_options import QUERY_OPTIONS
from thalweg.frontend.statements import CreateQuery, CreateStream, CreateTable
from thalweg.handle import QueryHandle
from thalweg.model.stream import Schema, Stream
from thalweg.sink.kinds import parse_spec
from thalweg.source.kinds import make_source
from thalweg.state.catalog import Table
from thalweg.verbs.binding import Bound
from thalweg.verbs.new_queries import Given, create_queries
from thalweg.verbs.parts import SessionParts
from thalweg.verbs.streams import Limits, create_stream
from thalweg.verbs.tables import create_table


def create_stream_from(parts: SessionParts, statement: CreateStream) -> Stream:
    options = dict(statement.options)
    kind = options.pop("source", "files")
    schema = None if statement.fields is None else Schema(statement.fields)
    delay = timedelta(microseconds=statement.delay_us)
    source = make_source(kind, statement.name, options, schema)
    limits = Limits(**statement.limits)
    return create_stream(parts, statement.name, source, statement.time, delay, schema, limits, statement.if_there)


def create_table_from(parts: SessionParts, statement: CreateTable, rows: pa.Table | None) -> Table:
    """`rows`: if they have been read already."""
    options = dict(statement.options)
    schema = None if statement.fields is None else Schema(statement.fields)
    path, kind = options.pop("path", ""), options.pop("format", None)
    if options:
        raise errors.bad_table(statement.name, f"there is no option {next(iter(options))!r}", "path, format")
    return create_table(parts, statement.name, path, schema, kind, statement.if_there, rows)


def create_queries_from(
    parts: SessionParts, statements: Sequence[CreateQuery], text: str, bound: Bound
) -> list[QueryHandle]:
    """`text`: the whole one, in which places of errors are. `bound`: as of `create_queries`."""

    def told(place: int, error: errors.ThalwegError) -> errors.ThalwegError:
        if not isinstance(error, errors.SqlError):
            return error
        return errors.moved(error, text, statements[place].offset)

    return create_queries(parts, [_given(statement) for statement in statements], told, bound)


def _given(statement: CreateQuery) -> Given:
    options = dict(statement.options)
    own = {name: options.pop(name) for name in QUERY_OPTIONS if statement.sink is not None and name in options}
    sink = parse_spec(statement.sink, options) if statement.sink is not None else None
    given = own if sink is not None else options
    return Given(statement.name, statement.select, sink, statement.emit, given, statement.if_there)
