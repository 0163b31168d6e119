"""Live join planning: at the end of an epoch the optimiser is asked beside the pipeline, and proposes other orders.

What was measured in epoch i is planned with in epoch i + 1, and in force from epoch i + 2 on, as in CLASH. There an
epoch's rows keep to the rules of their epoch. Here rows do not travel and every store has an index for every key: an
order only says which probes are made, and another one can be taken up at any batch boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct, structs

from thalweg.adapt.contract import Adaptation, Decided, SeenBatch, SolverCall
from thalweg.adapt.probe_orders.measure import join_load, matches_of, next_measurements
from thalweg.adapt.probe_orders.question import NewOrders, OrderingProblem, answer, cost_ratio, question
from thalweg.adapt.settings import EPOCH, AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.join_statistics import JoinMeasurements, JoinStatistics
from thalweg.model.measurements import Measurements, ProbeOrders
from thalweg.model.probe_order import CohortCost, OrderingReport, OrdersByStart, OrdersInForce
from thalweg.optimize import probe_orders
from thalweg.optimize.deadline import Clock


class OrdersMemory(Struct, frozen=True):
    joins: JoinMeasurements = JoinMeasurements()
    """In the manifest."""
    ordering: OrdersInForce = OrdersInForce()
    """The orders in force. In the manifest."""
    looked: int = -1
    """The number of ended epochs that was seen last."""
    usual: tuple[Mapping[str, OrdersByStart], float] | None = None
    """The orders that run, and what was sent in their first epoch, divided by what was expected: the model's own
    error with these orders, which is no drift."""
    coming: tuple[tuple[int, OrdersInForce], ...] = ()
    """From which epoch on, and what; the oldest first."""
    why: str = ""
    """Why the optimiser should be asked."""
    question: OrderingProblem | None = None
    """What it should be asked."""
    asked: SolverCall | None = None
    answer: str = ""
    saved: float = 0.0
    rejected: str = ""
    cohorts: tuple[CohortCost, ...] = ()


class OrderProbes(Adaptation[OrdersMemory, NewOrders]):
    name = "probe_orders"
    empty = OrdersMemory()
    lost = "orders that were not in force yet: the measurements ask for them again"

    def __init__(self, settings: AdaptSettings) -> None:
        self.settings = settings.join_planning

    @property
    def epoch(self) -> int:
        return self.settings.epoch if self.settings is not None else EPOCH

    def restore(self, memory: OrdersMemory, measured: Measurements) -> OrdersMemory:
        orders = measured.probe_orders
        return structs.replace(memory, joins=orders.joins, ordering=orders.ordering)

    def observe(self, memory: OrdersMemory, seen: SeenBatch) -> OrdersMemory:
        """Looks whether an epoch has ended with this batch, and whether there is a reason to ask."""
        plan = seen.plan
        began = memory.joins.statistics.epoch
        joins = next_measurements(
            seen.measured.probe_orders.joins, plan, seen.batch, seen.probes, seen.samples, seen.stores, self.epoch
        )
        memory = structs.replace(
            memory,
            joins=joins,
            ordering=seen.decided.ordering.after(plan.joins.ordered),
            # For queries that are no more, or in force.
            coming=tuple(one for one in memory.coming if one[0] > began) if plan.joins.cohorts else (),
        )
        if not plan.joins.cohorts:
            return structs.replace(memory, why="", question=None)
        statistics = joins.statistics
        ended = statistics.batches == 0 and statistics.epoch > max(memory.looked, 0)
        memory = structs.replace(memory, looked=statistics.epoch)
        return self._look(memory, seen) if ended and self.settings is not None else memory

    def keep(self, memory: OrdersMemory, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, probe_orders=ProbeOrders(joins=memory.joins, ordering=memory.ordering))

    def due(self, memory: OrdersMemory, now: float) -> str:
        return memory.why

    def solve(self, memory: OrdersMemory, asked: SolverCall, clock: Clock) -> NewOrders:
        assert self.settings is not None
        assert memory.question is not None
        return answer(memory.question, memory.looked + 1, self.settings.budget_seconds, clock)

    def adopt(self, memory: OrdersMemory, asked: SolverCall, answer: NewOrders | None) -> OrdersMemory:
        memory = structs.replace(memory, why="", question=None, usual=None, asked=asked)
        if answer is None:
            return structs.replace(memory, answer=f"the optimiser failed: {asked.failed}", saved=0.0, rejected="")
        return structs.replace(
            memory,
            coming=(*memory.coming, (answer.epoch, answer.ordering)),
            answer=answer.ordering.reason,
            saved=answer.saved,
            rejected=answer.rejected,
            cohorts=answer.cohorts,
        )

    def propose(self, memory: OrdersMemory, decided: Decided) -> Decided:
        """The orders in force, or what was answered and is due."""
        ordering = memory.ordering
        for since, coming in memory.coming:
            if since <= memory.joins.statistics.epoch:
                ordering = ordering.changed_by(coming, decided.batch)
        joins = replace(
            decided.measurements.joins,
            matches=matches_of(memory.joins),
            ready=memory.joins.ready,
            estimates=memory.joins.statistics.estimates,
            orders=ordering.orders,
        )
        return replace(decided, measurements=replace(decided.measurements, joins=joins), ordering=ordering)

    def explain(self, memory: OrdersMemory) -> AdaptationReport:
        known, asked = memory.ordering, "" if memory.asked is None else memory.asked.words
        report = OrderingReport(
            memory.joins.statistics.epoch, asked, memory.answer, known.switches, known.switched, known.reason,
            known.changes, memory.cohorts, memory.joins.sent,
        )  # fmt: skip
        return AdaptationReport(asked, memory.answer, memory.saved, memory.rejected, report)

    def _look(self, memory: OrdersMemory, seen: SeenBatch) -> OrdersMemory:
        """An epoch has ended."""
        running, plan, joins = memory.ordering, seen.plan, memory.joins
        load = join_load(joins, running)
        ratio = cost_ratio(question(plan, load), joins.sent)
        usual = memory.usual
        if usual is None or usual[0] != running.orders:
            usual = running.orders, ratio
        coming = running
        for _, proposed in memory.coming:
            coming = coming.changed_by(proposed, seen.batch + 1)
        asked = question(plan, load, coming)
        why, answer = _due(asked, coming, joins.statistics, ratio / usual[1])
        if why:
            return structs.replace(memory, usual=usual, why=why, question=asked)
        return structs.replace(memory, usual=usual, why="", question=None, answer=answer)


def _due(
    asked: OrderingProblem, ordering: OrdersInForce, statistics: JoinStatistics, drift: float
) -> tuple[str, str]:
    """Why the optimiser should be asked now; or an empty text, and why not.

    `drift`: how many times more is sent than the same orders used to send, beyond what the statistics explain."""
    queries = asked.queries
    if not queries:
        return "", "nothing has been measured yet" if asked.unmeasured else ""
    changed = set(queries) ^ set(ordering.planned)
    full = probe_orders.needs_full_run(None, changed, queries, drift)
    if full:
        return full.reason, ""
    # Not only what the last epoch has brought: an answer to earlier news may have been lost in a crash.
    pairs = [estimate for key, estimate in statistics.estimates.items() if key.startswith("pairs|")]
    told = [estimate for estimate in pairs if estimate.since > ordering.epoch]
    if told:
        return f"{len(told)} selectivities are no longer what they were", ""
    return "", f"not asked again: {full.reason}"
