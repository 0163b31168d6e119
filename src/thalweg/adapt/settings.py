"""What a session says of the feedback loops: which are on, when they are asked, how long they may take."""

from __future__ import annotations

from dataclasses import dataclass

EPOCH = 8
"""Batches of an epoch, unless the session says otherwise."""


@dataclass(frozen=True)
class Repartitioning:
    """When the optimiser of key groups is asked, and how long it may take."""

    interval_seconds: float = 240.0
    """SASPAR's best of a sweep from 1 to 16 minutes (Fig. 11)."""
    drift: float = 0.1
    """The share of rows that have moved between cells since the last optimisation, which asks for another one."""
    budget_seconds: float = 2.0
    """Of one optimisation, beside the batches: half of SASPAR's, which had cores to spare."""
    soon_seconds: float = 0.25
    """Of one after a shift, when any answer is better than none; one in full comes with the interval."""
    least_seconds: float = 10.0
    """Between two optimisations of streams that stay as they are, whatever happens."""
    drift_seconds: float = 1.0
    """Between two looks at what has drifted."""
    drift_batches: int = 2
    """And this many batches."""

    @property
    def pause_seconds(self) -> float:
        return min(self.least_seconds, self.interval_seconds)


@dataclass(frozen=True)
class JoinPlanning:
    """When join orders are planned anew, and how long that may take."""

    epoch: int = EPOCH
    """Batches."""
    budget_seconds: float = 1.0
    """Of one run over all cohorts, beside the batches."""


@dataclass(frozen=True)
class AdaptSettings:
    tasks: int
    """Of a stage, at most."""
    slots: int | None = None
    """None: as many as there is work for, up to one per task."""
    repartitioning: Repartitioning | None = None
    """None: the assignment of key groups stays as it is."""
    join_planning: JoinPlanning | None = None
    """None: decided join orders stay as they are."""
