"""After roll-ups, because a grouping that is rolled up, or that others are, needs no rows; before columns are pruned,
because a row that is sent whole is sent with all that slots read of it.

Where users' code costs so much that slots should share in it, rows go whole whatever travels (`adapt/costly`).

Rows that are sent whole are shared: one copy serves all route keys that need the row in the same slot. Partials
are not. So whole rows win where combining hardly makes fewer of them: raw groupings, and groupings of many groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from thalweg.model.partitioning import COMBINE
from thalweg.model.plan import Grouping
from thalweg.model.plan_input import GroupingLoad
from thalweg.model.stream import Stream
from thalweg.optimize.draft import Draft, Rolled, RolledUp, StreamShare, again

MANY = 0.8
"""Groups per row of a task from which on combining at the source is not worth its pass."""
STILL_MANY = 0.6
"""Below, combining is resumed."""
MOST_KEYS = 64
"""Route keys that one mask can tell apart."""


Width = Callable[[str], int]
Loads = tuple[GroupingLoad | None, ...]


def send_rows_whole(draft: Draft, last: Draft) -> Draft:
    loads, slots = draft.given.measurements.groupings, draft.given.settings.slots
    sent_whole = dict(draft.begun(last).sent_whole)
    for name in draft.touched:
        kept = draft.kept_rows[name].value
        measured: Loads = tuple(None if kept else loads.get(id_) for id_ in draft.of_stream.get(name, ()))
        given = (
            draft.streams[name],
            draft.shares[name].value,
            draft.rolled_up[name],
            measured,
            slots,
            draft.pins,
        )
        sent_whole[name] = again(last.sent_whole.get(name), _send_whole, *given)
    return replace(draft, sent_whole={name: sent_whole[name] for name in draft.shares})


def _send_whole(
    stream: Stream, share: StreamShare, rolled_up: RolledUp, loads: Loads, slots: int, pins: Mapping[str, str]
) -> tuple[str, ...]:
    measured = {id_: load for id_, load in zip(rolled_up.made, loads, strict=True) if load is not None}
    if not measured and not pins:
        return ()
    return tuple(choose_sent_whole(stream, share, rolled_up.made, measured, slots, pins))


def columns_sent(rolled: Rolled, stream: Stream, share: StreamShare) -> set[str]:
    """What a slot needs of a row to make the grouping from it."""
    grouping = rolled.grouping
    named = {name for p in grouping.partials for name in (p.filter, p.argument) if name is not None}
    read = {*(rolled.reads & share.computed.keys()), *rolled.reads.intersection(stream.schema.names)}
    return {*grouping.keys, *grouping.values, *named, *read}


def choose_sent_whole(
    stream: Stream,
    share: StreamShare,
    made: Mapping[str, Rolled],
    loads: Mapping[str, GroupingLoad],
    slots: int,
    pins: Mapping[str, str],
) -> list[str]:
    """Of one stream's groupings those that are made in the slots: by what would travel either way.

    `pins`: route key -> the partitioner that a user has asked for.
    """
    groupings, width_of = [rolled.grouping for rolled in made.values()], widths(stream, share)
    pinned = [g for g in groupings if g.route_key in pins]
    of_pins = {g.id for g in pinned}
    free = [g for g in groupings if g.id not in of_pins and _may_move(g, groupings)]
    costly = [g for g in free if (load := loads.get(g.id)) is not None and load.is_split]
    forced = _forced([*(g for g in pinned if pins[g.route_key] != COMBINE), *costly])
    candidates = [g for g in free if g not in costly and _is_many(loads.get(g.id))]
    by_key: dict[str, list[Grouping]] = {}
    for g in sorted(candidates, key=lambda g: (not g.values, g.id)):
        by_key.setdefault(g.route_key, []).append(g)
    keys = list(by_key)[: MOST_KEYS - len({g.route_key for g in forced})]
    apart = {k: sum(_apart(made[g.id], loads, width_of) for g in by_key[k]) for k in keys}
    columns = {k: {c for g in by_key[k] for c in columns_sent(made[g.id], stream, share)} for k in keys}
    while keys:
        row = row_width(set().union(*(columns[k] for k in keys)), width_of)
        if row * _copies(len(keys), slots) <= sum(apart[k] for k in keys):
            break
        keys.remove(max(keys, key=lambda k: _burden(k, keys, columns, width_of) - apart[k]))
    return sorted([*(g.id for g in forced), *(g.id for k in keys for g in by_key[k])])


def _forced(groupings: Sequence[Grouping]) -> list[Grouping]:
    """Of groupings that are pinned or costly those that need rows: by values, or else all. Counting beside them costs
    little."""
    by_values = {g.route_key for g in groupings if g.values}
    found = [g for g in groupings if g.values or g.route_key not in by_values]
    first = list(dict.fromkeys(g.route_key for g in found))[:MOST_KEYS]
    return [g for g in found if g.route_key in first]


def _is_many(load: GroupingLoad | None) -> bool:
    return load is not None and load.groups_per_row >= (STILL_MANY if load.in_slots else MANY)


def _may_move(grouping: Grouping, groupings: Sequence[Grouping]) -> bool:
    """Whether a slot may make it: of rows as they are, for itself alone."""
    return (
        bool(grouping.keys)
        and grouping.rolled_up_from is None
        and all(g.rolled_up_from != grouping.id for g in groupings)
    )


def _copies(keys: int, slots: int) -> float:
    """Half way between one copy and what independent keys need of hashed slots: the optimiser is still to come."""
    hashed = slots * (1 - (1 - 1 / slots) ** keys)
    return (1 + hashed) / 2


def _burden(key: str, keys: Sequence[str], columns: Mapping[str, set[str]], width_of: Width) -> int:
    """What only this route key needs: every copy carries it."""
    others = set().union(*(columns[k] for k in keys if k != key))
    return sum(width_of(column) for column in columns[key] - others) * len(keys)


def row_width(columns: Iterable[str], width_of: Width) -> int:
    return 8 + sum(width_of(column) for column in columns)


def _apart(rolled: Rolled, loads: Mapping[str, GroupingLoad], width_of: Width) -> float:
    """Bytes per row where the grouping is made at the source."""
    return partials_width(rolled, width_of) * loads[rolled.grouping.id].groups_per_row


def partials_width(rolled: Rolled, width_of: Width) -> int:
    """Bytes of one group."""
    keys = sum(width_of(column) for column in (*rolled.grouping.keys, *rolled.grouping.values))
    return 10 + keys + rolled.width


def widths(stream: Stream, share: StreamShare) -> Width:
    """How wide columns are, computed ones among them."""
    types = {f.name: f.type for f in stream.schema.fields}

    @cache  # keys are the same few columns in many groupings
    def width_of(column: str) -> int:
        computed = share.computed.get(column)
        # Flags of joins are of no schema.
        return type_width(types.get(column, "boolean") if computed is None else computed.expr.type)

    return width_of


def type_width(kind: str) -> int:
    """Bytes of a value of a Spark type, about."""
    if kind.startswith(("string", "binary", "char", "varchar")):
        return 24
    if kind.startswith("decimal"):
        return 16
    return {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "date": 4, "float": 4}.get(kind, 8)
