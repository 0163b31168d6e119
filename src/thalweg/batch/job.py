"""The tasks of a batch: which way they run, and what all of them together have reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from thalweg.adapt.small_batches import Load, SmallBatches
from thalweg.batch.contract import Runner
from thalweg.batch.make_work import make_work, state_read
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.totals import BatchTotals, add_up
from thalweg.model.budget import Budget
from thalweg.model.split import rows_in
from thalweg.model.way import Way
from thalweg.operate import duck
from thalweg.state.rejected import forget_rejected
from thalweg.state.storage import Storage


class Job:
    """Runs the tasks of one batch after another."""

    def __init__(
        self,
        runner: Runner,
        storage: Storage,
        budget: Budget | None = None,
        small_batches: SmallBatches | None = None,
    ) -> None:
        """`small_batches`: which way a batch runs; None: all in stages."""
        self.runner = runner
        self.small_batches = small_batches
        self.budget = budget or Budget()
        """What a statement of a task may cost."""
        self._storage = storage

    def run(
        self,
        planned: PlannedBatch,
        splits: Sequence[str],
        troubled: Callable[[], Collection[str]],
    ) -> BatchTotals:
        """`troubled`: the queries whose sinks take nothing now."""
        totals = self._run(planned, splits, {*troubled()})
        if totals.refused:  # by sinks that tasks could not write to: nothing has happened yet, so once more
            forget_rejected(self._storage, planned.batch)
            totals = self._run(planned, splits, {*totals.refused, *troubled()})
        return totals

    def _run(self, planned: PlannedBatch, splits: Sequence[str], refused: Collection[str]) -> BatchTotals:
        plan, small = planned.plan, self.small_batches
        work = make_work(planned, self._storage, self.runner.tasks, refused, self.budget)
        duck.allow(self.budget)
        load = Load(rows_in(splits), state_read(planned))
        way = Way.STAGES if small is None else small.choose(plan, load)
        began = time.perf_counter()
        collected = self.runner.run(plan, work, splits, way)
        ended = time.perf_counter()
        totals = replace(add_up(collected), job_seconds=ended - began, way=way)
        if small is not None:
            small.take_in(load, totals.work_seconds())
        return totals
