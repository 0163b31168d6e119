"""Unit: a state directory has a name of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from thalweg.state.identity import identity


def test_a_directory_keeps_its_name_and_one_made_anew_has_another(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    first = identity(state)
    assert identity(state) == first
    moved = shutil.move(state, tmp_path / "moved")
    assert identity(Path(moved)) == first
    state.mkdir()
    assert identity(state) != first
