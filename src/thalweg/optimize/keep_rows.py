"""After roll-ups, because what partials weigh is known then; before rows are sent whole, because rows that are kept
need not be: a stream's rows may themselves be the state of its groupings.

A thousand queries over twenty thousand rows a batch make fifty times as many bytes of partials as there are bytes of
rows. Then the rows are kept, once for all groupings, and groupings are made of them when windows close. Every slot
reads them all, so they have to be that much fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thalweg.model.plan import route_key
from thalweg.model.stream import Stream
from thalweg.optimize.draft import Draft, RolledUp, SharedGrouping, StreamShare, again
from thalweg.optimize.send_rows_whole import (
    STILL_MANY,
    Loads,
    partials_width,
    row_width,
    widths,
)

WORTH = 2.0
"""From so many times the bytes of rows on, partials make room for them."""
STILL_WORTH = 1.0
"""Below, groupings are made at once again."""
UNMEASURED = 0.0
"""Groups per row of a grouping that has not been measured: its partials are made at first, which measures it. A guess
would be wrong for large batches or for small ones, and rows that are kept have to be added up until their windows
have closed."""
MOST_OVERLAP = 16
"""Windows that a row may be in: it is added up in each of them, where partials would be merged."""


def keep_rows(draft: Draft, last: Draft) -> Draft:
    given = draft.given
    updated = _updated(draft, last)
    shown = {stream for stream, _ in updated}
    kept = dict(draft.begun(last).kept_rows)
    for name in draft.touched:
        ids = draft.of_stream.get(name, ())
        loads: Loads = tuple(given.measurements.groupings.get(id_) for id_ in ids)
        made_from = (
            draft.streams[name],
            draft.shares[name].value,
            draft.rolled_up[name],
            columns_kept(draft, name),
            loads,
            given.settings.slots,
            name in given.measurements.kept_rows,
            name in given.streams and name not in shown and _may([draft.shared[id_] for id_ in ids], draft),
        )
        kept[name] = again(last.kept_rows.get(name), _are_worth, *made_from)
    return replace(draft, updated=updated, kept_rows={name: kept[name] for name in draft.shares})


def _updated(draft: Draft, last: Draft) -> frozenset[tuple[str, str]]:
    """The queries that show updates, with their streams."""
    gone = {running.id for running in draft.gone}
    new = {(r.query.stream, r.id) for r in draft.new if r.query.emit == "updates"}
    return frozenset({one for one in draft.begun(last).updated if one[1] not in gone} | new)


def _may(groupings: Sequence[SharedGrouping], draft: Draft) -> bool:
    """Whether rows of base streams can be the state of these: users' code runs where rows come in, and what a user
    has asked to be dealt out is."""
    return not any(
        g.calls_users_code
        or (draft.pins and route_key(g.stream, g.keys) in draft.pins)
        or g.most_windows > MOST_OVERLAP
        for g in groupings
    )


def _are_worth(
    stream: Stream,
    share: StreamShare,
    rolled_up: RolledUp,
    columns: frozenset[str],
    loads: Loads,
    slots: int,
    so_far: bool,
    may: bool,
) -> bool:
    """By bytes per row, either way. `columns`: what a row that is kept has."""
    groupings = rolled_up.made.values()
    if not may or not groupings:
        return False
    width_of = widths(stream, share)
    ratios = [UNMEASURED if load is None else load.groups_per_row for load in loads]
    # Of groupings that combining hardly makes smaller, rows are sent whole: shared too, and only where needed.
    combined = [(rolled, ratio) for rolled, ratio in zip(groupings, ratios, strict=True) if ratio < STILL_MANY]
    partials = sum(partials_width(rolled, width_of) * ratio for rolled, ratio in combined)
    rows = row_width(columns, width_of) * slots
    return partials > rows * (STILL_WORTH if so_far else WORTH)


def columns_kept(draft: Draft, name: str) -> frozenset[str]:
    """The columns that rows come with from which all groupings of the stream can be made."""
    stream = draft.streams[name]
    made_from = (draft.shared[id_].columns for id_ in draft.of_stream.get(name, ()))
    return frozenset((stream.time,)).union(*made_from)
