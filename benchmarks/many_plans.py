"""What one query costs that comes or goes beside many: its plan, and what workers are sent of it
(`thalweg bench many --planning`)."""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypeVar

from benchmarks.local_batches import Load
from thalweg.batch.pieces import Assembler, Cutter
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, RunningQuery
from thalweg.optimize.planner import NOTHING, Draft, plan_next

TIMES = 12
"""Queries that come, and as many that go."""
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """Of one query, or of all: CPU milliseconds, and bytes."""

    plan: float
    cut: float
    """The driver's, for what workers are sent."""
    open: float
    """A worker's, for what it was sent."""
    sent: float


@dataclass(frozen=True)
class Change:
    queries: int
    all: Cost
    """Planned from nothing, and sent as a whole in one piece."""
    more: Cost
    less: Cost


def measure(load: Load, queries: int, times: int = TIMES) -> Change:
    """`load`: of so many queries and `times` more. Of what is measured the median. Joins stay in the cohorts that
    they run in, as between two batches."""
    running = [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(load.queries)]
    there, coming = running[:queries], running[queries : queries + times]
    asked = PlanInput(tuple(there), {stream.name: stream for stream in load.streams})
    draft, took = _timed(partial(plan_next, asked, NOTHING))
    cohorts = tuple(cohort.queries for cohort in draft.plan.joins.cohorts.values())
    asked = replace(asked, measurements=PlanMeasurements(joins=JoinLoad(cohorts=cohorts)))
    draft, rng = plan_next(asked, draft), random.Random(queries)
    places = [rng.randrange(queries) for _ in range(times)]
    more = [replace(asked, queries=(*there, one)) for one in coming]
    less = [replace(asked, queries=(*there[:place], *there[place + 1 :])) for place in places]
    return Change(queries, _whole(draft.plan, took), _cost(more, draft), _cost(less, draft))


def _cost(changed: Sequence[PlanInput], before: Draft) -> Cost:
    """Of each of these after the one before."""
    planned = [_timed(partial(plan_next, asked, before)) for asked in changed]
    sent = [_sent(before.plan, draft.plan) for draft, _ in planned]
    return Cost(median(took for _, took in planned), *(median(parts) for parts in zip(*sent, strict=True)))


def _sent(before: Plan, plan: Plan) -> tuple[float, float, int]:
    cutter, worker = Cutter(), Assembler()
    first = cutter.cut(before)
    worker.plan(first.name, [first.pieces])
    second, cut = _timed(lambda: cutter.cut(plan))
    new = {name: piece for name, piece in second.pieces.items() if name not in first.pieces}
    _, opened = _timed(lambda: worker.plan(second.name, [new]))
    return cut, opened, sum(map(len, new.values()))


def _whole(plan: Plan, took: float) -> Cost:
    pickled, packed = _timed(lambda: pickle.dumps(plan))
    return Cost(took, packed, _timed(lambda: pickle.loads(pickled))[1], len(pickled))


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    made = call()
    return made, (time.process_time() - began) * 1000
