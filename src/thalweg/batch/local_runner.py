"""The stages of a batch in the calling process: the same functions, called one after the other. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from thalweg.batch.cells import CELLS
from thalweg.batch.cells import Cells as Batches
from thalweg.batch.ingest_stage import ingest
from thalweg.batch.slot_stage import run_slots
from thalweg.batch.work import Work
from thalweg.model.plan import Plan
from thalweg.model.split import join_splits
from thalweg.model.way import Way
from thalweg.operate.gather import warm_gather
from thalweg.operate.merge_lanes import warm_lanes
from thalweg.operate.probe import warm_probes
from thalweg.route.warm import warm_kernels

Cells = list[pa.RecordBatch]
Attempt = Callable[[], Batches]
"""Begins a task anew and gives its cells as it makes them."""


class Chance(Protocol):
    """What Spark leaves open, and results may not depend on."""

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        """The splits as the tasks of INGEST get them, each a text; as many tasks as it likes."""
        ...

    def tasks(self, tasks: int) -> Sequence[int]:
        """In which order the tasks of a stage are run."""
        ...

    def attempt(self, begin: Attempt) -> Cells:
        """The cells of the attempt that counts; others may have been begun before it, beside it or after it."""
        ...

    def order(self, cells: Cells) -> Cells:
        """The order in which they arrive."""
        ...


class Orderly:
    """Everything once, in order."""

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        return splits

    def tasks(self, tasks: int) -> Sequence[int]:
        return range(tasks)

    def attempt(self, begin: Attempt) -> Cells:
        return list(begin())

    def order(self, cells: Cells) -> Cells:
        return cells


def run_in_one(plan: Plan, work: Work, splits: Sequence[str]) -> pa.Table:
    """All stages as one task each, in this process, without what a shuffle costs."""
    work = replace(work, tasks=1)
    cells: Batches = ingest(plan, replace(work, buckets={}, nodes={}, stores={}), [join_splits(splits)], 0)
    for stage in range(1, work.stages + 1):
        cells = run_slots(plan, replace(work, stage=stage), list(cells), 0)
    return pa.Table.from_batches(list(cells), schema=CELLS)


def warm_up() -> None:
    """Loads what the stages need and have compiled, so that the first batch need not."""
    warm_kernels()
    warm_probes()
    warm_gather()
    warm_lanes()


class LocalRunner:
    """`splits` of a batch: for every task of INGEST the text of its splits."""

    def __init__(self, tasks: int, chance: Chance | None = None) -> None:
        self.tasks = tasks
        self._chance = chance or Orderly()

    def run(self, plan: Plan, work: Work, splits: Sequence[str], way: Way = Way.STAGES) -> pa.Table:
        if way != Way.STAGES:
            return run_in_one(plan, work, splits)
        first = replace(work, buckets={}, nodes={}, stores={})
        dealt = self._chance.deal(splits)
        cells = self._stage([partial(ingest, plan, first, [text], task) for task, text in enumerate(dealt)])
        for stage in range(1, work.stages + 1):
            staged, arrived = replace(work, stage=stage), self._shuffle(cells, work.tasks)
            cells = self._stage([partial(run_slots, plan, staged, came, task) for task, came in enumerate(arrived)])
        return pa.Table.from_batches(cells, schema=CELLS)

    def cancel(self) -> None:
        """A task that runs here cannot be ended from outside."""

    def _stage(self, tasks: Sequence[Attempt]) -> Cells:
        made = {task: self._chance.attempt(tasks[task]) for task in self._chance.tasks(len(tasks))}
        return [cell for task in sorted(made) for cell in made[task]]

    def _shuffle(self, cells: Iterable[pa.RecordBatch], tasks: int) -> list[Cells]:
        arrived: list[Cells] = [[] for _ in range(tasks)]
        for cell in cells:  # one row each, as tasks make them
            arrived[cell.column(0)[0].as_py() % tasks].append(cell)
        return [self._chance.order(cells) for cells in arrived]
