"""Unit: benchmarks are found in the tree, listed without being run, and run by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from thalweg.cli import bench
from thalweg.errors import UsageError

MODULE = '''"""Counts its arguments.

More about it.
"""

def main(arguments):
    return len(arguments)
'''


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "count_arguments.py").write_text(MODULE)
    (folder / "__init__.py").write_text("")
    (folder / "workload.py").write_text("ROWS = 1 / 0")
    (folder / "side.py").write_text("def main(): ...")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_listed_without_running(tree: Path) -> None:
    assert bench.listed(tree) == {"count-arguments": "Counts its arguments."}


def test_run_by_name_with_its_arguments(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.run("count-arguments", ["--quick", "x"], tree) == 2
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


def test_unknown_name_says_what_there_is(tree: Path) -> None:
    with pytest.raises(UsageError, match="count-arguments"):
        bench.run("speed", [], tree)


def test_without_a_source_tree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="source tree"):
        bench.listed(tmp_path)
