"""One batch, as the driver runs it: tasks, intent, sinks, manifest, in this order.

The order is what makes results exact. The intent says which requests and which measurements the batch ran
with: from when a sink may have seen something, a repeat of the batch decides alike. Before, it decides anew, so
that a query which the batch cannot be run with can be dropped. Sinks are keyed by batch id. The manifest is last:
until it is there, the batch has not happened.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from thalweg import faults
from thalweg.adapt.combining import loads_of, next_loads
from thalweg.adapt.hot_join_keys import next_spread
from thalweg.adapt.partitioners import aggregation_reports, chosen, next_dealing, next_policies
from thalweg.adapt.probe_orders.loop import JoinPlanner, JoinPlanning, next_ordering
from thalweg.adapt.probe_orders.measure import join_load, next_join_load
from thalweg.adapt.slot_assignment import Repartitioner, Repartitioning, next_moves
from thalweg.adapt.slot_count import Scaler
from thalweg.adapt.small_batches import Load, SmallBatches
from thalweg.batch.blame import blame, first_line
from thalweg.batch.checkpoint import forget_checkpoint, read_offset
from thalweg.batch.contract import Runner
from thalweg.batch.delivery import present
from thalweg.batch.requests import Entry, apply_changes, registered, without_old_fences
from thalweg.batch.tables import Table, Tables, clean_tables, forget_versions
from thalweg.batch.totals import BatchTotals, add_up
from thalweg.batch.work import Work
from thalweg.errors import old_windows_of_joins, wrong_hash
from thalweg.model.bucket import Bucket, StoreBucket
from thalweg.model.ordering import Ordering, OrderingReport
from thalweg.model.partitioning import AggregationReport, Partitioning, PartitioningReport
from thalweg.model.plan import Plan, slot_stages, updated_groupings
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.model.times import BatchTimes, StreamTimes, with_joined
from thalweg.model.way import Way
from thalweg.model.windows import BEGINNING, Stretch, needed_until
from thalweg.observe.progress import BatchReport, StreamReport
from thalweg.observe.stopwatch import break_down
from thalweg.operate import duck
from thalweg.optimize.grouping import GROUPS, make_plan
from thalweg.optimize.joining import JoinLoad
from thalweg.optimize.shipping import GroupingLoad
from thalweg.partition.cooperative import Policy
from thalweg.route.bucket import decode_offsets
from thalweg.route.hash import HASH_NAME
from thalweg.route.table import routing_table
from thalweg.source.split import rows_in
from thalweg.source.split_planner import NOTHING, Offset
from thalweg.state.changes import ChangeLog
from thalweg.state.collect import collect_garbage
from thalweg.state.container import forget_file
from thalweg.state.durable import delete
from thalweg.state.history import History, SliceHistory, choices, next_choices, next_lanes, next_stores
from thalweg.state.manifest import (
    Manifest,
    StreamProgress,
    latest_manifest,
    read_intent,
    write_intent,
    write_manifest,
)

faults.register("batch.start", "batch.tasks", "batch.intent", "batch.sinks", "batch.manifest", "batch.end")

Deliver = Callable[[int, Mapping[str, tuple[Entry, pa.Table]]], dict[str, str]]
"""Gives results to sinks: (batch id, query id -> entry and table) -> query id -> what its sink said against it."""


class BatchRunner:
    """Runs batches one after another. All its memory is the newest manifest; the rest is derived from it."""

    def __init__(
        self,
        runner: Runner,
        state_dir: Path,
        changes: ChangeLog,
        streams: Callable[[], Mapping[str, Stream]],
        tables: Callable[[], Tables],
        deliver: Deliver,
        *,
        slots: int | None,
        repartitioning: Repartitioning | None = None,
        join_planning: JoinPlanning | None = None,
        functions: Callable[[Iterable[Query]], dict[str, bytes]] = lambda queries: {},
        check_hold: Callable[[], None] = lambda: None,
        small_batches: SmallBatches | None = None,
    ) -> None:
        """`slots`: None for as many as there is work for, up to one per task. `small_batches`: which way a batch
        runs; None: all in stages."""
        self.runner = runner
        self.state_dir = state_dir
        self.changes = changes
        self.streams = streams
        self.tables = tables
        self.deliver = deliver
        self.tasks = tasks = runner.tasks
        self._check_hold = check_hold
        self.functions = functions
        self.small_batches = small_batches
        self.manifest = latest_manifest(state_dir) or Manifest(-1, GROUPS, HASH_NAME)
        if self.manifest.hash != HASH_NAME:
            raise wrong_hash(state_dir, self.manifest.hash, HASH_NAME)
        self.scaler = Scaler(tasks) if slots is None else None
        self.slots = slots or min(tasks, self.manifest.extra.get("slots", tasks))
        self.entries = {id_: Entry.from_json(id_, e) for id_, e in self.manifest.queries.items()}
        self._check_format()
        self.plan: Plan | None = None
        self.repartitioner = Repartitioner(repartitioning, tasks)
        self.join_planner = JoinPlanner(join_planning)
        self.policies: dict[str, Policy] = {}
        """route key -> what its partitioners have learned."""
        self.aggregations: dict[str, AggregationReport] = {}
        self.reports: list[BatchReport] = []
        self.finished = threading.Condition()
        self._planned: tuple[dict[str, Any], Plan] | None = None
        """The last plan and all that it was made from: most batches ask for the same again."""
        self._tried: int | None = None
        """The batch that was run, or begun, last."""
        self._used_tables: dict[str, Table] = {}
        """file -> version, of those that batches have used or nobody will, and that were not deleted."""
        self._has_dropped = True
        """Whether the last batch may have let go of files: the manifest before it still names them."""
        intent = read_intent(state_dir, self.manifest.batch + 1) or {}
        clean_tables(state_dir, self.tables(), intent.get("tables", {}))
        collect_garbage(state_dir, self.manifest if self.manifest.batch >= 0 else None, starting=True)
        if "reached" in self.manifest.extra:
            forget_checkpoint(state_dir)

    def _check_format(self) -> None:
        """Up to format 3 partials of joined rows had names by which this release would not find them."""
        running = [e.query for e in self.entries.values() if e.state != "failed"]
        old = [query.name for query in running if query.join is not None and query.window is not None]
        if self.manifest.format < 4 and old:
            raise old_windows_of_joins(self.state_dir, self.manifest.format, old)

    def retire_table(self, table: Table) -> None:
        """A version that is not in force any more, used or not. It goes after the next batch."""
        self._used_tables[table.version.file] = table

    # -- the batch -----------------------------------------------------------------------------------------

    def run(self, splits: Sequence[str], reached: Offset, choosing_seconds: float = 0.0) -> None:
        """Runs the next batch over the splits, which go up to the offset `reached`. It is in the intent and in the
        manifest. `choosing_seconds`: what it took to choose them."""
        began = time.perf_counter()
        faults.point("batch.start")
        start = self.reached
        before, batch = self.manifest, self.manifest.batch + 1
        settled = read_intent(self.state_dir, batch)
        intent = settled or self._intent(reached)
        if self._tried != batch - 1:
            self._forget_rejected(batch)
        self._tried = batch
        moment = self._moment(batch)
        lanes = {id_: SliceHistory.from_json(lane) for id_, lane in before.lanes.items()}
        changes = [c for c in self.changes.read_after(before.extra.get("through", 0)) if c[0] <= intent["through"]]
        past = History(lanes, before.extra.get("held_from", {}), choices(before) if changes else {})
        tables = {name: Table.from_json(name, value) for name, value in intent.get("tables", {}).items()}
        schemas = {name: table.schema for name, table in tables.items()}
        entries = apply_changes(self.entries, changes, past, self.streams(), schemas, moment)
        entries = without_old_fences(entries, moment.closed_us)
        plan = self._make_plan(entries, intent, schemas)
        moment = with_joined(moment, plan.joins)
        clock = self._clock(plan, moment)
        planned = time.perf_counter()
        totals = self._run_tasks(splits, plan, clock, tables, uncollected(entries.values()))
        faults.point("batch.tasks")
        self._check_hold()
        if settled is None:
            write_intent(self.state_dir, batch, intent)
        faults.point("batch.intent")
        ran = time.perf_counter()
        entries, given = self._emit(plan, entries, totals, batch)
        faults.point("batch.sinks")
        delivered = time.perf_counter()
        failed = {m.query for m in plan.members if entries[m.query].state == "failed"}
        lanes = next_lanes(lanes, plan, moment, failed)
        after = self._next_manifest(plan, entries, totals, clock, {**intent, "reached": reached}, lanes, moment)
        write_manifest(self.state_dir, after)
        faults.point("batch.manifest")
        # At once: whatever goes wrong from here on, the batch has happened.
        self.manifest, self.entries, self.plan = after, entries, plan
        self._clean_up(before, after, totals)
        self._used_tables.update({table.version.file: table for table in tables.values()})
        forget_versions(self.state_dir, self._used_tables, self.tables())
        faults.point("batch.end")
        ended = time.perf_counter()
        phases = {
            "plan": planned - began,
            "tasks": ran - planned,
            "sink": delivered - ran,
            "manifest": ended - delivered,
            **totals.seconds,
        }
        rows, sink = sum(totals.rows.values()), delivered - ran
        rest = ended - began - totals.job_seconds - sink
        spent = break_down(totals.stages(), self.tasks, totals.job_seconds, sink, rest)
        now = time.time()
        report = BatchReport(
            batch,
            rows,
            sum(given.values()),
            ended - began,
            now,
            phases,
            spent,
            totals.sent_bytes,
            self._stream_reports(plan, clock, totals, start, reached),
            {entries[id_].query.name: n for id_, n in given.items()},
            choosing_seconds,
            now - (ended - began) - choosing_seconds - self.reports[-1].ended if self.reports else None,
            totals.way,
        )
        self.repartitioner.take_in(plan, after, totals.routing, ended - began)
        self.join_planner.take_in(plan, after)
        self._learn(plan, after, totals)
        if self.scaler is not None and rows:
            self.slots = self.scaler.after(plan.slots, totals.busy_seconds)
        with self.finished:
            self.reports = [*self.reports[-99:], report]
            self.finished.notify_all()

    def _stream_reports(
        self, plan: Plan, clock: BatchTimes, totals: BatchTotals, start: Offset, end: Offset
    ) -> dict[str, StreamReport]:
        return {
            name: StreamReport(
                stream.source.kind,
                start["streams"].get(name, 0),
                end["streams"].get(name, 0),
                totals.rows.get(name, 0),
                totals.late.get(name, 0),
                totals.rejected.get(name, 0),
                totals.max_time_us.get(name),
                None if clock.closing_us[name] <= BEGINNING else clock.closing_us[name],
            )
            for name, stream in sorted(self.streams().items())
            if name in plan.streams
        }

    def _learn(self, plan: Plan, after: Manifest, totals: BatchTotals) -> None:
        """The batch has happened: what goes wrong here costs what was learned, not the pipeline."""
        try:
            self.policies = next_policies(self.policies, plan, totals.routing)
            reports = aggregation_reports(plan, totals.routing, after.extra["dealing"])
        except Exception:
            self.policies, reports = {}, {}
        known = {id_: report for id_, report in self.aggregations.items() if id_ in plan.groupings}
        self.aggregations = {**known, **reports}

    def _intent(self, reached: Offset) -> dict[str, Any]:
        """What a batch runs with, as things stand now."""
        # A query that takes part has its table, whichever of them comes or goes at this moment.
        tables = dict(self.tables())
        return {
            "through": self.changes.last_sequence,
            "loads": self.manifest.extra.get("loads", {}),
            "shipped": self.manifest.extra.get("shipped", []),
            "slots": self.slots,
            "joins": self.manifest.extra.get("joins", {}),
            "ordering": self.join_planner.take(self.manifest).to_json(),
            "tables": {name: table.to_json() for name, table in {**tables, **self.tables()}.items()},
            **self.partitioning(self.repartitioner.take()),
            "reached": reached,
        }

    @property
    def reached(self) -> Offset:
        """How far the batches that have happened go."""
        if self.manifest.batch < 0:
            return NOTHING
        found: Offset | None = self.manifest.extra.get("reached")
        return read_offset(self.state_dir, self.manifest.batch) if found is None else found

    def settled(self) -> Offset | None:
        """How far the next batch goes, if sinks may have seen it already; None if that is still open."""
        batch = self.manifest.batch + 1
        intent = read_intent(self.state_dir, batch)
        if intent is None:
            return None
        found: Offset | None = intent.get("reached")
        return read_offset(self.state_dir, batch) if found is None else found

    def _forget_rejected(self, batch: int) -> None:
        """An earlier attempt may have read other columns, and set rows aside that this one can read."""
        for path in (self.state_dir / "rejected").glob(f"*/{batch:012d}-*"):
            delete(path)

    def _moment(self, batch: int) -> StreamTimes:
        return StreamTimes(
            batch,
            {name: p.max_time_us for name, p in self.manifest.streams.items()},
            dict(self.manifest.extra.get("closed", {})),
        )

    def loads(self) -> dict[str, GroupingLoad]:
        """What was measured of the groupings so far."""
        return loads_of(self.manifest.extra)

    def partitioning(self, proposed: Partitioning | None = None) -> dict[str, Any]:
        """Where key groups are, who follows whom and what deals rows out: as it was decided, or is `proposed` now."""
        extra = self.manifest.extra
        known = Partitioning(extra.get("assignment", {}), extra.get("follows", {}), extra.get("slots", 0))
        if known.slots != self.slots:
            known = Partitioning(slots=self.slots)
        if proposed is not None and proposed.slots == self.slots:
            known = known.changed_by(proposed)
        partitioners = chosen(extra.get("dealing", {})) if known.slots == extra.get("slots", 0) else {}
        return {
            "assignment": known.assignment_lists(),
            "follows": dict(known.follows),
            "partitioners": partitioners,
            "spread": extra.get("spread", {}),
        }

    def partitioning_report(self) -> PartitioningReport:
        return replace(self.repartitioner.report(self.manifest), aggregations=self.aggregations)

    def ordering_report(self) -> OrderingReport:
        return self.join_planner.report(self.manifest)

    def join_load(self) -> JoinLoad:
        """What was measured of the joins so far."""
        extra = self.manifest.extra
        return join_load(extra.get("joins", {}), Ordering.from_json(extra.get("ordering", {})))

    def _make_plan(
        self, entries: Mapping[str, Entry], intent: Mapping[str, Any], schemas: Mapping[str, Schema]
    ) -> Plan:
        running = registered(entries.values())
        given = {
            "registered": running,
            "streams": self.streams(),
            "slots": intent["slots"],
            "groups": self.manifest.groups,
            "loads": loads_of(intent),
            "tables": schemas,
            "joins": join_load(intent.get("joins", {}), Ordering.from_json(intent.get("ordering", {}))),
            "assignment": intent.get("assignment", {}),
            "follows": intent.get("follows", {}),
            "partitioners": intent.get("partitioners", {}),
            "spread": intent.get("spread", {}),
        }
        if self._planned is None or self._planned[0] != given:
            self._planned = (given, make_plan(**given))
        return replace(self._planned[1], functions=self.functions(entry.query for entry in running))

    def _clock(self, plan: Plan, moment: StreamTimes) -> BatchTimes:
        closed = {name: moment.closed_us.get(name, BEGINNING) for name in plan.streams}
        closing = {name: max(closed[name], self._watermark(plan, name)) for name in plan.streams}
        fences = tuple(sorted({m.fence[0] for m in plan.members if m.fence is not None}))
        return BatchTimes(moment.batch, closed, closing, fences)

    def _watermark(self, plan: Plan, stream: str) -> int:
        joined = plan.joins.joined.get(stream)
        if joined is None:
            return self.watermark(stream)
        return max(BEGINNING, min(self.watermark(s) for s in joined.streams) - joined.lag_us)

    def watermark(self, stream: str) -> int:
        """The greatest event time seen less the delay, in whole milliseconds as Spark keeps it."""
        progress = self.manifest.streams.get(stream)
        if progress is None or progress.max_time_us is None:
            return BEGINNING
        return progress.max_time_us // 1000 * 1000 - self.streams()[stream].delay_us

    def has_more_to_close(self) -> bool:
        """Whether a batch without data would close windows: the watermark has moved over kept state."""
        plan = self.plan
        if plan is None:
            return False
        closed = self.manifest.extra["closed"]
        kept = {plan.groupings[b.grouping].stream for b in self.manifest.buckets}
        kept |= {d.joined for d in plan.joins.decisions if any(b.stream == d.stream for b in self.manifest.stores)}
        return any(self._watermark(plan, stream) > closed[stream] for stream in kept)

    def has_work_without_rows(self) -> bool:
        """Whether a batch without data would change anything: requests wait, or a watermark has moved. Also before
        the first batch of this life, of which nobody knows yet."""
        if self.plan is None or self.changes.last_sequence > self.manifest.extra.get("through", 0):
            return True
        closed = self.manifest.extra["closed"]
        return any(self._watermark(self.plan, name) > closed.get(name, BEGINNING) for name in self.plan.streams)

    # -- the tasks -----------------------------------------------------------------------------------------

    def _run_tasks(
        self, splits: Sequence[str], plan: Plan, clock: BatchTimes, tables: Tables, uncollected: frozenset[str]
    ) -> BatchTotals:
        tasks = min(self.tasks, plan.slots)
        stores: dict[str, list[StoreBucket]] = {}
        for bucket in self.manifest.stores:
            stores.setdefault(bucket.stream, []).append(bucket)
        work = Work(
            str(self.state_dir),
            clock,
            self._buckets_by_slot(plan),
            self._nodes(),
            tasks,
            stores,
            {name: table.version for name, table in tables.items()},
            {key: policy for key, policy in self.policies.items() if key in plan.partitioners},
            uncollected,
            stages=slot_stages(plan),
        )
        load = Load(rows_in(splits), self._state_read(plan, clock))
        way = Way.STAGES if self.small_batches is None else self.small_batches.choose(plan, load)
        began = time.perf_counter()
        collected = self.runner.run(plan, work, splits, way)
        ended = time.perf_counter()
        totals = replace(add_up(collected, self.state_dir), job_seconds=ended - began, way=way)
        if self.small_batches is not None:
            self.small_batches.take_in(load, totals.work_seconds())
        return totals

    def _state_read(self, plan: Plan, clock: BatchTimes) -> int:
        """Bytes of the state that the batch may read: of buckets whose windows close or are shown, and of stores."""
        shown, total = updated_groupings(plan), sum(b.nbytes for b in self.manifest.stores)
        for bucket in self.manifest.buckets:
            grouping = plan.groupings.get(bucket.grouping)
            if grouping is None:
                continue
            closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
            if grouping.id in shown or (closing > closed and min(start for start, _ in bucket.spans) < closing):
                total += bucket.section.length
        return total

    def _buckets_by_slot(self, plan: Plan) -> dict[int, list[Bucket]]:
        by_slot: dict[int, list[Bucket]] = {}
        for bucket in self.manifest.buckets:
            grouping = plan.groupings.get(bucket.grouping)
            if grouping is None:
                continue
            held = np.diff(decode_offsets(bucket.section.meta["offsets"])) > 0
            owners = routing_table(plan, grouping.route_key).owners
            slots = {*np.unique(owners[held]).tolist()}
            if len(slots) > 1:
                slots.add(bucket.slot % plan.slots)  # which may merge it with others
            for slot in sorted(slots):
                by_slot.setdefault(slot, []).append(bucket)
        return by_slot

    def _nodes(self) -> dict[str, frozenset[Stretch]]:
        nodes: dict[str, set[Stretch]] = {}
        for bucket in self.manifest.buckets:
            nodes.setdefault(bucket.grouping, set()).update(s for s in bucket.spans if s[1] < 0)
        return {grouping: frozenset(found) for grouping, found in nodes.items()}

    # -- results and state ---------------------------------------------------------------------------------

    def _emit(
        self, plan: Plan, entries: Mapping[str, Entry], totals: BatchTotals, batch: int
    ) -> tuple[dict[str, Entry], dict[str, int]]:
        """Gives results to the sinks, and says how many. A query that failed gives none; it is stopped, the others go
        on."""
        failed = blame(plan, totals.failures)
        members = {m.query: m for m in plan.members}
        tables = {}
        for id_, parts in totals.results.items():
            if id_ in entries and id_ not in failed:
                try:
                    tables[id_] = (entries[id_], present(entries[id_], members.get(id_), parts))
                except (pa.ArrowException, duck.Error) as error:
                    failed[id_] = first_line(str(error))
        made = Counter({id_: table.num_rows for id_, (_, table) in tables.items()})
        made.update({id_: n for id_, n in totals.counted.items() if id_ not in failed})
        failed |= self.deliver(batch, tables)
        after = {}
        for id_, entry in entries.items():
            emitted = made[id_] if id_ not in failed else 0
            entry = replace(entry, emitted=entry.emitted + emitted)
            after[id_] = replace(entry, state="failed", error=failed[id_]) if id_ in failed else entry
        return after, {id_: n for id_, n in made.items() if id_ in after and id_ not in failed}

    def _next_manifest(
        self,
        plan: Plan,
        entries: Mapping[str, Entry],
        totals: BatchTotals,
        clock: BatchTimes,
        intent: Mapping[str, Any],
        lanes: Mapping[str, SliceHistory],
        moment: StreamTimes,
    ) -> Manifest:
        old = [b for b in self.manifest.buckets if b.name not in totals.replaced]
        live = tuple(b for b in (*old, *totals.kept) if _is_live(b, plan, clock))
        streams = _next_progress(self.manifest.streams, totals)
        seen = {name: p.max_time_us for name, p in streams.items() if p.max_time_us is not None}
        stores, held_from = next_stores(
            self.manifest, plan, clock, totals.stores, totals.replaced, moment, seen, totals.failures
        )
        extra = {
            "through": intent["through"],
            "closed": {**self._closed_streams(), **clock.closing_us},
            "loads": next_loads(
                self.manifest.extra.get("loads", {}), plan, totals.groups, totals.passed, totals.routing
            ),
            "shipped": sorted(id_ for stream in plan.streams.values() for id_ in stream.shipped),
            "spread": next_spread(self.manifest.extra.get("spread", {}), plan, totals.routing),
            "dealing": next_dealing(self.manifest.extra.get("dealing", {}), plan, totals.routing),
            "joins": next_join_load(
                self.manifest.extra.get("joins", {}),
                plan,
                clock.batch,
                totals.probes,
                totals.samples,
                stores,
                self.join_planner.epoch,
            ),
            "ordering": next_ordering(intent, plan),
            "held_from": held_from,
            "choices": next_choices(choices(self.manifest), plan, seen, held_from),
            "assignment": {route_key: list(slots) for route_key, slots in plan.assignment.items()},
            "follows": plan.follows,
            "slots": plan.slots,
            "moves": next_moves(self.manifest, plan),
            "reached": intent["reached"],
        }
        return Manifest(
            batch=clock.batch,
            groups=self.manifest.groups,
            hash=self.manifest.hash,
            streams=streams,
            buckets=live,
            stores=stores,
            queries={id_: entry.to_json() for id_, entry in entries.items()},
            lanes={id_: lane.to_json() for id_, lane in lanes.items()},
            extra=extra,
        )

    def _closed_streams(self) -> dict[str, int]:
        """How far streams had closed; joined ones count only while they are joined."""
        streams = self.streams()
        return {name: us for name, us in self.manifest.extra.get("closed", {}).items() if name in streams}

    def _clean_up(self, before: Manifest, after: Manifest, totals: BatchTotals) -> None:
        for file in {section.file for section in totals.spills}:
            forget_file(self.state_dir / file)
            delete(self.state_dir / file)
        dropped = bool(before.files() - after.files())
        if dropped or self._has_dropped or after.batch % 64 == 0:
            collect_garbage(self.state_dir, after)
        self._has_dropped = dropped
        if after.extra["through"] > before.extra.get("through", 0):
            self.changes.truncate_through(after.extra["through"])
        if "reached" not in before.extra:
            forget_checkpoint(self.state_dir)


def uncollected(entries: Iterable[Entry]) -> frozenset[str]:
    """Queries whose results nobody takes. What is left by a LIMIT only the driver can tell."""
    return frozenset(e.id for e in entries if e.query.sink.kind == "noop" and e.query.limit is None)


def _is_live(bucket: Bucket, plan: Plan, clock: BatchTimes) -> bool:
    """Whether some window still open needs some slice of the bucket."""
    grouping = plan.groupings.get(bucket.grouping)
    if grouping is None:
        return False
    closing = clock.closing_us[grouping.stream]
    return any(needed_until(start, grouping.windows) > closing for start, _ in bucket.spans)


def _next_progress(streams: Mapping[str, StreamProgress], totals: BatchTotals) -> dict[str, StreamProgress]:
    after = dict(streams)
    for name in {*totals.rows, *totals.rejected}:
        p = after.get(name, StreamProgress())
        times = [t for t in (p.max_time_us, totals.max_time_us.get(name)) if t is not None]
        after[name] = StreamProgress(
            max(times, default=None),
            p.rows + totals.rows.get(name, 0),
            p.late + totals.late.get(name, 0),
            p.rejected + totals.rejected.get(name, 0),
        )
    return after
