"""Last, because it sees what all have made, and changes nothing: a plan that a task could not run is refused here, by
rule and thing, before a batch begins with it.

A part that is the same as in the plan before has been looked at then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from thalweg.errors import plan_refused
from thalweg.model.canonical import named
from thalweg.model.partitioning import LOCAL
from thalweg.model.plan import Computed, Grouping, Plan, StreamPlan, WindowedQuery, shipped_keys
from thalweg.optimize.check_joins import what_is_broken_in_joins
from thalweg.optimize.choose_partitioners import bound_to_slots
from thalweg.optimize.draft import Draft
from thalweg.optimize.send_rows_whole import MOST_KEYS

_NAME = attrgetter("name")


class Broken(NamedTuple):
    rule: str
    thing: str
    why: str


class Touched(NamedTuple):
    """What may not be as it was in the plan before."""

    streams: Mapping[str, StreamPlan]
    members: Iterable[WindowedQuery]


def check_plan(draft: Draft, last: Draft) -> Draft:
    before, touched = (last.plan, _touched(draft, last)) if draft.continues else (None, None)
    for broken in what_is_broken(draft.plan, before, touched):
        raise plan_refused(broken.rule, broken.thing, draft.plan.id, broken.why)
    return draft


def _touched(draft: Draft, last: Draft) -> Touched:
    plan, before = draft.plan, last.plan
    streams = {name: plan.streams[name] for name in draft.touched}
    if plan.partitioners != before.partitioners:
        return Touched(streams, plan.members)
    ids: dict[str, None] = {}
    less = [id_ for id_ in before.groupings if id_ not in plan.groupings]
    less += [
        id_
        for stream in streams.values()
        for id_ in stream.groupings
        if id_ in before.groupings and _has_less(plan.groupings[id_], before.groupings[id_])
    ]
    for shared in (draft.shared.get(id_) or last.shared[id_] for id_ in less):
        ids.update((id_, None) for asking in shared.windows_for.values() for id_ in asking)
    return Touched(streams, [*_new(plan, before), *(draft.members[id_] for id_ in ids if id_ in draft.members)])


def _new(plan: Plan, before: Plan) -> Iterable[WindowedQuery]:
    """The members that were not there before as they are."""
    count = len(before.members)
    if plan.members[:count] == before.members:
        return plan.members[count:]
    there = {*map(id, before.members)}
    return [member for member in plan.members if id(member) not in there]


def what_is_broken(plan: Plan, before: Plan | None = None, touched: Touched | None = None) -> Iterator[Broken]:
    """`before`: a plan of which nothing is. `touched`: what may be broken since; None: anything."""
    known = before or Plan("", 1, 1, {}, {}, ())
    streams, members = (plan.streams, plan.members) if touched is None else touched
    groupings: Iterable[Grouping] = plan.groupings.values()
    if touched is not None:
        groupings = [plan.groupings[id_] for stream in streams.values() for id_ in stream.groupings]
    changed = {g.id: g for g in groupings if known.groupings.get(g.id) is not g}
    for grouping in groupings:
        if grouping.id in changed or grouping.rolled_up_from in changed or grouping.stream not in plan.streams:
            yield from _of_grouping(grouping, plan)
    makes: dict[str, set[str]] = {}
    for member in members:
        yield from _of_member(member, plan, makes)
    if sum(len(stream.groupings) for stream in plan.streams.values()) != len(plan.groupings):
        yield Broken("prune_columns", "the plan", "has groupings that no stream makes")
    for name, stream in streams.items():
        before_it = known.streams.get(name)
        if before_it is not stream or any(id_ in changed for id_ in stream.groupings):
            yield from _of_stream(stream, plan, before_it, changed)
    yield from _of_places(plan)
    for broken in what_is_broken_in_joins(plan, known):
        yield Broken(*broken)


def _has_less(grouping: Grouping, before: Grouping) -> bool:
    """Than before. Who has found there all that is needed finds it in one that has more."""
    if grouping is before:
        return False
    return not ({*grouping.windows} >= {*before.windows} and _makes(grouping) >= _makes(before))


def _makes(grouping: Grouping) -> set[str]:
    return {partial.name for partial in grouping.partials}


# -- groupings and members


def _of_grouping(grouping: Grouping, plan: Plan) -> Iterator[Broken]:
    thing = f"grouping {grouping.id}"
    if grouping.id != named("g", grouping.stream, "combine", grouping.keys, grouping.values):
        yield Broken("split_aggregates", thing, "does not have the name of its content")
    if grouping.stream not in plan.streams:
        yield Broken("share_expressions", thing, f"is of the stream {grouping.stream}, which the plan does not have")
    for window in grouping.windows:
        if not window.fits(grouping.slice_us, grouping.slice_start_us):
            yield Broken("share_slices", thing, f"has slices that {window.describe()} cuts")
    if grouping.rolled_up_from is not None:
        yield from _of_roll_up(grouping, plan.groupings.get(grouping.rolled_up_from), thing)


def _of_roll_up(coarse: Grouping, fine: Grouping | None, thing: str) -> Iterator[Broken]:
    if fine is None or fine.stream != coarse.stream:
        yield Broken("roll_up", thing, f"is rolled up from {coarse.rolled_up_from}, which its stream does not have")
        return
    if not set(coarse.keys) < set(fine.keys):
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, which lacks some of its keys")
    apart = coarse.slice_start_us - fine.slice_start_us
    if coarse.slice_us % fine.slice_us or apart % fine.slice_us:
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, whose slices do not fit")
    made = {p.name for p in (*fine.partials, *fine.partials_for_others)}
    missing = sorted({p.name for p in (*coarse.partials, *coarse.partials_for_others)} - made)
    if missing:
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, which does not make {missing[0]}")


def _of_member(member: WindowedQuery, plan: Plan, makes: dict[str, set[str]]) -> Iterator[Broken]:
    """`makes`: the partials of groupings that have been looked at."""
    thing, main = f"query {member.query}", plan.groupings.get(member.main.grouping)
    for one in (member.main, *member.further):
        if one.grouping not in plan.groupings:
            yield Broken("share_slices", thing, f"reads {one.grouping}, which the plan does not have")
        elif member.updates and plan.partitioners.get(plan.groupings[one.grouping].route_key) == LOCAL:
            yield Broken("choose_partitioners", thing, f"shows updates of {one.grouping}, whose rows stay apart")
    if main is None:
        return
    if member.present not in (makes.get(main.id) or makes.setdefault(main.id, _makes(main))):
        yield Broken("share_slices", thing, f"reads {member.present}, which {main.id} does not make")
    if not {column for column, _ in member.keys} <= set(main.keys):
        yield Broken("split_aggregates", thing, f"has keys that {main.id} does not have")
    if member.window not in main.windows:
        yield Broken("share_slices", thing, f"has a window that {main.id} does not know")


# -- streams


def _of_stream(
    stream: StreamPlan, plan: Plan, before: StreamPlan | None, changed: Mapping[str, Grouping]
) -> Iterator[Broken]:
    name = stream.stream.name
    thing = f"stream {name}"
    groupings = [g for g in map(plan.groupings.get, stream.groupings) if g is not None and g.stream == name]
    if len({g.id for g in groupings}) != len(stream.groupings):
        yield Broken("prune_columns", thing, "makes groupings that are not its own")
    done: set[str] = set()
    for grouping in groupings:
        if grouping.rolled_up_from is not None and grouping.rolled_up_from not in done:
            yield Broken(
                "prune_columns", thing, f"makes {grouping.id} before {grouping.rolled_up_from}, which it needs"
            )
        done.add(grouping.id)
    there, computed = _there(stream, plan), stream.computed
    if before is not None and {*stream.columns} >= {*before.columns}:
        # What is as it was before can lack only what is there no more, and those who use that are known by it.
        less, computed = _compared(stream, before)
        groupings = [g for g in groupings if g.id in changed]
        for column in sorted(less & stream.users.keys()):
            who = f"query {stream.users[column][0]}"
            yield Broken("prune_columns", thing, f"does no longer compute {column}, which {who} needs")
    for user, columns in _read(stream, groupings, computed):
        for column in sorted(columns - there):
            yield Broken("prune_columns", thing, f"neither reads nor computes {column}, which {user} needs")
    keys = shipped_keys(plan, stream) if stream.shipped else {}
    if len(keys) > MOST_KEYS:
        yield Broken("send_rows_whole", thing, f"sends rows by {len(keys)} route keys; a mask has {MOST_KEYS}")
    sent = set(stream.shipped_columns)
    for grouping in (g for found in keys.values() for g in found):
        for column in sorted(_columns(grouping, extra=False) - sent):
            yield Broken("prune_columns", thing, f"does not send {column}, which {grouping.id} needs")


def _compared(stream: StreamPlan, before: StreamPlan) -> tuple[set[str], tuple[Computed, ...]]:
    """The computed columns of before that there are no more, and those that are new."""
    count = len(before.computed)
    if stream.computed[:count] == before.computed:
        return set(), stream.computed[count:]
    known, here = {*map(_NAME, before.computed)}, {*map(_NAME, stream.computed)}
    return known - here, tuple([c for c in stream.computed if c.name not in known])


def _own(stream: StreamPlan) -> set[str]:
    return {*stream.columns, *map(_NAME, stream.computed)}


def _there(stream: StreamPlan, plan: Plan) -> set[str]:
    joined = plan.joins.joined.get(stream.stream.name)
    return _own(stream) | {flag for _, flag in joined.flags} if joined is not None else _own(stream)


def _read(
    stream: StreamPlan, groupings: Iterable[Grouping], computed: Iterable[Computed]
) -> Iterator[tuple[str, set[str]]]:
    """(who, columns)."""
    yield "its watermark", {stream.stream.time}
    yield "something computed", set().union(*[c.expr.columns for c in computed])
    for grouping in groupings:
        yield grouping.id, _columns(grouping, extra=True)
    yield (
        "a query without a window",
        {column for s in stream.selections for column in (*s.columns, s.where or s.columns[0])},
    )


def _columns(grouping: Grouping, extra: bool) -> set[str]:
    partials = (*grouping.partials, *grouping.partials_for_others) if extra else grouping.partials
    found = {p.filter for p in partials} | {p.argument for p in partials} | {*grouping.keys, *grouping.values}
    return {column for column in found if column is not None}


# -- where rows go


def _of_places(plan: Plan) -> Iterator[Broken]:
    for key, slots in plan.assignment.items():
        if len(slots) != plan.groups or not all(0 <= slot < plan.slots for slot in slots):
            thing = f"route key {key}"
            yield Broken("assign_slots", thing, f"does not have one of {plan.slots} slots for each key group")
    for key, groups in plan.spread.items():
        if not all(0 <= group < plan.groups for group in groups):
            yield Broken("assign_slots", f"route key {key}", "shares a key group between slots that does not exist")
    if not plan.partitioners and not plan.co_located_with:
        return
    sent = [set(shipped_keys(plan, stream)) for stream in plan.streams.values()]
    bound = bound_to_slots(plan)
    for key in plan.partitioners:
        if not any(key in keys for keys in sent):
            yield Broken("choose_partitioners", f"route key {key}", "is dealt out, but no row is sent whole by it")
        elif key in bound:
            yield Broken("choose_partitioners", f"route key {key}", "is dealt out, but its windows show updates")
    for key, leader in plan.co_located_with.items():
        if not any({key, leader} <= keys for keys in sent):
            why = f"follows {leader}, but no stream sends rows whole by both"
            yield Broken("follow_route_keys", f"route key {key}", why)
        elif leader in plan.co_located_with or {key, leader} & plan.partitioners.keys() or key in bound:
            yield Broken("follow_route_keys", f"route key {key}", f"follows {leader}, which goes elsewhere itself")
