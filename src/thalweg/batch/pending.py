"""The requests that wait for a batch, and the streams as of any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from thalweg.model.manifest import Manifest
from thalweg.model.offsets import Offsets
from thalweg.model.stream import Stream
from thalweg.state.requests import Request, RequestLog, ResetRequest
from thalweg.state.storage import Storage
from thalweg.state.stream_changes import dropped_streams, streams_through


class PendingRequests:
    def __init__(self, log: RequestLog, known: Callable[[], Mapping[str, Stream]]) -> None:
        """`known`: the streams after all requests."""
        self.log = log
        self._known = known
        self._through: int | None = None

    @classmethod
    def open(
        cls,
        storage: Storage,
        newest: Manifest | None,
        known: Callable[[], Mapping[str, Stream]],
        let_go: Callable[[Request], None],
    ) -> PendingRequests:
        """Those that the newest manifest does not hold. `let_go`: as of `RequestLog`."""
        return cls(RequestLog(storage, 0 if newest is None else newest.through, let_go), known)

    def take(self) -> None:
        """Those that are there now are for the next batch, and no later ones: how far a batch goes depends on which
        streams there are."""
        self._through = self.log.last

    @property
    def through(self) -> int:
        """The last request that is for the next batch."""
        return self.log.last if self._through is None else self._through

    def after(self, manifest: Manifest, through: int) -> list[tuple[int, Request]]:
        """Those that the manifest does not hold, up to this one."""
        return [(n, request) for n, request in self.log.read_after(manifest.through) if n <= through]

    def streams(self, through: int) -> Mapping[str, Stream]:
        """As of this request."""
        return streams_through(self._known(), self.log.read_after(0), through)

    @property
    def next_streams(self) -> Mapping[str, Stream]:
        """Those that the next batch knows."""
        return self.streams(self.through)

    def reached(self, manifest: Manifest) -> Offsets:
        """How far the next batch begins in its streams: one that was created anew has brought nothing yet."""
        gone, reached = gone_streams(self.after(manifest, self.through)), manifest.reached
        if not gone & reached.streams.keys():
            return reached
        return Offsets(reached.tick, {name: units for name, units in reached.streams.items() if name not in gone})


def reset_streams(requests: Sequence[tuple[int, Request]]) -> frozenset[str]:
    """Those whose watermarks begin anew."""
    return frozenset(request.stream for _, request in requests if isinstance(request, ResetRequest))


def gone_streams(requests: Sequence[tuple[int, Request]]) -> frozenset[str]:
    """Those that were dropped; others of their names begin with nothing."""
    return dropped_streams(requests)
