"""After queries have been taken apart, before columns are counted: each expression is computed once for all who ask.

What probes need of a stream comes after what its own queries ask, so that a join that comes or goes does not move
their columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from thalweg.model.plan import Computed, Selection
from thalweg.optimize.draft import NOTHING, Asked, Draft, StreamShare, again, as_before

EMPTY = StreamShare()


def share_expressions(draft: Draft, last: Draft) -> Draft:
    begun, new = draft.begun(last), [(running.id, draft.parts[running.id].value) for running in draft.new]
    joins = [draft.joins[id_].value for id_, _ in new if id_ in draft.joins]
    own = [(id_, asked) for id_, split in new for asked in split.asked]
    probes = [(join.id, asked) for join in joins if join.probes for asked in join.asked]
    alone = [(join.id, asked) for join in joins if not join.probes for asked in join.asked]
    selections = [split.selection for _, split in new if split.selection is not None]
    before = NOTHING.asked if draft.continues else last.asked
    asked = (
        _add(begun.asked[0], own, before[0], selections),
        _add(begun.asked[1], probes, before[1]),
        _add(begun.asked[2], alone, before[2]),
    )
    few = _only_queries_came(draft, last)
    touched = tuple(dict.fromkeys(part.stream for _, part in own) if few else asked[0])
    shares = {}
    for name in touched:
        parts = asked[0][name], asked[1].get(name, EMPTY), asked[2].get(name, EMPTY)
        shares[name] = again(last.shares.get(name), _together, *parts)
    return replace(draft, asked=asked, shares={**begun.shares, **shares}, touched=touched)


def _only_queries_came(draft: Draft, last: Draft) -> bool:
    """Whether the streams of new queries are all that is planned otherwise than before."""
    given, before = draft.given, last.given
    measured, known = given.measurements, before.measurements
    same = measured.groupings == known.groupings and measured.kept_rows == known.kept_rows
    held = given.held_rows == before.held_rows
    return draft.continues and same and held and given.settings == before.settings and draft.pins == last.pins


def _add(
    known: Mapping[str, StreamShare],
    new: Iterable[tuple[str, Asked]],
    before: Mapping[str, StreamShare],
    selections: Iterable[Selection] = (),
) -> Mapping[str, StreamShare]:
    """`new`: (query, what it asks). `before`: as it was when all was planned last."""
    touched: dict[str, _Share] = {}
    for id_, asked in new:
        touched.setdefault(asked.stream, _Share()).add(id_, asked)
    for selection in selections:
        touched[selection.stream].selections.append(selection)
    added = {name: share.added_to(known.get(name, EMPTY)) for name, share in touched.items()}
    return {**known, **{name: as_before(before.get(name), share) for name, share in added.items()}}


def _together(own: StreamShare, probes: StreamShare, alone: StreamShare) -> StreamShare:
    if probes is EMPTY and alone is EMPTY:
        return own
    parts = (own, probes, alone)
    users: dict[str, dict[str, None]] = {}
    for part in parts:
        for thing, ids in part.users.items():
            users.setdefault(thing, {}).update(dict.fromkeys(ids))
    return StreamShare(
        {**own.computed, **{name: c for part in parts[1:] for name, c in part.computed.items()}},
        {thing: tuple(ids) for thing, ids in users.items()},
        own.selections,
        own.read | probes.read | alone.read,
    )


@dataclass
class _Share:
    """What new queries ask, while it is being gathered."""

    computed: dict[str, Computed] = field(default_factory=dict)
    users: dict[str, dict[str, None]] = field(default_factory=dict)
    selections: list[Selection] = field(default_factory=list)

    def add(self, id_: str, asked: Asked) -> None:
        for computed in asked.computed:
            self.computed.setdefault(computed.name, computed)
        for thing in asked.uses:
            self.users.setdefault(thing, {})[id_] = None

    def added_to(self, known: StreamShare) -> StreamShare:
        users = dict(known.users)
        for thing, ids in self.users.items():
            users[thing] = (*users.get(thing, ()), *ids)
        read = {column for c in self.computed.values() for column in c.expr.columns}
        read.update(column for s in self.selections for column in s.columns)
        read.update(s.where for s in self.selections if s.where is not None)
        selections = (*known.selections, *self.selections)
        return StreamShare({**known.computed, **self._news(known)}, users, selections, known.read | read)

    def _news(self, known: StreamShare) -> dict[str, Computed]:
        return {name: c for name, c in self.computed.items() if name not in known.computed}
