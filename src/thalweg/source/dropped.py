"""A stream that is no more: what its source and its rejected rows take is given back."""

from __future__ import annotations

from thalweg.model.stream import Stream
from thalweg.source.kinds import SOURCES
from thalweg.source.log import folder_of
from thalweg.state.rejected import folder_of_rejected
from thalweg.state.requests import Request, StreamRequest
from thalweg.state.storage import Storage


def give_back_of(storage: Storage, request: Request) -> None:
    """What was dropped by a request that was applied."""
    if isinstance(request, StreamRequest) and request.is_drop and request.was is not None:
        give_back(storage, request.was)


def give_back(storage: Storage, stream: Stream) -> None:
    """Once no batch reads it any more. A second time there is nothing left to do."""
    kind = SOURCES.find(stream.source.kind)
    if kind is not None:
        kind.give_back(stream, storage)
    for folder in (folder_of(stream.place), folder_of_rejected(stream.place)):
        for name in storage.names(folder):
            storage.delete(name)
