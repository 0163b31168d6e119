"""Finding and running the benchmarks of the source tree.

A benchmark is a module `benchmarks/NAME.py` with a function `main(arguments: list[str]) -> int`; the first
line of its docstring says what it measures. Adding one means adding that file.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

from thalweg.errors import bench_tree_missing, bench_unknown

TREE = Path(__file__).resolve().parents[3]


def listed(tree: Path = TREE) -> dict[str, str]:
    """Name -> what it measures, read without running anything."""
    folder = tree / "benchmarks"
    if not folder.is_dir():
        raise bench_tree_missing(str(folder))
    found = {}
    for path in sorted(folder.glob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(_is_entry(node) for node in module.body):
            meaning = ast.get_docstring(module) or ""
            found[path.stem.replace("_", "-")] = meaning.split("\n", 1)[0]
    return found


def _is_entry(node: ast.stmt) -> bool:
    """`def main(arguments)`: a module that is only part of a benchmark has none, or one of another form."""
    return isinstance(node, ast.FunctionDef) and node.name == "main" and len(node.args.args) == 1


def run(name: str, arguments: list[str], tree: Path = TREE) -> int:
    """Runs a benchmark; its exit code."""
    known = listed(tree)
    if name not in known:
        raise bench_unknown(name, list(known))
    sys.path.insert(0, str(tree))
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    return int(module.main(arguments))
