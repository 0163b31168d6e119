"""Puts together what runs batches: over a state, with a runner, sinks, and what the program has defined."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.adapt.probe_orders.loop import JoinPlanning
from thalweg.adapt.slot_assignment.loop import Repartitioning
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.adaptation import Adaptation
from thalweg.batch.commit import Commits
from thalweg.batch.contract import Runner
from thalweg.batch.delivery import Delivery
from thalweg.batch.job import Job
from thalweg.batch.offers import Offers
from thalweg.batch.planning import Planning
from thalweg.batch.run import BatchRunner
from thalweg.model.budget import Budget
from thalweg.state.storage import Storage
from thalweg.state.term import Term


def assemble(
    runner: Runner,
    storage: Storage,
    term: Term,
    planning: Planning,
    delivery: Delivery,
    *,
    slots: int | None,
    repartitioning: Repartitioning | None = None,
    join_planning: JoinPlanning | None = None,
    small_batches: SmallBatches | None = None,
    check_hold: Callable[[], None] = lambda: None,
    budget: Budget | None = None,
) -> BatchRunner:
    """`slots` and the next three: as of `Adaptation`. `check_hold`: raises if another session has opened the state.
    `budget`: what a statement of a task may cost."""
    return BatchRunner(
        Commits(storage, term, check_hold),
        planning,
        Adaptation(
            runner.tasks,
            slots=slots,
            repartitioning=repartitioning,
            join_planning=join_planning,
            small_batches=small_batches,
        ),
        Job(runner, storage, budget),
        Offers(storage, term.timeline, planning.requests, delivery),
    )
