"""Live re-partitioning: measures what is shipped, asks the optimiser beside the pipeline, proposes partitionings.

SASPAR stops a part of the running plan with markers, recompiles its operators and sends rows of open windows round
again. Here a batch boundary is the point of synchronisation, and state is read by ranges of key groups, so a switch
is one entry in the next batch's decisions.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch, SolverCall
from thalweg.adapt.settings import AdaptSettings, Repartitioning
from thalweg.adapt.slot_assignment import retreat
from thalweg.adapt.slot_assignment.judge import Proposal
from thalweg.adapt.slot_assignment.memory import SlotMemory, count, forget, learn
from thalweg.adapt.slot_assignment.moves import next_moves
from thalweg.adapt.slot_assignment.question import LOOK, NewSlots, answer
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Measurements, SlotAssignment
from thalweg.model.partitioning import Partitioning, PartitioningReport
from thalweg.optimize.deadline import Clock


class AssignSlots(Adaptation[SlotMemory, NewSlots]):
    name = "slot_assignment"
    empty = SlotMemory()
    lost = "what was measured of rows that are sent whole, and a partitioning that was not in force yet"

    def __init__(self, settings: AdaptSettings) -> None:
        self.settings, self.tasks = settings.repartitioning, settings.tasks

    def restore(self, memory: SlotMemory, measured: Measurements) -> SlotMemory:
        return structs.replace(memory, assigned=measured.slot_assignment)

    def observe(self, memory: SlotMemory, seen: SeenBatch) -> SlotMemory:
        """What a batch measured. What was proposed before it is in force."""
        plan = seen.plan
        memory = structs.replace(
            memory,
            assigned=SlotAssignment(
                assignment={route_key: list(slots) for route_key, slots in plan.assignment.items()},
                co_located_with=dict(plan.co_located_with),
                slots=plan.slots,
                moves=next_moves(memory.assigned, plan, seen.batch),
            ),
            batch=seen.batch,
            plan=plan,
            buckets=seen.buckets,
            proposed=None,
            retreat=frozenset(),
        )
        memory = count(forget(memory, plan), seen, self.tasks)
        if self.settings is None:
            return memory
        return _retreat(learn(memory, seen.routing.shipped, plan.groups), seen)

    def keep(self, memory: SlotMemory, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, slot_assignment=memory.assigned)

    def due(self, memory: SlotMemory, now: float) -> str:
        settings, plan, keys = self.settings, memory.plan, memory.route_keys
        if settings is None or plan is None or plan.slots < 2 or not keys:
            return ""
        if memory.given_up is not None:
            return memory.given_up[1]
        passed = now - (float("-inf") if memory.asked is None else memory.asked.at)
        if passed >= settings.pause_seconds and keys != memory.known:
            return "route keys have come or gone"
        if passed >= max(settings.pause_seconds, settings.interval_seconds):
            return f"{settings.interval_seconds:g} s have passed"
        return LOOK if _may_look(memory, settings, now) else ""

    def is_urgent(self, memory: SlotMemory) -> bool:
        """After a retreat every batch sends more than it need; the answer is a short one."""
        return memory.given_up is not None

    def solve(self, memory: SlotMemory, asked: SolverCall, clock: Clock) -> NewSlots:
        assert self.settings is not None
        return answer(memory, asked, self.settings, clock)

    def is_stale(self, memory: SlotMemory, asked: SolverCall) -> bool:
        """What it was asked of does not come any more."""
        return memory.given_up is not None and asked.batch < memory.given_up[0]

    def adopt(self, memory: SlotMemory, asked: SolverCall, answer: NewSlots | None) -> SlotMemory:
        memory = structs.replace(memory, looked=(asked.batch, asked.at))
        given_up = memory.given_up if self.is_stale(memory, asked) else None
        if answer is None:
            proposal = Proposal(None, f"the optimiser failed: {asked.failed}")
            known = memory.route_keys
            return structs.replace(memory, known=known, asked=asked, proposal=proposal, given_up=given_up)
        if answer.proposal is None or answer.fitted is None or answer.forests is None:
            return memory  # nothing had drifted
        recent = {stream: memory.recent[stream] for stream in answer.drifted if stream in memory.recent}
        return structs.replace(
            memory,
            known=answer.known,
            fitted=answer.fitted,
            forests=answer.forests,
            trainings=answer.trainings,
            sharing={**memory.sharing, **recent},
            asked=replace(asked, why=answer.why),
            proposal=answer.proposal,
            # One that was asked for before it was given up was fitted to rows that do not come any more.
            proposed=answer.proposal.partitioning if given_up is None else None,
            given_up=given_up,
        )

    def propose(self, memory: SlotMemory, decided: Decided) -> Decided:
        """As it was decided, or is proposed now; hashed for another number of slots."""
        assigned = memory.assigned
        known = Partitioning(slots=decided.slots)
        if assigned.slots == decided.slots:
            known = Partitioning(assigned.assignment, assigned.co_located_with, assigned.slots)
        known = known.hashed(memory.retreat)
        if memory.proposed is not None and memory.proposed.slots == decided.slots:
            known = known.changed_by(memory.proposed)
        assignment, co_located_with = known.assignment_lists(), dict(known.co_located_with)
        return replace(
            decided, placement=replace(decided.placement, assignment=assignment, co_located_with=co_located_with)
        )

    def explain(self, memory: SlotMemory) -> AdaptationReport:
        proposal, streams = memory.proposal, {}
        for name, seen in memory.replication.items():
            judged = proposal.streams.get(name) if proposal is not None else None
            if judged is not None:
                shared = memory.shared.get(name, 1.0)  # the others are needed, and shipped, once
                hashed, bound = (1 + shared * (copies - 1) for copies in (judged.hashed, judged.bound))
                seen = replace(seen, hashed=hashed, bound=bound)
            streams[name] = seen
        said, saved, rejected = "", 0.0, ""
        if proposal is not None:
            said = (
                "left as it is: " if proposal.partitioning is None else "a better one was found: "
            ) + proposal.reason
            said += f" ({proposal.method})" if proposal.method else ""
            saved = proposal.saving if proposal.partitioning is not None else 0.0
            rejected = proposal.reason if proposal.partitioning is None else ""
        for name, forest in sorted(memory.forests.items()):
            used = "used" if forest.usable else "not used"
            said += f"; pairs of {name} that are not counted: the forest is {used} (error {forest.error:.0%})"
        moves, asked = memory.assigned.moves, "" if memory.asked is None else memory.asked.words
        report = PartitioningReport(streams, asked, said, moves.switches, moves.batch, moves.groups)
        return AdaptationReport(asked, said, saved, rejected, report)


def _may_look(memory: SlotMemory, settings: Repartitioning, now: float) -> bool:
    """Whether enough has passed since the last look at what drifts: less after an answer that changed something, so
    that a shift is followed soon; more after one that did not, so that a stream that always drifts costs little."""
    batch, at = memory.looked
    if not memory.fitted or memory.batch - batch < settings.drift_batches:
        return False
    is_settled = memory.proposal is not None and memory.proposal.partitioning is None
    seconds = settings.pause_seconds if is_settled else min(settings.drift_seconds, settings.pause_seconds)
    return now - at >= seconds


def _retreat(memory: SlotMemory, seen: SeenBatch) -> SlotMemory:
    """Gives up assignments that send more than hashing would, and what they were fitted to."""
    above = retreat.next_above(memory.above, seen.plan, seen.routing.shipped, memory.proposal)
    streams = sorted(stream for stream, one in above.items() if one.is_believed)
    if not streams:
        return structs.replace(memory, above=above)
    fresh = {stream: above[stream].sharing for stream in streams}
    return structs.replace(
        memory,
        above={stream: one for stream, one in above.items() if stream not in streams},
        sharing={**memory.sharing, **fresh},
        recent={**memory.recent, **fresh},
        retreat=frozenset(key for stream in streams for key in above[stream].keys),
        given_up=(seen.batch, retreat.words(above, streams)),
    )
