"""What EXPLAIN and progress show of the adaptations, in the forms that they have for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.adapt.partitioners import DealRows
from thalweg.adapt.probe_orders.adaptation import OrderProbes
from thalweg.adapt.slot_assignment.adaptation import AssignSlots
from thalweg.model.explanation import AdaptationReport
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.probe_order import OrderingReport

Explanations = Mapping[str, AdaptationReport]
"""By the names of the adaptations."""


def partitioning_report(said: Explanations) -> PartitioningReport:
    report, dealt = said[AssignSlots.name].report, said[DealRows.name].report
    known = report if isinstance(report, PartitioningReport) else PartitioningReport()
    return replace(known, aggregations=dealt if isinstance(dealt, Mapping) else {})


def ordering_report(said: Explanations) -> OrderingReport:
    report = said[OrderProbes.name].report
    return report if isinstance(report, OrderingReport) else OrderingReport()
