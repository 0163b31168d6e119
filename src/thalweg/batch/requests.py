"""Queries created, dropped and resumed: from a durable request to an entry that batches run with.

A request is durable before it is acknowledged. The next batch takes all requests that are there,
at once, and its manifest holds the outcome: entries, and from which event time on each partial is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from thalweg.model.entry import Entry
from thalweg.model.history import History
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.query import query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.times import StreamTimes, with_joined
from thalweg.model.window import BEGINNING
from thalweg.optimize.planner import make_plan
from thalweg.state import history
from thalweg.state.requests import (
    CreateRequest,
    DropRequest,
    PauseRequest,
    ReplaceRequest,
    Request,
    ResetRequest,
    ResumeRequest,
    StreamRequest,
)


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
    dropped = dropped_queries(requests)
    for number, request in requests:
        if isinstance(request, ReplaceRequest):
            after = _without(after, request.query.name)
        if isinstance(request, CreateRequest | ReplaceRequest):
            query = request.query
            if number < dropped.get(query.name, -1):
                continue  # it never saw a batch, and what it was joined with may be gone
            id_ = query_id(query.name, number)
            after[id_] = _enter(Entry(id_, query), past, streams, tables, moment)
        elif isinstance(request, DropRequest):
            after = _without(after, request.name)
        elif isinstance(request, ResumeRequest) and number > dropped.get(request.name, -1):
            for entry in [e for e in after.values() if e.query.name == request.name and not e.runs]:
                gap = None if entry.gap is None else structs.replace(entry.gap, until_batch=moment.batch)
                resumed = replace(entry, state="running", error=None, gap=gap)
                after[entry.id] = _enter(resumed, past, streams, tables, moment)
    return after


def dropped_queries(requests: Iterable[tuple[int, Request]]) -> dict[str, int]:
    """Name -> the last request that ended a query of that name."""
    found = {}
    for number, request in requests:
        if isinstance(request, DropRequest):
            found[request.name] = number
        elif isinstance(request, ReplaceRequest):
            found[request.query.name] = number
    return found


def _without(entries: Mapping[str, Entry], name: str) -> dict[str, Entry]:
    return {id_: entry for id_, entry in entries.items() if entry.query.name != name}


def _enter(
    entry: Entry, past: History, streams: Mapping[str, Stream], tables: Mapping[str, Schema], moment: StreamTimes
) -> Entry:
    """As one whose first batch is the next."""
    alone = make_plan(PlanInput((RunningQuery(entry.id, entry.query),), streams, tables))
    then = with_joined(moment, alone.joins)
    fence = history.fence(entry.query, alone, past, then)
    complete_from = history.joins_complete_from(alone, past, then)
    return replace(entry, created=moment.batch, fence=fence, complete_from=complete_from)


def foresee(
    entries: Mapping[str, Entry], paused: Mapping[str, str], requests: Iterable[tuple[int, Request]]
) -> tuple[dict[str, Entry], dict[str, str]]:
    """The queries there will be, and why the results of some are kept, once these requests have been applied."""
    known, kept = dict(entries), dict(paused)
    for number, request in requests:
        if isinstance(request, ReplaceRequest):
            known = _without(known, request.query.name)
        if isinstance(request, CreateRequest | ReplaceRequest):
            query = request.query
            id_ = query_id(query.name, number)
            known[id_] = Entry(id_, query, "pending")
            continue
        if isinstance(request, ResetRequest | StreamRequest):
            continue
        for id_ in [e.id for e in known.values() if e.query.name == request.name]:
            kept.pop(id_, None)
            if isinstance(request, DropRequest):
                del known[id_]
            elif isinstance(request, PauseRequest):
                kept[id_] = ""
    return known, {id_: reason for id_, reason in kept.items() if id_ in known}


def running_queries(entries: Iterable[Entry]) -> tuple[RunningQuery, ...]:
    """What takes part in the next batch: those that wait for it, too."""
    return tuple(RunningQuery(e.id, e.query, e.fence, e.complete_from) for e in entries if e.runs)


def without_old_fences(entries: Mapping[str, Entry], closed_us: Mapping[str, int]) -> dict[str, Entry]:
    """A fence is over when every window that starts before its event time has closed."""
    return {
        id_: replace(e, fence=None)
        if e.fence is not None
        and e.query.window is not None
        and e.query.window.end_of(e.fence[1]) <= closed_us.get(e.query.stream, BEGINNING)
        else e
        for id_, e in entries.items()
    }
