"""The settings of a session, as `connect` was given them, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from thalweg import errors
from thalweg.adapt.settings import EPOCH, JoinPlanning, Repartitioning
from thalweg.adapt.small_batches import SETTINGS as SMALL_BATCHES
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.hands import Hands
from thalweg.model.budget import Budget, parse_bytes
from thalweg.model.partitioning import AUTO
from thalweg.verbs.limits import to_microseconds

JOIN_EPOCH = EPOCH


@dataclass(frozen=True)
class SessionSettings:
    slots: int | str | None = None
    """AUTO: as many as there is work for; None: one per task."""
    repartition_us: int | None = None
    join_epoch: int | None = None
    small_batches: str | None = None
    """None: all run alike."""
    fork: bool = False
    budget: Budget = field(default_factory=Budget)
    hands: Hands | None = None
    """Who gives results to sinks; threads of their own unless given."""

    def __post_init__(self) -> None:
        if self.small_batches is not None and self.small_batches not in SMALL_BATCHES:
            raise errors.bad_small_batches(self.small_batches, SMALL_BATCHES)
        if self.join_epoch is not None and (not isinstance(self.join_epoch, int) or self.join_epoch < 1):
            raise errors.bad_join_epoch(self.join_epoch)
        whole = isinstance(self.slots, int) and not isinstance(self.slots, bool)
        if not (self.slots is None or self.slots == AUTO or (whole and int(self.slots) > 0)):
            raise errors.bad_slots(self.slots)

    def slots_of(self, tasks: int) -> int | None:
        """None: as many as there is work for."""
        return None if self.slots == AUTO else int(self.slots or tasks)

    @property
    def repartitioning(self) -> Repartitioning | None:
        return None if self.repartition_us is None else Repartitioning(self.repartition_us / 1e6)

    @property
    def join_planning(self) -> JoinPlanning | None:
        return None if self.join_epoch is None else JoinPlanning(self.join_epoch)

    def small_batches_of(self, tasks: int) -> SmallBatches | None:
        return SmallBatches(self.small_batches, tasks) if self.small_batches else None


def span_or_none(given: str | timedelta | None) -> int | None:
    """In microseconds."""
    return None if given is None else to_microseconds(given)


def budget_of(expression_time: str | timedelta | None, worker_memory: int | str | None) -> Budget:
    span = span_or_none(expression_time)
    return Budget(None if span is None else span / 1e6, None if worker_memory is None else parse_bytes(worker_memory))


def spark_or_none(spark: Any) -> Any:
    if spark is not None and not type(spark).__module__.startswith("pyspark."):
        raise errors.wrong_spark(type(spark).__name__)
    return spark
