"""From a split to Arrow tables: only the columns that are needed, in the data path's types.

What cannot be read is set aside with its reason and the rest goes on: a row with a value of the wrong type,
a broken line, a file that is not what its name says. Only a file that has vanished, or that the system does not
give out, is an error, because the rows in it are lost. Columns that no query needs are not looked at, so a fault in
them is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from thalweg import errors
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.chunks import Chunk, SplitReading
from thalweg.source.conform import Admission, forget_connection
from thalweg.source.contract import SourceKind
from thalweg.source.file_formats import COLUMNS, UNREADABLE, RefusedError, is_systems, reason_of
from thalweg.source.kinds import kind_of
from thalweg.state.storage import Storage


def read(
    split: Split,
    stream: Stream,
    columns: Sequence[str],
    storage: Storage | None,
    clock_us: int | None = None,
    kinds: Mapping[str, SourceKind[Any]] | None = None,
) -> Iterator[Chunk]:
    """The rows of the split, about a million at a time. `storage`: where units of the source itself lie, if there are
    any. `clock_us`: the wall clock of the batch, beyond which rows may be only so far ahead. `kinds`: those from
    outside."""
    kind = (kinds or {}).get(stream.source.kind) or kind_of(stream)
    latest = None if stream.max_ahead_us is None or clock_us is None else clock_us + stream.max_ahead_us
    asked = SplitReading(split, stream, columns, Admission(stream.time, latest))
    try:
        yield from kind.read(asked, storage)
    except (errors.ThalwegError, duckdb.OutOfMemoryException):
        raise
    except Exception as failure:
        if not kind.sets_aside:
            raise errors.source_failed(stream.name, kind.name, failure) from failure
        yield from _set_aside(asked, failure)


def _set_aside(asked: SplitReading, failure: Exception) -> Iterator[Chunk]:
    """Whatever a file makes a reader raise, it does not stop the other streams."""
    split, stream = asked.split, asked.stream.name
    if isinstance(failure, FileNotFoundError):
        raise errors.source_file_vanished(split.path, stream) from None
    if isinstance(failure, RefusedError):
        if split.start == 0:  # once of each file
            yield asked.set_aside(COLUMNS, str(failure))
        return
    if is_systems(failure):
        # The system refuses (permissions, a dead disk): the rows may be fine and must not be given up.
        raise errors.source_file_unreadable(split.path, stream, str(failure)) from failure
    forget_connection(failure)
    yield asked.set_aside(UNREADABLE, reason_of(split.kind, failure))
