"""Queries created and dropped: from a durable request to an entry that batches run with.

A request is in the change log before it is acknowledged. The next batch takes all requests that are there,
at once, and its manifest holds the outcome: entries, and from which event time on each partial is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thalweg.model.bucket import Layout, usable
from thalweg.model.plan import Grouping, Plan, queries_of
from thalweg.model.probe import JoinPlan
from thalweg.model.query import Query, Window, query_from_json, query_id
from thalweg.model.stream import Schema, Stream
from thalweg.model.windows import BEGINNING
from thalweg.optimize.grouping import Registered, make_plan


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


@dataclass(frozen=True)
class Lane:
    """What is known of one grouping's state: from when on it is complete, in event time."""

    since: Mapping[str, int]
    """partial -> event time from which on no row is missing in it."""
    grids: tuple[tuple[int, int, int], ...]
    """(slice width, first edge, event time from which on slices are on this grid), oldest first."""
    windows: tuple[Window, ...]

    def to_json(self) -> dict[str, Any]:
        windows = [[w.range_us, w.slide_us, w.start_us] for w in self.windows]
        return {"since": dict(self.since), "grids": [list(g) for g in self.grids], "windows": windows}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Lane:
        return Lane(
            dict(value["since"]),
            tuple((g[0], g[1], g[2]) for g in value["grids"]),
            tuple(Window(*w) for w in value["windows"]),
        )


@dataclass(frozen=True)
class Moment:
    """Where the streams stand when a batch begins."""

    batch: int
    max_time_us: Mapping[str, int | None]
    closed_us: Mapping[str, int] = field(default_factory=dict)

    def unseen(self, stream: str) -> int:
        """The event time from which on no row has been read before this batch."""
        seen = self.max_time_us.get(stream)
        return BEGINNING if seen is None else seen + 1


@dataclass(frozen=True)
class Choice:
    """Which rows of a stream its store wanted for some batches, and what of them."""

    layout: Layout
    columns: frozenset[str]
    until: int
    """The greatest event time that had been seen by their end."""

    def is_like(self, other: Choice) -> bool:
        return self.layout == other.layout and self.columns == other.columns

    def common(self, later: Choice) -> Choice:
        """What can be said of the batches of both."""
        predicates = tuple(p for p in self.layout.predicates if p in later.layout.predicates)
        layout = Layout(predicates, self.layout.keeps_all and later.layout.keeps_all, 0, 0, {})
        return Choice(layout, self.columns & later.columns, max(self.until, later.until))


@dataclass(frozen=True)
class Past:
    """What the state holds of earlier batches."""

    lanes: Mapping[str, Lane]
    held_from: Mapping[str, int]
    """stream -> event time after which no row that its store wanted has been dropped from it."""
    choices: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    """stream -> what its store has wanted, for all rows after `held_from`."""


def joined_moment(moment: Moment, joins: JoinPlan) -> Moment:
    """The moment with the streams of joined rows in it. What is joined later has no row older than `unseen`."""
    times, closed = dict(moment.max_time_us), dict(moment.closed_us)
    for name, joined in joins.joined.items():
        seen = [t for s in joined.streams if (t := moment.max_time_us.get(s)) is not None]
        times[name] = max(seen) + joined.span_us if seen else None
        ends = [moment.closed_us.get(s, BEGINNING) for s in joined.streams]
        closed.setdefault(name, max(BEGINNING, min(ends) - joined.lag_us))
    return Moment(moment.batch, times, closed)


def apply_changes(
    entries: Mapping[str, Entry],
    changes: Iterable[tuple[int, Mapping[str, Any]]],
    past: Past,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Schema],
    moment: Moment,
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
            then = joined_moment(moment, alone.joins)
            fence = _fence(query, alone, past.lanes, then)
            after[id_] = replace(entry, fence=fence, complete_from=_joins_complete_from(alone, past, then))
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


def next_lanes(lanes: Mapping[str, Lane], plan: Plan, moment: Moment, failed: Collection[str]) -> dict[str, Lane]:
    """What will be complete since when, once a batch has run under this plan and these queries have failed."""
    whole = {id_: {p.name for p in g.partials} for id_, g in plan.groupings.items()}
    if failed:
        whole = {id_: names & _served(plan, id_, failed) for id_, names in whole.items()}
    return {id_: _next_lane(lanes.get(id_), g, moment, whole[id_]) for id_, g in plan.groupings.items()}


def _served(plan: Plan, grouping: str, failed: Collection[str]) -> set[str]:
    """The partials of a grouping that some query without a failure needs. Of others rows may be missing: what fails
    is NULL for all rows beside it, and an equal query may come before the next batch lets go of them."""
    users = plan.streams[plan.groupings[grouping].stream].users
    healthy = queries_of(plan, {grouping}) - {*failed}
    return {name for name, queries in users.items() if healthy.intersection(queries)}


def _next_lane(lane: Lane | None, grouping: Grouping, moment: Moment, whole: Collection[str]) -> Lane:
    unseen = moment.unseen(grouping.stream)
    known = {} if lane is None else lane.since
    grid = (grouping.slice_us, grouping.slice_start_us)
    grids = () if lane is None else lane.grids
    if not grids or grids[-1][:2] != grid:
        grids = (*grids, (*grid, unseen))
    first = held_from(grouping.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    while len(grids) > 1 and grids[1][2] <= first:
        grids = grids[1:]
    # What the windows of before did not need is gone, even if a longer window has joined since.
    floor = BEGINNING if lane is None else held_from(lane.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    names = [p.name for p in grouping.partials if p.name in whole]
    since = {name: max(known[name], floor) if name in known else unseen for name in names}
    return Lane(since, grids, grouping.windows)


def held_from(windows: Iterable[Window], closed_us: int) -> int:
    """The event time from which on no slice has expired: some window that starts there is still open."""
    if closed_us <= BEGINNING:
        return BEGINNING
    return min(_first_open(window, closed_us) for window in windows)


def _first_open(window: Window, closed_us: int) -> int:
    """The start of the earliest window that has not closed."""
    past = closed_us - window.range_us
    return past - (past - window.start_us) % window.slide_us + window.slide_us


def _joins_complete_from(alone: Plan, past: Past, moment: Moment) -> int | None:
    """The event time after which the stores hold every row that the query's relations need."""
    complete = BEGINNING
    for group in alone.joins.groups.values():
        for role in group.roles.values():
            held = past.held_from.get(role.stream)
            if held is None:
                complete = max(complete, moment.unseen(role.stream) - 1)
                continue
            complete = max(complete, held)
            if role.stream not in past.choices:
                complete = max(complete, moment.unseen(role.stream) - 1)
            for choice in past.choices.get(role.stream, ()):
                if not all(usable(choice.layout, choice.columns, want) for want in role.wants):
                    complete = max(complete, choice.until)
    # Of a row without a partner one must know all that could have been one: those are so much earlier.
    earlier = max([0, *(decision.before_us for decision in alone.joins.decisions)])
    return None if complete <= BEGINNING else complete + earlier


def _fence(query: Query, alone: Plan, lanes: Mapping[str, Lane], moment: Moment) -> tuple[int, int] | None:
    """None where the state holds all that the query's open windows need; else from when on it does."""
    window = query.window
    if window is None:
        return None
    closed = moment.closed_us.get(query.stream, BEGINNING)
    complete = max(_complete_from(g, lanes.get(id_), window, closed, moment) for id_, g in alone.groupings.items())
    first_open = BEGINNING if closed <= BEGINNING else _first_open(window, closed)
    return None if complete <= first_open else (moment.batch, complete)


def _complete_from(grouping: Grouping, lane: Lane | None, window: Window, closed: int, moment: Moment) -> int:
    unseen = moment.unseen(grouping.stream)
    if lane is None or any(p.name not in lane.since for p in grouping.partials):
        return unseen
    fitting = unseen
    for width, start, since in reversed(lane.grids):
        if window.range_us % width or window.slide_us % width or (window.start_us - start) % width:
            break
        fitting = since
    return max(fitting, held_from(lane.windows, closed), *(lane.since[p.name] for p in grouping.partials))
