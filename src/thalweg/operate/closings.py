"""Which windows a slot finishes in a batch, of what, and for whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import lru_cache

from thalweg.model.plan import Plan, WindowedQuery
from thalweg.model.times import BatchTimes
from thalweg.model.window import BEGINNING, Stretch, Window
from thalweg.operate.finish import MOST_KNOWN, Closing
from thalweg.operate.grouping_state import GroupingState
from thalweg.operate.kept_rows import KeptRows

END = -BEGINNING


def closings(
    plan: Plan,
    clock: BatchTimes,
    states: Mapping[str, GroupingState],
    rows: Mapping[str, KeptRows],
    uncollected: Collection[str] = (),
) -> list[tuple[Closing, int]]:
    """What is to be finished: (closing, first batch that counts), queries that see the same rows together.
    `uncollected`: the queries whose results nobody takes."""
    found = []
    for (_, window, updates, sight), members in _shares(plan).items():
        stream = plan.groupings[members[0].main.grouping].stream
        limits = (clock.closed_us[stream], clock.closing_us[stream])
        batch_from, first, before = sight
        held = {id_: states[id_].stretches(batch_from) for id_ in _groupings_of(members)}
        of_rows = rows[stream].stretches(batch_from) if stream in rows else set[Stretch]()
        if updates:
            main = states[members[0].main.grouping]
            touched = {(s, main.grouping.slice_us) for s in main.arrived_starts}
            chosen = {w for s in touched for w in window.starts_of(s, limits[0], END)}
        else:
            stretches = of_rows.union(*held.values())
            chosen = {w for s in stretches for w in window.starts_of(s, *limits)}
        chosen = {w for w in chosen if first <= w < before}
        if chosen:
            parts = {id_: _cover(window, chosen, stretches) for id_, stretches in held.items()}
            distinct, alike = _apart(members, uncollected)
            closing = Closing(window, distinct, parts, updates, _cover(window, chosen, of_rows), alike)
            found.append((closing, batch_from))
    return found


def _cover(window: Window, starts: Set[int], stretches: Set[Stretch]) -> tuple[tuple[int, int, int], ...]:
    return tuple((start, span, w) for w, (start, span) in window.covers(starts, stretches))


_Sight = tuple[int, int, int]
"""(first batch that counts, windows from, windows before)"""


def _shares(plan: Plan) -> dict[tuple[str, Window, bool, _Sight], tuple[WindowedQuery, ...]]:
    """Members that are finished in one statement: same grouping, same window, same sight of the past."""
    shares: dict[tuple[str, Window, bool, _Sight], list[WindowedQuery]] = {}
    for member in plan.members:
        sights: list[_Sight] = [(BEGINNING, BEGINNING, END)]
        if member.fence is not None:
            batch, time = member.fence
            sights = [(batch, BEGINNING, time), (BEGINNING, time, END)]
        for sight in sights:
            share = (member.main.grouping, member.window, member.updates, sight)
            shares.setdefault(share, []).append(member)
    return {share: tuple(members) for share, members in shares.items()}


class _Content:
    """What a member's rows are made of. Its hash is made once: that of a member is of its name."""

    def __init__(self, m: WindowedQuery) -> None:
        how = (m.having, m.order, m.limit, m.updates, m.fence)
        self.of = (m.window, m.main, m.further, m.keys, m.present, m.outputs, m.types, how)
        self._hash = hash(self.of)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self.of == other.of


@lru_cache(maxsize=MOST_KNOWN)
def _content(member: WindowedQuery) -> _Content:
    return _Content(member)


def _apart(
    members: Sequence[WindowedQuery], uncollected: Collection[str]
) -> tuple[tuple[WindowedQuery, ...], dict[str, tuple[WindowedQuery, ...]]]:
    """Members with different results; and by query, those with the same. What is only counted is not the same as what
    is collected."""
    found: dict[tuple[_Content, bool], list[WindowedQuery]] = {}
    for member in members:
        found.setdefault((_content(member), member.query in uncollected), []).append(member)
    alike = {first.query: tuple(others) for first, *others in found.values() if others}
    return tuple(first for first, *_ in found.values()), alike


def _groupings_of(members: Sequence[WindowedQuery]) -> set[str]:
    return {members[0].main.grouping, *(p.grouping for m in members for p in m.further)}
