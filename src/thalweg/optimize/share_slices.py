"""After aggregates have been taken apart: queries with equal keys over one stream share one grouping, and the windows
of all of them decide on its slices. Roll-ups need to know those, so they come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.model.plan import Grouping
from thalweg.model.window import slice_grid
from thalweg.optimize.asking import AskingOrder, ask_otherwise
from thalweg.optimize.draft import AskedGrouping, Draft, SharedGrouping, again, as_before


def share_slices(draft: Draft, last: Draft) -> Draft:
    begun = draft.begun(last)
    gone = {running.id: last.parts[running.id].value.groupings for running in draft.gone}
    new = {running.id: draft.parts[running.id].value.groupings for running in draft.new}
    for id_ in [id_ for id_, asks in new.items() if gone.get(id_) == asks]:
        del gone[id_], new[id_]  # something else of it has changed
    first = {asks.id: asks for several in (*gone.values(), *new.values()) for asks in several}
    shared = dict(begun.shared)
    for id_, asks in first.items():
        known = begun.shared.get(id_) or SharedGrouping(id_, asks.stream, asks.keys, asks.values)
        share = _ask_otherwise(known, _of(id_, gone), _of(id_, new), draft)
        shared[id_] = share if draft.continues else as_before(last.shared.get(id_), share)
    shared = _in_order({id_: share for id_, share in shared.items() if share.windows}, draft)
    groupings = dict(begun.groupings)
    for id_ in first:
        if id_ in shared:
            groupings[id_] = again(last.groupings.get(id_), _grouping, shared[id_])
    of_stream: dict[str, list[str]] = {}
    for share in shared.values():
        of_stream.setdefault(share.stream, []).append(share.id)
    return replace(
        draft,
        shared=shared,
        of_stream={stream: tuple(ids) for stream, ids in of_stream.items()},
        groupings={id_: groupings[id_] for id_ in shared},
    )


def _of(grouping: str, of_queries: Mapping[str, tuple[AskedGrouping, ...]]) -> dict[str, AskedGrouping]:
    """By query, what it asks of the grouping."""
    return {id_: asks for id_, several in of_queries.items() for asks in several if asks.id == grouping}


def _ask_otherwise(
    known: SharedGrouping, gone: Mapping[str, AskedGrouping], new: Mapping[str, AskedGrouping], draft: Draft
) -> SharedGrouping:
    def of(id_: str) -> AskedGrouping:
        return _of(known.id, {id_: draft.parts[id_].value.groupings})[id_]

    by_partial = AskingOrder(draft.ranks, draft.tail, lambda id_: _partials(of(id_)))
    by_window = AskingOrder(draft.ranks, draft.tail, lambda id_: (of(id_).window,))
    partials_for = ask_otherwise(
        known.partials_for,
        {id_: _partials(asks) for id_, asks in gone.items()},
        {id_: _partials(asks) for id_, asks in new.items()},
        by_partial,
    )
    windows_for = ask_otherwise(
        known.windows_for,
        {id_: (asks.window,) for id_, asks in gone.items()},
        {id_: (asks.window,) for id_, asks in new.items()},
        by_window,
    )
    if not windows_for:
        return replace(known, windows={})
    added = {partial.name: partial for asks in new.values() for partial in asks.partials}
    partials = {name: known.partials.get(name) or added[name] for name in partials_for}
    # What only those that have gone named is in it no more: all others are asked.
    asking = [of(id_) for ids in windows_for.values() for id_ in ids] if gone else [*new.values()]
    before = SharedGrouping(known.id, known.stream, known.keys, known.values) if gone else known
    own = draft.streams[known.stream].schema.names
    return replace(
        known,
        partials=partials,
        windows=dict.fromkeys(windows_for),
        names=before.names.union(*(asks.names for asks in asking)),
        columns=before.columns.union(*(asks.columns for asks in asking)).intersection(own),
        calls_users_code=before.calls_users_code or any(p.own is not None for asks in asking for p in asks.partials),
        partials_for=partials_for,
        windows_for=windows_for,
    )


def _partials(asked: AskedGrouping) -> list[str]:
    return [partial.name for partial in asked.partials]


def _in_order(shared: dict[str, SharedGrouping], draft: Draft) -> dict[str, SharedGrouping]:
    """As they were first asked for."""
    if draft.only_adds:
        return shared

    def place(id_: str) -> tuple[int, int]:
        first = min((ids[0] for ids in shared[id_].windows_for.values()), key=draft.ranks.__getitem__)
        return draft.ranks[first], [asks.id for asks in draft.parts[first].value.groupings].index(id_)

    return {id_: shared[id_] for id_ in sorted(shared, key=place)}


def _grouping(shared: SharedGrouping) -> Grouping:
    """With slices that no window of any of its queries cuts."""
    windows = tuple(shared.windows)
    width, start = slice_grid(windows)
    return Grouping(
        id=shared.id,
        stream=shared.stream,
        keys=shared.keys,
        values=shared.values,
        partials=tuple(shared.partials.values()),
        windows=windows,
        slice_us=width,
        slice_start_us=start,
    )
