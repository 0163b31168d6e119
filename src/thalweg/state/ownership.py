"""Which places hold state: one that does not is never written to, and nothing in it is deleted.

    thalweg.json     says so, and is the first file or object that a new place gets

Those of earlier releases have no such file; they are known by what else only a state directory holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from thalweg.errors import foreign_directory, unusable_directory
from thalweg.state.durable import is_temporary, make_directory, write_json
from thalweg.state.storage import Storage

MARKER = "thalweg.json"
_CONTENT = {"kind": "thalweg state directory", "layout": 1}
_IGNORED = ("lost+found",)
"""What a file system puts into a directory that is empty otherwise."""
_MANIFEST = re.compile(r"\d{12,}\.json")
_CHANGE = re.compile(rb'[0-9a-f]{8} \{"(base|sequence)":')


def claim_directory(path: Path) -> None:
    """Makes the directory, or takes an empty one or a state directory. Refuses any other and leaves it as it is."""
    make_directory(path)
    check_directory(path)
    try:
        if not is_marked(path):
            write_json(path / MARKER, _CONTENT, private=True)
    except OSError as error:
        raise unusable_directory(path, error) from error


def check_directory(path: Path) -> None:
    """Refuses a directory that is neither empty nor a state directory. Only looks."""
    try:
        held = sorted(entry.name for entry in path.iterdir() if not _is_nothing(entry))
        if held and not is_state_directory(path):
            raise foreign_directory(path, held)
    except OSError as error:
        raise unusable_directory(path, error) from error


def is_state_directory(path: Path) -> bool:
    """Whether some session has made it, of this release or an earlier one."""
    return is_marked(path) or _has_manifests(path) or _has_changes(path) or _has_lock(path)


def is_marked(path: Path) -> bool:
    try:
        return _is_marker((path / MARKER).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def check_objects(storage: Storage, held: Callable[[], list[str]]) -> None:
    """As `check_directory`, where there are no directories. `held`: some names at the top; asked for if need be."""
    if not _has_marker(storage):
        found = held()
        if found and not _has_marker(storage):  # or another session was quicker
            raise foreign_directory(storage.place, found)


def mark_objects(storage: Storage) -> None:
    content = json.dumps(_CONTENT, separators=(",", ":")).encode()
    if not _has_marker(storage) and not storage.create(MARKER, content) and not _has_marker(storage):
        raise foreign_directory(storage.place, [MARKER])


def _has_marker(storage: Storage) -> bool:
    found = storage.find(MARKER)
    return found is not None and _is_marker(found)


def _is_marker(data: bytes) -> bool:
    try:
        found = json.loads(data)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") == _CONTENT["kind"]


def _is_nothing(entry: Path) -> bool:
    """Also what is left of a marker whose writer died."""
    return entry.name in _IGNORED or (is_temporary(entry) and entry.name.startswith(f".{MARKER}."))


def _has_manifests(path: Path) -> bool:
    return any(_MANIFEST.fullmatch(entry.name) for entry in (path / "manifests").glob("*.json"))


def _has_changes(path: Path) -> bool:
    log = path / "changes.log"
    if not log.is_file():
        return False
    with open(log, "rb") as file:
        return _CHANGE.match(file.read(64)) is not None


def _has_lock(path: Path) -> bool:
    try:
        found = json.loads((path / "lock").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and set(found) == {"pid", "host"}
