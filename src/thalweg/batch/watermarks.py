"""How far streams have come in event time, alone and together: what windows are closed by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import structs

from thalweg.model.entry import Entry
from thalweg.model.history import History
from thalweg.model.manifest import Manifest, WatermarkReset
from thalweg.model.plan import Plan, relation_of
from thalweg.model.probe import Joined
from thalweg.model.stream import Stream
from thalweg.model.times import BatchTimes, StreamTimes, joint_name, joint_time
from thalweg.model.window import BEGINNING
from thalweg.state.history import known_from

T = TypeVar("T")


@dataclass(frozen=True)
class Watermarks:
    """At one moment, between two batches or at the beginning of one."""

    manifest: Manifest
    streams: Mapping[str, Stream]
    wall_us: int
    arriving: Collection[str] = ()
    """Streams of which there is something to read now: they are not idle."""

    def of(self, stream: str) -> int:
        """The greatest event time seen less the delay, in whole milliseconds as Spark keeps it."""
        progress = self.manifest.streams.get(stream)
        if progress is None or progress.max_time_us is None:
            return BEGINNING
        return progress.max_time_us // 1000 * 1000 - self.streams[stream].delay_us

    def is_idle(self, stream: str) -> bool:
        """Whether nothing has come for so long that it no longer holds others back."""
        progress, limit = self.manifest.streams.get(stream), self.streams[stream].idle_us
        if limit is None or stream in self.arriving or progress is None or progress.active_us is None:
            return False
        return self.wall_us - progress.active_us >= limit

    def together(self, streams: Iterable[str]) -> int:
        """The least of those that are not idle; if all are, they stay where they were. It never goes back."""
        streams = [*streams]
        active = [self.of(s) for s in streams if not self.is_idle(s)]
        return max([joint_time(self.manifest.closed, streams), *([min(active)] if active else [])])

    def held_by(self, streams: Iterable[str]) -> list[str]:
        """Those with the least watermark, without which the others would go on."""
        active = [s for s in sorted({*streams}) if not self.is_idle(s)]
        least = min((self.of(s) for s in active), default=BEGINNING)
        return [s for s in active if self.of(s) == least] if any(self.of(s) > least for s in active) else []

    def in_plan(self, plan: Plan, stream: str) -> int:
        joined = plan.joins.joined.get(stream)
        return self.of(stream) if joined is None else self.of_joined(joined)

    def of_joined(self, joined: Joined) -> int:
        return max(BEGINNING, self.together(joined.streams) - joined.lag_us)

    # -- whether a batch without rows would change something -------------------------------------------------

    def have_moved(self, plan: Plan) -> bool:
        """Since the newest batch."""
        closed = self.manifest.closed
        return any(self.in_plan(plan, name) > closed.get(name, BEGINNING) for name in plan.streams)

    def has_idled(self, plan: Plan) -> bool:
        """Whether joined rows would be closed because a stream has become idle."""
        if all(stream.idle_us is None for stream in self.streams.values()):
            return False
        closed, joined = self.manifest.closed, plan.joins.joined
        return any(self.of_joined(joined[name]) > closed.get(name, BEGINNING) for name in joined)

    def closes_state(self, plan: Plan) -> bool:
        """Whether they have moved over what is kept."""
        closed = self.manifest.closed
        found = (relation_of(plan, name) for name in {b.relation for b in self.manifest.buckets})
        kept = {relation.stream for relation in found if relation is not None}
        held = {b.relation for b in self.manifest.stores}
        kept |= {d.joined for d in plan.joins.decisions if d.stream in held}
        return any(self.in_plan(plan, stream) > closed[stream] for stream in kept)


def batch_times(plan: Plan, moment: StreamTimes, marks: Watermarks) -> BatchTimes:
    """How far the batch closes windows."""
    closed = {name: moment.closed_us.get(name, BEGINNING) for name in plan.streams}
    closing = {name: max(closed[name], marks.in_plan(plan, name)) for name in plan.streams}
    for joined in plan.joins.joined.values():
        name = joint_name(joined.streams)
        if name in moment.closed_us:
            closed[name] = moment.closed_us[name]
        together = marks.together(joined.streams)
        if together > min(closing[s] for s in joined.streams):
            closing[name] = together
    fences = tuple(sorted({m.fence[0] for m in plan.members if m.fence is not None}))
    return BatchTimes(moment.batch, closed, closing, marks.wall_us, fences)


def begin_anew(manifest: Manifest, names: Collection[str], plan: Plan, batch: int) -> tuple[Manifest, dict[str, int]]:
    """The manifest as if these streams had brought nothing yet, and how far windows had closed that may come again.

    What is kept of open windows stays. A join that decides which rows have no partner does not go back, or rows would
    be decided twice: it stays where it was, and so does what is late for it. What is known of the past of the streams
    is what has come since.
    """
    held = {joint_name(d.streams): d.streams for d in plan.joins.decisions if {*d.streams} & {*names}}
    floors = {name: joint_time(manifest.closed, streams) for name, streams in held.items()}
    joined = {
        name
        for name, of in plan.joins.joined.items()
        if {*of.streams} & {*names} and joint_name(of.streams) not in held
    }
    gone = {*names, *joined, *(joint_name(plan.joins.joined[name].streams) for name in joined)}
    anew = {name: manifest.closed[name] for name in {*names, *joined} if name in manifest.closed}
    streams = dict(manifest.streams)
    for name in names:
        if name in streams:
            reset = WatermarkReset(batch, manifest.closed.get(name, BEGINNING))
            streams[name] = structs.replace(streams[name], max_time_us=None, reset=reset)
    slices = dict(manifest.history.slices)
    for id_, grouping in plan.groupings.items():
        if id_ in slices and grouping.stream in anew:
            slices[id_] = known_from(slices[id_], anew[grouping.stream])
    rows = {name: of for name, of in manifest.history.rows.items() if name not in names}
    return replace(
        manifest,
        closed={**{name: us for name, us in manifest.closed.items() if name not in gone}, **floors},
        streams=streams,
        history=History(slices, rows),
    ), anew


def fenced(entries: Mapping[str, Entry], anew: Mapping[str, int], batch: int) -> dict[str, Entry]:
    """Windows that had closed, should they come again, are made of what has come since; open ones of all."""
    after = dict(entries)
    for id_, entry in entries.items():
        window, closed = entry.query.window, anew.get(entry.query.stream, BEGINNING)
        if window is not None and closed > BEGINNING:
            first = max([window.first_open(closed), *([entry.fence[1]] if entry.fence else [])])
            after[id_] = replace(entry, fence=(batch, first))
    return after


def without_streams(manifest: Manifest, names: Collection[str], plan: Plan) -> Manifest:
    """The manifest as if these streams had never been. `plan`: of the queries that go on; none reads them."""
    joins = plan.joins
    together = [*(j.streams for j in joins.joined.values()), *(d.streams for d in joins.decisions)]
    kept = {*joins.joined, *(joint_name(streams) for streams in together)}

    def left(of: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in of.items() if name not in names}

    streams = left(manifest.streams)
    history = History(
        {id_: since for id_, since in manifest.history.slices.items() if id_ in plan.groupings},
        {name: rows for name, rows in manifest.history.rows.items() if name in joins.stores},
    )
    return replace(
        manifest,
        reached=structs.replace(manifest.reached, streams=left(manifest.reached.streams)),
        marks=left(manifest.marks),
        streams=streams,
        closed={name: us for name, us in manifest.closed.items() if name in kept or name in streams},
        buckets=tuple(b for b in manifest.buckets if relation_of(plan, b.relation) is not None),
        stores=tuple(bucket for bucket in manifest.stores if bucket.relation in joins.stores),
        history=history,
    )
