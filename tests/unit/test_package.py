"""Unit: what a newcomer finds by `import thalweg` and Tab, without Spark."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import thalweg


def test_tab_shows_the_public_names_and_nothing_else() -> None:
    shown = {name for name in dir(thalweg) if not name.startswith("__")}
    assert shown == set(thalweg.__all__)
    assert {"connect", "errors", "testing", "files", "to_files", "aggregate"} <= shown


@pytest.mark.parametrize("name", thalweg.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(thalweg, name) is not None


def test_help_is_for_users() -> None:
    text = pydoc.render_doc(thalweg, renderer=pydoc.plaintext)
    assert "thalweg.connect(" in text.split("CLASSES")[0].split("FUNCTIONS")[0]
    assert "INGEST" not in text
    for name in ("connect", "files", "to_files", "aggregate", "class Session"):
        assert name in text.split("DATA")[0]


def test_a_bare_import_loads_nothing_heavy_and_reaches_everything() -> None:
    """In a process of its own: here everything is imported already."""
    program = (
        "import sys, thalweg; dir(thalweg);"
        "print(sorted({'pyspark', 'pyarrow', 'duckdb', 'numba', 'thalweg.session'} & set(sys.modules)));"
        "print(thalweg.errors.SqlError.__name__, thalweg.testing.__name__, thalweg.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", f"SqlError thalweg.testing {version('thalweg')}"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        thalweg.conect  # noqa: B018


def test_what_is_optional_is_not_wanted() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=!~ \[]", line)[0] for line in project["dependencies"]}
    assert {"pyspark", "pyarrow", "duckdb"} <= wanted
    assert not wanted & {"scikit-learn", "matplotlib", "pytest"}


@pytest.mark.slow
def test_commands_say_their_version_and_what_there_is() -> None:
    """And `bench` only where there are benchmarks: the package alone, as pip installs it, has none."""
    program = "from thalweg.cli.main import main; main()"
    said = {
        option: subprocess.run([sys.executable, "-c", program, option], capture_output=True, text=True, check=True)
        for option in ("--version", "--help")
    }
    assert said["--version"].stdout.strip() == f"thalweg {version('thalweg')}"
    assert "bench" in said["--help"].stdout
    hidden = "from thalweg.cli import bench; bench.is_there = lambda: False; " + program
    done = subprocess.run([sys.executable, "-c", hidden, "--help"], capture_output=True, text=True, check=True)
    assert "bench" not in done.stdout
