"""What the optimiser of key groups is asked of a memory, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thalweg.adapt.contract import SolverCall
from thalweg.adapt.settings import Repartitioning
from thalweg.adapt.slot_assignment.drift import drift
from thalweg.adapt.slot_assignment.forest import CellForest, can_grow, fill, train
from thalweg.adapt.slot_assignment.judge import AssignmentInput, Proposal, decide
from thalweg.adapt.slot_assignment.memory import ENOUGH, SlotMemory
from thalweg.adapt.slot_assignment.moves import held_rows, joined_keys
from thalweg.adapt.slot_assignment.sharing import Shares, Sharing
from thalweg.model.partitioning import Partitioning
from thalweg.observe import log
from thalweg.optimize.deadline import Clock
from thalweg.optimize.slot_assignment import RouteKey

LOOK = "it is looked what has drifted"
"""Why the optimiser is asked where that depends on what has drifted."""


@dataclass(frozen=True)
class NewSlots:
    """An answer. It says nothing where nothing had drifted."""

    why: str = ""
    """Why the optimiser was asked, in the end."""
    proposal: Proposal | None = None
    known: frozenset[RouteKey] = frozenset()
    fitted: Mapping[str, Shares] | None = None
    forests: Mapping[str, CellForest] | None = None
    trainings: int = 0
    drifted: frozenset[str] = frozenset()
    """Streams of which only what is recent counts from now on."""


def answer(memory: SlotMemory, asked: SolverCall, settings: Repartitioning, clock: Clock) -> NewSlots:
    why, drifted = asked.why, {}
    if why == LOOK:
        drifted = drifted_streams(memory, settings.drift)
        if not drifted:
            return NewSlots()
        why = ", ".join(f"{share:.0%} of the rows of {stream} have drifted" for stream, share in drifted.items())
    renewed = frozenset(stream for stream in drifted if memory.recent[stream].sampled >= ENOUGH)
    ready = {stream: memory.recent[stream] if stream in renewed else s for stream, s in memory.ready.items()}
    fitted = {stream: sharing.fitting() for stream, sharing in ready.items()}
    filled, forests, trainings = _fill_in(memory, fitted)
    given = _given(memory, ready, filled, settings)
    budget = settings.budget_seconds
    if drifted or memory.given_up is not None:
        budget = min(settings.soon_seconds, budget)
    proposal = decide(given, budget_seconds=budget, clock=clock)
    return NewSlots(why, proposal, memory.route_keys, fitted, forests, trainings, renewed)


def drifted_streams(memory: SlotMemory, least: float) -> dict[str, float]:
    """Which streams are no longer what the partitioning was made for, and how much."""
    known = [stream for stream in memory.fitted if stream in memory.recent]
    moved = {stream: drift(memory.fitted[stream], memory.recent[stream].fitting()) for stream in known}
    return {stream: share for stream, share in moved.items() if share >= least}


def _given(
    memory: SlotMemory, ready: Mapping[str, Sharing], fitting: Mapping[str, Shares], settings: Repartitioning
) -> AssignmentInput:
    plan = memory.plan
    assert plan is not None
    current = Partitioning(plan.assignment, plan.co_located_with, plan.slots).hashed(memory.retreat)
    return AssignmentInput(
        slots=plan.slots,
        fitting=fitting,
        held_out={name: sharing.held_out() for name, sharing in ready.items()},
        current=current,
        lat_proc=memory.lat_proc,
        purity=memory.purity,
        bound=frozenset(plan.groupings[m.main.grouping].route_key for m in plan.members if m.updates),
        probed=memory.probed,
        equal=sorted(set(joined_keys(plan))),
        held=held_rows(plan, memory.buckets),
        horizon=max(10.0, settings.interval_seconds / max(memory.batch_seconds, 0.01)),
    )


def _fill_in(
    memory: SlotMemory, fitted: Mapping[str, Shares]
) -> tuple[dict[str, Shares], dict[str, CellForest], int]:
    """With many route keys not all pairs are counted: the forest tells the others while it is good enough."""
    filled, forests, trainings = dict(fitted), dict(memory.forests), memory.trainings
    for stream, shares in fitted.items():
        n = len(shares.counts)
        if len(shares.joint) < n * (n - 1) // 2:
            if not trainings and not can_grow():
                log.warning("adapt", "no_forest", stream=stream, install="pip install 'thalweg[forest]'")
            trainings += 1
            forests[stream] = train(shares, trainings, memory.forests.get(stream))
            filled[stream] = fill(shares, forests[stream])
    return filled, forests, trainings
