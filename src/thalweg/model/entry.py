"""A query as batches run it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from thalweg.model.query import Query


class Gap(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Results of a query that are in no sink and will not be."""

    from_batch: int
    """The first batch whose results are missing."""
    rows: int = 0
    """How many that batch had made. What later ones would have made, nobody knows."""
    until_batch: int | None = None
    """The batch from which on the query runs again; None: it does not yet."""


@dataclass(frozen=True)
class Entry:
    """A query and how it fares."""

    id: str
    query: Query
    state: str = "running"
    """pending (until its first batch), running, failed (it could not be computed) or stopped (its results found no
    more place)."""
    error: str | None = None
    created: int = 0
    """The first batch whose rows it sees."""
    fence: tuple[int, int] | None = None
    """Windows that start before the event time see only rows from the batch on."""
    emitted: int = 0
    """Rows of results that were made and kept: sinks have them, or will."""
    complete_from: int | None = None
    """Joins: results of which all rows are later than this event time are complete; None: all are."""
    paused: str | None = None
    """Why its results are kept and not given to its sink; empty: somebody said so; None: they are given."""
    gap: Gap | None = None

    @property
    def runs(self) -> bool:
        """Whether batches compute it."""
        return self.state not in ("failed", "stopped")
