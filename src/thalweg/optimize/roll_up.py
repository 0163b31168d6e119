"""After slices, because only a grouping whose slices fit can serve another; before rows are sent whole, because a
grouping that is rolled up needs no rows: coarser groupings are made from partials of finer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.model.partitioning import COMBINE
from thalweg.model.plan import Grouping
from thalweg.model.plan_input import GroupingLoad
from thalweg.optimize.draft import Draft, RolledUp, again

FEW = 0.5
"""Groups per row up to which a roll-up pays: it costs per partial what a pass costs per row. From facts: rolling
245,000 partials of (a, b) up to (a) takes 6 ms where a million rows take 29 ms."""
UNMEASURED = 0.25
"""Groups per row of a grouping that has not been measured: a finer one is taken to be worth it."""
Loads = tuple[GroupingLoad | None, ...]


def roll_up(draft: Draft, last: Draft) -> Draft:
    loads = draft.given.measurements.groupings
    apart = frozenset(key for key, name in draft.pins.items() if name != COMBINE)
    rolled_up = {}
    for stream in draft.shares:
        ids = draft.of_stream.get(stream, ())
        groupings = tuple(draft.groupings[id_].value for id_ in ids)
        measured: Loads = tuple(loads.get(id_) for id_ in ids)
        names = tuple(draft.shared[id_].names for id_ in ids)
        rolled_up[stream] = again(last.rolled_up.get(stream), _roll_up, groupings, names, measured, apart)
    return replace(draft, rolled_up=rolled_up)


def _roll_up(
    groupings: tuple[Grouping, ...], names: tuple[frozenset[str], ...], loads: Loads, apart: frozenset[str]
) -> RolledUp:
    """`apart`: route keys that a partitioner deals out."""
    result = {g.id: g for g in groupings}
    read = dict(zip(result, names, strict=True))
    ratios = {
        g.id: UNMEASURED if load is None else load.groups_per_row for g, load in zip(groupings, loads, strict=True)
    }
    # A finer grouping is rolled up itself after all that it serves: it has more keys than they have.
    can = [g for g in groupings if not g.values and (not apart or g.route_key not in apart)]
    keys = {g.id: frozenset(g.keys) for g in can}
    fine = [g for g in can if ratios[g.id] <= FEW]
    notes = []
    for coarse in sorted(can, key=lambda g: (len(g.keys), g.id)):
        options = [g for g in fine if keys[coarse.id] < keys[g.id] and _slices_fit(g, coarse)]
        # Groups are many more in the finer one, and users' code is called for each.
        if not options or any(p.own is not None for p in coarse.partials):
            continue
        chosen = min(options, key=lambda o: (ratios[o.id], len(o.keys), o.id))
        result[chosen.id] = _with_partials_of(result[chosen.id], result[coarse.id])
        result[coarse.id] = replace(result[coarse.id], finer=chosen.id)
        read[chosen.id] |= read[coarse.id]
        note = f"{coarse.id} by {_keys(coarse)} is rolled up from {chosen.id} by {_keys(chosen)}"
        notes.append((len(coarse.keys), coarse.id, note))
    return RolledUp(result, read, tuple(notes))


def _slices_fit(fine: Grouping, coarse: Grouping) -> bool:
    return coarse.slice_us % fine.slice_us == 0 and (coarse.slice_start_us - fine.slice_start_us) % fine.slice_us == 0


def _with_partials_of(fine: Grouping, coarse: Grouping) -> Grouping:
    names = {p.name for p in (*fine.partials, *fine.extra)}
    extra = tuple(p for p in (*coarse.partials, *coarse.extra) if p.name not in names)
    return replace(fine, extra=(*fine.extra, *extra)) if extra else fine


def notes_of(rolled_up: Mapping[str, RolledUp]) -> tuple[str, ...]:
    """Of all streams, those of the coarsest groupings first."""
    return tuple(note for _, _, note in sorted(note for rolled in rolled_up.values() for note in rolled.notes))


def _keys(grouping: Grouping) -> str:
    return "(" + ", ".join(grouping.keys) + ")"
