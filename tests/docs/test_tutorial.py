"""Docs: the programs of tutorial and README print what these pages say; with `--bless` the pages are written anew."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.docs.pages import ROOT, blocks_of, run_page

import thalweg
from thalweg.cli import main

README = ROOT / "README.md"


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to run in, and the Spark that is there already."""
    monkeypatch.setattr(thalweg, "connect", partial(thalweg.connect, spark=spark))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    """What a page defines. A page that fails half way leaves nothing running."""
    defined: dict[str, Any] = {"__name__": "page"}
    yield defined
    for value in defined.values():
        if isinstance(value, subprocess.Popen):
            value.kill()
        elif isinstance(value, thalweg.Session):
            value.stop()


@pytest.mark.timeout(600)  # the tutorial kills a pipeline on a Spark of its own: some 30 s of CPU time
@pytest.mark.parametrize("path", [ROOT / "docs" / "tutorial.md", README], ids=lambda path: path.stem)
def test_programs_print_what_the_page_says(path: Path, place: Path, namespace: dict[str, Any], bless: bool) -> None:
    page = path.read_text(encoding="utf-8")
    made = run_page(page, path.name, namespace)
    if bless:
        path.write_text(made, encoding="utf-8")
    else:
        assert made == page


def test_the_statements_of_the_readme_give_what_it_says(place: Path) -> None:
    blocks = blocks_of(README.read_text(encoding="utf-8"))
    at = [block.kind for block in blocks].index("sql")
    (place / "pairs.sql").write_text(blocks[at].text)
    said = io.StringIO()
    with redirect_stdout(said):
        main.run(Path("pairs.sql"), available_now=True)
    lines = [line.strip() for line in said.getvalue().splitlines() if line.strip()]
    quoted = [line.strip() for line in blocks[at + 1].text.splitlines()]
    assert lines[-len(quoted) :] == quoted
