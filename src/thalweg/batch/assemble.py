"""Puts together what runs batches: over a state, with a runner, sinks, and what the program has defined."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.settings import AdaptSettings, JoinPlanning, Repartitioning
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.commit import Commits
from thalweg.batch.contract import Runner, SinkOpener
from thalweg.batch.delivery import Delivery
from thalweg.batch.hands import Hands
from thalweg.batch.job import Job
from thalweg.batch.offers import Offers
from thalweg.batch.planning import Planning
from thalweg.batch.run import BatchRunner
from thalweg.model.budget import Budget
from thalweg.state.storage import Storage
from thalweg.state.term import Term


def assemble(
    runner: Runner,
    opener: SinkOpener,
    storage: Storage,
    term: Term,
    planning: Planning,
    *,
    slots: int | None,
    repartitioning: Repartitioning | None = None,
    join_planning: JoinPlanning | None = None,
    small_batches: SmallBatches | None = None,
    check_hold: Callable[[], None] = lambda: None,
    budget: Budget | None = None,
    hands: Hands | None = None,
) -> BatchRunner:
    """`opener`: opens what only the engine can write to. `slots` and the next two: as of `adapt.AdaptSettings`.
    `small_batches`: which way a batch runs; None: all in stages. `check_hold`: raises if another session has opened
    the state. `budget`: what a statement of a task may cost. `hands`: who gives results to sinks."""
    return BatchRunner(
        Commits(storage, term, check_hold),
        planning,
        AdaptLoop(AdaptSettings(runner.tasks, slots, repartitioning, join_planning)),
        Job(runner, storage, budget, small_batches),
        Offers(storage, term.timeline, planning.requests, Delivery(opener, storage, term, hands)),
    )
