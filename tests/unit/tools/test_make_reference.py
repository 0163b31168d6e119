"""Unit: the pages of reference are what the code gives, and the hint that names one is true."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import make_reference
import thalweg
from thalweg.aggregates.families import arities
from thalweg.errors import SqlError
from thalweg.frontend.functions import FUNCTIONS, find
from thalweg.frontend.tree import Call
from thalweg.sink.files import FilesSinkOptions as ToFiles
from thalweg.source.files import FilesSourceOptions
from thalweg.testing import LocalSession


@pytest.mark.parametrize("path", make_reference.PAGES)
def test_a_page_is_current(path: str) -> None:
    page = (make_reference.DOCS / path).read_text(encoding="utf-8")
    assert page == make_reference.PAGES[path](), f"docs/{path} is old: run python tools/make_reference.py"


def test_check_names_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_reference, "DOCS", tmp_path)
    assert make_reference.main(["--check"]) == 1
    assert "docs/reference/errors.md is old" in capsys.readouterr().out
    assert make_reference.main([]) == 0
    assert make_reference.main(["--check"]) == 0


def test_every_function_is_on_the_page() -> None:
    text = make_reference.functions()
    for name in (*FUNCTIONS, *arities()):
        assert f"| `{name}` |" in text


def test_the_hint_of_an_unknown_function_names_the_page() -> None:
    with pytest.raises(SqlError) as caught:
        find(Call((0, 10), "qqqqqqqqqq", ()), "qqqqqqqqqq")
    assert "docs/functions.md" in str(caught.value.hint)


def test_every_setting_has_a_meaning() -> None:
    text = make_reference.settings()
    for name in inspect.signature(thalweg.connect).parameters:
        assert f"{name}` |" in text


def test_errors_are_told_by_kind() -> None:
    text = make_reference.errors()
    assert "## SqlError" in text
    assert "- unknown stream '{name}'" in text.partition("## SqlError")[2].partition("\n## ")[0]


def test_the_keys_of_progress_are_those_of_a_session() -> None:
    with LocalSession() as session:
        assert set(make_reference.PROGRESS) == set(session.progress())


def test_every_option_is_on_the_page() -> None:
    text = make_reference.options()
    for struct in (FilesSourceOptions, ToFiles):
        for name in struct.__struct_fields__:
            assert f"| `{name}` |" in text


def test_keywords_of_functions_are_options() -> None:
    """Of those that name them; others go through as they are."""
    for function, struct in ((thalweg.files, FilesSourceOptions), (thalweg.to_files, ToFiles)):
        named = {p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD}
        assert named - {"glob"} <= set(struct.__struct_fields__)
