"""The partitioners as the papers name them, and at which sizes they are measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks import partition_streams as streams
from benchmarks.costly_aggregates import Work
from benchmarks.partition_streams import Distribution
from thalweg.partition import Partitioner, create

SEED = 1
COSTLY_WORKS = (Work(4, 1, 4_000), Work(16, 1, 4_000), Work(16, 16, 4_000))
ENGINE_WORKS = ("zipf/unique", "uniform/unique", "zipf/cents", "moving/unique")


@dataclass(frozen=True)
class Contender:
    """A partitioner as the papers write it."""

    label: str
    name: str
    choices: int = 2
    estimator: str = "exact"
    options: dict[str, Any] = field(default_factory=dict)
    asked: float = 0.0
    """Million rows a second; 0: nothing is asked."""

    def made(self, workers: int, **options: Any) -> Partitioner:
        given = {**self.options, **options}
        return create(self.name, workers, choices=self.choices, estimator=self.estimator, seed=SEED, **given)


HASH = Contender("FLD (hash)", "hash", asked=100)
TWO_CHOICES = Contender("PK-2", "partial_key", asked=30)
DALTON = Contender("Dalton", "dalton", asked=15)
CONTENDERS = (
    Contender("SH (shuffle)", "shuffle", asked=100),
    HASH,
    TWO_CHOICES,
    Contender("PK-5", "partial_key", 5, asked=30),
    Contender("CM-2", "cardinality", asked=8),
    Contender("AM-2", "affinity", asked=8),
    Contender("AM-5", "affinity", 5, asked=8),
    Contender("cAM-2", "affinity_count", asked=8),
    Contender("LM-2", "hybrid", asked=8),
    Contender("CM-2-H", "cardinality", estimator="hll", asked=15),
    Contender("AM-2-H", "affinity", estimator="hll", asked=15),
    Contender("cAM-2-H", "affinity_count", estimator="hll", asked=15),
    Contender("LM-2-H", "hybrid", estimator="hll", asked=15),
    Contender("DAGreedy", "da_greedy"),
    Contender("Prompt", "prompt"),
    DALTON,
    Contender("Dalton, batches", "dalton", options={"micro_batch": True}),
)


@dataclass(frozen=True)
class Sizes:
    speed_rows: int
    speed_runs: int
    memory_workers: tuple[int, ...]
    window: int
    windows: int
    phases: int
    """Pairs of phases of a stream that changes."""
    workers: tuple[int, ...]
    distributions: tuple[Distribution, ...]
    members: tuple[int, ...]
    """Partitioners side by side."""
    own_windows: int
    seeds: int
    engine_rows: int
    """Of a batch."""
    engine_runs: int
    engine_works: tuple[str, ...]
    engine_sides: tuple[str, ...]
    costly_works: tuple[Work, ...]
    costly_runs: int


def sizes_of(quick: bool) -> Sizes:
    if quick:
        some = (streams.uniform(), streams.zipf(1.0), streams.zipf(2.0), streams.t4sa())
        return Sizes(
            1 << 19, 3, (32,), 1 << 16, 3, 2, (8, 32), some, (2,), 8, 1, 500_000, 1, ENGINE_WORKS[:1],
            ("hash", "auto"), COSTLY_WORKS[:1], 1,
        )  # fmt: skip
    synthetic = (streams.uniform(), *(streams.zipf(exponent) for exponent in (0.5, 1.0, 1.5, 2.0)))
    every = (*synthetic, streams.t4sa(), streams.elections())
    return Sizes(
        1 << 22, 5, (8, 16, 32), 1 << 18, 4, 4, (8, 16, 32, 64, 128), every, (2, 4, 8), 8, 2, 2_000_000, 3,
        ENGINE_WORKS, ("hash", "auto", "dalton"), COSTLY_WORKS, 2,
    )  # fmt: skip
