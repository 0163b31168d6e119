"""One batch, as the driver runs it: decisions, tasks, prepared results, manifest, sinks, in this order.

The order is what makes results exact. Before the manifest nothing has happened: a batch may be decided anew, so that
a query which it cannot be run with can be dropped. The manifest is created once and holds what was prepared. After
it, sinks commit, keyed by batch; what a crash kept from them is committed again, under the same key."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thalweg import faults
from thalweg.adapt.loop import AdaptLoop
from thalweg.batch.clean_up import CleanUp
from thalweg.batch.commit import Commits
from thalweg.batch.job import Job
from thalweg.batch.offers import Offers
from thalweg.batch.planning import Planning
from thalweg.batch.results import BatchResults
from thalweg.batch.retention import Retention
from thalweg.batch.settle import Ran, seen, settle
from thalweg.batch.telling import MANIFEST, PLAN, SINK, TASKS, Steps, Telling
from thalweg.model.manifest import Manifest, Prepared
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.plan import Plan
from thalweg.observe.progress import BatchReport

faults.register("batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.sinks", "batch.end")


class BatchRunner:
    """Runs batches one after another. All its memory is the newest manifest; the rest is derived from it."""

    def __init__(
        self, commits: Commits, planning: Planning, adaptations: AdaptLoop, job: Job, offers: Offers
    ) -> None:
        storage = commits.storage
        self.commits = commits
        self.planning, self.pending = planning, planning.pending
        self.adaptations = adaptations
        self.job = job
        self.offers = offers
        self.runner, self.tasks = job.runner, job.runner.tasks
        self.storage, self.requests = storage, planning.requests
        offers.delivery.check_mine = commits.check_now_and_then
        self.results = BatchResults(storage, offers.delivery)
        self.retention = Retention(storage)
        self.clean_up = CleanUp(storage, commits.manifests, planning.requests, planning.tables)
        self.telling = Telling(self.tasks)
        self.finished = self.telling.finished
        self._take_up()
        self.clean_up.begin(self.manifest, commits.term, {} if self._repeated is None else self._repeated.tables)

    def _take_up(self) -> None:
        """Begins from the newest manifest."""
        self.manifest, self._repeated = self.commits.newest()
        self.entries = self.manifest.queries
        self.plan: Plan | None = None
        self.offers.restore(self.manifest, self._repeated is not None)
        self.commits.is_unsure = False

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
        steps, before = Steps(), self.manifest
        faults.point("batch.start")
        self.retention.begin(before.batch + 1)
        decisions = self._repeated or self.planning.decide(before, reached, self.adaptations)
        planned = self.planning.plan(before, decisions, _arriving(self.reached, reached))
        self.telling.begun(self.plan, planned)
        steps.end(PLAN)
        totals = self.job.run(planned, splits, self.offers.queues.troubled)
        faults.point("batch.tasks")
        steps.end(TASKS)
        self.check_mine()
        prepared = self.results.prepare(planned, totals)
        faults.point("batch.prepared")
        streams = planned.streams
        retained = self.retention.after(planned.before, totals.rejected_now(planned.batch), streams)
        ran = Ran(planned, totals, prepared, self.offers.queues.waiting(), retained, marks or {})
        after = settle(ran, streams)
        learned = self.adaptations.observe(seen(ran, after, steps.whole))
        self._commit(replace(after, measured=learned.measured), planned.plan, prepared.undelivered)
        faults.point("batch.manifest")
        self.telling.committed(totals, self.manifest)
        steps.end(MANIFEST)
        self.deliver()
        faults.point("batch.sinks")
        steps.end(SINK)
        self.clean_up.after(planned.before, self.manifest, bool(totals.sections), decisions.tables)
        self.retention.commit(retained, streams)
        faults.point("batch.end")
        steps.end(MANIFEST)
        report = self.telling.report(planned, totals, prepared, steps, choosing_seconds, streams)
        self.adaptations.commit(learned)
        self.telling.ended(planned.before, self.manifest, report)

    def _commit(self, after: Manifest, plan: Plan, new: Sequence[Prepared]) -> None:
        """Creates the manifest. Whatever goes wrong from here on, the batch has happened."""
        self.manifest, self.plan = self.commits.create(after), plan
        self.entries, self._repeated = after.queries, None
        self.offers.take(self.manifest, new)

    # -- around the batches --------------------------------------------------------------------------------

    def check_mine(self) -> None:
        """Raises if another session has taken over the state."""
        self.commits.check_mine()

    def recover(self) -> None:
        """After a commit that failed: what has happened is what the storage says. Then what sinks were not given, if
        no other session has taken over since, which gives it."""
        self.offers.queues.check()
        if self.commits.is_unsure or self.offers.is_behind:
            self.check_mine()
            if self.commits.is_unsure:
                self._take_up()
            self.offers.begin(self.manifest)
            self.deliver()

    def deliver(self) -> None:
        """Offers sinks what the newest manifest holds for them, and does not wait for them."""
        self.offers.offer(self.manifest)

    def flush(self, seconds: float | None = None, leaves: threading.Event | None = None) -> bool:
        """Waits until sinks have what the newest manifest holds; as of `Queues.flush`."""
        return self.offers.queues.flush(seconds, leaves)

    def make_room(self, leaves: threading.Event | None) -> None:
        """Waits for sinks that are far behind, where nobody waits for the next batch."""
        self.offers.queues.make_room(leaves)

    def note_delivery(self) -> None:
        """Says durably what sinks have been given, and who is paused, where no later manifest will for now."""
        if not self.commits.is_unsure:
            self.offers.note(self.manifest, self.check_mine)

    def note_if_idle(self) -> None:
        """Where nothing is on its way to a sink."""
        if self.offers.has_news and self.flush(0):
            self.note_delivery()

    @property
    def reports(self) -> Sequence[BatchReport]:
        """Of the last batches."""
        return self.telling.reports

    @property
    def reached(self) -> Offsets:
        """How far the batches that have happened go, of the streams that the next one knows."""
        return self.pending.reached(self.manifest)

    def begin(self) -> Offsets:
        """A batch is to be chosen: requests from now on are for a later one. Where it begins."""
        self.pending.take()
        return self.reached

    def settled(self) -> Offsets | None:
        """How far the next batch goes, if an earlier release may have shown sinks something of it."""
        return None if self._repeated is None else self._repeated.reached

    # -- whether a batch without rows would change anything ------------------------------------------------

    def has_idled(self) -> bool:
        """It would close something for a stream that has become idle since."""
        return self.plan is not None and self.planning.watermarks(self.manifest).has_idled(self.plan)

    def has_more_to_close(self) -> bool:
        """It would close windows: the watermark has moved over kept state."""
        return self.plan is not None and self.planning.watermarks(self.manifest).closes_state(self.plan)

    def has_requests(self) -> bool:
        """Some wait for the next batch."""
        return self.planning.has_requests(self.manifest)

    def has_work_without_rows(self) -> bool:
        """Requests wait, or a watermark has moved. Also before the first batch of this life, of which nobody knows
        yet."""
        if self.plan is None or self.has_requests():
            return True
        return self.planning.watermarks(self.manifest).have_moved(self.plan)


def _arriving(start: Offsets, end: Offsets) -> set[str]:
    """The streams that have something new."""
    return {name for name, reached in end.streams.items() if reached > start.streams.get(name, 0)}
