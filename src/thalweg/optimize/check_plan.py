"""Last, because it sees what all have made, and changes nothing: a plan that a task could not run is refused here, by
rule and thing, before a batch begins with it.

A part that is the same as in the plan before has been looked at then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from thalweg.errors import plan_refused
from thalweg.model.canonical import named
from thalweg.model.partitioning import LOCAL
from thalweg.model.plan import Grouping, Member, Plan, StreamPlan, shipped_keys
from thalweg.optimize.check_joins import what_is_broken_in_joins
from thalweg.optimize.choose_partitioners import bound_to_slots
from thalweg.optimize.draft import Draft
from thalweg.optimize.send_rows_whole import MOST_KEYS


class Broken(NamedTuple):
    rule: str
    thing: str
    why: str


def check_plan(draft: Draft, last: Draft) -> Draft:
    for broken in what_is_broken(draft.plan, last.plan):
        raise plan_refused(broken.rule, broken.thing, draft.plan.id, broken.why)
    return draft


def what_is_broken(plan: Plan, before: Plan | None = None) -> Iterator[Broken]:
    """`before`: a plan of which nothing is."""
    known = before or Plan("", 1, 1, {}, {}, ())
    changed = {id_: g for id_, g in plan.groupings.items() if known.groupings.get(id_) is not g}
    for id_, grouping in plan.groupings.items():
        if id_ in changed or grouping.finer in changed or grouping.stream not in plan.streams:
            yield from _of_grouping(grouping, plan)
    for member in _to_look_at(plan, known, changed):
        yield from _of_member(member, plan)
    for name, stream in plan.streams.items():
        if known.streams.get(name) is not stream or any(id_ in changed for id_ in stream.groupings):
            yield from _of_stream(stream, plan)
    yield from _of_places(plan)
    for broken in what_is_broken_in_joins(plan, known):
        yield Broken(*broken)


def _to_look_at(plan: Plan, known: Plan, changed: Mapping[str, Grouping]) -> tuple[Member, ...]:
    """All members, unless those before are still there and so is all that they read."""
    count = len(known.members)
    if count == 0 or plan.members[:count] != known.members:
        return plan.members
    for id_, grouping in changed.items():
        now = {p.name for p in grouping.partials}
        if id_ in known.groupings and not now.issuperset(p.name for p in known.groupings[id_].partials):
            return plan.members
        if grouping.loose:
            return plan.members
    gone = known.groupings.keys() - plan.groupings.keys()
    return plan.members if gone else plan.members[count:]


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
    if grouping.finer is not None:
        yield from _of_roll_up(grouping, plan.groupings.get(grouping.finer), thing)


def _of_roll_up(coarse: Grouping, fine: Grouping | None, thing: str) -> Iterator[Broken]:
    if fine is None or fine.stream != coarse.stream:
        yield Broken("roll_up", thing, f"is rolled up from {coarse.finer}, which its stream does not have")
        return
    if not set(coarse.keys) < set(fine.keys):
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, which lacks some of its keys")
    apart = coarse.slice_start_us - fine.slice_start_us
    if coarse.slice_us % fine.slice_us or apart % fine.slice_us:
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, whose slices do not fit")
    made = {p.name for p in (*fine.partials, *fine.extra)}
    missing = sorted({p.name for p in (*coarse.partials, *coarse.extra)} - made)
    if missing:
        yield Broken("roll_up", thing, f"is rolled up from {fine.id}, which does not make {missing[0]}")


def _of_member(member: Member, plan: Plan) -> Iterator[Broken]:
    thing, main = f"query {member.query}", plan.groupings.get(member.main.grouping)
    for piece in (member.main, *member.further):
        if piece.grouping not in plan.groupings:
            yield Broken("share_slices", thing, f"reads {piece.grouping}, which the plan does not have")
        elif member.updates and plan.partitioners.get(plan.groupings[piece.grouping].route_key) == LOCAL:
            yield Broken("choose_partitioners", thing, f"shows updates of {piece.grouping}, whose rows stay apart")
    if main is None:
        return
    if member.present not in {p.name for p in main.partials}:
        yield Broken("share_slices", thing, f"reads {member.present}, which {main.id} does not make")
    if not {column for column, _ in member.keys} <= set(main.keys):
        yield Broken("split_aggregates", thing, f"has keys that {main.id} does not have")
    if member.window not in main.windows:
        yield Broken("share_slices", thing, f"has a window that {main.id} does not know")


# -- streams


def _of_stream(stream: StreamPlan, plan: Plan) -> Iterator[Broken]:
    name = stream.stream.name
    thing = f"stream {name}"
    groupings = [plan.groupings[id_] for id_ in stream.groupings if id_ in plan.groupings]
    if {g.id for g in plan.groupings.values() if g.stream == name} != set(stream.groupings):
        yield Broken("prune_columns", thing, "does not make exactly its groupings")
    done: set[str] = set()
    for grouping in groupings:
        if grouping.finer is not None and grouping.finer not in done:
            yield Broken("prune_columns", thing, f"makes {grouping.id} before {grouping.finer}, which it needs")
        done.add(grouping.id)
    there = _there(stream, plan)
    for user, column in _read(stream, groupings):
        if column not in there:
            yield Broken("prune_columns", thing, f"neither reads nor computes {column}, which {user} needs")
    keys = shipped_keys(plan, stream)
    if len(keys) > MOST_KEYS:
        yield Broken("send_rows_whole", thing, f"sends rows by {len(keys)} route keys; a mask has {MOST_KEYS}")
    sent = set(stream.shipped_columns)
    for grouping in (g for found in keys.values() for g in found):
        for column in _columns(grouping, extra=False) - sent:
            yield Broken("prune_columns", thing, f"does not send {column}, which {grouping.id} needs")


def _there(stream: StreamPlan, plan: Plan) -> set[str]:
    joined = plan.joins.joined.get(stream.stream.name)
    flags = {flag for _, flag in joined.flags} if joined is not None else set()
    return {*stream.columns, *(c.name for c in stream.computed), *flags}


def _read(stream: StreamPlan, groupings: list[Grouping]) -> Iterator[tuple[str, str]]:
    """(who, column)."""
    yield "its watermark", stream.stream.time
    for computed in stream.computed:
        yield from ((computed.name, column) for column in computed.expr.columns)
    for grouping in groupings:
        yield from ((grouping.id, column) for column in _columns(grouping, extra=True))
    for selection in stream.selections:
        yield from ((selection.query, column) for column in selection.columns)
        if selection.where is not None:
            yield selection.query, selection.where


def _columns(grouping: Grouping, extra: bool) -> set[str]:
    partials = (*grouping.partials, *grouping.extra) if extra else grouping.partials
    found = {p.filter for p in partials} | {p.argument for p in partials}
    return {*grouping.keys, *grouping.values, *(column for column in found if column is not None)}


# -- where rows go


def _of_places(plan: Plan) -> Iterator[Broken]:
    for key, slots in plan.assignment.items():
        if len(slots) != plan.groups or not all(0 <= slot < plan.slots for slot in slots):
            thing = f"route key {key}"
            yield Broken("assign_slots", thing, f"does not have one of {plan.slots} slots for each key group")
    for key, groups in plan.spread.items():
        if not all(0 <= group < plan.groups for group in groups):
            yield Broken("assign_slots", f"route key {key}", "shares a key group between slots that does not exist")
    if not plan.partitioners and not plan.follows:
        return
    sent = [set(shipped_keys(plan, stream)) for stream in plan.streams.values()]
    bound = bound_to_slots(plan)
    for key in plan.partitioners:
        if not any(key in keys for keys in sent):
            yield Broken("choose_partitioners", f"route key {key}", "is dealt out, but no row is sent whole by it")
        elif key in bound:
            yield Broken("choose_partitioners", f"route key {key}", "is dealt out, but its windows show updates")
    for key, leader in plan.follows.items():
        if not any({key, leader} <= keys for keys in sent):
            why = f"follows {leader}, but no stream sends rows whole by both"
            yield Broken("follow_route_keys", f"route key {key}", why)
        elif leader in plan.follows or {key, leader} & plan.partitioners.keys() or key in bound:
            yield Broken("follow_route_keys", f"route key {key}", f"follows {leader}, which goes elsewhere itself")
