"""Streams that were dropped, altered or created anew: what the catalog says, as of a request.

The catalog is written before a batch can see such a request. So it holds what will be, and the request both what was
and what will be: a batch runs with the streams as of the requests that it applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from thalweg.model.stream import Stream
from thalweg.state.requests import Request, StreamRequest
from thalweg.state.sealed import find_value, write_value
from thalweg.state.storage import Storage

_DROPPED = "number of the request"


def streams_through(
    known: Mapping[str, Stream], requests: Sequence[tuple[int, Request]], through: int
) -> Mapping[str, Stream]:
    """`known`: as after all requests. Those up to `through` have been made, later ones have not."""
    changes = [(number, r) for number, r in requests if isinstance(r, StreamRequest)]
    if not changes:
        return known
    as_of: dict[str, Stream | None] = {}
    for number, change in reversed(changes):
        if number > through:
            as_of[change.name] = change.was
    for number, change in changes:
        if number <= through:
            as_of[change.name] = change.now
    # One that is dropped and not created anew is not known, whoever said so first.
    found = {name: as_of.get(name, stream) for name, stream in known.items()} | as_of
    return {name: stream for name, stream in found.items() if stream is not None}


def dropped_streams(requests: Iterable[tuple[int, Request]]) -> frozenset[str]:
    """Names that do not mean any more what they meant before the requests."""
    return frozenset(r.name for _, r in requests if isinstance(r, StreamRequest) and r.is_drop)


def last_drop(storage: Storage, name: str) -> int:
    """The request by which the last stream of the name was dropped; 0: none ever was."""
    return find_value(storage, _place(name), _DROPPED, int) or 0


def note_drop(storage: Storage, name: str, number: int) -> None:
    """Before the request is applied, so that what is created under the name has a place of its own."""
    write_value(storage, _place(name), _DROPPED, number)


def _place(name: str) -> str:
    return f"dropped/{name}"
