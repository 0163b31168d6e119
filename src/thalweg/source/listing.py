"""Which files a source has."""

from __future__ import annotations

import glob
import os

from thalweg import errors

COMPRESSIONS = (".gz", ".bz2", ".zst")
"""Text in these is read from its beginning to its end: there is no way to start in the middle."""


def list_files(pattern: str) -> list[str]:
    """The files that match, hidden ones left out, in no order."""
    check_directory(pattern)
    paths = glob.iglob(pattern, recursive=True)
    return [path for path in paths if not os.path.basename(path).startswith((".", "_"))]


def check_directory(pattern: str) -> None:
    directory = _fixed_part(pattern)
    if not os.path.isdir(directory):
        raise errors.source_path_missing(directory)


def _fixed_part(pattern: str) -> str:
    """The directories before the first wildcard, which have to be there from the start."""
    directory = os.path.dirname(pattern)
    while glob.has_magic(_unescaped(directory)):
        directory = os.path.dirname(directory)
    return _unescaped(directory)


def _unescaped(pattern: str) -> str:
    return pattern.replace("[[]", "[").replace("[*]", "*").replace("[?]", "?")
