"""Docs: the programs of examples/ print what their docstrings say, and the SQL file gives results."""

from __future__ import annotations

import ast
import io
import runpy
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.docs.pages import ROOT

import thalweg
from thalweg.cli import main

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to run in, and the Spark that is there already."""
    monkeypatch.setattr(thalweg, "connect", partial(thalweg.connect, spark=spark))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_says(path: Path, place: Path) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        runpy.run_path(str(path), run_name="__main__")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert said.getvalue().splitlines() == docstring.partition("prints:\n")[2].splitlines()


def test_the_file_of_sql_gives_results(place: Path) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        main.run(EXAMPLES / "revenue.sql", available_now=True)
    titles = [line.strip() for line in said.getvalue().splitlines() if " rows" in line and "·" in line]
    assert titles[0].startswith("revenue · ")
    assert titles[1] == "busiest · 9 rows"


def test_the_list_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(PROGRAMS) == 5
    assert all(f"]({path.name})" in text for path in (*PROGRAMS, EXAMPLES / "revenue.sql"))
