"""Which way a batch runs, by how much there is to do: a batch of little work is done before two stages have begun.

| way | |
|---|---|
| stages | tasks on all cores, a shuffle of cells between two stages |
| fused | all stages in one task of Spark's, without a shuffle |
| driver | all stages in the driver's own process |

Results are the same, and batches may alternate. Work is counted in seconds of one core. It is predicted from what the
batches before took, and guessed high where there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thalweg.model.plan import Plan
from thalweg.model.way import Way

SETTINGS = ("spark", "driver")
"""Where small batches with rows run; without rows, always in the driver."""
SAVED = 0.09
"""Seconds that stages take to begin and to shuffle, above one fused task."""
MOST = 1.0
"""Seconds of work that are never small: the driver has other things to do."""
ROW_SECONDS, LEAST_QUERIES = 2e-6, 10
"""What a row takes for one query, and how many queries there are at least: guessed."""
BYTE_SECONDS = 1 / 50e6
"""What a byte of state takes that is read: guessed."""
REMEMBERED = 8
"""Batches that are predicted from."""


@dataclass(frozen=True)
class Load:
    """What is known of a batch before it runs."""

    rows: int
    """About this many come in."""
    state_bytes: int
    """Of the state that closing windows and probes may read."""


@dataclass(frozen=True)
class TimedBatch:
    """A batch that has run."""

    load: Load
    seconds: float


def predict(load: Load, seen: Sequence[TimedBatch], queries: int) -> float:
    """Seconds of work, rather too many than too few.

    A batch of fewer rows takes no longer than one that was seen; one of more at most in proportion, because part of
    what was seen is the same for any batch. State beyond what was seen is guessed.
    """
    guessed = load.rows * ROW_SECONDS * max(queries, LEAST_QUERIES) + load.state_bytes * BYTE_SECONDS
    likely = [_scaled(load, one) for one in seen if one.load.rows or not load.rows]
    return min(likely, default=guessed)


def _scaled(load: Load, seen: TimedBatch) -> float:
    more = max(1.0, load.rows / seen.load.rows) if load.rows else 1.0
    unseen = max(0, load.state_bytes - seen.load.state_bytes)
    return seen.seconds * more + unseen * BYTE_SECONDS


def small_work(cores: int) -> float:
    """Seconds of work below which one core is done before all of them are: w + 0 < w / cores + SAVED."""
    return MOST if cores < 2 else min(MOST, SAVED * cores / (cores - 1))


def choose_way(load: Load, seconds: float, cores: int, setting: str, has_functions: bool) -> Way:
    """`seconds`: the predicted work. `has_functions`: code of users takes part, which never runs in the driver."""
    if seconds >= small_work(cores):
        return Way.STAGES
    in_driver = setting == "driver" or not load.rows
    return Way.DRIVER if in_driver and not has_functions else Way.FUSED


class SmallBatches:
    """Remembers what batches took, as long as the same queries run."""

    def __init__(self, setting: str, cores: int) -> None:
        self._setting, self._cores = setting, cores
        self._queries: frozenset[str] = frozenset()
        self._seen: list[TimedBatch] = []
        self._is_trusted = True

    def choose(self, plan: Plan, load: Load) -> Way:
        """For a batch that is about to run. One that follows a batch which did not come to its end runs in stages."""
        queries = _queries(plan)
        if queries != self._queries:
            self._queries, self._seen = queries, []
        seconds = predict(load, self._seen, len(queries))
        way = choose_way(load, seconds, self._cores, self._setting, bool(plan.functions))
        was_trusted, self._is_trusted = self._is_trusted, False
        return way if was_trusted else Way.STAGES

    def take_in(self, load: Load, seconds: float) -> None:
        """The batch that was chosen for last has come to its end."""
        self._is_trusted = True
        self._seen = [*self._seen[1 - REMEMBERED :], TimedBatch(load, seconds)]


def _queries(plan: Plan) -> frozenset[str]:
    selections = (s.query for stream in plan.streams.values() for s in stream.selections)
    return frozenset({*(m.query for m in plan.members), *selections})
