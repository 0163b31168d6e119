"""Run by Python at the start of every process that Spark starts for a session of Thalweg's own.

Spark puts a zip of PySpark before everything else on their path. The zip holds no byte code: each process would
compile all of PySpark for itself, which takes two thirds of a second of processor time. Where the zip is part of the
PySpark that is installed, the installed modules are the same, and compiled.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _without_zips(path: list[str]) -> list[str]:
    """The path without what the installed PySpark has brought along as archives."""
    zips = [entry for entry in path if os.path.basename(entry).endswith(".zip")]
    rest = [entry for entry in path if entry not in zips]
    installed = PathFinder.find_spec("pyspark", rest)
    if installed is None or installed.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return path
    brought = os.path.join(os.path.dirname(os.path.realpath(installed.origin)), "python", "lib")
    return [entry for entry in path if entry in rest or os.path.dirname(os.path.realpath(entry)) != brought]


def _customize() -> None:
    """What the environment itself wants at the start: this file stands before its own."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in _without_zips(sys.path) if os.path.abspath(entry) != _here]
_customize()
