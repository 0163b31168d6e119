"""SHOW QUERIES, STREAMS, TABLES and FUNCTIONS: what there is."""

from __future__ import annotations

import pyarrow as pa

from thalweg.frontend.listing import functions
from thalweg.model.spans import describe_span
from thalweg.observe.shown import Shown
from thalweg.sink.kinds import delivery_of
from thalweg.verbs.parts import SessionParts

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


def show(parts: SessionParts, what: str) -> Shown:
    """`what`: queries, streams, tables or functions."""
    return Shown(_table(parts, what))


def _table(parts: SessionParts, what: str) -> pa.Table:
    if what == "functions":
        listed = functions(parts.aggregates.offered())
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
                for t in parts.catalog.tables.values()
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
            for s in parts.catalog.streams.values()
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
        for name, h in parts.catalog.queries.items()
        for status in (h.status,)
    ]
    return pa.Table.from_pylist(rows, schema=_SHOW_QUERIES)
