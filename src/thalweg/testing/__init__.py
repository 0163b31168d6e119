"""For tests, those of users too: a session without Spark (`LocalSession`, `record`). And for Thalweg's own: what is
right (`oracle`), what to try (`randomly`), a disk that fails (`disk`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["LocalSession", "record"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("thalweg.testing.local"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
