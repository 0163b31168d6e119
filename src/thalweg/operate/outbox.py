"""What operators make of a task's rows. The stage reads it afterwards; operators know nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from thalweg.model.address import Address
from thalweg.model.failure import Failures
from thalweg.model.report import Counts, ProbeId
from thalweg.observe.stopwatch import Stopwatch
from thalweg.operate.partitioners import TaskPartitioners
from thalweg.operate.shipment import Shipment
from thalweg.operate.store import Sampled


@dataclass
class Outbox:
    sent: dict[int, list[tuple[Address, pa.Table]]] = field(default_factory=dict)
    """slot -> what goes there, in the order of arrival."""
    emitted: list[tuple[str, pa.Table]] = field(default_factory=list)
    """(query, results)."""
    partials: dict[str, list[pa.Table]] = field(default_factory=dict)
    """To be kept: grouping -> partials that do not travel."""
    partials_by_slot: dict[str, np.ndarray] = field(default_factory=dict)
    """grouping -> how many these are, by the slot that they belong to."""
    rows_for_joins: dict[str, list[pa.Table]] = field(default_factory=dict)
    """To be kept: stream -> rows that joins may need."""
    failures: Failures = field(default_factory=dict)
    rows: Counts = field(default_factory=dict)
    late: Counts = field(default_factory=dict)
    untimed: Counts = field(default_factory=dict)
    """stream -> rows without an event time."""
    max_time_us: Counts = field(default_factory=dict)
    groups: Counts = field(default_factory=dict)
    """grouping -> partials made."""
    passed: Counts = field(default_factory=dict)
    """grouping -> rows that it admitted."""
    probes: dict[ProbeId, tuple[int, int]] = field(default_factory=dict)
    """Tuples that probed, pairs found."""
    samples: dict[str, Sampled] = field(default_factory=dict)
    shipments: dict[str, Shipment] = field(default_factory=dict)
    """stream -> what was shipped of it."""
    partitioners: TaskPartitioners = field(default_factory=TaskPartitioners)
    ship_seconds: float = 0.0
    watch: Stopwatch = field(default_factory=Stopwatch)

    def send(self, slot: int, address: Address, table: pa.Table) -> None:
        self.sent.setdefault(slot, []).append((address, table))

    def emit(self, query: str, table: pa.Table) -> None:
        self.emitted.append((query, table))


def count(counts: Counts, name: str, n: int) -> None:
    counts[name] = counts.get(name, 0) + n
