"""Unit: benchmarks are found in the tree, listed without being run, and run by name."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from thalweg.cli import bench, show
from thalweg.cli.bench import Benchmark
from thalweg.errors import UsageError

MODULE = '''"""Counts its arguments.

More about it.
"""

ANSWERS = "AJoin Fig. 9"
MINUTES = (0.5, 12)


def main(arguments):
    return len(arguments)
'''

REPORT = "def main(arguments):\n    return 7\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "count_arguments.py").write_text(MODULE)
    (folder / "said_little.py").write_text('"""Says little."""\n\ndef main(arguments): ...\n')
    (folder / "report.py").write_text(REPORT)
    (folder / "__init__.py").write_text("")
    (folder / "workload.py").write_text("ROWS = 1 / 0")
    (folder / "side.py").write_text("def main(): ...")
    (folder / "other_side.py").write_text("def main(arguments=None): ...")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_listed_without_running(tree: Path) -> None:
    assert bench.listed(tree) == {
        "count-arguments": Benchmark("Counts its arguments.", "AJoin Fig. 9", (0.5, 12)),
        "said-little": Benchmark("Says little."),
    }


def test_the_list_says_what_is_measured_what_it_answers_and_how_long_it_takes(tree: Path) -> None:
    console = Console(width=118, record=True, file=StringIO())
    show.benches(console, bench.listed(tree))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "count-arguments Counts its arguments. AJoin Fig. 9 12, quick 0.5" in lines
    assert "said-little Says little." in lines


def test_run_by_name_with_its_arguments(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.run("count-arguments", ["--quick", "x"], tree) == 2
    assert bench.run("report", [], tree) == 7
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


def test_unknown_name_says_what_there_is(tree: Path) -> None:
    with pytest.raises(UsageError, match=r"count-arguments, said-little, report"):
        bench.run("speed", [], tree)


def test_without_a_source_tree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="source tree"):
        bench.listed(tmp_path)


def test_an_installed_package_does_not_offer_benchmarks(tmp_path: Path) -> None:
    assert bench.is_there()
    assert not bench.is_there(tmp_path)
