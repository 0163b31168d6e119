"""Unit: the list of functions in the docs is that of the registries, and the hint that names it is true."""

from __future__ import annotations

import pytest

import list_functions
from thalweg.aggregates.families import arities
from thalweg.errors import SqlError
from thalweg.frontend.functions import FUNCTIONS, find
from thalweg.frontend.tree import Call


def test_the_page_is_current() -> None:
    assert list_functions.PAGE.read_text(encoding="utf-8") == list_functions.page(), (
        "docs/functions.md is old: run python tools/list_functions.py"
    )


def test_every_function_is_on_the_page() -> None:
    text = list_functions.page()
    for name in (*FUNCTIONS, *arities()):
        assert f"| `{name}` |" in text


def test_the_hint_of_an_unknown_function_names_the_page() -> None:
    with pytest.raises(SqlError) as caught:
        find(Call((0, 10), "qqqqqqqqqq", ()), "qqqqqqqqqq")
    assert f"docs/{list_functions.PAGE.name}" in str(caught.value.hint)
