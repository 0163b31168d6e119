"""One batch, as the driver runs it: decisions, tasks, prepared results, manifest, sinks, in this order.

The order is what makes results exact. Before the manifest nothing has happened: a batch may be decided anew, so that
a query which it cannot be run with can be dropped. The manifest is created once and holds what was prepared. After
it, sinks commit, keyed by batch; what a crash kept from them is committed again, under the same key."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from thalweg import faults
from thalweg.adapt.contract import Decided
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.settings import JoinPlanning, Repartitioning, Settings
from thalweg.adapt.small_batches import Load, SmallBatches
from thalweg.batch.blame import blame
from thalweg.batch.contract import Runner
from thalweg.batch.decisions import Decisions, from_intent
from thalweg.batch.delivery import Delivery, Made, Preparation, present
from thalweg.batch.events import tell_batch, tell_begin, tell_plan, tell_recovery
from thalweg.batch.requests import apply_requests, foresee, registered, without_old_fences
from thalweg.batch.retention import Retention
from thalweg.batch.settle import Ran, seen_by_adaptations, settle
from thalweg.batch.tables import clean_tables, forget_versions
from thalweg.batch.totals import BatchTotals, add_up
from thalweg.batch.watermarks import Watermarks, batch_times, begin_anew, fenced
from thalweg.batch.work import Work
from thalweg.errors import no_place_left, old_windows_of_joins, wrong_hash
from thalweg.foreign import brief
from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.budget import Budget
from thalweg.model.entry import Entry, Gap
from thalweg.model.manifest import FORMAT, Manifest, Prepared
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.ordering import OrderingReport
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.patience import Patience
from thalweg.model.plan import Member, Plan, slot_stages, updated_groupings
from thalweg.model.query import Query
from thalweg.model.split import rows_in
from thalweg.model.stream import Schema, Stream
from thalweg.model.times import BatchTimes, StreamTimes, with_joined
from thalweg.model.way import Way
from thalweg.model.window import BEGINNING, Stretch
from thalweg.observe import log
from thalweg.observe.door_log import DoorLog
from thalweg.observe.progress import BatchReport, StreamReport
from thalweg.observe.stopwatch import break_down
from thalweg.operate import duck
from thalweg.optimize.grouping import GROUPS, make_plan
from thalweg.route.bucket import decode_offsets
from thalweg.route.hash import HASH_NAME
from thalweg.route.table import routing_table
from thalweg.sink.contract import TaskSink
from thalweg.sink.kinds import SINKS
from thalweg.source.kinds import from_outside
from thalweg.state.catalog import Table, Tables
from thalweg.state.collect import collect_garbage
from thalweg.state.delivered import Delivered, find_delivered, save_delivered, still_waiting
from thalweg.state.manifest import Manifests
from thalweg.state.migrate import find_old_intent, forget_old
from thalweg.state.reader import StateReader
from thalweg.state.rejected import forget_rejected
from thalweg.state.requests import RequestLog, ResetWatermark
from thalweg.state.storage import Storage
from thalweg.state.term import Term, check_term, forget_terms

faults.register("batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.sinks", "batch.end")
_CHECK_SECONDS = 1.0
"""While results are given out, so often it is looked whether the state is still ours."""


def wall_clock() -> int:
    """In microseconds. A batch has the time of its beginning, which its manifest keeps."""
    return time.time_ns() // 1000


class BatchRunner:
    """Runs batches one after another. All its memory is the newest manifest; the rest is derived from it."""

    def __init__(
        self,
        runner: Runner,
        storage: Storage,
        term: Term,
        manifests: Manifests,
        requests: RequestLog,
        streams: Callable[[], Mapping[str, Stream]],
        tables: Callable[[], Tables],
        delivery: Delivery,
        *,
        slots: int | None,
        repartitioning: Repartitioning | None = None,
        join_planning: JoinPlanning | None = None,
        functions: Callable[[Iterable[Query]], dict[str, bytes]] = lambda queries: {},
        check_hold: Callable[[], None] = lambda: None,
        small_batches: SmallBatches | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`slots`: None for as many as there is work for, up to one per task. `small_batches`: which way a batch
        runs; None: all in stages."""
        self.runner = runner
        self.storage = storage
        self.term = term
        self.manifests = manifests
        self.requests = requests
        self.streams = streams
        self.tables = tables
        self.delivery = delivery
        self.tasks = runner.tasks
        self._check_hold = check_hold
        self._checked = 0.0
        """When the state was last seen to be ours."""
        delivery.check_mine = self._check_now_and_then
        self._noted = -1
        """How much the queues had changed when that was last made durable."""
        self.functions = functions
        self.small_batches = small_batches
        self.budget = budget or Budget()
        self.wall_clock: Callable[[], int] = wall_clock
        self.door_log = DoorLog()
        self.retention = Retention(storage)
        self._load()
        self.adaptations = AdaptLoop(Settings(self.tasks, slots, repartitioning, join_planning))
        self.reports: list[BatchReport] = []
        self.finished = threading.Condition()
        self._planned: tuple[partial[Plan], Plan] | None = None
        """The last plan and all that it was made from: most batches ask for the same again."""
        self._tried: int | None = None
        """The batch that was run, or begun, last."""
        self._used_tables: dict[str, Table] = {}
        """file -> version, of those that batches have used or nobody will, and that were not deleted."""
        self._has_dropped = True
        """Whether the last batch may have let go of objects: the manifest before it still names them."""
        clean_tables(storage, self.tables(), {} if self._repeated is None else self._repeated.tables)
        if self.manifest.batch >= 0:
            collect_garbage(storage, self.manifest)
            manifests.forget_older()
        self._has_swept = False
        """Whether what no manifest came to name was deleted. Not before this session's first: where no lock reaches,
        another may be about to create the next one."""
        forget_terms(storage, term)
        if self.manifest.batch >= 0 and self.manifest.format == FORMAT:
            forget_old(storage)

    def _load(self) -> None:
        """Begins from the newest manifest."""
        # Before the first manifest nobody knows which release the state is of.
        self.manifest = self.manifests.newest() or Manifest(-1, GROUPS, HASH_NAME, format=0)
        if self.manifest.hash != HASH_NAME:
            raise wrong_hash(self.storage.place, self.manifest.hash, HASH_NAME)
        self._check_format()
        self.entries = dict(self.manifest.queries)
        self.plan: Plan | None = None
        self._is_unsure = False
        """Whether the commit of a batch failed, so that only the storage knows if it has happened."""
        self._unoffered: tuple[Prepared, ...] = ()
        """What the newest manifest holds for sinks and the queues have not."""
        self._restore_queues()
        intent = find_old_intent(self.storage, self.manifest.batch + 1) if self.manifest.format < FORMAT else None
        self._repeated = None if intent is None else from_intent(intent, self.manifest.batch + 1)
        """What the next batch runs with, if an earlier release may have shown sinks something of it."""
        self.delivery.newest = self.manifest.batch + (self._repeated is not None)
        tell_begin(self.manifest, self._repeated is not None)

    def _restore_queues(self) -> None:
        """What sinks are still to be given, and of which queries nothing is given for now."""
        done = find_delivered(self.storage)
        if done is not None and done.batch != self.manifest.batch:
            done = None
        held = self.manifest.undelivered
        if self.manifest.timeline != self.term.timeline:
            held = ()  # it is a copy, and what waits is the original's
        waiting = still_waiting(held, done)
        still = {(p.query, p.batch) for p in waiting}
        given = {p.query: p.batch for p in held if (p.query, p.batch) not in still}
        paused = {id_: e.paused for id_, e in self.entries.items() if e.paused is not None}
        if done is not None:
            paused = done.paused if done.given is not None else {**paused, **done.failed}
        known, paused = foresee(self.entries, paused, self.requests.read_after(self.manifest.through))
        queues = self.delivery.queues
        # Where a commit of this session was unsure, it knows better who is paused.
        queues.restore(waiting, given, {} if queues.has_begun else paused, known)

    def _check_format(self) -> None:
        """Up to format 3 partials of joined rows had names by which this release would not find them."""
        running = [e.query for e in self.manifest.queries.values() if e.runs]
        old = [query.name for query in running if query.join is not None and query.window is not None]
        if self.manifest.format < 4 and old:
            raise old_windows_of_joins(self.storage.place, self.manifest.format, old)

    def retire_table(self, table: Table) -> None:
        """A version that is not in force any more, used or not. It goes after the next batch."""
        self._used_tables[table.version.file] = table

    # -- the batch -----------------------------------------------------------------------------------------

    def run(
        self,
        splits: Sequence[str],
        reached: Offsets,
        choosing_seconds: float = 0.0,
        marks: Mapping[str, SourceMark] | None = None,
    ) -> None:
        """Runs the next batch over the splits, which go up to the offsets `reached`. `choosing_seconds`: what it took
        to choose them. `marks`: what is known of the sources."""
        began = time.perf_counter()
        faults.point("batch.start")
        start = self.reached
        before, batch = self.manifest, self.manifest.batch + 1
        if self._tried != batch - 1:
            forget_rejected(self.storage, batch)
        self._tried = batch
        decisions = self._repeated or self._decide(reached)
        before, moment, entries, plan = self._plan_batch(decisions)
        tell_plan(self.plan, plan, batch)
        arriving = {name for name, end in reached.streams.items() if end > start.streams.get(name, 0)}
        clock = batch_times(plan, moment, Watermarks(before, self.streams(), self.wall_clock(), arriving))
        planned = time.perf_counter()
        totals = self._run_tasks(splits, plan, clock, decisions, entries)
        if totals.refused:  # by sinks that tasks could not write to: nothing has happened yet, so once more
            forget_rejected(self.storage, batch)
            totals = self._run_tasks(splits, plan, clock, decisions, entries, frozenset(totals.refused))
        faults.point("batch.tasks")
        ran = time.perf_counter()
        self.check_mine()
        entries, given, ready = self._prepare(plan, entries, totals, batch)
        faults.point("batch.prepared")
        retained = self.retention.after(before, totals.rejected_now(batch), self.streams())
        done = Ran(decisions, plan, moment, clock, totals, retained)
        after = settle(before, done, entries, self.streams())
        learned = self.adaptations.observe(seen_by_adaptations(before, after, done, ran - began))
        self._commit(
            replace(
                after,
                measured=learned.measured,
                timeline=self.term.timeline,
                term=self.term.number,
                marks={**before.marks, **(marks or {})},
                results=ready.results,
                undelivered=(*self.delivery.queues.waiting(), *ready.undelivered),
            ),
            plan,
            ready.undelivered,
        )
        faults.point("batch.manifest")
        self.door_log.tell(batch, totals.set_aside, totals.lacking)
        self.door_log.tell_resets(batch, self.manifest.streams)
        settled = time.perf_counter()
        self.deliver()
        faults.point("batch.sinks")
        delivered = time.perf_counter()
        self._clean_up(before, totals, decisions.tables)
        self.retention.commit(retained)
        faults.point("batch.end")
        ended = time.perf_counter()
        phases = {
            "plan": planned - began,
            "tasks": ran - planned,
            "sink": delivered - settled,
            "manifest": ended - ran - (delivered - settled),
            **totals.seconds,
        }
        rows, sink = sum(totals.rows.values()), delivered - settled
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
        self.adaptations.commit(learned)
        tell_batch(before, after, report)
        with self.finished:
            self.reports = [*self.reports[-99:], report]
            self.finished.notify_all()

    def _commit(self, after: Manifest, plan: Plan, new: Sequence[Prepared]) -> None:
        """Creates the manifest. Whatever goes wrong from here on, the batch has happened."""
        self.check_mine()
        self._is_unsure = True
        self.manifests.create(after)
        self._is_unsure = False
        self.manifest, self.entries, self.plan = after, dict(after.queries), plan
        self._unoffered, self._repeated = tuple(new), None
        self.delivery.newest = after.batch
        self.delivery.results.commit(after.results)

    def check_mine(self) -> None:
        """Raises if another session has taken over the state."""
        self._check_hold()
        check_term(self.storage, self.term)
        self._checked = time.monotonic()

    def _check_now_and_then(self) -> None:
        if time.monotonic() - self._checked > _CHECK_SECONDS:
            self.check_mine()

    def recover(self) -> None:
        """After a commit that failed: what has happened is what the storage says. Then what sinks were not given, if
        no other session has taken over since, which gives it."""
        queues = self.delivery.queues
        queues.check()
        if self._is_unsure or self._unoffered or not queues.has_begun:
            self.check_mine()
            if self._is_unsure:
                self._load()
                self.delivery.results.commit(self.manifest.results)
            tell_recovery(self.manifest, queues.waiting(), self.entries)
            queues.begin()
            self.deliver()

    def deliver(self) -> None:
        """Offers sinks what the newest manifest holds for them, and does not wait for them."""
        self.delivery.queues.offer(self._unoffered, self.entries)
        self._unoffered = ()

    def flush(self, seconds: float | None = None, leaves: threading.Event | None = None) -> bool:
        """Waits until sinks have what the newest manifest holds; as of `Queues.flush`."""
        return self.delivery.queues.flush(seconds, leaves)

    def make_room(self, leaves: threading.Event) -> None:
        """Waits for sinks that are far behind, where nobody waits for the next batch."""
        self.delivery.queues.make_room(leaves)

    def note_delivery(self) -> None:
        """Says durably what sinks have been given, and who is paused, where no later manifest will for now."""
        queues = self.delivery.queues
        changes = queues.changes
        if changes == self._noted or self._is_unsure or self.manifest.batch < 0:
            return
        given, paused = queues.given(self.manifest.undelivered), queues.paused()
        known = {id_: e.paused for id_, e in self.manifest.queries.items() if e.paused is not None}
        note = Delivered(self.manifest.batch, given=given, paused=paused)
        if (given or paused != known) and find_delivered(self.storage) != note:
            self.check_mine()
            save_delivered(self.storage, note)
        self._noted = changes

    def note_if_idle(self) -> None:
        """Where nothing is on its way to a sink."""
        if self.delivery.queues.changes != self._noted and self.flush(0):
            self.note_delivery()

    def _plan_batch(self, decisions: Decisions) -> tuple[Manifest, StreamTimes, dict[str, Entry], Plan]:
        """The requests applied: what the batch begins with, and how it runs."""
        before, entries = self.manifest, self.entries
        requests = [r for r in self.requests.read_after(before.through) if r[0] <= decisions.through]
        schemas = {name: table.schema for name, table in decisions.tables.items()}
        anew = {request.stream for _, request in requests if isinstance(request, ResetWatermark)}
        if anew:
            plan = self._make_plan(entries, decisions, schemas)
            before, closed = begin_anew(before, anew, plan, before.batch + 1)
            entries = fenced(entries, closed, before.batch + 1)
        moment = StreamTimes(
            before.batch + 1, {name: p.max_time_us for name, p in before.streams.items()}, dict(before.closed)
        )
        entries = apply_requests(entries, requests, before.history, self.streams(), schemas, moment)
        entries = without_old_fences(entries, moment.closed_us)
        plan = self._make_plan(entries, decisions, schemas)
        return before, with_joined(moment, plan.joins), entries, plan

    def _stream_reports(
        self, plan: Plan, clock: BatchTimes, totals: BatchTotals, start: Offsets, end: Offsets
    ) -> dict[str, StreamReport]:
        return {
            name: StreamReport(
                stream.source.kind,
                start.streams.get(name, 0),
                end.streams.get(name, 0),
                totals.rows.get(name, 0),
                totals.late.get(name, 0),
                totals.rejected.get(name, 0),
                totals.max_time_us.get(name),
                None if clock.closing_us[name] <= BEGINNING else clock.closing_us[name],
            )
            for name, stream in sorted(self.streams().items())
            if name in plan.streams
        }

    def _decide(self, reached: Offsets) -> Decisions:
        """What a batch runs with, as things stand now."""
        # A query that takes part has its table, whichever of them comes or goes at this moment.
        tables, through = dict(self.tables()), self.requests.last
        decided = self.adaptations.decide(self.manifest.measured, self.manifest.batch + 1)
        return Decisions(through, reached, decided, {**tables, **self.tables()})

    @property
    def reached(self) -> Offsets:
        """How far the batches that have happened go."""
        return self.manifest.reached

    def settled(self) -> Offsets | None:
        """How far the next batch goes, if an earlier release may have shown sinks something of it."""
        return None if self._repeated is None else self._repeated.reached

    @property
    def decided(self) -> Decided:
        """What the next batch would run with."""
        return self.adaptations.decided(self.manifest.measured, self.manifest.batch + 1)

    @property
    def slots(self) -> int:
        return self.decided.slots

    def partitioning_report(self) -> PartitioningReport:
        said = self.adaptations.explain(self.manifest.measured)
        return replace(
            said["slot_assignment"].report or PartitioningReport(), aggregations=said["partitioners"].report or {}
        )

    def ordering_report(self) -> OrderingReport:
        return self.adaptations.explain(self.manifest.measured)["probe_orders"].report or OrderingReport()

    def _make_plan(self, entries: Mapping[str, Entry], decisions: Decisions, schemas: Mapping[str, Schema]) -> Plan:
        running, decided = registered(entries.values()), decisions.decided
        make = partial(
            make_plan,
            running,
            self.streams(),
            slots=decided.slots,
            groups=self.manifest.groups,
            loads=decided.loads,
            tables=schemas,
            joins=decided.joins,
            assignment=decided.placement.assignment,
            follows=decided.placement.follows,
            partitioners=decided.placement.partitioners,
            spread=decided.placement.spread,
        )
        if self._planned is None or not _same_call(self._planned[0], make):
            self._planned = (make, make())
        return replace(self._planned[1], functions=self.functions(entry.query for entry in running))

    def watermarks(self) -> Watermarks:
        """As they are now, after the newest batch."""
        return Watermarks(self.manifest, self.streams(), self.wall_clock())

    def has_idled(self) -> bool:
        """Whether a batch without data would close something for a stream that has become idle since."""
        if self.plan is None or all(stream.idle_us is None for stream in self.streams().values()):
            return False
        marks, closed = self.watermarks(), self.manifest.closed
        joined = self.plan.joins.joined
        return any(marks.of_joined(joined[name]) > closed.get(name, BEGINNING) for name in joined)

    def has_more_to_close(self) -> bool:
        """Whether a batch without data would close windows: the watermark has moved over kept state."""
        plan = self.plan
        if plan is None:
            return False
        closed = self.manifest.closed
        kept = {plan.groupings[b.relation].stream for b in self.manifest.buckets}
        held = {b.relation for b in self.manifest.stores}
        kept |= {d.joined for d in plan.joins.decisions if d.stream in held}
        marks = self.watermarks()
        return any(marks.in_plan(plan, stream) > closed[stream] for stream in kept)

    def has_work_without_rows(self) -> bool:
        """Whether a batch without data would change anything: requests wait, or a watermark has moved. Also before
        the first batch of this life, of which nobody knows yet."""
        if self.plan is None or self.requests.last > self.manifest.through:
            return True
        closed, marks = self.manifest.closed, self.watermarks()
        return any(marks.in_plan(self.plan, name) > closed.get(name, BEGINNING) for name in self.plan.streams)

    # -- the tasks -----------------------------------------------------------------------------------------

    def _run_tasks(
        self,
        splits: Sequence[str],
        plan: Plan,
        clock: BatchTimes,
        decisions: Decisions,
        entries: Mapping[str, Entry],
        refused: frozenset[str] = frozenset(),
    ) -> BatchTotals:
        """`refused`: the queries whose sinks tasks cannot write to, beside those that are in trouble anyway."""
        refused = refused | self.delivery.queues.troubled()
        tasks, policies = min(self.tasks, plan.slots), decisions.decided.policies
        stores: dict[str, list[RowBucket]] = {}
        for bucket in self.manifest.stores:
            stores.setdefault(bucket.relation, []).append(bucket)
        work = Work(
            self.storage,
            clock,
            self._buckets_by_slot(plan),
            self._nodes(),
            tasks,
            stores,
            {name: table.version for name, table in decisions.tables.items()},
            {key: policy for key, policy in policies.items() if key in plan.partitioners},
            uncollected(entries.values()),
            sinks_in_tasks(e for e in entries.values() if e.id not in refused),
            sources=from_outside(stream.stream for stream in plan.streams.values()),
            stages=slot_stages(plan),
            budget=self.budget,
        )
        duck.allow(self.budget)
        load = Load(rows_in(splits), self._state_read(plan, clock))
        way = Way.STAGES if self.small_batches is None else self.small_batches.choose(plan, load)
        began = time.perf_counter()
        collected = self.runner.run(plan, work, splits, way)
        ended = time.perf_counter()
        totals = replace(add_up(collected), job_seconds=ended - began, way=way)
        if self.small_batches is not None:
            self.small_batches.take_in(load, totals.work_seconds())
        return totals

    def _state_read(self, plan: Plan, clock: BatchTimes) -> int:
        """Bytes of the state that the batch may read: of buckets whose windows close or are shown, and of stores."""
        shown, total = updated_groupings(plan), sum(b.nbytes for b in self.manifest.stores)
        for bucket in self.manifest.buckets:
            grouping = plan.groupings.get(bucket.relation)
            if grouping is None:
                continue
            closed, closing = clock.closed_us[grouping.stream], clock.closing_us[grouping.stream]
            if grouping.id in shown or (closing > closed and min(start for start, _ in bucket.spans) < closing):
                total += bucket.nbytes
        return total

    def _buckets_by_slot(self, plan: Plan) -> dict[int, list[SliceBucket]]:
        by_slot: dict[int, list[SliceBucket]] = {}
        for bucket in self.manifest.buckets:
            grouping = plan.groupings.get(bucket.relation)
            if grouping is None:
                continue
            held = np.diff(decode_offsets(bucket.offsets)) > 0
            owners = routing_table(plan, grouping.route_key).owners
            slots = {*np.unique(owners[held]).tolist()}
            if len(slots) > 1:
                slots.add(bucket.place % plan.slots)  # which may merge it with others
            for slot in sorted(slots):
                by_slot.setdefault(slot, []).append(bucket)
        return by_slot

    def _nodes(self) -> dict[str, frozenset[Stretch]]:
        nodes: dict[str, set[Stretch]] = {}
        for bucket in self.manifest.buckets:
            nodes.setdefault(bucket.relation, set()).update(s for s in bucket.spans if s[1] < 0)
        return {grouping: frozenset(found) for grouping, found in nodes.items()}

    # -- results and state ---------------------------------------------------------------------------------

    def _prepare(
        self, plan: Plan, entries: Mapping[str, Entry], totals: BatchTotals, batch: int
    ) -> tuple[dict[str, Entry], dict[str, int], Preparation]:
        """Makes results durable, and says how many there are. A query that failed gives none; it is stopped, the
        others go on."""
        failed = blame(plan, totals.failures)
        members = {m.query: m for m in plan.members}
        results = {}
        for id_ in {**totals.results, **totals.sections, **totals.parts}:
            if id_ in entries and id_ not in failed:
                try:
                    results[id_] = self._made(entries[id_], members.get(id_), totals)
                except (pa.ArrowException, duck.Error) as error:
                    failed[id_] = brief(str(error))
        self.delivery.queues.forget(self.manifest.queries.keys() - entries.keys())
        ready = self.delivery.prepare(batch, results, entries)
        made = Counter({id_: result.rows for id_, result in results.items() if id_ not in ready.unkept})
        made.update({id_: n for id_, n in totals.counted.items() if id_ not in failed})
        after, paused = {}, self.delivery.queues.paused()
        for id_, entry in entries.items():
            if entry.paused != paused.get(id_):
                entry = replace(entry, paused=paused.get(id_))
            if id_ in failed:
                entry = replace(entry, state="failed", error=failed[id_], gap=Gap(batch))
            elif id_ in ready.unkept:
                entry = _stopped(entry, batch, ready.unkept[id_])
            elif made[id_]:
                entry = replace(entry, emitted=entry.emitted + made[id_])
            after[id_] = entry
        return after, {id_: n for id_, n in made.items() if id_ in after and id_ not in failed}, ready

    def _made(self, entry: Entry, member: Member | None, totals: BatchTotals) -> Made:
        tables, sections = totals.results.get(entry.id, []), totals.sections.get(entry.id, [])
        if entry.query.order or entry.query.limit is not None:  # only of all rows together one can tell
            reader = StateReader(self.storage)
            tables, sections = [*tables, *(reader.read(section) for section in sections)], []
        table = present(entry.query, member, tables) if tables else None
        return Made(entry, table, tuple(sections), tuple(totals.parts.get(entry.id, ())))

    def _clean_up(self, before: Manifest, totals: BatchTotals, tables: Tables) -> None:
        after = self.manifest
        dropped = bool(before.files() - after.files()) or bool(totals.sections)
        if dropped or self._has_dropped or after.batch % 64 == 0:
            collect_garbage(self.storage, after, before if before.batch >= 0 else None)
        self._has_dropped = dropped
        if after.through > before.through or before.format < FORMAT:
            self.requests.forget_through(after.through)
        if before.format < FORMAT or before.batch < 0:
            forget_old(self.storage)
        if self._has_swept:
            self.manifests.prune()
        else:
            self.manifests.sweep()
            self._has_swept = True
        self._used_tables.update({table.version.file: table for table in tables.values()})
        forget_versions(self.storage, self._used_tables, self.tables())


def _same_call(one: partial[Plan], other: partial[Plan]) -> bool:
    return one.args == other.args and one.keywords == other.keywords


def _stopped(entry: Entry, batch: int, rows: int) -> Entry:
    """A query whose results found no more place."""
    limit = Patience.of(entry.query).undelivered_bytes
    error = str(no_place_left(entry.query.name, batch, rows, limit))
    log.error("delivery", "query_stopped", query=entry.query.name, batch=batch, rows_not_kept=rows)
    return replace(entry, state="stopped", error=error, gap=Gap(batch, rows))


def sinks_in_tasks(entries: Iterable[Entry]) -> dict[str, TaskSink]:
    """Of the queries whose sinks can write where rows are made. What has an order only the driver can put into it."""
    found: dict[str, TaskSink] = {}
    for e in entries:
        kind = SINKS.find(e.query.sink.kind) if e.runs and not e.query.order and e.query.limit is None else None
        if kind is not None and (sink := kind.in_tasks(e.query)) is not None:
            found[e.id] = sink
    return found


def uncollected(entries: Iterable[Entry]) -> frozenset[str]:
    """Queries whose results nobody takes. What is left by a LIMIT only the driver can tell."""
    kinds = {e.id: SINKS.find(e.query.sink.kind) for e in entries if e.query.limit is None}
    return frozenset(id_ for id_, kind in kinds.items() if kind is not None and not kind.wants_rows)
