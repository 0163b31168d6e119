"""Which storage a place is: a path, or a URL."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit
from urllib.request import url2pathname

from thalweg.errors import unknown_scheme, url_as_path, wrong_directory
from thalweg.state.local_storage import LocalStorage
from thalweg.state.object_storage import SCHEMES, ObjectStorage
from thalweg.state.storage import Storage

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FLATTENED = re.compile(rf"({'|'.join(SCHEMES)}):/[^/]")


def open_storage(place: str | os.PathLike[str]) -> Storage:
    """Nothing is read or made: that is what `claim` does."""
    if not isinstance(place, str | os.PathLike):
        raise wrong_directory(type(place).__name__)
    text = os.fspath(place)
    found = _URL.match(text)
    if found is None:
        if _FLATTENED.match(text):
            raise url_as_path(text)
        return LocalStorage(os.path.abspath(text))
    if found[1].lower() == "file":
        return LocalStorage(_path_of(text))
    return ObjectStorage.at(text)


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise unknown_scheme(url, SCHEMES)
    return os.path.abspath(url2pathname(parts.path))
