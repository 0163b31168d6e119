"""The sources that a program has given: which streams are read now, and what has to run for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from thalweg.model.stream import Stream
from thalweg.source.contract import Source
from thalweg.state.storage import Storage


class Feeding:
    """Changed under the mutex of the session; looked at without it, so nothing here is changed in place."""

    def __init__(self) -> None:
        self.sources: Mapping[str, Source] = {}
        """By stream, those that were given since the session began."""
        self.active: Mapping[str, Stream] = {}
        """Only streams that some query reads are read; the others wait where they are."""

    def attach(self, stream: Stream, source: Source, storage: Storage, wake: Callable[[], None]) -> None:
        source.attach(storage, stream.place, wake)
        self.sources = {**self.sources, stream.name: source}

    def detach_from(self, stream: str, but: Source | None = None) -> None:
        """What the stream was given is not its source any more. `but`: goes on as it is."""
        known = self.sources.get(stream)
        if known is not None and known is not but:
            known.stop()
            known.detach()
        self.sources = {name: source for name, source in self.sources.items() if name != stream}

    def activate(self, streams: Mapping[str, Stream], used: Collection[str]) -> None:
        self.active = {name: stream for name, stream in streams.items() if name in used}

    def to_read(self, known: Mapping[str, Stream]) -> Mapping[str, Stream]:
        """`known`: the streams of a batch. One that was created anew is another."""
        places = {name: stream.place for name, stream in self.active.items()}
        return {name: stream for name, stream in known.items() if places.get(name) == stream.place}

    def of(self, names: Collection[str]) -> list[Source]:
        return [source for name, source in self.sources.items() if name in names]

    def start(self, streams: Collection[str]) -> None:
        """Has the DataFrames of these streams landed from now on."""
        for source in self.of(streams):
            if not source.is_started:
                source.start()

    def stop(self, but: Collection[str] = ()) -> None:
        for name, source in self.sources.items():
            if name not in but:
                source.stop()

    @property
    def is_started(self) -> bool:
        return any(source.is_started for source in self.sources.values())

    def check(self) -> None:
        """Raises what has ended a source in the background, until it is started again."""
        for source in self.sources.values():
            source.check()

    def detach(self) -> None:
        for source in self.sources.values():
            source.detach()
