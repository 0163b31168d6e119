"""Unit: the import lint sees what it forbids."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_imports import SOURCE, check


def messages(tmp_path: Path, module: str, text: str) -> list[str]:
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [violation.message for violation in check(tmp_path)]


@pytest.mark.parametrize(
    ("module", "text", "part"),
    [
        ("operate/merge.py", "from thalweg.frontend.parse import parse", "thalweg.frontend"),
        ("operate/merge.py", "def f():\n    import thalweg.optimize", "thalweg.optimize"),
        ("operate/merge.py", "from thalweg import adapt", "thalweg.adapt"),
        ("operate/merge.py", "from ..frontend import parse", "thalweg.frontend"),
        ("operate/merge.py", "from .. import frontend", "thalweg.frontend"),
        ("adapt/combining.py", "from thalweg.state.manifest import Manifests", "thalweg.state"),
        ("observe/explain.py", "from thalweg.state.manifest import Manifests", "thalweg.state"),
        ("model/query.py", "from thalweg.engine.spark import run", "thalweg.engine"),
        ("frontend/bind.py", "import pyspark.sql", "pyspark"),
        ("engine/loop.py", "from sqlglot import exp", "sqlglot"),
        ("engine/loop.py", "from thalweg.session import Session", "thalweg.session"),
        ("cli/main.py", "from thalweg.engine.spark import run", "thalweg.engine"),
        ("novelty/x.py", "from thalweg.model.query import Query", "no row"),
    ],
)
def test_forbidden_import_is_found(tmp_path: Path, module: str, text: str, part: str) -> None:
    found = messages(tmp_path, module, text)
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("operate/merge.py", "from thalweg.model.query import Query\nimport duckdb\nimport thalweg.errors"),
        ("operate/merge.py", "from .slices import cut\nfrom . import slices"),
        ("engine/loop.py", "import pyspark\nfrom thalweg.faults import point"),
        ("frontend/bind.py", "import sqlglot\nfrom thalweg.errors import SqlError"),
        ("cli/main.py", "import thalweg\nfrom thalweg import connect"),
        ("__init__.py", "from thalweg.session import connect"),
    ],
)
def test_allowed_import_passes(tmp_path: Path, module: str, text: str) -> None:
    assert messages(tmp_path, module, text) == []


@pytest.mark.slow
def test_the_package_keeps_the_rules() -> None:
    assert [str(violation) for violation in check(SOURCE)] == []
