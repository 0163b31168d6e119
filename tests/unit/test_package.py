"""Unit: what a newcomer finds by `import thalweg` and Tab, without Spark."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from importlib.metadata import version

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
