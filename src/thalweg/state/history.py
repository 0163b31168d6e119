"""Since when the state is whole: what a query that comes later can count on.

Of slices, each partial is complete from an event time on. Of rows, a store remembers which it wanted, and what of
them, for as long as it holds any from then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from thalweg.model.bucket import RowBucket, usable
from thalweg.model.failure import Failures, failed_columns
from thalweg.model.history import History, RowHistory, SliceHistory, WantedRows
from thalweg.model.plan import Grouping, Plan, queries_of
from thalweg.model.probe import Store
from thalweg.model.query import Query
from thalweg.model.times import StreamTimes
from thalweg.model.window import BEGINNING, Window

MOST_WANTED = 8
"""What a store wanted that is remembered each by itself; of what was before them, what they have in common."""


@dataclass(frozen=True)
class BatchLosses:
    """What makes the state less whole after a batch."""

    seen: Mapping[str, int]
    """stream -> its greatest event time by now."""
    failed: Collection[str]
    """Queries."""
    failures: Failures
    gone: Sequence[RowBucket]
    """Buckets of rows that nobody keeps any more."""


def next_history(past: History, plan: Plan, moment: StreamTimes, losses: BatchLosses) -> History:
    """What will be whole since when, once a batch has run under this plan."""
    whole = {id_: {p.name for p in g.partials} for id_, g in plan.groupings.items()}
    if losses.failed:
        whole = {id_: names & _served(plan, id_, losses.failed) for id_, names in whole.items()}
    return History(
        {id_: _next_slices(past.slices.get(id_), g, moment, whole[id_]) for id_, g in plan.groupings.items()},
        {
            name: _next_rows(past.rows.get(name), store, moment, losses, finds=name not in plan.joins.intermediates)
            for name, store in plan.joins.stores.items()
        },
    )


# -- slices


def _served(plan: Plan, grouping: str, failed: Collection[str]) -> set[str]:
    """The partials of a grouping that some query without a failure needs. Of others rows may be missing: what fails
    is NULL for all rows beside it, and an equal query may come before the next batch lets go of them."""
    users = plan.streams[plan.groupings[grouping].stream].users
    healthy = queries_of(plan, {grouping}) - {*failed}
    return {name for name, queries in users.items() if healthy.intersection(queries)}


def _next_slices(
    past: SliceHistory | None, grouping: Grouping, moment: StreamTimes, whole: Collection[str]
) -> SliceHistory:
    unseen = moment.unseen(grouping.stream)
    known = {} if past is None else past.since
    grid = (grouping.slice_us, grouping.slice_start_us)
    grids = () if past is None else past.grids
    if not grids or grids[-1][:2] != grid:
        grids = (*grids, (*grid, unseen))
    first = held_from(grouping.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    while len(grids) > 1 and grids[1][2] <= first:
        grids = grids[1:]
    floor = BEGINNING
    if past is not None and past.windows != grouping.windows:
        # What the windows of before did not need is gone, even if a longer window has joined since.
        floor = held_from(past.windows, moment.closed_us.get(grouping.stream, BEGINNING))
    names = [p.name for p in grouping.partials if p.name in whole]
    since = {name: max(known[name], floor) if name in known else unseen for name in names}
    return SliceHistory(since, grids, grouping.windows)


def held_from(windows: Iterable[Window], closed_us: int) -> int:
    """The event time from which on no slice has expired: some window that starts there is still open."""
    if closed_us <= BEGINNING:
        return BEGINNING
    return min(window.first_open(closed_us) for window in windows)


def known_from(lane: SliceHistory, closed_us: int) -> SliceHistory:
    """Of a watermark that begins anew, having closed so far: slices that had expired then are not whole."""
    first = held_from(lane.windows, closed_us)
    return structs.replace(lane, since={name: max(us, first) for name, us in lane.since.items()})


# -- rows


def _next_rows(
    past: RowHistory | None, store: Store, moment: StreamTimes, losses: BatchLosses, *, finds: bool
) -> RowHistory:
    """`finds`: whether a query that comes may find the store's rows."""
    name = store.stream
    now = losses.seen.get(name, BEGINNING)
    is_known = past is not None and (past.wanted is not None or not finds)
    held = past.held_from if past is not None and is_known else moment.unseen(name) - 1
    reads = {*store.columns, *(column for p in store.predicates for column in p.computed)}
    if reads & failed_columns(losses.failures, name):
        # What fails is NULL for all rows beside it, so that they were not chosen, or are in no index.
        held = max(held, now)
    held = max(BEGINNING, held, *(b.layout.high_us for b in losses.gone if b.relation == name))
    if not finds:
        return RowHistory(held, None)
    wanted = WantedRows(tuple(p.id for p in store.predicates), store.keeps_all, frozenset(store.columns), now)
    known = () if past is None else past.wanted or ()
    before = [w for w in known if w.until > held and not w.is_like(wanted)]
    if len(before) >= MOST_WANTED:
        before = [before[0].common(before[1]), *before[2:]]
    return RowHistory(held, (*before, wanted))


# -- for a query that comes


def joins_complete_from(alone: Plan, past: History, moment: StreamTimes) -> int | None:
    """The event time after which the stores hold every row that the query's relations need."""
    complete = BEGINNING
    for cohort in alone.joins.cohorts.values():
        for role in cohort.roles.values():
            rows = past.rows.get(role.stream)
            if rows is None or rows.wanted is None:
                complete = max(complete, moment.unseen(role.stream) - 1)
                continue
            complete = max(complete, rows.held_from)
            for wanted in rows.wanted:
                if not all(usable(wanted.layout, wanted.columns, want) for want in role.wants):
                    complete = max(complete, wanted.until)
    # Of a row without a partner one must know all that could have been one: those are so much earlier.
    earlier = max([0, *(decision.before_us for decision in alone.joins.decisions)])
    return None if complete <= BEGINNING else complete + earlier


def fence(query: Query, alone: Plan, past: History, moment: StreamTimes) -> tuple[int, int] | None:
    """None where the state holds all that the query's open windows need; else since when it does."""
    window = query.window
    if window is None:
        return None
    closed = moment.closed_us.get(query.stream, BEGINNING)
    complete = max(
        _complete_from(g, past.slices.get(id_), window, closed, moment) for id_, g in alone.groupings.items()
    )
    start = BEGINNING if closed <= BEGINNING else window.first_open(closed)
    return None if complete <= start else (moment.batch, complete)


def _complete_from(
    grouping: Grouping, past: SliceHistory | None, window: Window, closed: int, moment: StreamTimes
) -> int:
    unseen = moment.unseen(grouping.stream)
    if past is None or any(p.name not in past.since for p in grouping.partials):
        return unseen
    fitting = unseen
    for width, start, since in reversed(past.grids):
        if not window.fits(width, start):
            break
        fitting = since
    return max(fitting, held_from(past.windows, closed), *(past.since[p.name] for p in grouping.partials))
