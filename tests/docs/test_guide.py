"""Docs: the section of the guide on kinds of one's own runs, and prints what it says; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.docs.pages import ROOT, run_page

from thalweg.aggregates.families import FAMILIES
from thalweg.frontend.window_kinds import WINDOWS
from thalweg.kinds.registry import Registry
from thalweg.sink.kinds import SINKS
from thalweg.source.kinds import SOURCES
from thalweg.testing import LocalSession

GUIDE = ROOT / "docs" / "guide.md"
HEAD = "\n## Kinds of your own\n"
REGISTERED = ((SOURCES, "ticks"), (SINKS, "lines"), (FAMILIES, "products"), (WINDOWS, "hop"))


@pytest.fixture
def section() -> Iterator[str]:
    before, _, rest = GUIDE.read_text(encoding="utf-8").partition(HEAD)
    assert before
    yield rest[: rest.index("\n## ")]
    for registry, name in REGISTERED:
        cast(Registry[Any], registry).forget(name)


def test_kinds_of_ones_own(
    section: str, local: Callable[..., LocalSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page", "session": local()}
    assert run_page(section, str(GUIDE), namespace) == section
