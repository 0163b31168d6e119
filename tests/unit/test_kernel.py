"""Unit: kernels are kept on disk, and what is kept there never fails a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TYPES = "from typing import NamedTuple\nclass {name}(NamedTuple):\n    number: int\n"
USE = """
import sys
sys.path.insert(0, {folder!r})
import types_of_it, kernel_of_it
print(kernel_of_it.twice(types_of_it.{name}(21)), sum(kernel_of_it.twice.stats.cache_hits.values()))
"""
KERNEL = "from thalweg.kernel import kernel\n@kernel\ndef twice(one):\n    return 2 * one.number\n"


def run(folder: Path, name: str) -> str:
    (folder / "types_of_it.py").write_text(TYPES.format(name=name), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", USE.format(folder=str(folder), name=name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_what_was_kept_under_other_names_or_was_torn_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "kernel_of_it.py").write_text(KERNEL, encoding="utf-8")
    assert run(tmp_path, "Before") == "42 0"
    assert run(tmp_path, "Before") == "42 1"
    assert run(tmp_path, "Since") == "42 0"
    assert run(tmp_path, "Since") == "42 1"
    (index,) = (tmp_path / "__pycache__").glob("*.nbi")
    index.write_bytes(index.read_bytes()[:40])
    assert run(tmp_path, "Since") == "42 0"
    assert run(tmp_path, "Since") == "42 1"
