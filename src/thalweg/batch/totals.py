"""What the tasks of a batch reported, added up for the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.batch.cells import CellKind, cells_of
from thalweg.batch.reports import raise_reported
from thalweg.model.address import QueryRows
from thalweg.model.bucket import RowBucket, Section, SliceBucket
from thalweg.model.failure import Failures
from thalweg.model.message import decode
from thalweg.model.report import Counts, IngestReport, Lacking, ProbeId, SetAside, SlotReport, StreamSample
from thalweg.model.way import Way
from thalweg.observe.stopwatch import SHUFFLE, Stage
from thalweg.route.bucket import unpack
from thalweg.sink.outlet import Left, WrittenPart
from thalweg.state.rejected import Batched


@dataclass
class BatchTotals:
    results: dict[str, list[pa.Table]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """query -> rows of results that nobody takes."""
    kept: list[SliceBucket] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    """Names of buckets."""
    failures: Failures = field(default_factory=dict)
    rows: Counts = field(default_factory=dict)
    late: Counts = field(default_factory=dict)
    untimed: Counts = field(default_factory=dict)
    set_aside: list[SetAside] = field(default_factory=list)
    lacking: list[Lacking] = field(default_factory=list)
    max_time_us: Counts = field(default_factory=dict)
    groups: Counts = field(default_factory=dict)
    passed: Counts = field(default_factory=dict)
    sections: dict[str, list[Section]] = field(default_factory=dict)
    """query -> results that tasks have prepared, in the state."""
    parts: dict[str, list[WrittenPart]] = field(default_factory=dict)
    """query -> results that tasks have prepared, where its sink is."""
    refused: dict[str, str] = field(default_factory=dict)
    """query -> what its sink said against results of a task."""
    stores: list[RowBucket] = field(default_factory=list)
    probes: dict[ProbeId, tuple[int, int]] = field(default_factory=dict)
    """What each probe saw: tuples, pairs."""
    samples: dict[str, StreamSample] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Kind of task -> what the slowest took."""
    time: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)
    """(stage, task) -> phase -> seconds; INGEST is stage 0."""
    routing: RoutingTotals = field(default_factory=RoutingTotals)
    busy_seconds: float = 0.0
    """Of all slots together."""
    job_seconds: float = 0.0
    """From when the runner was given the tasks until it had collected what they report."""
    sent_bytes: int = 0
    """What INGEST gave to the shuffle."""
    way: Way = Way.STAGES
    """How the stages were run."""

    def add_ingested(self, report: IngestReport) -> None:
        raise_reported(report.error)
        _add(self.rows, report.rows)
        _add(self.late, report.late)
        _add(self.untimed, report.untimed)
        self.set_aside += report.set_aside
        self.lacking += report.lacking
        _add(self.groups, report.groups)
        _add(self.passed, report.passed)
        for stream, t in report.max_time_us.items():
            self.max_time_us[stream] = max(self.max_time_us.get(stream, t), t)
        self.kept += report.kept
        self.failures.update(report.failures)
        self.counted.update(report.counted)
        self.stores += report.stored
        for stream, sample in report.samples.items():
            known = self.samples.get(stream)
            self.samples[stream] = sample if known is None else _together(known, sample)
        self.routing.add_ingested(report)
        self.sent_bytes += report.sent_bytes
        self._slowest("ingest", report.seconds)
        self._add_time(0, report.task, report.time)

    @property
    def written_bytes(self) -> int:
        """What tasks have put into the state of what came in; what they only merged anew is not among it."""
        kept = sum(bucket.section.length for bucket in self.kept if bucket.level == 0)
        return kept + sum(bucket.nbytes for bucket in self.stores if bucket.level == 0)

    @property
    def rejected(self) -> Counts:
        """stream -> rows that were set aside."""
        counts: Counts = {}
        for aside in self.set_aside:
            _add(counts, {aside.stream: aside.rows})
        return counts

    def rejected_now(self, batch: int) -> dict[str, Batched]:
        """stream -> what this batch has set aside."""
        found: dict[str, Batched] = {}
        for aside in self.set_aside:
            known = found.get(aside.stream, Batched(batch, 0, 0))
            found[aside.stream] = Batched(batch, known.rows + aside.rows, known.bytes + aside.bytes)
        return found

    def add_slot(self, report: SlotReport) -> None:
        raise_reported(report.error)
        self.kept += report.kept
        self.replaced.update(report.replaced)
        self.failures.update(report.failures)
        self.counted.update(report.counted)
        self.stores += report.stores
        for probe, (probing, found) in report.probes.items():
            before = self.probes.get(probe, (0, 0))
            self.probes[probe] = before[0] + probing, before[1] + found
        self.routing.add_slot(report)
        self.busy_seconds += report.seconds
        self._slowest("slot", report.seconds)
        self._add_time(report.stage, report.task, report.time)

    def add_left(self, left: Left) -> None:
        for section in left.sections:
            self.sections.setdefault(section.name, []).append(section)
        for part in left.parts:
            self.parts.setdefault(part.query, []).append(part)
        self.refused.update(left.failed)

    def _slowest(self, kind: str, seconds: float) -> None:
        self.seconds[kind] = max(self.seconds.get(kind, 0.0), seconds)

    def _add_time(self, stage: int, task: int, time: Mapping[str, float]) -> None:
        """A task reports for each of its slots."""
        spent = self.time.setdefault((stage, task), {})
        for phase, seconds in time.items():
            spent[phase] = spent.get(phase, 0.0) + seconds

    def work_seconds(self) -> float:
        """Of all tasks together, without what they waited for."""
        return sum(s for spent in self.time.values() for phase, s in spent.items() if phase != SHUFFLE)

    def stages(self) -> list[Stage]:
        """What the tasks of each stage spent on what."""
        found: dict[int, list[Mapping[str, float]]] = {}
        for (stage, _), spent in self.time.items():
            found.setdefault(stage, []).append(spent)
        return list(found.values())


def _add(counts: Counts, more: Counts) -> None:
    for key, n in more.items():
        counts[key] = counts.get(key, 0) + n


def _together(one: StreamSample, other: StreamSample) -> StreamSample:
    """Of two tasks; how many different keys there are, the first says for both."""
    return StreamSample(one.predicates, one.rows + other.rows, one.seen + other.seen, one.distinct)


def add_up(cells: pa.Table) -> BatchTotals:
    """Of all that the last stage has left."""
    totals = BatchTotals()
    for _, kind, payload in cells_of(cells):
        if kind == CellKind.RESULTS:
            for address, table in unpack(payload.as_buffer()):
                if isinstance(address, QueryRows):
                    totals.results.setdefault(address.query, []).append(table)
        elif kind == CellKind.PREPARED:
            totals.add_left(decode(payload.as_py(), Left))
        elif kind == CellKind.INGESTED:
            totals.add_ingested(decode(payload.as_py(), IngestReport))
        else:
            totals.add_slot(decode(payload.as_py(), SlotReport))
    return totals
