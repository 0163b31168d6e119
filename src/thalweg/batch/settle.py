"""What is true after a batch: a function of the manifest before, what was decided and what the tasks reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import structs

from thalweg.adapt.contract import SeenBatch
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.results import PreparedResults
from thalweg.batch.retention import Retained
from thalweg.batch.totals import BatchTotals
from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.manifest import Manifest, Prepared, StreamProgress
from thalweg.model.offsets import SourceMark
from thalweg.model.stream import Stream
from thalweg.source.conform import AHEAD
from thalweg.state.expire import is_live
from thalweg.state.history import BatchLosses, next_history

B = TypeVar("B", bound=SliceBucket | RowBucket)


@dataclass(frozen=True)
class Ran:
    """A batch whose tasks have run and whose results are prepared."""

    planned: PlannedBatch
    totals: BatchTotals
    prepared: PreparedResults
    waiting: Sequence[Prepared] = ()
    """What sinks have still to be given of the batches before."""
    retained: Mapping[str, Retained] = field(default_factory=dict)
    """Stream -> what is kept of all that was set aside, where that has a bound."""
    marks: Mapping[str, SourceMark] = field(default_factory=dict)
    """What is known of the sources."""


def settle(ran: Ran, streams: Mapping[str, Stream]) -> Manifest:
    """The manifest of the batch, but for what adaptations keep and for who commits it. `streams`: those that users
    made."""
    planned, totals, entries = ran.planned, ran.totals, ran.prepared.entries
    before, plan, clock = planned.before, planned.plan, planned.clock
    failed = {m.query for m in plan.members if not entries[m.query].runs}
    progress = _progress(before.streams, ran, streams)
    seen = {name: p.max_time_us for name, p in progress.items() if p.max_time_us is not None}
    slices, _ = _parted(before.buckets, totals.kept, ran)
    rows, gone = _parted(before.stores, totals.stores, ran)
    return Manifest(
        batch=clock.batch,
        groups=before.groups,
        hash=before.hash,
        clock_us=clock.wall_us,
        reached=planned.decisions.reached,
        through=planned.decisions.through,
        # How far streams had closed; joined ones count only while they are joined.
        closed={**{name: us for name, us in before.closed.items() if name in streams}, **clock.closing_us},
        streams=progress,
        buckets=slices,
        stores=rows,
        queries=entries,
        history=next_history(before.history, plan, planned.moment, BatchLosses(seen, failed, totals.failures, gone)),
        marks={**before.marks, **ran.marks},
        results=ran.prepared.files,
        undelivered=(*ran.waiting, *ran.prepared.undelivered),
    )


def seen(ran: Ran, after: Manifest, seconds: float) -> SeenBatch:
    """What adaptations learn from. `after`: the state that the batch leaves. `seconds`: that it has taken so far."""
    planned, totals = ran.planned, ran.totals
    return SeenBatch(
        plan=planned.plan,
        decided=planned.decisions.decided,
        measured=planned.before.measured,
        routing=totals.routing,
        groups=totals.groups,
        passed=totals.passed,
        probes=totals.probes,
        samples=totals.samples,
        buckets=after.buckets,
        stores=after.stores,
        rows=sum(totals.rows.values()),
        busy_seconds=totals.busy_seconds,
        seconds=seconds,
    )


def _parted(before: Sequence[B], made: Sequence[B], ran: Ran) -> tuple[tuple[B, ...], tuple[B, ...]]:
    """Buckets that live, and those that nothing needs any more. What was merged into others is neither."""
    live: list[B] = []
    gone: list[B] = []
    for bucket in (*(b for b in before if b.name not in ran.totals.replaced), *made):
        (live if is_live(bucket, ran.planned.plan, ran.planned.clock) else gone).append(bucket)
    return tuple(live), tuple(gone)


def _progress(
    before: Mapping[str, StreamProgress], ran: Ran, streams: Mapping[str, Stream]
) -> dict[str, StreamProgress]:
    totals, after = ran.totals, dict(before)
    waiting = {n for n, s in streams.items() if s.idle_us is not None and n in ran.planned.plan.streams}
    for name in {*totals.rows, *totals.rejected, *waiting}:
        p, rows = after.get(name, StreamProgress()), totals.rows.get(name, 0)
        times = [t for t in (p.max_time_us, totals.max_time_us.get(name)) if t is not None]
        is_active = name in waiting and (rows or p.active_us is None)
        after[name] = structs.replace(
            _set_aside(p, name, ran),
            max_time_us=max(times, default=None),
            rows=p.rows + rows,
            late=p.late + totals.late.get(name, 0),
            untimed=p.untimed + totals.untimed.get(name, 0),
            incomplete=p.incomplete + sum(file.stream == name for file in totals.lacking),
            active_us=ran.planned.clock.wall_us if is_active else p.active_us,
        )
    return after


def _set_aside(p: StreamProgress, name: str, ran: Ran) -> StreamProgress:
    new = [aside for aside in ran.totals.set_aside if aside.stream == name]
    kept = ran.retained.get(name)
    return structs.replace(
        p,
        rejected=p.rejected + sum(aside.rows for aside in new),
        ahead=p.ahead + sum(aside.rows for aside in new if aside.kind == AHEAD),
        rejected_bytes=p.rejected_bytes + sum(aside.bytes for aside in new) if kept is None else kept.bytes,
        rejected_from=p.rejected_from if kept is None else kept.first,
        forgotten=p.forgotten + (0 if kept is None else kept.forgotten),
    )
