"""What adaptations learn from, of a batch whose tasks have run."""

from __future__ import annotations

from thalweg.adapt.contract import Seen
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.totals import BatchTotals
from thalweg.model.manifest import Manifest


def seen(planned: PlannedBatch, totals: BatchTotals, after: Manifest, seconds: float) -> Seen:
    """`after`: the state that the batch leaves. `seconds`: until its tasks had run."""
    return Seen(
        plan=planned.plan,
        decided=planned.decisions.decided,
        measured=planned.before.measured,
        routing=totals.routing,
        groups=totals.groups,
        passed=totals.passed,
        probes=totals.probes,
        samples=totals.samples,
        buckets=after.buckets,
        stores=after.stores,
        rows=sum(totals.rows.values()),
        busy_seconds=totals.busy_seconds,
        seconds=seconds,
    )
