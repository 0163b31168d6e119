"""Queries created and dropped: from a durable request to an entry that batches run with.

A request is durable before it is acknowledged. The next batch takes all requests that are there,
at once, and its manifest holds the outcome: entries, and from which event time on each partial is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thalweg.model.entry import Entry
from thalweg.model.history import History
from thalweg.model.query import query_from_json, query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.times import StreamTimes, with_joined
from thalweg.model.windows import BEGINNING
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.state import history
from thalweg.state.requests import CreateQuery, DropQuery, Request


def apply_requests(
    entries: Mapping[str, Entry],
    requests: Iterable[tuple[int, Request]],
    past: History,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Schema],
    moment: StreamTimes,
) -> dict[str, Entry]:
    """The entries after the requests. Dropped ones are gone; new ones know how much of the past they have."""
    after = dict(entries)
    requests = list(requests)
    dropped = {request.name: number for number, request in requests if isinstance(request, DropQuery)}
    for number, request in requests:
        if isinstance(request, CreateQuery):
            query = query_from_json(request.query)
            if number < dropped.get(query.name, -1):
                continue  # it never saw a batch, and what it was joined with may be gone
            id_ = query_id(query.name, number)
            entry = Entry(id_, query, created=moment.batch)
            alone = make_plan([Registered(id_, query)], streams, slots=1, tables=tables)
            then = with_joined(moment, alone.joins)
            fence = history.fence(query, alone, past.lanes, then)
            after[id_] = replace(entry, fence=fence, complete_from=history.joins_complete_from(alone, past, then))
        else:
            after = {id_: e for id_, e in after.items() if e.query.name != request.name}
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
