"""The contract of the feedback loops.

An adaptation is a few pure functions over a memory, which is a value. It has no thread, no clock and no file: `loop`
has these, calls the functions, and logs what goes wrong in them. The same batches lead to the same proposals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Measurements
from thalweg.model.plan import Plan
from thalweg.model.plan_input import Placement, PlanMeasurements
from thalweg.model.probe_order import OrdersInForce
from thalweg.model.report import ProbeId, StreamSample
from thalweg.optimize.deadline import Clock
from thalweg.partition.cooperative import Policy

M = TypeVar("M")
A = TypeVar("A")


@dataclass(frozen=True)
class Decided:
    """What the next batch runs with, as far as adaptations say."""

    batch: int
    slots: int
    measurements: PlanMeasurements = field(default_factory=PlanMeasurements)
    """What the planner decides by: where rows are combined, who shares a cohort, orders until one is decided."""
    ordering: OrdersInForce = field(default_factory=OrdersInForce)
    """The probe orders that were decided."""
    placement: Placement = field(default_factory=Placement)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """route key -> what its partitioners have learned."""


@dataclass(frozen=True)
class SeenBatch:
    """A batch whose tasks have run: all that adaptations learn from."""

    plan: Plan
    decided: Decided
    measured: Measurements
    """What was kept before the batch; and of the batch, what adaptations before this one keep."""
    routing: RoutingTotals = field(default_factory=RoutingTotals)
    groups: Mapping[str, int] = field(default_factory=dict)
    """grouping -> partials made at the source."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """grouping -> rows that it admitted there."""
    probes: Mapping[ProbeId, tuple[int, int]] = field(default_factory=dict)
    samples: Mapping[str, StreamSample] = field(default_factory=dict)
    """By stream that is joined."""
    buckets: Sequence[SliceBucket] = ()
    stores: Sequence[RowBucket] = ()
    """Those that live after the batch."""
    rows: int = 0
    """That came in."""
    busy_seconds: float = 0.0
    """Of all slots together."""
    seconds: float = 0.0
    """Until the tasks had run."""

    @property
    def batch(self) -> int:
        return self.decided.batch


@dataclass(frozen=True)
class SolverCall:
    """That something slow was asked for."""

    batch: int
    why: str
    at: float
    """On the clock of the loop."""
    failed: str = ""
    """What went wrong, if it did."""
    is_urgent: bool = False
    """Whether the batches do not go first."""

    @property
    def words(self) -> str:
        return f"after batch {self.batch}, because {self.why}"


class Adaptation(Protocol[M, A]):
    """`M`: what it remembers. `A`: what its slow part answers; None where it has none."""

    name: str
    empty: M
    """What it remembers before the first batch."""
    lost: str
    """What of the memory a crash may cost; empty where all of it is in the manifest."""

    def restore(self, memory: M, measured: Measurements) -> M:
        """The memory with what the newest manifest holds of it."""
        return memory

    def observe(self, memory: M, seen: SeenBatch) -> M:
        """The memory after a batch."""
        raise NotImplementedError

    def keep(self, memory: M, seen: SeenBatch) -> Measurements:
        """What the manifest of the batch holds: `seen.measured` with this adaptation's part."""
        return seen.measured

    def due(self, memory: M, now: float) -> str:
        """Why `solve` should run now; empty where it should not."""
        return ""

    def is_urgent(self, memory: M) -> bool:
        """Whether what is due should not yield to the batches."""
        return False

    def solve(self, memory: M, asked: SolverCall, clock: Clock) -> A:
        """Beside the batches, where it may take seconds. The memory goes on changing meanwhile."""
        raise NotImplementedError

    def is_stale(self, memory: M, asked: SolverCall) -> bool:
        """Whether an answer would be of no use any more: then the clock of `solve` says that its time is over."""
        return False

    def adopt(self, memory: M, asked: SolverCall, answer: A | None) -> M:
        """The memory with an answer; None where `solve` has failed."""
        return memory

    def propose(self, memory: M, decided: Decided) -> Decided:
        """What the next batch should run with. Takes no time."""
        raise NotImplementedError

    def explain(self, memory: M) -> AdaptationReport:
        raise NotImplementedError
