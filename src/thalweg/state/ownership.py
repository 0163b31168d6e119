"""Which places hold state: one that does not is never written to, and nothing in it is deleted.

    thalweg.json     says so, and is the first file or object that a new place gets

Those of earlier releases have no such file; they are known by what else only a state directory holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from thalweg.errors import foreign_directory, unusable_directory
from thalweg.state.durable import AnyPath, is_temporary, make_directory, write_atomic
from thalweg.state.lock import Holder
from thalweg.state.storage import Storage

MARKER = "thalweg.json"
_KIND = "thalweg state directory"
_IGNORED = ("lost+found",)
"""What a file system puts into a directory that is empty otherwise."""
_MANIFEST = re.compile(r"\d{12,}\.json")
_CHANGE = re.compile(rb'[0-9a-f]{8} \{"(base|sequence)":')


class _Marker(msgspec.Struct, frozen=True):
    kind: str
    layout: int = 1


_CONTENT = msgspec.json.encode(_Marker(_KIND))


def claim_directory(path: AnyPath) -> None:
    """Makes the directory, or takes an empty one or a state directory. Refuses any other and leaves it as it is."""
    make_directory(path)
    check_directory(path)
    try:
        if not is_marked(path):
            write_atomic(os.path.join(path, MARKER), _CONTENT, private=True)
    except OSError as error:
        raise unusable_directory(path, error) from error


def check_directory(path: AnyPath) -> None:
    """Refuses a directory that is neither empty nor a state directory. Only looks."""
    try:
        held = sorted(name for name in os.listdir(path) if not _is_nothing(name))
        if held and not is_state_directory(path):
            raise foreign_directory(path, held)
    except OSError as error:
        raise unusable_directory(path, error) from error


def is_state_directory(path: AnyPath) -> bool:
    """Whether some session has made it, of this release or an earlier one."""
    return is_marked(path) or _has_manifests(path) or _has_changes(path) or _has_lock(path)


def is_marked(path: AnyPath) -> bool:
    try:
        return _is_marker(_read(path, MARKER))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def check_objects(storage: Storage, held: Callable[[], list[str]]) -> None:
    """As `check_directory`, where there are no directories. `held`: some names at the top; asked for if need be."""
    if not _has_marker(storage):
        found = held()
        if found and not _has_marker(storage):  # or another session was quicker
            raise foreign_directory(storage.place, found)


def mark_objects(storage: Storage) -> None:
    if not _has_marker(storage) and not storage.create(MARKER, _CONTENT) and not _has_marker(storage):
        raise foreign_directory(storage.place, [MARKER])


def _has_marker(storage: Storage) -> bool:
    found = storage.find(MARKER)
    return found is not None and _is_marker(found)


def _is_marker(data: bytes) -> bool:
    try:
        return msgspec.json.decode(data, type=_Marker).kind == _KIND
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _is_nothing(name: str) -> bool:
    """Also what is left of a marker whose writer died."""
    return name in _IGNORED or (is_temporary(name) and name.startswith(f".{MARKER}."))


def _has_manifests(path: AnyPath) -> bool:
    try:
        return any(map(_MANIFEST.fullmatch, os.listdir(os.path.join(path, "manifests"))))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _has_changes(path: AnyPath) -> bool:
    log = os.path.join(path, "changes.log")
    return os.path.isfile(log) and _CHANGE.match(_read(path, "changes.log", 64)) is not None


def _has_lock(path: AnyPath) -> bool:
    try:
        msgspec.json.decode(_read(path, "lock"), type=Holder)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _read(path: AnyPath, name: str, length: int = -1) -> bytes:
    with open(os.path.join(path, name), "rb") as file:
        return file.read(length)
