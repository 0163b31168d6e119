"""Finding and running the benchmarks of the source tree.

A benchmark is a module `benchmarks/NAME.py` with a function `main(arguments: list[str]) -> int`; the first line of
its docstring says what it measures. Two constants may say more: `ANSWERS`, the figures of papers that it answers, and
`MINUTES = (quick, full)`. Adding a benchmark means adding that file. `benchmarks/report.py` is run in the same way,
and measures nothing.
"""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg.errors import bench_tree_missing, bench_unknown

TREE = Path(__file__).resolve().parents[3]
REPORT = "report"
"""What turns measurements into a page: run as a benchmark is, but none."""


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark says of itself."""

    measures: str
    answers: str = ""
    """Which figures of which papers."""
    minutes: tuple[float, float] | None = None
    """With `--quick`, and without."""


def is_there(tree: Path = TREE) -> bool:
    """Whether this is a source tree: an installed package has no benchmarks."""
    return (tree / "benchmarks").is_dir()


def listed(tree: Path = TREE) -> dict[str, Benchmark]:
    """Every benchmark by name, read without running anything."""
    return {name: found for name, found in _entries(tree).items() if name != REPORT}


def _entries(tree: Path) -> dict[str, Benchmark]:
    folder = tree / "benchmarks"
    if not is_there(tree):
        raise bench_tree_missing(str(folder))
    found = {}
    for path in sorted(folder.glob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(_is_entry(node) for node in module.body):
            found[path.stem.replace("_", "-")] = _read(module)
    return found


def _read(module: ast.Module) -> Benchmark:
    said = _constants(module)
    measures = (ast.get_docstring(module) or "").split("\n", 1)[0]
    return Benchmark(measures, said.get("ANSWERS", ""), said.get("MINUTES"))


def _constants(module: ast.Module) -> dict[str, Any]:
    found = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("ANSWERS", "MINUTES"):
                found[name] = ast.literal_eval(node.value)
    return found


def _is_entry(node: ast.stmt) -> bool:
    """`def main(arguments)`: a module that is only part of a benchmark has none, or one of another form."""
    if not isinstance(node, ast.FunctionDef) or node.name != "main":
        return False
    return len(node.args.args) == 1 and not node.args.defaults


def run(name: str, arguments: list[str], tree: Path = TREE) -> int:
    """Runs a benchmark, or the report; its exit code."""
    known = _entries(tree)
    if name not in known:
        raise bench_unknown(name, [*listed(tree), REPORT])
    sys.path.insert(0, str(tree))
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    return int(module.main(arguments))
