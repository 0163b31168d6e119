"""Live join planning: at the end of an epoch the optimiser is asked beside the pipeline, and proposes other orders.

What was measured in epoch i is planned with in epoch i + 1, and in force from epoch i + 2 on, as in CLASH. There an
epoch's rows keep to the rules of their epoch. Here rows do not travel and every store has an index for every key: an
order only says which probes are made, and another one can be taken up at any batch boundary. Everything in here may
be lost in a crash: what was decided and what was measured is in the manifest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thalweg.adapt.probe_orders.measure import EPOCH, join_load
from thalweg.adapt.slot_assignment.loop import yield_to_batches
from thalweg.foreign import said_by
from thalweg.model.join_statistics import JoinStatistics
from thalweg.model.manifest import Manifest
from thalweg.model.ordering import GroupCost, Order, Ordered, Ordering, OrderingReport, Orders
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad
from thalweg.model.query import query_name
from thalweg.observe import log
from thalweg.optimize import probe_orders
from thalweg.optimize.deadline import SECONDS, Clock
from thalweg.optimize.ordering import Judgement, cost, cost_apart, judge, partners, rows_of, statistics_of
from thalweg.optimize.probe_orders.model import Statistics

LEAST_SECONDS = 0.02
"""Of the budget, for one query group."""


@dataclass(frozen=True)
class JoinPlanning:
    """When join orders are planned anew, and how long that may take."""

    epoch: int = EPOCH
    """Batches."""
    budget_seconds: float = 1.0
    """Of one run over all query groups, beside the batches."""


@dataclass(frozen=True)
class Question:
    """The query groups as they run, and what is known of each."""

    groups: Sequence[tuple[dict[str, Ordered], Statistics]]
    unmeasured: int
    """Groups of which too little is known."""

    @property
    def queries(self) -> list[str]:
        return [query for group, _ in self.groups for query in group]

    @property
    def cost(self) -> float:
        return sum(cost(group, stats) for group, stats in self.groups)


def question(plan: Plan, load: JoinLoad, coming: Ordering | None = None) -> Question:
    """What can be asked of the optimiser now. Outer, semi and anti joins have but one order.

    `coming`: the orders that will be in force; those of the plan without it."""
    found, unmeasured = [], 0
    orders = coming.orders if coming is not None else {}
    for group in plan.joins.groups.values():
        joins = {id_: plan.joins.ordered[id_] for id_ in group.queries if id_ in plan.joins.ordered}
        joins = {id_: replace(join, orders=orders.get(id_, join.orders)) for id_, join in joins.items()}
        roles = [role for role in group.roles.values() if role.relation not in plan.joins.intermediates]
        rows = rows_of(roles, load.estimates, load.samples)
        edges = sorted({edge for join in joins.values() for edge in join.edges})
        known = partners(edges, group.roles, load.estimates, load.samples)
        stats = statistics_of(joins.values(), rows, known)
        if joins and stats is not None:
            found.append((joins, stats))
        unmeasured += bool(joins) and stats is None
    return Question(found, unmeasured)


class JoinPlanner:
    """Asks the optimiser in a thread of its own, and holds what it proposes until it is due."""

    def __init__(self, settings: JoinPlanning | None, clock: Clock = SECONDS) -> None:
        self.settings = settings
        self.clock = clock
        self.asked = ""
        self.answer = ""
        self.groups: tuple[GroupCost, ...] = ()
        self._epoch = -1
        """The number of ended epochs that was seen last."""
        self._usual: tuple[Mapping[str, Orders], float] | None = None
        """The orders that run, and what was sent in their first epoch, divided by what was expected: the model's own
        error with these orders, which is no drift."""
        self._proposed: list[tuple[int, Ordering]] = []
        """From which epoch on, and what; the oldest first."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        return self.settings.epoch if self.settings is not None else EPOCH

    # -- what the batch loop calls

    def take_in(self, plan: Plan, manifest: Manifest) -> None:
        """What a batch left behind. The batch has happened: nothing that goes wrong here may end the pipeline."""
        try:
            self.observe(plan, manifest)
        except Exception as error:
            log.warning("adapt", "measuring_failed", of="probe_orders", batch=manifest.batch, error=error)
            self.answer = f"measuring failed: {said_by(error)}"

    def observe(self, plan: Plan, manifest: Manifest) -> None:
        """Asks the optimiser if an epoch has ended with this batch, and if there is a reason."""
        if not plan.joins.groups:
            with self._lock:
                self._proposed = []  # for queries that are no more
            return
        measured = manifest.measured.probe_orders.joins
        statistics = measured.statistics
        ended = statistics.batches == 0 and statistics.epoch > max(self._epoch, 0)
        self._epoch = statistics.epoch
        if self.settings is None or not ended or (self._thread is not None and self._thread.is_alive()):
            return
        running = manifest.measured.probe_orders.ordering
        load = join_load(measured, running)
        drift = self._drift(running, _ratio(question(plan, load), measured.sent))
        coming = self._coming(running, manifest.batch + 1)
        asked = question(plan, load, coming)
        why = self._due(asked, coming, statistics, drift)
        if why:
            self.asked = f"after batch {manifest.batch}, because {why}"
            self._usual = None
            # Not a daemon: a process that ends waits a moment for it, instead of tearing the solver down in mid-run.
            arguments = (asked, statistics.epoch + 1, self.clock.fork())
            self._thread = threading.Thread(target=self._run, args=arguments, name="thalweg-join-planning")
            self._thread.start()

    def take(self, manifest: Manifest) -> Ordering:
        """The orders for the batch that is about to begin: those in force, or what was proposed and is due."""
        ordering = manifest.measured.probe_orders.ordering
        epoch = manifest.measured.probe_orders.joins.statistics.epoch
        with self._lock:
            due = [proposed for since, proposed in self._proposed if since <= epoch]
            self._proposed = [one for one in self._proposed if one[0] > epoch]
        for proposed in due:
            ordering = ordering.changed_by(proposed, manifest.batch + 1)
        return ordering

    def _coming(self, ordering: Ordering, batch: int) -> Ordering:
        """As it will be once all that was proposed is in force."""
        with self._lock:
            for _, proposed in self._proposed:
                ordering = ordering.changed_by(proposed, batch)
        return ordering

    def propose(self, ordering: Ordering, epoch: int = 0) -> None:
        """Puts orders into force at the first batch boundary after so many epochs have ended."""
        with self._lock:
            self._proposed.append((epoch, ordering))

    def wait(self, seconds: float | None = None) -> None:
        """Until the optimiser has answered, if it was asked."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def report(self, manifest: Manifest) -> OrderingReport:
        """For EXPLAIN and progress."""
        known = manifest.measured.probe_orders.ordering
        measured = manifest.measured.probe_orders.joins
        return OrderingReport(
            measured.statistics.epoch, self.asked, self.answer, known.switches, known.switched, known.reason,
            known.changes, self.groups, measured.sent,
        )  # fmt: skip

    # -- when

    def _drift(self, running: Ordering, ratio: float) -> float:
        """How many times more is sent than the same orders used to send, beyond what the statistics explain."""
        if self._usual is None or self._usual[0] != running.orders:
            self._usual = running.orders, ratio
        return ratio / self._usual[1]

    def _due(self, asked: Question, ordering: Ordering, statistics: JoinStatistics, drift: float) -> str:
        """Why the optimiser should be asked now; empty where it should not."""
        queries = asked.queries
        if not queries:
            self.answer = "nothing has been measured yet" if asked.unmeasured else ""
            return ""
        changed = set(queries) ^ set(ordering.planned)
        full = probe_orders.needs_full_run(None, changed, queries, drift)
        if full:
            return full.reason
        # Not only what the last epoch has brought: an answer to earlier news may have been lost in a crash.
        pairs = [estimate for key, estimate in statistics.estimates.items() if key.startswith("pairs|")]
        told = [estimate for estimate in pairs if estimate.since > ordering.epoch]
        if told:
            return f"{len(told)} selectivities are no longer what they were"
        self.answer = f"not asked again: {full.reason}"
        return ""

    # -- beside the batches

    def _run(self, asked: Question, epoch: int, clock: Clock) -> None:
        assert self.settings is not None
        yield_to_batches()
        try:
            share = max(LEAST_SECONDS, self.settings.budget_seconds / len(asked.groups))
            judged = [
                (group, stats, judge(group, stats, budget_seconds=share, clock=clock))
                for group, stats in asked.groups
            ]
            self._tell(judged, epoch)
            self.groups = tuple(
                GroupCost(
                    tuple(group),
                    one.now if one.orders is None else one.better,
                    cost_apart(group, stats, budget_seconds=share, clock=clock),
                )
                for group, stats, one in judged
            )
        except Exception as error:  # the pipeline goes on with the orders it has
            log.warning("adapt", "optimiser_failed", of="probe_orders", error=error)
            self.answer = f"the optimiser failed: {said_by(error)}"

    def _tell(self, judged: Sequence[tuple[dict[str, Ordered], Statistics, Judgement]], epoch: int) -> None:
        """Proposes what is worth a switch. Orders that were found good are settled too: nothing but a decision
        changes them from now on."""
        orders: dict[str, Orders] = {}
        changes: list[str] = []
        for group, _, one in judged:
            for query, join in group.items():
                orders[query] = join.orders if one.orders is None else one.orders[query]
                changes += _changes(query, join.orders, orders[query])
        now, better = (sum(getattr(one, of) for _, _, one in judged) for of in ("now", "better"))
        saving = 1.0 - better / now if now > 0 else 0.0
        if changes:
            after = sum(one.now if one.orders is None else one.better for _, _, one in judged)
            self.answer = f"other orders send {1 - after / now:.0%} less: from epoch {epoch + 1} on"
        else:
            self.answer = f"left as they are: no others would send more than {saving:.0%} less"
        answer = Ordering(orders, tuple(orders), reason=self.answer, changes=tuple(changes), epoch=epoch - 1)
        self.propose(answer, epoch)


def _ratio(running: Question, sent: Mapping[str, float]) -> float:
    """What is sent per batch, divided by what the statistics let expect of the orders that run."""
    expected, measured = running.cost, sum(sent.values())
    return measured / expected if expected > 0 and measured > 0 else 1.0


def _changes(query: str, before: Orders, after: Orders) -> list[str]:
    """In words."""
    return [
        f"{query_name(query)}: rows of {start} look into {_words(after[start])}; before: {_words(before[start])}"
        for start in sorted(after)
        if after[start] != before[start]
    ]


def _words(order: Order) -> str:
    return ", then ".join(found[0] if len(found) == 1 else f"({' ⋈ '.join(found)})" for found in order)


def next_ordering(ordering: Ordering, plan: Plan) -> Ordering:
    """What the manifest keeps of it."""
    return ordering.after(plan.joins.ordered)
