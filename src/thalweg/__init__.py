"""Thalweg: hundreds of continuous SQL queries as one shared pipeline on Apache Spark.

    import thalweg

    session = thalweg.connect("state/")                      # a directory that keeps streams, queries and results
    session.create_stream("purchases", thalweg.files("in/*.parquet"), time="ts", watermark="10 seconds")
    revenue = session.create_query("revenue", "SELECT pack, sum(price) AS revenue, window.end AS until"
                                              " FROM purchases GROUP BY pack, window(ts, '1 minute')")
    session.run_available()                                  # or session.start(), to go on in the background
    print(revenue.results().to_pandas())
    session.stop()

A session            connect(state_dir) gives a Session; its queries are QueryHandles
Sources of rows      files, memory, generate, or any streaming DataFrame
Sinks for results    to_memory, to_files, to_console, to_spark, to_noop, or a callable (table, batch_id)
Functions            aggregate defines an aggregate of your own; clustering is one
Kinds of your own    register_source, register_sink, register_aggregate, register_window
Errors               all are ThalwegErrors; their kinds are in thalweg.errors
For your tests       thalweg.testing: a session without Spark, results compared, faults on cue

The same from a shell: thalweg run FILE.sql, thalweg explain FILE.sql, thalweg demo. docs/guide.md tells the rest.
"""

# The data path, once per batch:
#
#     splits ──▶ INGEST task ──▶ one shuffle ──▶ SLOT task ──▶ sinks
#                read to Arrow     by slot         merge with state
#                compute, filter   (binary rows)   finish windows
#                pre-aggregate                     keep buckets
#
# The control path, whenever queries or measurements change:
#
#     SQL ──▶ sql: parse, bind, validate ──▶ query ─┐
#     measurements of earlier batches ──────────────┴─▶ optimize ──▶ plan ──▶ next batch boundary

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from thalweg.sink import NAMED_BY
from thalweg.source import KINDS as SOURCES

if TYPE_CHECKING:
    from thalweg import clustering, errors, partition, testing
    from thalweg.errors import ThalwegError
    from thalweg.handle import QueryHandle
    from thalweg.registration import (
        AggregateFamily,
        SinkKind,
        SourceKind,
        WindowKind,
        register_aggregate,
        register_sink,
        register_source,
        register_window,
    )
    from thalweg.session import Session, connect
    from thalweg.sink import to_console, to_files, to_memory, to_noop, to_spark
    from thalweg.source.files import files
    from thalweg.source.generate import generate
    from thalweg.source.memory import memory
    from thalweg.user_aggregates import aggregate

__all__ = [
    "AggregateFamily",
    "QueryHandle",
    "Session",
    "SinkKind",
    "SourceKind",
    "ThalwegError",
    "WindowKind",
    "aggregate",
    "clustering",
    "connect",
    "errors",
    "files",
    "generate",
    "memory",
    "partition",
    "register_aggregate",
    "register_sink",
    "register_source",
    "register_window",
    "testing",
    "to_console",
    "to_files",
    "to_memory",
    "to_noop",
    "to_spark",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent until a program asks: see observe/log

_HOMES = {
    "thalweg.registration": (
        *("AggregateFamily", "SinkKind", "SourceKind", "WindowKind"),
        *("register_aggregate", "register_sink", "register_source", "register_window"),
    ),
    "thalweg.sink": tuple(NAMED_BY),
    "thalweg.user_aggregates": ("aggregate",),
    "thalweg.errors": ("ThalwegError",),
    "thalweg.handle": ("QueryHandle",),
    "thalweg.session": ("Session", "connect"),
}
_MODULES = ("clustering", "errors", "partition", "testing")
_HOME = {
    **{name: home for home, names in _HOMES.items() for name in names},
    # A source of kind x is made by x; a streaming DataFrame is given as it is.
    **{kind: place.partition(":")[0] for kind, place in SOURCES.items() if kind != "spark"},
}


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used: Spark's worker processes need few of them."""
    if name in _MODULES:
        return import_module(f"thalweg.{name}")
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("thalweg")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "unknown"
