"""The log of what a source has offered: lines that are on disk when the call returns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thalweg.state.durable import Appender, sync_directory, sync_file


class Log:
    """An append-only file of JSON lines with one writer.

    A line counts once its newline is on disk. What a crash left behind the last newline is no entry; the
    next append overwrites it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._is_settled = False
        """Whether its name is known to be durable."""
        self._failure: OSError | None = None

    def read_new(self) -> list[Any]:
        """The complete lines that were appended since the last call. They are durable, whoever wrote them: what is
        done with them lasts, and so must they."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        if complete:
            sync_file(self._path)
            sync_directory(self._path.parent)
        self._end += len(complete)
        return [json.loads(line) for line in complete.splitlines()]

    def append(self, entries: Sequence[Any]) -> None:
        """All of them or, after a crash, a leading part of them."""
        if not entries:
            return
        data = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)
        if self._failure is not None:
            raise self._failure
        with Appender(self._path, self._end) as file:
            file.append(data)
            self._sync(file)
        self._end += len(data)

    def _sync(self, file: Appender) -> None:
        try:
            if self._is_settled:
                file.sync()
            else:
                file.settle()
        except OSError as error:
            # After a failed sync the kernel may have dropped the pages; a second one would lie.
            self._failure = error
            raise
        self._is_settled = True
