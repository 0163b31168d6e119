"""The loops that watch batches: what they decide for the next one, and what they learn from each one."""

from __future__ import annotations

from dataclasses import replace

from thalweg.adapt.partitioners import aggregation_reports, chosen, next_policies
from thalweg.adapt.probe_orders.loop import JoinPlanner, JoinPlanning
from thalweg.adapt.slot_assignment.loop import Repartitioner, Repartitioning
from thalweg.adapt.slot_count import Scaler
from thalweg.adapt.small_batches import SmallBatches
from thalweg.batch.decisions import Decisions
from thalweg.batch.totals import BatchTotals
from thalweg.model.manifest import Manifest
from thalweg.model.ordering import OrderingReport
from thalweg.model.partitioning import AggregationReport, Partitioning, PartitioningReport
from thalweg.model.plan import Plan
from thalweg.model.plan_input import Placement
from thalweg.observe import log
from thalweg.partition.cooperative import Policy


class Adaptation:
    """What they remember beside the manifest may be lost in a crash, and is learned again."""

    def __init__(
        self,
        tasks: int,
        *,
        slots: int | None,
        repartitioning: Repartitioning | None = None,
        join_planning: JoinPlanning | None = None,
        small_batches: SmallBatches | None = None,
    ) -> None:
        """`slots`: None for as many as there is work for, up to one per task. `small_batches`: which way a batch
        runs; None: all in stages."""
        self.scaler = Scaler(tasks) if slots is None else None
        self.slots = slots or tasks
        self.repartitioner = Repartitioner(repartitioning, tasks)
        self.join_planner = JoinPlanner(join_planning)
        self.small_batches = small_batches
        self.policies: dict[str, Policy] = {}
        """route key -> what its partitioners have learned."""
        self.aggregations: dict[str, AggregationReport] = {}

    @property
    def epoch(self) -> int:
        """Batches after which orders of joins are looked at again."""
        return self.join_planner.epoch

    def begin(self, newest: Manifest) -> None:
        """Goes on with as many slots as there were."""
        if self.scaler is not None:
            self.slots = min(self.slots, newest.measured.slot_assignment.slots or self.slots)

    # -- before a batch ------------------------------------------------------------------------------------

    def standing(self, manifest: Manifest) -> Decisions:
        """What was decided up to now, whatever has been proposed since."""
        measured = manifest.measured
        return Decisions(
            through=manifest.through,
            reached=manifest.reached,
            slots=self.slots,
            combining=measured.combining,
            joins=measured.probe_orders.joins,
            ordering=measured.probe_orders.ordering,
            placement=self._placement(manifest),
        )

    def decide(self, manifest: Manifest) -> Decisions:
        """What was proposed is in force from here on."""
        return replace(
            self.standing(manifest),
            ordering=self.join_planner.take(manifest),
            placement=self._placement(manifest, self.repartitioner.take()),
        )

    def _placement(self, manifest: Manifest, proposed: Partitioning | None = None) -> Placement:
        """Where key groups are, who follows whom and what deals rows out: as it was decided, or is `proposed` now."""
        measured = manifest.measured
        decided = measured.slot_assignment
        known = Partitioning(decided.assignment, decided.follows, decided.slots)
        if known.slots != self.slots:
            known = Partitioning(slots=self.slots)
        if proposed is not None and proposed.slots == self.slots:
            known = known.changed_by(proposed)
        partitioners = chosen(measured.partitioners.dealing) if known.slots == decided.slots else {}
        spread = measured.hot_join_keys.spread
        return Placement(known.assignment_lists(), dict(known.follows), partitioners, spread)

    # -- after it --------------------------------------------------------------------------------------------

    def take_in(self, plan: Plan, manifest: Manifest, totals: BatchTotals, seconds: float) -> None:
        """What a batch has measured, which has happened."""
        self.repartitioner.take_in(plan, manifest, totals.routing, seconds)
        self.join_planner.take_in(plan, manifest)
        self._learn(plan, manifest, totals)
        if self.scaler is not None and any(totals.rows.values()):
            self.slots = self.scaler.after(plan.slots, totals.busy_seconds)

    def _learn(self, plan: Plan, manifest: Manifest, totals: BatchTotals) -> None:
        """The batch has happened: what goes wrong here costs what was learned, not the pipeline."""
        try:
            self.policies = next_policies(self.policies, plan, totals.routing)
            reports = aggregation_reports(plan, totals.routing, manifest.measured.partitioners.dealing)
        except Exception as error:
            log.warning("adapt", "measuring_failed", of="partitioners", batch=manifest.batch, error=error)
            self.policies, reports = {}, {}
        known = {id_: report for id_, report in self.aggregations.items() if id_ in plan.groupings}
        self.aggregations = {**known, **reports}

    # -- what is said of them --------------------------------------------------------------------------------

    def partitioning_report(self, manifest: Manifest) -> PartitioningReport:
        return replace(self.repartitioner.report(manifest), aggregations=self.aggregations)

    def ordering_report(self, manifest: Manifest) -> OrderingReport:
        return self.join_planner.report(manifest)
