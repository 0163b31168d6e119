"""After slices, because only a grouping whose slices fit can serve another; before rows are sent whole, because a
grouping that is rolled up needs no rows: coarser groupings are made from partials of finer ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from thalweg.model.partitioning import COMBINE
from thalweg.model.plan import Grouping, Partial, route_key
from thalweg.model.plan_input import GroupingLoad
from thalweg.optimize.draft import Draft, Part, Rolled, RolledUp, SharedGrouping, again

FEW = 0.5
"""Groups per row up to which a roll-up pays: it costs per partial what a pass costs per row. From facts: rolling
245,000 partials of (a, b) up to (a) takes 6 ms where a million rows take 29 ms."""
UNMEASURED = 0.25
"""Groups per row of a grouping that has not been measured: a finer one is taken to be worth it."""


class _Candidate(NamedTuple):
    """What decides on roll-ups."""

    id: str
    keys: tuple[str, ...]
    slice_us: int
    slice_start_us: int
    calls_users_code: bool
    ratio: float
    """Groups per row."""


def roll_up(draft: Draft, last: Draft) -> Draft:
    loads = draft.given.measurements.groupings
    apart = frozenset(key for key, name in draft.pins.items() if name != COMBINE)
    rolled_up = dict(draft.begun(last).rolled_up)
    for stream in draft.touched:
        known = last.rolled_up.get(stream)
        rolled_up[stream] = _roll_up(draft, draft.of_stream.get(stream, ()), loads, apart, known)
    return replace(draft, rolled_up={name: rolled_up[name] for name in draft.shares})


def _roll_up(
    draft: Draft,
    ids: tuple[str, ...],
    loads: Mapping[str, GroupingLoad],
    apart: frozenset[str],
    known: RolledUp | None,
) -> RolledUp:
    """The groupings of one stream. `apart`: route keys that a partitioner deals out."""
    groupings = {id_: draft.groupings[id_].value for id_ in ids}
    candidates = tuple(
        _candidate(draft.shared[id_], g, loads)
        for id_, g in groupings.items()
        if not g.values and (not apart or route_key(g.stream, g.keys) not in apart)
    )
    chosen = again(None if known is None else known.chosen, _choose, candidates)
    serves: dict[str, list[str]] = {}
    for coarse, fine in chosen.value.items():
        serves.setdefault(fine, []).append(coarse)
    before = {} if known is None else known.parts
    parts: dict[str, Part[Rolled]] = {}
    # A grouping is made after all that it serves: it has more keys than they have.
    for id_ in sorted(ids, key=lambda id_: (len(groupings[id_].keys), id_)):
        served = tuple(parts[coarse].value for coarse in serves.get(id_, ()))
        given = groupings[id_], draft.shared[id_].names, chosen.value.get(id_), served
        parts[id_] = again(before.get(id_), _rolled, *given)
    made = {id_: parts[id_] for id_ in ids}
    same = known is not None and chosen is known.chosen and list(before) == list(ids)
    return known if known is not None and same and before == made else RolledUp(chosen, made)


def _candidate(shared: SharedGrouping, grouping: Grouping, loads: Mapping[str, GroupingLoad]) -> _Candidate:
    load = loads.get(shared.id)
    ratio = UNMEASURED if load is None else load.groups_per_row
    slices = grouping.slice_us, grouping.slice_start_us
    return _Candidate(shared.id, shared.keys, *slices, shared.calls_users_code, ratio)


def _choose(candidates: tuple[_Candidate, ...]) -> dict[str, str]:
    """coarser -> finer, the coarsest first."""
    keys = {c.id: frozenset(c.keys) for c in candidates}
    few = [c for c in candidates if c.ratio <= FEW]
    found = {}
    for coarse in sorted(candidates, key=lambda c: (len(c.keys), c.id)):
        # Groups are many more in the finer one, and users' code is called for each.
        if not coarse.calls_users_code:
            options = [fine for fine in few if keys[coarse.id] < keys[fine.id] and _slices_fit(fine, coarse)]
            if options:
                found[coarse.id] = min(options, key=lambda o: (o.ratio, len(o.keys), o.id)).id
    return found


def _slices_fit(fine: _Candidate, coarse: _Candidate) -> bool:
    return coarse.slice_us % fine.slice_us == 0 and (coarse.slice_start_us - fine.slice_start_us) % fine.slice_us == 0


def _rolled(grouping: Grouping, names: frozenset[str], finer: str | None, served: tuple[Rolled, ...]) -> Rolled:
    partials = {p.name for p in grouping.partials}
    extra: dict[str, Partial] = {}
    for coarse in served:
        for p in (*coarse.grouping.partials, *coarse.grouping.partials_for_others):
            if p.name not in partials:
                extra.setdefault(p.name, p)
    reads = names.union(*(coarse.reads for coarse in served))
    if finer is None and not served:
        return Rolled(grouping, reads)
    return Rolled(replace(grouping, rolled_up_from=finer, partials_for_others=tuple(extra.values())), reads)


def notes_of(rolled_up: Iterable[RolledUp]) -> tuple[str, ...]:
    """Of all streams, those of the coarsest groupings first."""
    notes = []
    for of_stream in rolled_up:
        for coarse, fine in of_stream.chosen.value.items():
            keys, from_keys = of_stream.made[coarse].grouping.keys, of_stream.made[fine].grouping.keys
            note = f"{coarse} by {_keys(keys)} is rolled up from {fine} by {_keys(from_keys)}"
            notes.append((len(keys), coarse, note))
    return tuple(note for _, _, note in sorted(notes))


def _keys(keys: tuple[str, ...]) -> str:
    return f"({', '.join(keys)})"
