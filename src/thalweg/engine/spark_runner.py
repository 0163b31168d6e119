"""The stages of a batch as Spark jobs: tasks in its Python workers, a shuffle of cells between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession

from thalweg.batch.cells import Cells as Batches
from thalweg.batch.ingest_stage import ingest
from thalweg.batch.slot_stage import run_slots
from thalweg.batch.work import Work
from thalweg.model.plan import Plan

CELL_SCHEMA = "slot int, kind string, payload binary"


class SparkRunner:
    """One job a batch."""

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self.tasks = tasks
        self._spark = spark
        self._broadcast: tuple[str, Broadcast[Plan]] | None = None

    def run(self, plan: Plan, work: Work, splits: DataFrame) -> pa.Table:
        shared = self._shared(plan)
        cells = splits.mapInArrow(_ingest_task(shared, replace(work, buckets={}, nodes={}, stores={})), CELL_SCHEMA)
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


def _ingest_task(plan: Broadcast[Plan], work: Work) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        texts = (text for batch in batches for text in batch.column(0).to_pylist())
        return ingest(plan.value, work, texts, _task_number())

    return run


def _slot_task(plan: Broadcast[Plan], work: Work) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        return run_slots(plan.value, work, batches, _task_number())

    return run


def _task_number() -> int:
    return int(TaskContext.get().partitionId())
