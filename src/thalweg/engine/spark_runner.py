"""The stages of a batch as Spark jobs: tasks in its Python workers, a shuffle of cells between them."""

from __future__ import annotations

import base64
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from thalweg.batch.cells import Cells
from thalweg.batch.contract import TasksCancelledError
from thalweg.batch.ingest_stage import ingest
from thalweg.batch.local_runner import run_in_one, warm_up
from thalweg.batch.slot_stage import run_slots
from thalweg.batch.work import Work
from thalweg.engine.failure import is_late_worker
from thalweg.engine.sent_plans import PlanSender, SentPlan
from thalweg.engine.spark import JobGroup, keeps_properties
from thalweg.model.plan import Plan
from thalweg.model.way import Way

CELL_SCHEMA = "slot int, kind string, payload binary"


_WORK = "thalweg.work"
"""The local property by which a fused task gets its work: its DataFrame is the same for every batch of a plan."""
_PAUSES = (0.5, 2.0, 5.0)
"""Seconds after which a job is run again whose workers did not start in time."""
_MOST_CHARACTERS = 4 << 20
"""Of such a property. It travels through the driver's events, too."""


class SparkRunner:
    """One job a batch, or none. `spark` is a session of its own: what a user sets does not act on batches."""

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self.tasks = tasks
        self._spark = spark
        self._plans = PlanSender(spark.sparkContext.broadcast)
        self._fused: tuple[SentPlan, DataFrame] | None = None
        """plan -> what runs its fused tasks. Without a shuffle, Spark computes it anew every time."""
        self._group: JobGroup | None = None
        """Of the batch whose tasks run."""
        self._warming: threading.Thread | None = None

    def run(self, plan: Plan, work: Work, splits: Sequence[str], way: Way = Way.STAGES) -> pa.Table:
        if way == Way.DRIVER and self._is_warm():
            return run_in_one(plan, work, splits)
        packed = _pack(work, splits) if way != Way.STAGES and keeps_properties() else None
        if packed is None or len(packed) > _MOST_CHARACTERS:
            return self._in_group(work, {}, lambda: self._stages(plan, work, splits))
        return self._in_group(work, {_WORK: packed}, self._fused_frame(plan).toArrow)

    def cancel(self) -> None:
        group = self._group
        if group is not None:
            group.cancel()

    def _in_group(self, work: Work, properties: Mapping[str, str], collect: Callable[[], pa.Table]) -> pa.Table:
        described = f"batch {work.clock.batch} of {work.storage.place.rpartition('/')[2]}"
        with JobGroup(self._spark.sparkContext, described, properties) as group:
            self._group = group
            try:
                return _patiently(collect, group)
            except Exception as error:
                if not group.is_cancelled:
                    raise
                group.wait()
                raise TasksCancelledError(described) from error
            finally:
                self._group = None

    def _stages(self, plan: Plan, work: Work, splits: Sequence[str]) -> pa.Table:
        sent, tasks = self._plans.send(plan), len(splits)
        first = _ingest_task(sent, replace(work, buckets={}, nodes={}, stores={}), tuple(splits))
        cells = self._spark.range(0, tasks, 1, tasks).mapInArrow(first, CELL_SCHEMA)
        for stage in range(1, work.stages + 1):
            task = _slot_task(sent, replace(work, stage=stage))
            cells = cells.repartitionById(work.tasks, "slot").mapInArrow(task, CELL_SCHEMA)
        return cells.toArrow()

    def _fused_frame(self, plan: Plan) -> DataFrame:
        sent = self._plans.send(plan)
        if self._fused is None or self._fused[0] is not sent:
            task = _fused_task(sent)
            self._fused = sent, self._spark.range(0, 1, 1, 1).mapInArrow(task, CELL_SCHEMA)
        return self._fused[1]

    def _is_warm(self) -> bool:
        """Whether this process has loaded what batches need; it begins to, where it has not."""
        if self._warming is None:
            self._warming = threading.Thread(target=warm_up, name="thalweg-warm-up", daemon=True)
            self._warming.start()
        return not self._warming.is_alive()


def _patiently(collect: Callable[[], pa.Table], group: JobGroup) -> pa.Table:
    """Runs the job again where a worker did not start in time: nobody has seen anything of it."""
    for pause in _PAUSES:
        try:
            return collect()
        except Exception as error:
            if group.is_cancelled or not is_late_worker(error):
                raise
            group.wait()
            time.sleep(pause)
    return collect()


def _pack(work: Work, splits: Sequence[str]) -> str:
    return base64.b85encode(zlib.compress(cloudpickle.dumps((work, tuple(splits))), 1)).decode()


def _unpack(text: str) -> tuple[Work, tuple[str, ...]]:
    found: tuple[Work, tuple[str, ...]] = cloudpickle.loads(zlib.decompress(base64.b85decode(text)))
    return found


def _fused_task(plan: SentPlan) -> Callable[[Cells], Cells]:
    def run(batches: Cells) -> Cells:
        _exhaust(batches)
        work, splits = _unpack(TaskContext.get().getLocalProperty(_WORK))
        yield from run_in_one(plan.open(), _in_worker(work), splits).to_batches()

    return run


def _ingest_task(plan: SentPlan, work: Work, texts: Sequence[str]) -> Callable[[Cells], Cells]:
    def run(batches: Cells) -> Cells:
        _exhaust(batches)
        task = _task_number()
        return ingest(plan.open(), _in_worker(work), [texts[task]], task)

    return run


def _exhaust(batches: Cells) -> None:
    """One row, which says no more than the number of the task."""
    for _ in batches:
        pass


def _slot_task(plan: SentPlan, work: Work) -> Callable[[Cells], Cells]:
    def run(batches: Cells) -> Cells:
        return run_slots(plan.open(), _in_worker(work), batches, _task_number())

    return run


def _in_worker(work: Work) -> Work:
    """A Python worker of Spark's runs one task at a time, and nothing else."""
    return replace(work, budget=replace(work.budget, owns_process=True))


def _task_number() -> int:
    return int(TaskContext.get().partitionId())
