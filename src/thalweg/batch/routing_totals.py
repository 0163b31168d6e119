"""What the tasks of a batch report of rows on their way to slots, added up."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.optimize.partitioning import RouteKey
from thalweg.partition.cooperative import Learned
from thalweg.stats.sharing import Sample

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
    samples: list[Sample] = field(default_factory=list)
    together: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(route key, other) -> rows whose key lay in one key group of the other, rows that were looked at."""

    def add(self, value: Mapping[str, Any]) -> None:
        keys = tuple(value["keys"])
        self.rows += value["rows"]
        self.shared += value["shared"]
        self.copies = self.copies + np.array(value["copies"], np.int64)
        groups = np.frombuffer(base64.b85decode(value["sampled"]), dtype="<u2")
        if len(groups):
            groups = groups.reshape(-1, len(keys))
            self.samples.append(Sample(keys, groups, float(value["shared"])))
        for k, a, rows in value["together"]:
            self.together[k, a] = _plus(self.together.get((k, a)), rows, value["looked_at"][k])


def _plus(known: tuple[int, int] | None, part: int, whole: int) -> tuple[int, int]:
    return (part, whole) if known is None else (known[0] + part, known[1] + whole)


@dataclass
class KeyCounts:
    """How the shipped rows of a route key lie over keys and slots."""

    rows: int = 0
    looked_at: int = 0
    hottest: dict[str, int] = field(default_factory=dict)
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """The rows looked at, by the slot that their key belongs to."""
    keys: tuple[int, int] = (0, 0)
    """Different keys within a task, of some of which all rows were looked at; and how many rows these were."""

    def add(self, value: Mapping[str, Any]) -> None:
        self.rows += value["rows"]
        self.looked_at += value["looked_at"]
        self.slots = self.slots + np.array(value["slots"], np.int64)
        self.keys = _plus(self.keys, *value["keys"])
        for key, count in value["hottest"]:
            self.hottest[key] = self.hottest.get(key, 0) + count


@dataclass
class Movement:
    """All that one batch moved."""

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
    served: int = 0
    """Rows that slots made groupings from."""

    def add_ingested(self, report: Mapping[str, Any]) -> None:
        self._add_shipped(report["shipped"])
        self._add_learned(report["learned"])
        if report["shipped"]:
            self.ship_seconds += report["ship_seconds"]
        for stream, by_key in report["probing"].items():
            for name, counts in by_key.items():
                rows = np.array(counts, np.float64)
                self.probing[stream, name] = self.probing.get((stream, name), 0.0) + rows

    def _add_shipped(self, shipped: Mapping[str, Any]) -> None:
        for stream, value in shipped.items():
            self.shipped.setdefault(stream, Shipped()).add(value)
            for route_key, skew in value["skews"].items():
                self.skews.setdefault(route_key, KeyCounts()).add(skew)
            for grouping, (groups, rows) in value["made"].items():
                self.made[grouping] = _plus(self.made.get(grouping), groups, rows)

    def _add_learned(self, learned: Mapping[str, str]) -> None:
        for route_key, text in learned.items():
            self.learned.setdefault(route_key, []).append(pickle.loads(base64.b85decode(text)))

    def add_slot(self, report: Mapping[str, Any]) -> None:
        self._add_shipped(report["shipped"])
        self._add_learned(report["learned"])
        if report.get("served"):
            self.work_seconds += report["work_seconds"]
            self.served += sum(made["rows"] for made in report["served"].values())

    def lat_proc(self, tasks: int) -> float:
        """SASPAR's LatProc in units of LatNet, measured.

        Rows are shipped by all tasks at once, the most loaded slot works alone.
        """
        copies = sum(int(shipped.copies.sum()) for shipped in self.shipped.values())
        if not (copies and self.served and self.ship_seconds > 0):
            return 1.0
        ratio = (self.work_seconds / self.served) / (self.ship_seconds / copies) * tasks
        return min(max(ratio, 0.1), 20.0)
