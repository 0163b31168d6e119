"""How much is kept of what was set aside, where a stream says how much that may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thalweg.model.manifest import Manifest
from thalweg.model.stream import Stream
from thalweg.state.rejected import Batched, delete_rejected, forget_rejected, kept_rejected
from thalweg.state.storage import Storage


@dataclass(frozen=True)
class Retained:
    """What is kept of one stream after a batch."""

    batches: tuple[Batched, ...]
    """The oldest first."""
    forgotten: int
    """Rows that are kept no longer."""

    @property
    def first(self) -> int:
        return self.batches[0].batch

    @property
    def bytes(self) -> int:
        return sum(batch.bytes for batch in self.batches)


def retain(kept: Sequence[Batched], limit: int) -> Retained:
    """The newest of them that fit; the newest of all, however large."""
    first, total = len(kept) - 1, kept[-1].bytes
    while first and total + kept[first - 1].bytes <= limit:
        first -= 1
        total += kept[first].bytes
    return Retained(tuple(kept[first:]), sum(batch.rows for batch in kept[:first]))


class Retention:
    """What there is in the state of the streams that keep only so much."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[str, tuple[Batched, ...]] = {}
        """By the places of streams."""
        self._begun: int | None = None
        """The batch that began last, whether or not it has happened."""

    def begin(self, batch: int) -> None:
        """What has been set aside of this batch already goes: it is tried anew."""
        if self._begun != batch - 1:
            forget_rejected(self._storage, batch)
        self._begun = batch

    def after(
        self, before: Manifest, new: Mapping[str, Batched], streams: Mapping[str, Stream]
    ) -> dict[str, Retained]:
        """Of the streams of which the batch has set something aside."""
        return {
            name: retain([*self._of(before, streams[name]), batched], limit)
            for name, batched in new.items()
            if (limit := streams[name].retain_rejected) is not None
        }

    def _of(self, before: Manifest, stream: Stream) -> Sequence[Batched]:
        if stream.place not in self._kept:
            progress = before.streams.get(stream.name)
            first = 0 if progress is None else progress.rejected_from
            found = kept_rejected(self._storage, stream.place, before.batch)
            self._kept[stream.place] = tuple(batch for batch in found if batch.batch >= first)
        return self._kept[stream.place]

    def commit(self, retained: Mapping[str, Retained], streams: Mapping[str, Stream]) -> None:
        """A manifest says so: the others go."""
        for name, what in retained.items():
            place = streams[name].place
            self._kept[place] = what.batches
            if what.forgotten:
                delete_rejected(self._storage, place, what.first)
