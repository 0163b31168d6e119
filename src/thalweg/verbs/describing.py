"""DESCRIBE and SHOW CREATE: what a stream, a table or a query is, and the statement that makes another like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pyarrow as pa

from thalweg import errors
from thalweg.catalog import Catalog
from thalweg.foreign import is_secret, redact
from thalweg.frontend.statements import Describe
from thalweg.frontend.write_statements import write_query, write_span, write_stream, write_table
from thalweg.handle import QueryHandle
from thalweg.model.patience import SPANS
from thalweg.model.query import SinkSpec
from thalweg.model.stream import Schema, Stream
from thalweg.observe.shown import Explanation, Shown
from thalweg.sink.kinds import SINKS, keeps_results
from thalweg.source.kinds import SOURCES
from thalweg.state.catalog import Table
from thalweg.verbs.parts import SessionParts

_SHAPE = pa.schema([("part", pa.string()), ("name", pa.string()), ("value", pa.string())])
Line = tuple[str, str, object]


def describe(parts: SessionParts, statement: Describe, text: str) -> Shown:
    """Columns first, then what else there is to say."""
    catalog, name, kind = parts.catalog, statement.name, statement.kind
    if kind in (None, "stream") and name in catalog.streams:
        return _shown(_of_stream(catalog, catalog.stream(name)))
    if kind in (None, "table") and name in catalog.tables:
        return _shown(_of_table(catalog, catalog.table(name)))
    if kind in (None, "query") and name in catalog.queries:
        return _shown(_of_query(catalog.query(name)))
    known = {"stream": catalog.streams, "table": catalog.tables, "query": catalog.queries}
    names = [*known[kind]] if kind else [name for names in known.values() for name in names]
    near = difflib.get_close_matches(name, names, n=3)
    raise errors.nothing_to_describe(kind, name, near, text, (statement.offset, statement.offset + len(name)))


def _of_stream(catalog: Catalog, stream: Stream) -> Iterable[Line]:
    yield from _columns(stream.schema)
    yield "stream", "event time", stream.time
    yield "stream", "watermark", write_span(stream.delay_us).lower()
    yield from (("stream", name, value) for name, value in _limits(stream).items())
    yield "stream", "read by", ", ".join(catalog.readers_of(stream.name)) or None
    yield "source", "kind", stream.source.kind
    yield from (("source", name, value) for name, value in _source_options(stream).items())


def _of_table(catalog: Catalog, table: Table) -> Iterable[Line]:
    yield from _columns(table.schema)
    yield "table", "rows", table.version.rows
    yield "table", "path", table.origin.path if table.origin else None
    yield "table", "joined by", ", ".join(catalog.joined_with(table.name)) or None


def _of_query(handle: QueryHandle) -> Iterable[Line]:
    query = handle.definition
    yield from (("column", output.name, output.expr.type) for output in query.outputs)
    yield "query", "state", handle.status.state
    yield "query", "streams", ", ".join(query.streams)
    yield "query", "emit", query.emit
    yield from (("query", name, value) for name, value in _own_options(handle).items())
    yield "query", "select", query.text
    yield "sink", "kind", query.sink.kind
    yield from (("sink", name, value) for name, value in query.sink.options)


def _columns(schema: Schema) -> Iterable[Line]:
    return (("column", field.name, field.type) for field in schema.fields)


def _shown(lines: Iterable[Line]) -> Shown:
    rows = [{"part": part, "name": name, "value": _text(name, value)} for part, name, value in lines]
    return Shown(pa.Table.from_pylist(rows, schema=_SHAPE))


def _text(name: str, value: object) -> str | None:
    return None if value is None else "***" if is_secret(name) else redact(str(value))


def show_create(parts: SessionParts, kind: str, name: str) -> Explanation:
    catalog = parts.catalog
    if kind == "stream":
        stream = catalog.stream(name)
        found = SOURCES.find(stream.source.kind)
        if found is None or not found.in_sql:
            raise errors.not_of_a_statement(kind, name, f"its source is of the kind {stream.source.kind}")
        return Explanation(write_stream(stream, _source_options(stream), _limits(stream)))
    if kind == "table":
        table = catalog.table(name)
        if table.origin is None:
            raise errors.not_of_a_statement(kind, name, "the program has given its rows")
        of_files = [("path", table.origin.path), ("format", table.origin.format)]
        return Explanation(write_table(name, table.schema, {n: value for n, value in of_files if value}))
    handle = catalog.query(name)
    query, sink = handle.definition, handle.definition.sink
    if not keeps_results(sink) and not _is_in_sql(sink):
        raise errors.not_of_a_statement(kind, name, f"its sink is of the kind {sink.kind}")
    options = {**dict(sink.options), **_own_options(handle)}
    into = None if keeps_results(sink) else sink.kind
    return Explanation(write_query(name, query.text, into, options, query.emit))


def _is_in_sql(sink: SinkSpec) -> bool:
    kind = SINKS.find(sink.kind)
    return kind is not None and kind.in_sql


def _source_options(stream: Stream) -> dict[str, object]:
    kind = SOURCES.find(stream.source.kind)
    return dict(stream.source.options) if kind is None else kind.written(stream.source)


def _limits(stream: Stream) -> dict[str, object]:
    """`max_ahead` always: what holds unless it is given depends on the source."""
    ahead, idle = stream.max_ahead_us, stream.idle_us
    found = {
        "max_ahead": "none" if ahead is None else write_span(ahead).lower(),
        "idle_timeout": None if idle is None else write_span(idle).lower(),
        "retain_rejected": stream.retain_rejected,
    }
    return {name: value for name, value in found.items() if value is not None}


def _own_options(handle: QueryHandle) -> dict[str, object]:
    """Spans of stored queries are numbers of microseconds."""
    given = handle.definition.options
    return {name: write_span(int(value)).lower() if name in SPANS else value for name, value in given}
