"""The stages of a batch as Spark jobs: tasks in its Python workers, a shuffle of cells between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.broadcast import Broadcast
from pyspark.sql import SparkSession

from thalweg.batch.contract import TasksCancelledError
from thalweg.batch.tasks import Batches, Work, ingest, run_slots
from thalweg.engine.spark import JobGroup
from thalweg.model.plan import Plan

CELL_SCHEMA = "slot int, kind string, payload binary"


class SparkRunner:
    """One job a batch. `spark` is a session of its own: what a user sets does not act on batches."""

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self.tasks = tasks
        self._spark = spark
        self._broadcast: tuple[str, Broadcast[Plan]] | None = None
        self._group: JobGroup | None = None
        """Of the batch whose tasks run."""

    def run(self, plan: Plan, work: Work, splits: Sequence[str]) -> pa.Table:
        described = f"batch {work.clock.batch} of {Path(work.state_dir).name}"
        with JobGroup(self._spark.sparkContext, described) as group:
            self._group = group
            try:
                return self._cells(plan, work, splits)
            except Exception as error:
                if not group.is_cancelled:
                    raise
                group.wait()
                raise TasksCancelledError(described) from error
            finally:
                self._group = None

    def cancel(self) -> None:
        group = self._group
        if group is not None:
            group.cancel()

    def _cells(self, plan: Plan, work: Work, splits: Sequence[str]) -> pa.Table:
        shared, tasks = self._shared(plan), len(splits)
        first = _ingest_task(shared, replace(work, buckets={}, nodes={}, stores={}), tuple(splits))
        cells = self._spark.range(0, tasks, 1, tasks).mapInArrow(first, CELL_SCHEMA)
        for stage in range(1, work.stages + 1):
            task = _slot_task(shared, replace(work, stage=stage))
            cells = cells.repartitionById(work.tasks, "slot").mapInArrow(task, CELL_SCHEMA)
        return cells.toArrow()

    def _shared(self, plan: Plan) -> Broadcast[Plan]:
        """The plan goes to a worker once, not with every task."""
        if self._broadcast is None or self._broadcast[0] != plan.id:
            old, self._broadcast = self._broadcast, None
            if old is not None:
                with suppress(Exception):  # its file may be gone: somebody cleans temporary directories
                    old[1].destroy()
            self._broadcast = (plan.id, self._spark.sparkContext.broadcast(plan))
        return self._broadcast[1]


def _ingest_task(plan: Broadcast[Plan], work: Work, texts: Sequence[str]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        task = _task_number()
        for _ in batches:
            pass  # one row, which says the same
        return ingest(plan.value, work, [texts[task]], task)

    return run


def _slot_task(plan: Broadcast[Plan], work: Work) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        return run_slots(plan.value, work, batches, _task_number())

    return run


def _task_number() -> int:
    return int(TaskContext.get().partitionId())
