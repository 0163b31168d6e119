"""A query as batches run it."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.model.query import Query


@dataclass(frozen=True)
class Entry:
    """A query and how it fares."""

    id: str
    query: Query
    state: str = "running"
    """pending (until its first batch), running or failed."""
    error: str | None = None
    created: int = 0
    """The first batch whose rows it sees."""
    fence: tuple[int, int] | None = None
    """Windows that start before the event time see only rows from the batch on."""
    emitted: int = 0
    complete_from: int | None = None
    """Joins: results of which all rows are later than this event time are complete; None: all are."""
