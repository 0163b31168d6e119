"""For your tests: a session without Spark (`LocalSession`, `record`), two results compared (`compare`), what batch
Spark SQL says is right (`oracle`), and a storage that dies on cue (`memory_storage`, `faults`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["LocalSession", "record"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("thalweg.testing.local"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
