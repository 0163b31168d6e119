"""The durable log of requests: queries created and dropped, before a batch takes them up.

    changes.log     one line per request: crc32 of the rest in hex, a space, {"sequence": ..., "record": ...}
                    the first line of a compacted log: the same with {"base": ...}, the last number dropped

A request is acknowledged after its line is synced. Threads that append together share one sync. A last line
that was cut short by a crash was never acknowledged and is dropped; damage before the end is an error.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thalweg.errors import corrupt_file, unwritable_change_log
from thalweg.state.durable import Appender, make_directory, write_atomic


class ChangeLog:
    def __init__(self, state_dir: Path | str) -> None:
        self.path = make_directory(Path(state_dir)) / "changes.log"
        self._lock = threading.Lock()
        """Guards the file's content and `_records`."""
        self._sync_lock = threading.Lock()
        """Held while syncing, taken before `_lock`: whoever waits for it finds its line synced by another."""
        self._failure: OSError | None = None
        self._records: list[tuple[int, dict[str, Any]]] = []
        self._last = self._synced = 0
        self._file: Appender | None = self._open()
        """None after `close`."""

    def append(self, record: Mapping[str, Any]) -> int:
        """Make a request durable; its sequence number. Returns after the sync. Any thread."""
        with self._lock:
            sequence = self._last + 1
            copy = json.loads(json.dumps(record))
            line = _line({"sequence": sequence, "record": copy})
            self._write(line)
            self._last = sequence
            self._records.append((sequence, copy))
        self._sync_through(sequence)
        return sequence

    def read_after(self, sequence: int) -> list[tuple[int, dict[str, Any]]]:
        """The durable requests with a greater number, in order."""
        with self._lock:
            return [(s, record) for s, record in self._records if sequence < s <= self._synced]

    @property
    def last_sequence(self) -> int:
        """The number of the last durable request, 0 before the first."""
        return self._synced

    def truncate_through(self, sequence: int) -> None:
        """Drop requests up to `sequence`: a manifest that is committed contains them."""
        with self._sync_lock, self._lock:
            self._check()
            kept = [(s, record) for s, record in self._records if s > sequence]
            if len(kept) == len(self._records):
                return
            base = self._last - len(kept)
            lines = [_line({"base": base})]
            lines += [_line({"sequence": s, "record": record}) for s, record in kept]
            self._rewrite(b"".join(lines))
            self._records = kept
            self._synced = self._last

    def close(self) -> None:
        with self._sync_lock, self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> Appender:
        data = self.path.read_bytes() if self.path.exists() else b""
        self._last, self._records, length = _replay(self.path, data)
        file = Appender(self.path, length)
        # Lines that a crashed process wrote but did not sync may be taken up now: make them durable first.
        file.settle()
        self._synced = self._last
        return file

    def _write(self, line: bytes) -> None:
        try:
            self._check().append(line)
        except OSError as error:
            raise unwritable_change_log(self.path, error) from error

    def _rewrite(self, data: bytes) -> None:
        before = self._check()
        try:
            write_atomic(self.path, data)
            self._file = Appender(self.path, len(data))
        except OSError as error:
            if not before.has_name:  # what it would acknowledge now would be in no file
                self._failure = error
            raise
        before.close()

    def _sync_through(self, sequence: int) -> None:
        with self._sync_lock:
            file = self._check()
            if self._synced >= sequence:
                return
            with self._lock:
                written = self._last
            try:
                file.sync()
            except OSError as error:
                # After a failed sync the kernel may have dropped the pages; a second one would lie.
                self._failure = error
                raise unwritable_change_log(self.path, error) from error
            self._synced = written

    def _check(self) -> Appender:
        if self._failure is not None:
            raise unwritable_change_log(self.path, self._failure) from self._failure
        if self._file is None:
            raise unwritable_change_log(self.path, "the log was closed")
        return self._file


def _line(value: dict[str, Any]) -> bytes:
    body = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes) -> dict[str, Any] | None:
    crc, _, body = line.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        return None
    value: dict[str, Any] = json.loads(body)
    return value


def _replay(path: Path, data: bytes) -> tuple[int, list[tuple[int, dict[str, Any]]], int]:
    """The last number given out, the requests kept, and the length of what is whole."""
    records: list[tuple[int, dict[str, Any]]] = []
    last = length = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1]):
        value = _parse(line)
        if value is None:
            if number == len(lines) - 2 and not lines[-1]:
                break
            raise corrupt_file(path, f"a request in line {number + 1}", f"a wrong checksum: {line[:60]!r}")
        expected = value.get("base", last + 1)
        if value.get("sequence", expected) != expected:
            raise corrupt_file(path, f"request {expected} in line {number + 1}", f"{value['sequence']}")
        last = expected
        if "record" in value:
            records.append((last, value["record"]))
        length += len(line) + 1
    return last, records, length
