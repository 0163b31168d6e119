"""Which files a source has."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from thalweg import errors

COMPRESSIONS = (".gz", ".bz2", ".zst")
"""Text in these is read from its beginning to its end: there is no way to start in the middle."""


def list_files(pattern: str) -> list[str]:
    """The files that match, hidden ones left out, in no order."""
    directory = _fixed_part(pattern)
    if not os.path.isdir(directory):
        raise errors.source_path_missing(directory)
    paths = glob.iglob(pattern, recursive=True)
    return [path for path in paths if not os.path.basename(path).startswith((".", "_"))]


def memory_unit(directory: Path, number: int) -> Path:
    return directory / f"{number:010d}.arrow"


def first_memory_unit(directory: Path) -> int:
    """The oldest that has not been given back; 0 where nothing was ever appended."""
    return min(_memory_units(directory), default=0)


def count_memory_units(directory: Path, known: int = 0) -> int:
    """How many have been appended by now, given that `known` had been before. The newest is never given back, so
    that its number says how many went before it."""
    number = known or max(_memory_units(directory), default=-1) + 1
    while memory_unit(directory, number).exists():
        number += 1
    return number


def _memory_units(directory: Path) -> list[int]:
    return [int(path.stem) for path in directory.glob("[0-9]*.arrow")]


def _fixed_part(pattern: str) -> str:
    """The directories before the first wildcard, which have to be there from the start."""
    directory = os.path.dirname(pattern)
    while glob.has_magic(_unescaped(directory)):
        directory = os.path.dirname(directory)
    return _unescaped(directory)


def _unescaped(pattern: str) -> str:
    return pattern.replace("[[]", "[").replace("[*]", "*").replace("[?]", "?")
