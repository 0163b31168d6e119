"""Workloads: seeded streams and the queries over them, by name.

A module of this package has `NAMES`, what names it knows and a line on each (`facts/N` where a part varies), and
`named(name)`, which makes the workload or gives None where the name is not one of its own.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from benchmarks.workloads.model import Query, Static, Stream, Workload, make_files

MODULES = ("facts", "joins", "many", "game", "ajoin", "tpch", "cluster", "taxi", "words", "clash")
"""Asked in this order."""

__all__ = ["NAMES", "Query", "Static", "Stream", "Workload", "make_files", "named"]


def _modules() -> list[ModuleType]:
    return [import_module(f"{__name__}.{name}") for name in MODULES]


def _names() -> dict[str, str]:
    return {name: line for module in _modules() for name, line in module.NAMES.items()}


NAMES = _names()


def named(name: str) -> Workload:
    for module in _modules():
        work: Workload | None = module.named(name)
        if work is not None:
            return work
    raise ValueError(f"no workload is called {name}; there are {', '.join(NAMES)}")
