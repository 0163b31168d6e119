"""Since when the state is whole: what a query that comes later can count on.

Of slices, each partial is complete from an event time on. Of rows, a store remembers which it wanted, and what of
them, for as long as it holds any from then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from thalweg.model.bucket import RowBucket, usable
from thalweg.model.failure import Failures, failed_columns
from thalweg.model.history import History, RowHistory, SliceHistory
from thalweg.model.manifest import Manifest
from thalweg.model.plan import Grouping, Plan, queries_of
from thalweg.model.query import Query, Window
from thalweg.model.times import BatchTimes, StreamTimes
from thalweg.model.windows import BEGINNING

MOST_CHOICES = 8
"""Of a store that are remembered each by itself; of what was before them, what they have in common."""


# -- slices


def next_lanes(
    lanes: Mapping[str, SliceHistory], plan: Plan, moment: StreamTimes, failed: Collection[str]
) -> dict[str, SliceHistory]:
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


def _next_lane(
    lane: SliceHistory | None, grouping: Grouping, moment: StreamTimes, whole: Collection[str]
) -> SliceHistory:
    unseen = moment.unseen(grouping.stream)
    known = {} if lane is None else lane.since
    grid = (grouping.slice_us, grouping.slice_start_us)
    grids = () if lane is None else lane.grids
    if not grids or grids[-1][:2] != grid:
        grids = (*grids, (*grid, unseen))
    first = held_from(grouping.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    while len(grids) > 1 and grids[1][2] <= first:
        grids = grids[1:]
    floor = BEGINNING
    if lane is not None and lane.windows != grouping.windows:
        # What the windows of before did not need is gone, even if a longer window has joined since.
        floor = held_from(lane.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    names = [p.name for p in grouping.partials if p.name in whole]
    since = {name: max(known[name], floor) if name in known else unseen for name in names}
    return SliceHistory(since, grids, grouping.windows)


def held_from(windows: Iterable[Window], closed_us: int) -> int:
    """The event time from which on no slice has expired: some window that starts there is still open."""
    if closed_us <= BEGINNING:
        return BEGINNING
    return min(_first_open(window, closed_us) for window in windows)


def _first_open(window: Window, closed_us: int) -> int:
    """The start of the earliest window that has not closed."""
    past = closed_us - window.range_us
    return past - (past - window.start_us) % window.slide_us + window.slide_us


# -- rows


def next_stores(
    manifest: Manifest,
    plan: Plan,
    clock: BatchTimes,
    made: Sequence[RowBucket],
    replaced: set[str],
    moment: StreamTimes,
    seen: Mapping[str, int],
    failures: Failures,
) -> tuple[tuple[RowBucket, ...], dict[str, int]]:
    """The live buckets after a batch, and from which event time on each store holds every row.

    `seen`: the greatest event time of each stream after the batch.
    """
    held_from: dict[str, int] = {}
    # Up to format 3 nobody wrote down what the stores had wanted: nothing can be said of the rows from then.
    known = {} if manifest.choices is None else manifest.held_from
    for name, store in plan.joins.stores.items():
        held_from[name] = known.get(name, moment.unseen(name) - 1)
        reads = {*store.columns, *(column for p in store.predicates for column in p.computed)}
        if reads & failed_columns(failures, name):
            # What fails is NULL for all rows beside it, so that they were not chosen, or are in no index.
            held_from[name] = max(held_from[name], seen.get(name, BEGINNING))
    live = []
    for bucket in (*(b for b in manifest.stores if b.name not in replaced), *made):
        if bucket.relation not in plan.joins.stores:
            continue
        high, needs = bucket.layout.high_us, plan.joins.stores[bucket.relation].needs
        if any(high + reach > min(clock.closing_us[s] for s in streams) for streams, reach in needs):
            live.append(bucket)
        else:
            held_from[bucket.relation] = max(held_from[bucket.relation], high)
    return tuple(live), {name: max(us, BEGINNING) for name, us in held_from.items()}


def next_choices(
    known: Mapping[str, Sequence[RowHistory]], plan: Plan, seen: Mapping[str, int], held_from: Mapping[str, int]
) -> dict[str, tuple[RowHistory, ...]]:
    """With what they wanted in this batch. What concerns only rows that are gone is forgotten."""
    after = {}
    for name, store in plan.joins.stores.items():
        if name not in plan.joins.intermediates:
            predicates = tuple(p.id for p in store.predicates)
            now = RowHistory(predicates, store.keeps_all, frozenset(store.columns), seen.get(name, BEGINNING))
            before = [c for c in known.get(name, ()) if c.until > held_from[name] and not c.is_like(now)]
            if len(before) >= MOST_CHOICES:
                before = [before[0].common(before[1]), *before[2:]]
            after[name] = (*before, now)
    return after


# -- for a query that comes


def joins_complete_from(alone: Plan, past: History, moment: StreamTimes) -> int | None:
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


def fence(
    query: Query, alone: Plan, lanes: Mapping[str, SliceHistory], moment: StreamTimes
) -> tuple[int, int] | None:
    """None where the state holds all that the query's open windows need; else from when on it does."""
    window = query.window
    if window is None:
        return None
    closed = moment.closed_us.get(query.stream, BEGINNING)
    complete = max(_complete_from(g, lanes.get(id_), window, closed, moment) for id_, g in alone.groupings.items())
    first_open = BEGINNING if closed <= BEGINNING else _first_open(window, closed)
    return None if complete <= first_open else (moment.batch, complete)


def _complete_from(
    grouping: Grouping, lane: SliceHistory | None, window: Window, closed: int, moment: StreamTimes
) -> int:
    unseen = moment.unseen(grouping.stream)
    if lane is None or any(p.name not in lane.since for p in grouping.partials):
        return unseen
    fitting = unseen
    for width, start, since in reversed(lane.grids):
        if window.range_us % width or window.slide_us % width or (window.start_us - start) % width:
            break
        fitting = since
    return max(fitting, held_from(lane.windows, closed), *(lane.since[p.name] for p in grouping.partials))
