"""Unit: the options in the docs are those of the structs."""

from __future__ import annotations

import inspect

import make_reference
import thalweg
from thalweg.sink.files import FilesOptions as ToFiles
from thalweg.source.files import FilesOptions


def test_the_page_is_current() -> None:
    assert make_reference.PAGE.read_text(encoding="utf-8") == make_reference.page(), (
        "docs/reference/options.md is old: run python tools/make_reference.py"
    )


def test_every_option_is_on_the_page() -> None:
    text = make_reference.page()
    for struct in (FilesOptions, ToFiles):
        for name in struct.__struct_fields__:
            assert f"| `{name}` |" in text


def test_keywords_of_functions_are_options() -> None:
    """Of those that name them; others go through as they are."""
    for function, struct in ((thalweg.files, FilesOptions), (thalweg.to_files, ToFiles)):
        named = {p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD}
        assert named - {"glob"} <= set(struct.__struct_fields__)
