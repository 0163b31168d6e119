"""Which storage a place means."""

from __future__ import annotations

import os

from thalweg.state.local_storage import LocalStorage
from thalweg.state.storage import Storage


def open_storage(place: str | os.PathLike[str]) -> Storage:
    return LocalStorage(os.path.abspath(os.fspath(place)))
