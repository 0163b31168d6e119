"""Queries created and dropped: from a durable request to an entry that batches run with.

A request is in the change log before it is acknowledged. The next batch takes all requests that are there,
at once, and its manifest holds the outcome: entries, and from which event time on each partial is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from thalweg.model.query import Query, query_from_json, query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.times import StreamTimes, with_joined
from thalweg.model.windows import BEGINNING
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.state import history
from thalweg.state.history import History


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

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query.json,
            "state": self.state,
            "error": self.error,
            "created": self.created,
            "fence": self.fence,
            "emitted": self.emitted,
            "complete_from": self.complete_from,
        }

    @staticmethod
    def from_json(id_: str, value: Mapping[str, Any]) -> Entry:
        fence = value["fence"]
        return Entry(
            id_,
            query_from_json(value["query"]),
            value["state"],
            value["error"],
            value["created"],
            None if fence is None else (fence[0], fence[1]),
            value["emitted"],
            value.get("complete_from"),
        )


def apply_changes(
    entries: Mapping[str, Entry],
    changes: Iterable[tuple[int, Mapping[str, Any]]],
    past: History,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Schema],
    moment: StreamTimes,
) -> dict[str, Entry]:
    """The entries after the requests. Dropped ones are gone; new ones know how much of the past they have."""
    after = dict(entries)
    changes = list(changes)
    dropped = {change["name"]: sequence for sequence, change in changes if change["op"] == "drop"}
    for sequence, change in changes:
        if change["op"] == "create":
            if sequence < dropped.get(change["query"]["name"], -1):
                continue  # it never saw a batch, and what it was joined with may be gone
            query = query_from_json(change["query"])
            id_ = query_id(query.name, sequence)
            entry = Entry(id_, query, created=moment.batch)
            alone = make_plan([Registered(id_, query)], streams, slots=1, tables=tables)
            then = with_joined(moment, alone.joins)
            fence = history.fence(query, alone, past.lanes, then)
            after[id_] = replace(entry, fence=fence, complete_from=history.joins_complete_from(alone, past, then))
        else:
            after = {id_: e for id_, e in after.items() if e.query.name != change["name"]}
    return after


def registered(entries: Iterable[Entry]) -> list[Registered]:
    """What takes part in the next batch: those that wait for it, too."""
    return [Registered(e.id, e.query, e.fence, e.complete_from) for e in entries if e.state != "failed"]


def without_old_fences(entries: Mapping[str, Entry], closed_us: Mapping[str, int]) -> dict[str, Entry]:
    """A fence is over when every window that starts before its event time has closed."""
    return {
        id_: replace(e, fence=None)
        if e.fence is not None
        and e.query.window is not None
        and e.fence[1] + e.query.window.range_us <= closed_us.get(e.query.stream, BEGINNING)
        else e
        for id_, e in entries.items()
    }
