"""What a batch runs with, before any of its tasks: decisions, the requests applied, and the plan that follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from thalweg.adapt.loop import AdaptLoop
from thalweg.batch.decisions import Decisions
from thalweg.batch.in_force import PlanInForce
from thalweg.batch.pending import PendingRequests, gone_streams, reset_streams
from thalweg.batch.requests import apply_requests, dropped_queries, without_old_fences
from thalweg.batch.watermarks import Watermarks, batch_times, begin_anew, fenced, without_streams
from thalweg.errors import PlanRefusedError
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest
from thalweg.model.offsets import Offsets
from thalweg.model.plan import Plan
from thalweg.model.query import Query
from thalweg.model.stream import Stream
from thalweg.model.times import BatchTimes, StreamTimes, with_joined
from thalweg.state.catalog import Tables


def wall_clock() -> int:
    """In microseconds. A batch has the time of its beginning, which its manifest keeps."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class PlannedBatch:
    """A batch that can be run. Nothing of it has happened."""

    before: Manifest
    """The manifest before it, as the requests leave it: a watermark may begin anew, a stream be gone."""
    decisions: Decisions
    streams: Mapping[str, Stream]
    """As of its requests."""
    entries: dict[str, Entry]
    """The queries that it knows, by their ids."""
    plan: Plan
    moment: StreamTimes
    """How far streams have come before it."""
    clock: BatchTimes
    """How far it closes windows."""

    @property
    def batch(self) -> int:
        return self.clock.batch


class Planning:
    """Plans batches from the newest manifest, the requests since, and what the program has defined."""

    def __init__(
        self,
        pending: PendingRequests,
        tables: Callable[[], Tables],
        functions: Callable[[Iterable[Query]], dict[str, bytes]] = lambda queries: {},
    ) -> None:
        """`functions`: version -> code of users' aggregates in these queries."""
        self.pending = pending
        self.requests = pending.log
        self.tables = tables
        self.wall_clock: Callable[[], int] = wall_clock
        self.in_force = PlanInForce(functions)

    def decide(self, manifest: Manifest, reached: Offsets, adaptations: AdaptLoop) -> Decisions:
        """What a batch runs with that goes up to `reached`, as things stand now."""
        # A query that takes part has its table, whichever of them comes or goes at this moment.
        tables, through = dict(self.tables()), self.pending.through
        decided = adaptations.decide(manifest.measured, manifest.batch + 1)
        return Decisions(through, reached, decided, {**tables, **self.tables()})

    def plan(self, manifest: Manifest, decisions: Decisions, arriving: Collection[str]) -> PlannedBatch:
        """Applies the requests that were decided on. `arriving`: the streams that have something new.

        Where the plan that comes of it is refused, the batch runs as if nothing had been asked or decided since the
        last one."""
        try:
            planned = self._plan(manifest, decisions, arriving)
        except PlanRefusedError as error:
            # A stream that is gone has offsets no more, by which the batch was chosen.
            is_same = not gone_streams(self.pending.after(manifest, decisions.through))
            before = self.in_force.without(decisions, manifest, error) if is_same else None
            if before is None:
                raise
            return self._plan(manifest, before, arriving)
        self.in_force.decisions = decisions
        return planned

    def _plan(self, manifest: Manifest, decisions: Decisions, arriving: Collection[str]) -> PlannedBatch:
        before, entries = manifest, dict(manifest.queries)
        requests = self.pending.after(before, decisions.through)
        streams = self.pending.streams(decisions.through)
        schemas = {name: table.schema for name, table in decisions.tables.items()}
        anew = reset_streams(requests)
        if gone := gone_streams(requests):
            ended = dropped_queries(requests)
            rest = {id_: entry for id_, entry in entries.items() if entry.query.name not in ended}
            before = without_streams(before, gone, self.in_force.make(before, rest, decisions, schemas, streams))
        if anew:
            plan = self.in_force.make(before, entries, decisions, schemas, self.pending.streams(before.through))
            before, closed = begin_anew(before, anew, plan, before.batch + 1)
            entries = fenced(entries, closed, before.batch + 1)
        moment = StreamTimes(
            before.batch + 1, {name: p.max_time_us for name, p in before.streams.items()}, dict(before.closed)
        )
        entries = apply_requests(entries, requests, before.history, streams, schemas, moment)
        entries = without_old_fences(entries, moment.closed_us)
        plan = self.in_force.make(before, entries, decisions, schemas, streams)
        moment = with_joined(moment, plan.joins)
        clock = batch_times(plan, moment, Watermarks(before, streams, self.wall_clock(), arriving))
        return PlannedBatch(before, decisions, streams, entries, plan, moment, clock)

    # -- between batches -------------------------------------------------------------------------------------

    def watermarks(self, manifest: Manifest) -> Watermarks:
        """As they are now, after the newest batch."""
        return Watermarks(manifest, self.pending.streams(manifest.through), self.wall_clock())

    def has_requests(self, manifest: Manifest) -> bool:
        """Whether some wait for the next batch."""
        return self.requests.last > max(manifest.through, self.in_force.refused)
