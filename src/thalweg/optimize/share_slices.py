"""After aggregates have been taken apart: queries with equal keys over one stream share one grouping, and the windows
of all of them decide on its slices. Roll-ups need to know those, so they come later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from thalweg.model.plan import Grouping, Partial
from thalweg.model.window import Window, slice_grid
from thalweg.optimize.draft import AskedGrouping, Draft, SharedGrouping, again, as_before


def share_slices(draft: Draft, last: Draft) -> Draft:
    begun = draft.begun(last)
    touched: dict[str, _Shared] = {}
    for running in draft.new:
        for asked in draft.parts[running.id].value.groupings:
            touched.setdefault(asked.id, _Shared(asked)).add(asked)
    shared = dict(begun.shared)
    of_stream = dict(begun.of_stream)
    for id_, new in touched.items():
        if id_ not in shared:
            of_stream[new.first.stream] = (*of_stream.get(new.first.stream, ()), id_)
        added = new.added_to(shared.get(id_))
        shared[id_] = added if draft.continues else as_before(last.shared.get(id_), added)
    groupings = {id_: again(last.groupings.get(id_), _grouping, shared[id_]) for id_ in touched}
    return replace(
        draft,
        shared=shared,
        of_stream=of_stream,
        groupings={**begun.groupings, **groupings},
    )


@dataclass
class _Shared:
    """What new queries ask of a grouping, while it is being gathered."""

    first: AskedGrouping
    partials: dict[str, Partial] = field(default_factory=dict)
    windows: dict[Window, None] = field(default_factory=dict)

    def add(self, asked: AskedGrouping) -> None:
        for partial in asked.partials:
            self.partials.setdefault(partial.name, partial)
        self.windows.setdefault(asked.window)

    def added_to(self, known: SharedGrouping | None) -> SharedGrouping:
        of = self.first
        known = known or SharedGrouping(of.id, of.stream, of.keys, of.values)
        partials = {name: partial for name, partial in self.partials.items() if name not in known.partials}
        names = {name for partial in partials.values() for name in partial.reads}
        return replace(
            known,
            partials={**known.partials, **partials},
            windows={**known.windows, **self.windows},
            names=known.names | names,
            calls_users_code=known.calls_users_code or any(p.own is not None for p in partials.values()),
        )


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
