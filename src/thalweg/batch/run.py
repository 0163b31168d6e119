"""One batch, as the driver runs it: decisions, tasks, prepared results, manifest, sinks, in this order.

The order is what makes results exact. Before the manifest nothing has happened: a batch may be decided anew, so that
a query which it cannot be run with can be dropped. The manifest is created once and holds what was prepared. After
it, sinks commit, keyed by batch; what a crash kept from them is committed again, under the same key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from thalweg import faults
from thalweg.adapt import reports
from thalweg.adapt.contract import Decided
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.settings import JoinPlanning, Repartitioning, Settings
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.contract import Runner
from thalweg.batch.decisions import from_intent
from thalweg.batch.delivery import Delivery
from thalweg.batch.events import tell_batch, tell_begin, tell_plan, tell_recovery
from thalweg.batch.job import Job
from thalweg.batch.measuring import seen
from thalweg.batch.planning import Planning
from thalweg.batch.prepare import Preparing
from thalweg.batch.requests import foresee
from thalweg.batch.results import prepare_results
from thalweg.batch.retention import Retention
from thalweg.batch.settle import Ran, settle
from thalweg.batch.tables import clean_tables, forget_versions
from thalweg.batch.totals import BatchTotals
from thalweg.batch.watermarks import Watermarks
from thalweg.errors import old_windows_of_joins, wrong_hash
from thalweg.model.budget import Budget
from thalweg.model.entry import Entry
from thalweg.model.manifest import FORMAT, Manifest, Prepared
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.ordering import OrderingReport
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.plan import Plan
from thalweg.model.plan_input import KEY_GROUPS
from thalweg.model.query import Query
from thalweg.model.stream import Stream
from thalweg.model.times import BatchTimes
from thalweg.model.window import BEGINNING
from thalweg.observe.door_log import DoorLog
from thalweg.observe.progress import BatchReport, StreamReport
from thalweg.observe.stopwatch import break_down
from thalweg.route.hash import HASH_NAME
from thalweg.state.catalog import Table, Tables
from thalweg.state.collect import collect_garbage
from thalweg.state.delivered import Delivered, find_delivered, save_delivered, still_waiting
from thalweg.state.manifest import Manifests
from thalweg.state.migrate import find_old_intent, forget_old
from thalweg.state.requests import RequestLog
from thalweg.state.storage import Storage
from thalweg.state.term import Term, check_term, forget_terms

faults.register("batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.sinks", "batch.end")
_CHECK_SECONDS = 1.0
"""While results are given out, so often it is looked whether the state is still ours."""


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
        self.planning = Planning(requests, streams, tables, functions)
        self.preparing = Preparing(storage, delivery)
        self.job = Job(runner, storage, budget, small_batches)
        self.door_log = DoorLog()
        self.retention = Retention(storage)
        self._load()
        self.adaptations = AdaptLoop(Settings(self.tasks, slots, repartitioning, join_planning))
        self.reports: list[BatchReport] = []
        self.finished = threading.Condition()
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
        self.manifest = self.manifests.newest() or Manifest(-1, KEY_GROUPS, HASH_NAME, format=0)
        if self.manifest.hash != HASH_NAME:
            raise wrong_hash(self.storage.place, self.manifest.hash, HASH_NAME)
        self._check_format()
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
        self.retention.begin(batch)
        decisions = self._repeated or self.planning.decide(before, reached, self.adaptations)
        arriving = {name for name, end in reached.streams.items() if end > start.streams.get(name, 0)}
        ready = self.planning.plan(before, decisions, arriving)
        before, plan, clock = ready.before, ready.plan, ready.clock
        tell_plan(self.plan, plan, batch)
        planned = time.perf_counter()
        totals = self.job.run(ready, splits, self.delivery.queues.troubled)
        faults.point("batch.tasks")
        ran = time.perf_counter()
        self.check_mine()
        prepared = prepare_results(ready, totals, self.preparing)
        faults.point("batch.prepared")
        retained = self.retention.after(before, totals.rejected_now(batch), self.streams())
        after = settle(Ran(ready, totals, retained), prepared.entries, self.streams())
        learned = self.adaptations.observe(seen(ready, totals, after, ran - began))
        self._commit(
            replace(
                after,
                measured=learned.measured,
                timeline=self.term.timeline,
                term=self.term.number,
                marks={**before.marks, **(marks or {})},
                results=prepared.files,
                undelivered=(*self.delivery.queues.waiting(), *prepared.undelivered),
            ),
            plan,
            prepared.undelivered,
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
            sum(prepared.given.values()),
            ended - began,
            now,
            phases,
            spent,
            totals.sent_bytes,
            self._stream_reports(plan, clock, totals, start, reached),
            {prepared.entries[id_].query.name: n for id_, n in prepared.given.items()},
            choosing_seconds,
            now - (ended - began) - choosing_seconds - self.reports[-1].ended if self.reports else None,
            totals.way,
        )
        self.adaptations.commit(learned)
        tell_batch(before, self.manifest, report)
        with self.finished:
            self.reports = [*self.reports[-99:], report]
            self.finished.notify_all()

    def _commit(self, after: Manifest, plan: Plan, new: Sequence[Prepared]) -> None:
        """Creates the manifest. Whatever goes wrong from here on, the batch has happened."""
        self.check_mine()
        self._is_unsure = True
        self.manifests.create(after)
        self._is_unsure = False
        self.manifest, self.plan = after, plan
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

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The queries that the newest manifest holds, by their ids."""
        return self.manifest.queries

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

    def partitioning_report(self) -> PartitioningReport:
        return reports.partitioning_report(self.adaptations.explain(self.manifest.measured))

    def ordering_report(self) -> OrderingReport:
        return reports.ordering_report(self.adaptations.explain(self.manifest.measured))

    def watermarks(self) -> Watermarks:
        """As they are now, after the newest batch."""
        return self.planning.watermarks(self.manifest)

    def has_idled(self) -> bool:
        """Whether a batch without data would close something for a stream that has become idle since."""
        return self.plan is not None and self.watermarks().has_idled(self.plan)

    def has_more_to_close(self) -> bool:
        """Whether a batch without data would close windows: the watermark has moved over kept state."""
        return self.plan is not None and self.watermarks().closes_state(self.plan)

    def has_work_without_rows(self) -> bool:
        """Whether a batch without data would change anything: requests wait, or a watermark has moved. Also before
        the first batch of this life, of which nobody knows yet."""
        if self.plan is None or self.planning.has_requests(self.manifest):
            return True
        return self.watermarks().have_moved(self.plan)

    # -- afterwards ------------------------------------------------------------------------------------------

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
