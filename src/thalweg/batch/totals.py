"""What the tasks of a batch reported, added up for the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from thalweg.batch.contract import Way
from thalweg.batch.routing_totals import Movement
from thalweg.errors import SourceError, StateError, ThalwegError
from thalweg.observe.stopwatch import SHUFFLE, Stage
from thalweg.state.container import Section
from thalweg.state.manifest import Bucket, StoreBucket


@dataclass
class Outcome:
    results: dict[str, list[pa.Table]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """query -> rows of results that nobody takes."""
    kept: list[Bucket] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    """computed column, partial or query -> what went wrong."""
    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    max_time_us: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    spills: list[Section] = field(default_factory=list)
    stores: list[StoreBucket] = field(default_factory=list)
    probes: dict[str, list[int]] = field(default_factory=dict)
    """What each probe saw: tuples, pairs."""
    samples: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Kind of task -> what the slowest took."""
    time: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)
    """(stage, task) -> phase -> seconds; INGEST is stage 0."""
    movement: Movement = field(default_factory=Movement)
    workers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """grouping -> (rows, partials) of each task that made it at the source."""
    served: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=dict)
    """grouping -> slot -> what the slot made of shipped rows."""
    stayed: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """grouping -> what each task has put into the state itself."""
    merged: dict[str, dict[int, int]] = field(default_factory=dict)
    """grouping -> slot -> partials that came to it, or are in the state for it."""
    busy_seconds: float = 0.0
    """Of all slots together."""
    job_seconds: float = 0.0
    """From when Spark was given the tasks until it had collected what they report."""
    sent_bytes: int = 0
    """What INGEST gave to the shuffle."""
    way: Way = Way.STAGES
    """How the stages were run."""

    def add_ingested(self, report: Mapping[str, Any]) -> None:
        _raise(report)
        for name in ("rows", "late", "rejected", "groups", "passed"):
            counts = getattr(self, name)
            for key, n in report[name].items():
                counts[key] = counts.get(key, 0) + n
        for stream, t in report["max_time_us"].items():
            self.max_time_us[stream] = max(self.max_time_us.get(stream, t), t)
        self.kept.extend(Bucket.from_json(b) for b in report["kept"])
        self._add_stayed(report["shipped"])
        for grouping, by_slot in report["stayed"].items():
            self._add_merged(grouping, dict(enumerate(by_slot)))
        for grouping, rows in report["passed"].items():
            self.workers.setdefault(grouping, []).append((rows, report["groups"][grouping]))
        self.failures.update(report["failures"])
        self.counted.update(report["counted"])
        self.stores.extend(StoreBucket.from_json(b) for b in report["stored"])
        for stream, sample in report["samples"].items():
            known = self.samples.setdefault(stream, {**sample, "rows": [], "rate": 0})
            known["rows"] += sample["rows"]
            known["rate"] += sample["rate"]
        self.movement.add_ingested(report)
        self.sent_bytes += report["sent_bytes"]
        self._slowest("ingest", report["seconds"])
        self._add_time(0, report)

    def add_slot(self, report: Mapping[str, Any]) -> None:
        _raise(report)
        self.kept.extend(Bucket.from_json(b) for b in report["kept"])
        self.replaced.update(report["replaced"])
        self.failures.update(report["failures"])
        self.counted.update(report["counted"])
        self.stores.extend(StoreBucket.from_json(b) for b in report["stores"])
        self.replaced.update(report["stores_replaced"])
        for probe, (probing, found) in report["probes"].items():
            counts = self.probes.setdefault(probe, [0, 0])
            counts[0] += probing
            counts[1] += found
        self._add_stayed(report["shipped"])
        for grouping, made in report.get("served", {}).items():
            self.served.setdefault(grouping, {})[report["slot"]] = made
        for grouping, partials in report.get("merged", {}).items():
            self._add_merged(grouping, {report["slot"]: partials})
        self.movement.add_slot(report)
        self.busy_seconds += report["seconds"]
        self._slowest("slot", report["seconds"])
        self._add_time(report["stage"], report)

    def _add_stayed(self, shipped: Mapping[str, Any]) -> None:
        for of_stream in shipped.values():
            for grouping, made in of_stream["stayed"].items():
                self.stayed.setdefault(grouping, []).append(made)

    def _add_merged(self, grouping: str, partials: Mapping[int, int]) -> None:
        by_slot = self.merged.setdefault(grouping, {})
        for slot, n in partials.items():
            by_slot[slot] = by_slot.get(slot, 0) + n

    def _slowest(self, kind: str, seconds: float) -> None:
        self.seconds[kind] = max(self.seconds.get(kind, 0.0), seconds)

    def _add_time(self, stage: int, report: Mapping[str, Any]) -> None:
        """A task reports for each of its slots."""
        spent = self.time.setdefault((stage, report["task"]), {})
        for phase, seconds in report["time"].items():
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


def _raise(report: Mapping[str, Any]) -> None:
    error = report.get("error")
    if error is not None:
        kind: type[ThalwegError] = StateError if error["kind"] == "state" else SourceError
        raise kind(error["message"], detail=error["detail"], hint=error["hint"])
