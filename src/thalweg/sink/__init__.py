"""Where results go: one contract, one file for each kind, one line for each here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.sink.console import to_console as to_console
    from thalweg.sink.files import to_files as to_files
    from thalweg.sink.memory import to_memory as to_memory
    from thalweg.sink.noop import to_noop as to_noop
    from thalweg.sink.spark import to_spark as to_spark

KINDS = {
    "memory": "thalweg.sink.memory:MEMORY",
    "console": "thalweg.sink.console:CONSOLE",
    "files": "thalweg.sink.files:FILES",
    "spark": "thalweg.sink.spark:SPARK",
    "noop": "thalweg.sink.noop:NOOP",
    "callable": "thalweg.sink.callables:CALLABLE",
}
NAMED_BY = {f"to_{kind}": place.partition(":")[0] for kind, place in KINDS.items() if kind != "callable"}
"""A sink of kind x is named by to_x; a callable is given as it is."""


def __getattr__(name: str) -> Any:
    """What names a sink, loaded when first used."""
    if name not in NAMED_BY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(NAMED_BY[name]), name)
