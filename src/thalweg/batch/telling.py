"""What the log says of batches, and the report of each for progress, listeners and those who wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from thalweg.batch.events import tell_batch, tell_plan
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.results import PreparedResults
from thalweg.batch.totals import BatchTotals
from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan
from thalweg.model.stream import Stream
from thalweg.model.window import BEGINNING
from thalweg.observe.door_log import DoorLog
from thalweg.observe.progress import BatchReport, StreamReport
from thalweg.observe.stopwatch import break_down

_REMEMBERED = 100
"""Reports of batches."""
PLAN, TASKS, SINK, MANIFEST = "plan", "tasks", "sink", "manifest"


class Steps:
    """How long each step of a batch takes, from its beginning on."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((PLAN, TASKS, SINK, MANIFEST), 0.0)
        self._began = self._last = time.perf_counter()

    def end(self, step: str) -> None:
        """What has passed since the last step was that step."""
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now

    @property
    def whole(self) -> float:
        return self._last - self._began


class Telling:
    def __init__(self, cores: int) -> None:
        """`cores`: tasks that run at the same time."""
        self._cores = cores
        self._door_log = DoorLog()
        self.reports: list[BatchReport] = []
        """The last ones, the newest at the end."""
        self.finished = threading.Condition()
        """Notified after each batch."""

    def begun(self, running: Plan | None, planned: PlannedBatch) -> None:
        """`running`: the plan of the batch before."""
        tell_plan(running, planned.plan, planned.batch)

    def committed(self, totals: BatchTotals, after: Manifest) -> None:
        self._door_log.tell(after.batch, totals.set_aside, totals.lacking)
        self._door_log.tell_resets(after.batch, after.streams)

    def report(
        self,
        planned: PlannedBatch,
        totals: BatchTotals,
        prepared: PreparedResults,
        steps: Steps,
        choosing_seconds: float,
        streams: Mapping[str, Stream],
    ) -> BatchReport:
        """Of a batch that has ended now. `choosing_seconds`: what it took to choose its input. `streams`: those that
        users made."""
        seconds, sink, now = steps.whole, steps.seconds[SINK], time.time()
        driver = seconds - totals.job_seconds - sink
        return BatchReport(
            planned.batch,
            sum(totals.rows.values()),
            sum(prepared.given.values()),
            seconds,
            now,
            {**steps.seconds, **totals.seconds},
            break_down(totals.stages(), self._cores, totals.job_seconds, sink, driver),
            totals.sent_bytes,
            _stream_reports(planned, totals, streams),
            {prepared.entries[id_].query.name: n for id_, n in prepared.given.items()},
            choosing_seconds,
            now - seconds - choosing_seconds - self.reports[-1].ended if self.reports else None,
            totals.way,
            totals.written_bytes,
        )

    def ended(self, before: Manifest, after: Manifest, report: BatchReport) -> None:
        tell_batch(before, after, report)
        with self.finished:
            self.reports = [*self.reports[1 - _REMEMBERED :], report]
            self.finished.notify_all()


def _stream_reports(
    planned: PlannedBatch, totals: BatchTotals, streams: Mapping[str, Stream]
) -> dict[str, StreamReport]:
    start, end = planned.before.reached.streams, planned.decisions.reached.streams
    closing = planned.clock.closing_us
    return {
        name: StreamReport(
            stream.source.kind,
            start.get(name, 0),
            end.get(name, 0),
            totals.rows.get(name, 0),
            totals.late.get(name, 0),
            totals.rejected.get(name, 0),
            totals.max_time_us.get(name),
            None if closing[name] <= BEGINNING else closing[name],
        )
        for name, stream in sorted(streams.items())
        if name in planned.plan.streams
    }
