"""Thalweg: hundreds of continuous SQL queries as one shared pipeline on Apache Spark.

The data path, once per batch:

    splits ──▶ INGEST task ──▶ one shuffle ──▶ SLOT task ──▶ sinks
               read to Arrow     by slot         merge with state
               compute, filter   (binary rows)   finish windows
               pre-aggregate                     keep buckets

The control path, whenever queries or measurements change:

    SQL ──▶ sql: parse, bind, validate ──▶ query ─┐
    measurements of earlier batches ──────────────┴─▶ optimize ──▶ plan ──▶ next batch boundary
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg import clustering, partition
    from thalweg.aggregates import aggregate
    from thalweg.errors import ThalwegError
    from thalweg.ingest.sources import files, generate, memory
    from thalweg.session import QueryHandle, Session, connect
    from thalweg.sink.specs import to_console, to_files, to_memory, to_noop, to_spark

__all__ = [
    "QueryHandle",
    "Session",
    "ThalwegError",
    "aggregate",
    "clustering",
    "connect",
    "files",
    "generate",
    "memory",
    "partition",
    "to_console",
    "to_files",
    "to_memory",
    "to_noop",
    "to_spark",
]

_HOMES = {
    "thalweg.aggregates": ("aggregate",),
    "thalweg.errors": ("ThalwegError",),
    "thalweg.ingest.sources": ("files", "generate", "memory"),
    "thalweg.session": ("QueryHandle", "Session", "connect"),
    "thalweg.sink.specs": ("to_console", "to_files", "to_memory", "to_noop", "to_spark"),
}
_MODULES = ("clustering", "partition")
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used: Spark's worker processes need few of them."""
    if name in _MODULES:
        return import_module(f"thalweg.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
