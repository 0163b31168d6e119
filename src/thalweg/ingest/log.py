"""The log of what a source has offered: lines that are on disk when the call returns."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thalweg.state.durable import sync_directory


class Log:
    """An append-only file of JSON lines with one writer.

    A line counts once its newline is on disk. What a crash left behind the last newline is no entry; the
    next append overwrites it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def read_new(self) -> list[Any]:
        """The complete lines that were appended since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._end += len(complete)
        return [json.loads(line) for line in complete.splitlines()]

    def append(self, entries: Sequence[Any]) -> None:
        """All of them or, after a crash, a leading part of them."""
        if not entries:
            return
        data = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)
        is_new = not self._path.exists()
        with self._path.open("r+b" if not is_new else "wb") as file:
            file.seek(self._end)
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self._path.parent)
        self._end += len(data)
