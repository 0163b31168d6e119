"""What differs from batch to batch under one plan: what the tasks are given beside it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thalweg.model.bucket import NewBucket, RowBucket, Section, SliceBucket
from thalweg.model.budget import Budget
from thalweg.model.plan import Plan
from thalweg.model.times import BatchTimes
from thalweg.model.window import Stretch
from thalweg.partition.cooperative import Policy
from thalweg.sink.contract import TaskSink
from thalweg.source.contract import SourceKind
from thalweg.state.storage import Storage
from thalweg.state.writer import Kept, write_buckets


def unique() -> str:
    """What no other name of an object has in it."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class Work:
    storage: Storage
    clock: BatchTimes
    buckets: Mapping[int, Sequence[SliceBucket]] = field(default_factory=dict)
    """slot -> live buckets with rows of that slot."""
    nodes: Mapping[str, frozenset[Stretch]] = field(default_factory=dict)
    """grouping -> the nodes that exist."""
    tasks: int = 1
    stores: Mapping[str, Sequence[RowBucket]] = field(default_factory=dict)
    """stream -> live buckets of its store from the batches before."""
    tables: Mapping[str, Section] = field(default_factory=dict)
    """The static tables."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """route key -> what the partitioners of all tasks have learned."""
    uncollected: frozenset[str] = frozenset()
    """Queries whose results nobody takes: tasks count them."""
    sinks: Mapping[str, TaskSink] = field(default_factory=dict)
    """query -> how tasks prepare its results, where they are many and the sink can."""
    sources: Mapping[str, SourceKind[Any]] = field(default_factory=dict)
    """Kinds of sources from outside, which a worker may not know."""
    stage: int = 1
    """Of SLOT, from 1."""
    stages: int = 1
    budget: Budget = field(default_factory=Budget)
    """What a statement of a task may cost."""
    unique: Callable[[], str] = unique
    """What tells the files of two tasks, or of two attempts of one, apart."""
    now: Callable[[], int] = time.perf_counter_ns
    """What the time of tasks is measured by, in nanoseconds."""

    def keep(self, plan: Plan, place: int, new: Iterable[NewBucket]) -> Kept:
        """Writes what a task keeps of the batch."""
        return write_buckets(self.storage, list(new), self.clock.batch, place, self.unique(), plan.groups)

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages
