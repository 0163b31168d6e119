"""What a task was at when something went wrong that is nobody's: said with the exception, found again in its text.

An exception of a task comes to the driver as text, with its notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from thalweg.model.query import query_name

_MOST_NAMED = 5
_FILE = re.compile(r"at the file (.+?) of stream '(\w+)'")
_STREAM = re.compile(r"at rows of stream '(\w+)'")
_QUERIES = re.compile(r"at windows of (?:query|queries) ((?:'\w+'(?:, )?)+)(?: and \d+ more)?")


@dataclass(frozen=True)
class Trouble:
    file: str | None = None
    stream: str | None = None
    queries: tuple[str, ...] = ()


@contextmanager
def reading(path: str, stream: str) -> Iterator[None]:
    with _noting(f"at the file {path} of stream '{stream}'"):
        yield


@contextmanager
def consuming(stream: str) -> Iterator[None]:
    with _noting(f"at rows of stream '{stream}'"):
        yield


@contextmanager
def finishing(queries: Iterable[str]) -> Iterator[None]:
    """`queries`: their ids."""
    names = sorted({query_name(id_) for id_ in queries})
    named = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    with _noting(f"at windows of {'query' if len(names) == 1 else 'queries'} {named}{more}"):
        yield


@contextmanager
def _noting(note: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not getattr(error, "__notes__", ()):  # the innermost says most
            error.add_note(note)
        raise


def named_in(text: str) -> Trouble:
    """What the text of an exception names."""
    file, stream, queries = _FILE.search(text), _STREAM.search(text), _QUERIES.search(text)
    return Trouble(
        None if file is None else file[1],
        file[2] if file is not None else stream[1] if stream is not None else None,
        () if queries is None else tuple(re.findall(r"'(\w+)'", queries[1])),
    )
