"""After queries have been taken apart, before columns are counted: each expression is computed once for all who ask.

What probes need of a stream comes after what its own queries ask, so that a join that comes or goes does not move
their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from thalweg.model.plan import Computed, Selection
from thalweg.optimize.asking import AskingOrder, ask_otherwise
from thalweg.optimize.draft import Draft, StreamShare, StreamUses, again, as_before

EMPTY = StreamShare()
_ANYTHING = "anything"


def share_expressions(draft: Draft, last: Draft) -> Draft:
    asked = tuple(_ask(draft, last, kind) for kind in range(len(_KINDS)))
    own, probes, alone = asked
    few = _only_queries_changed(draft, last)
    parts = [*(last.parts[running.id] for running in draft.gone), *(draft.parts[running.id] for running in draft.new)]
    changed = dict.fromkeys(asks.stream for part in parts for asks in part.value.asked if asks.stream in own)
    touched = tuple(changed if few else own)
    shares = dict(draft.begun(last).shares)
    for name in touched:
        given = own[name], probes.get(name, EMPTY), alone.get(name, EMPTY)
        shares[name] = again(last.shares.get(name), _together, *given)
    shares = {name: shares[name] for name in own}
    return replace(draft, asked=(own, probes, alone), shares=shares, touched=touched)


def _only_queries_changed(draft: Draft, last: Draft) -> bool:
    """Whether the streams of queries that came or went are all that is planned otherwise than before."""
    given, before = draft.given, last.given
    measured, known = given.measurements, before.measurements
    same = measured.groupings == known.groupings and measured.kept_rows == known.kept_rows
    held = given.held_rows == before.held_rows
    return draft.continues and same and held and given.settings == before.settings and draft.pins == last.pins


# -- what is asked of streams


def _own(draft: Draft, id_: str) -> tuple[StreamUses, ...]:
    return draft.parts[id_].value.asked if id_ in draft.parts else ()


def _of_probes(draft: Draft, id_: str) -> tuple[StreamUses, ...]:
    join = draft.joins.get(id_)
    return join.value.asked if join is not None and join.value.probes else ()


def _of_lookups(draft: Draft, id_: str) -> tuple[StreamUses, ...]:
    """Of a stream that is joined with tables only."""
    join = draft.joins.get(id_)
    return join.value.asked if join is not None and not join.value.probes else ()


_KINDS: tuple[Callable[[Draft, str], tuple[StreamUses, ...]], ...] = (_own, _of_probes, _of_lookups)


def _ask(draft: Draft, last: Draft, kind: int) -> Mapping[str, StreamShare]:
    """What all queries ask of streams, as far as it is of this kind."""
    of, begun = _KINDS[kind], draft.begun(last).asked[kind]
    gone = {running.id: of(last, running.id) for running in draft.gone}
    new = {running.id: of(draft, running.id) for running in draft.new}
    for id_ in [id_ for id_, asks in new.items() if gone.get(id_) == asks]:
        del gone[id_], new[id_]  # something else of it has changed
    names = dict.fromkeys(asks.stream for several in (*gone.values(), *new.values()) for asks in several)
    shares = dict(begun)
    for name in names:
        share = _ask_otherwise(begun.get(name, EMPTY), name, _on(name, gone), _on(name, new), draft, kind)
        shares[name] = share if draft.continues else as_before(last.asked[kind].get(name), share)
    return _in_order({name: share for name, share in shares.items() if share.askers}, draft, kind)


def _on(stream: str, of_queries: Mapping[str, tuple[StreamUses, ...]]) -> dict[str, StreamUses]:
    """By query, what it asks of the stream."""
    return {id_: asks for id_, several in of_queries.items() for asks in several if asks.stream == stream}


def _ask_otherwise(
    known: StreamShare,
    stream: str,
    gone: Mapping[str, StreamUses],
    new: Mapping[str, StreamUses],
    draft: Draft,
    kind: int,
) -> StreamShare:
    def of(id_: str) -> StreamUses:
        return _on(stream, {id_: _KINDS[kind](draft, id_)})[id_]

    uses = AskingOrder(draft.ranks, draft.tail, lambda id_: of(id_).uses)
    columns = AskingOrder(draft.ranks, draft.tail, lambda id_: _names(of(id_)))
    users = ask_otherwise(known.users, _uses(gone), _uses(new), uses)
    computed_for = ask_otherwise(known.computed_for, _columns(gone), _columns(new), columns)
    came = {c.name: c for asks in new.values() for c in asks.computed if c.name not in known.computed}
    left = {c.name: c for asks in gone.values() for c in asks.computed if c.name not in computed_for}
    computed = {**known.computed, **came}
    for name in left:
        del computed[name]
    if not draft.only_adds and list(computed) != list(computed_for):
        computed = {name: computed[name] for name in computed_for}
    selections = _selections(known, stream, draft) if kind == 0 else ()
    return StreamShare(
        computed,
        users,
        selections,
        _read(known, computed, selections, came.values(), left.values()),
        _askers(known, gone, new, draft),
        computed_for,
    )


def _askers(known: StreamShare, gone: Collection[str], new: Collection[str], draft: Draft) -> tuple[str, ...]:
    anything = (_ANYTHING,)
    before = {_ANYTHING: known.askers} if known.askers else {}
    order = AskingOrder(draft.ranks, draft.tail, lambda id_: anything)
    found = ask_otherwise(before, dict.fromkeys(gone, anything), dict.fromkeys(new, anything), order)
    return found.get(_ANYTHING, ())


def _names(asked: StreamUses) -> list[str]:
    return [computed.name for computed in asked.computed]


def _uses(asked: Mapping[str, StreamUses]) -> dict[str, Sequence[str]]:
    return {id_: asks.uses for id_, asks in asked.items()}


def _columns(asked: Mapping[str, StreamUses]) -> dict[str, Sequence[str]]:
    return {id_: _names(asks) for id_, asks in asked.items()}


def _selections(known: StreamShare, stream: str, draft: Draft) -> tuple[Selection, ...]:
    found = [draft.parts[running.id].value.selection for running in draft.new]
    added = {s.query: s for s in found if s is not None and s.stream == stream}
    if not known.selections and not added:
        return ()
    return tuple(draft.of_queries({s.query: s for s in known.selections}, added).values())


def _read(
    known: StreamShare,
    computed: Mapping[str, Computed],
    selections: Sequence[Selection],
    new: Iterable[Computed],
    old: Iterable[Computed],
) -> frozenset[str]:
    """The columns that are read. `new`, `old`: the computed columns that have come, and those that have gone."""
    same = known.selections == selections
    came = _read_by(new, () if same else selections)
    left = _read_by(old, () if same else known.selections) - came
    by_selections = _read_by((), selections) if left else set()
    gone = {c for c in left - by_selections if not any(c in other.expr.columns for other in computed.values())}
    return (known.read | came) - gone


def _read_by(computed: Iterable[Computed], selections: Iterable[Selection]) -> set[str]:
    read = {column for c in computed for column in c.expr.columns}
    read.update(column for s in selections for column in s.columns)
    read.update(s.where for s in selections if s.where is not None)
    return read


def _in_order(shares: Mapping[str, StreamShare], draft: Draft, kind: int) -> Mapping[str, StreamShare]:
    if draft.only_adds:
        return shares

    def place(name: str) -> tuple[int, int]:
        first = shares[name].askers[0]
        return draft.ranks[first], [asks.stream for asks in _KINDS[kind](draft, first)].index(name)

    return {name: shares[name] for name in sorted(shares, key=place)}


def _together(own: StreamShare, probes: StreamShare, alone: StreamShare) -> StreamShare:
    if probes is EMPTY and alone is EMPTY:
        return own
    parts = (own, probes, alone)
    users = dict(own.users)
    for part in parts[1:]:
        for thing, ids in part.users.items():
            users[thing] = tuple(dict.fromkeys((*users[thing], *ids))) if thing in users else ids
    return StreamShare(
        {**own.computed, **{name: c for part in parts[1:] for name, c in part.computed.items()}},
        users,
        own.selections,
        own.read | probes.read | alone.read,
    )
