"""What a stream's source has to offer: a numbered list of units that only grows and is never forgotten.

A batch is a range of units per stream. Manifests keep the ranges; the inventory makes sure that number n means
the same input after every restart, by writing down a discovery before anyone hears of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.model.offsets import SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.kinds import kind_of
from thalweg.state.storage import Storage


class Inventory:
    """The units of one stream, for the one loop that plans its batches: only one may have it open."""

    def __init__(self, stream: Stream, storage: Storage, mark: SourceMark | None = None) -> None:
        """`mark`: of the newest batch that was committed."""
        self.stream = stream
        self._units = kind_of(stream).units(stream, storage)
        if mark is not None:
            self._units.check(mark)

    def available(self) -> int:
        """How many units there are by now; each of them is durably known when this returns."""
        return self._units.available()

    def limit(self, start: int, end: int) -> int:
        """How far a batch that starts at `start` may go, if `end` units are there."""
        return self._units.limit(start, end)

    def weights(self, start: int, end: int) -> Sequence[int] | None:
        """About how many rows each of these units has; None: a batch takes all of them."""
        return self._units.weights(start, end)

    def splits(self, start: int, end: int, parts: int = 2) -> list[Split]:
        """The units start..end-1 as splits in order, cut so that `parts` tasks can share them evenly."""
        return self._units.splits(start, end, parts)

    def release(self, end: int) -> None:
        """Units before `end` will never be read again: give back what they occupy."""
        self._units.release(end)

    def mark(self, consumed: int) -> SourceMark:
        """What is known of the source, of which `consumed` units have been read."""
        return self._units.mark(consumed)
