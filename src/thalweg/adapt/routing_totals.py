"""What the tasks of a batch report of rows on their way to slots, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from thalweg.adapt.slot_assignment.sharing import KeyGroupSample
from thalweg.model.report import GroupedRows, IngestReport, ShipmentReport, SkewReport, SlotReport
from thalweg.optimize.slot_assignment import RouteKey
from thalweg.partition.cooperative import Learned

Floats = npt.NDArray[np.float64]
ENOUGH = 1024
"""Rows of a route key in a batch below which nothing is concluded from them."""


@dataclass
class Shipped:
    """What was shipped of one stream."""

    rows: int = 0
    shared: int = 0
    """Rows that several route keys need."""
    copies: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """By slot."""
    samples: list[KeyGroupSample] = field(default_factory=list)
    together: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(route key, other) -> rows whose key lay in one key group of the other, rows that were looked at."""

    def add(self, report: ShipmentReport) -> None:
        self.rows += report.rows
        self.shared += report.shared
        self.copies = self.copies + np.array(report.copies, np.int64)
        groups = np.frombuffer(report.sampled, dtype="<u2")
        if len(groups):
            groups = groups.reshape(-1, len(report.keys))
            self.samples.append(KeyGroupSample(report.keys, groups, float(report.shared)))
        for (k, a), rows in report.together.items():
            self.together[k, a] = _plus(self.together.get((k, a)), rows, report.looked_at[k])


def _plus(known: tuple[int, int] | None, part: int, whole: int) -> tuple[int, int]:
    return (part, whole) if known is None else (known[0] + part, known[1] + whole)


@dataclass
class KeyCounts:
    """How the shipped rows of a route key lie over keys and slots."""

    rows: int = 0
    looked_at: int = 0
    hottest: dict[int, int] = field(default_factory=dict)
    """Hash of a key -> its rows."""
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """The rows looked at, by the slot that their key belongs to."""
    keys: tuple[int, int] = (0, 0)
    """Different keys within a task, of some of which all rows were looked at; and how many rows these were."""

    def add(self, report: SkewReport) -> None:
        self.rows += report.rows
        self.looked_at += report.looked_at
        self.slots = self.slots + np.array(report.slots, np.int64)
        self.keys = _plus(self.keys, *report.keys)
        for key, count in report.hottest.items():
            self.hottest[key] = self.hottest.get(key, 0) + count


@dataclass
class RoutingTotals:
    """All that one batch moved, and where partials were made."""

    shipped: dict[str, Shipped] = field(default_factory=dict)
    """stream -> rows that went to slots whole."""
    probing: dict[RouteKey, Floats] = field(default_factory=dict)
    """Route keys of joins -> arrived rows by key group."""
    made: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Shipped grouping by values -> the groups that tasks would have made of some rows, and how many these were."""
    skews: dict[str, KeyCounts] = field(default_factory=dict)
    """route key -> how its shipped rows lie over keys and slots."""
    learned: dict[str, list[Learned]] = field(default_factory=dict)
    """route key -> what the partitioner of each task has learned."""
    ship_seconds: float = 0.0
    work_seconds: float = 0.0
    """Of all slots that worked on shipped rows."""
    workers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """grouping -> (rows, partials) of each task that made it at the source."""
    served: dict[str, dict[int, GroupedRows]] = field(default_factory=dict)
    """grouping -> slot -> what the slot made of shipped rows."""
    stayed: dict[str, list[GroupedRows]] = field(default_factory=dict)
    """grouping -> what each task has put into the state itself."""
    merged: dict[str, dict[int, int]] = field(default_factory=dict)
    """grouping -> slot -> partials that came to it, or are in the state for it."""

    def add_ingested(self, report: IngestReport) -> None:
        self._add_shipped(report.shipped)
        self._add_learned(report.learned)
        if report.shipped:
            self.ship_seconds += report.ship_seconds
        for stream, by_key in report.probing.items():
            for name, counts in by_key.items():
                rows = np.array(counts, np.float64)
                self.probing[stream, name] = self.probing.get((stream, name), 0.0) + rows
        for grouping, by_slot in report.stayed.items():
            self._add_merged(grouping, dict(enumerate(by_slot)))
        for grouping, passed in report.passed.items():
            self.workers.setdefault(grouping, []).append((passed, report.groups[grouping]))

    def add_slot(self, report: SlotReport) -> None:
        self._add_shipped(report.shipped)
        self._add_learned(report.learned)
        if report.served:
            self.work_seconds += report.work_seconds
        for grouping, made in report.served.items():
            self.served.setdefault(grouping, {})[report.slot] = made
        for grouping, partials in report.merged.items():
            self._add_merged(grouping, {report.slot: partials})

    def _add_shipped(self, shipped: Mapping[str, ShipmentReport]) -> None:
        for stream, report in shipped.items():
            self.shipped.setdefault(stream, Shipped()).add(report)
            for route_key, skew in report.skews.items():
                self.skews.setdefault(route_key, KeyCounts()).add(skew)
            for grouping, (groups, rows) in report.made.items():
                self.made[grouping] = _plus(self.made.get(grouping), groups, rows)
            for grouping, made in report.stayed.items():
                self.stayed.setdefault(grouping, []).append(made)

    def _add_learned(self, learned: Mapping[str, bytes]) -> None:
        for route_key, data in learned.items():
            self.learned.setdefault(route_key, []).append(Learned.from_bytes(data))

    def _add_merged(self, grouping: str, partials: Mapping[int, int]) -> None:
        by_slot = self.merged.setdefault(grouping, {})
        for slot, n in partials.items():
            by_slot[slot] = by_slot.get(slot, 0) + n

    def lat_proc(self, tasks: int) -> float:
        """SASPAR's LatProc in units of LatNet, measured.

        Rows are shipped by all tasks at once, the most loaded slot works alone.
        """
        copies = sum(int(shipped.copies.sum()) for shipped in self.shipped.values())
        served = sum(made.rows for by_slot in self.served.values() for made in by_slot.values())
        if not (copies and served and self.ship_seconds > 0):
            return 1.0
        ratio = (self.work_seconds / served) / (self.ship_seconds / copies) * tasks
        return min(max(ratio, 0.1), 20.0)
