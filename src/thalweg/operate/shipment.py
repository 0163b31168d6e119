"""What a task notes of the rows that it ships: by this the partitioning is optimised, and partitioners are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.plan import Grouping
from thalweg.model.report import GroupedRows, ShipmentReport, SkewReport
from thalweg.operate.columns import Columns
from thalweg.operate.combine import Slices, admitted
from thalweg.route.hash import Hashes, hash_rows, key_groups
from thalweg.route.router import sample_groups
from thalweg.route.table import RoutingTable

SAMPLED = 8192
"""Rows of one chunk whose keys and key groups are sampled: what the partitioning is optimised by."""
HOTTEST = 8
"""Of the sampled rows' keys, as many are reported as the most frequent ones."""
LOOKED_AT = 4096
"""Rows of one chunk, about, whose keys are followed from route key to route key."""
MOST_LOOKED_AT = 8
"""Route keys of one task that are followed: pairs are many."""

Groups = npt.NDArray[np.uint16]
Times = npt.NDArray[np.int64]


@dataclass
class KeySkew:
    """How some rows of a route key lie over keys and slots."""

    rows: int = 0
    """All of them."""
    looked_at: int = 0
    hottest: dict[int, int] = field(default_factory=dict)
    """Hash of a key -> its rows, of the most frequent keys among those looked at."""
    keys: int = 0
    """Different ones of the first chunk, among some that were all there; and their rows."""
    rows_of_keys: int = 0
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """The rows looked at, by the slot that their key belongs to."""

    def add(self, hashes: Hashes, groups: Groups, routing: RoutingTable) -> None:
        self.rows += len(hashes)
        some = np.arange(0, len(hashes), max(1, len(hashes) // SAMPLED))
        self.looked_at += len(some)
        self.slots = self.slots + np.bincount(routing.owners[groups[some]], minlength=routing.slots)
        if not self.rows_of_keys:
            chosen = hashes[(hashes & some_keys(len(hashes))) == 0]
            self.keys, self.rows_of_keys = len(np.unique(chosen)), len(chosen)
        keys, counts = np.unique(hashes[some], return_counts=True)
        most = np.argsort(counts, kind="stable")[-HOTTEST:]
        for key, count in zip(keys[most].tolist(), counts[most].tolist(), strict=True):
            self.hottest[key] = self.hottest.get(key, 0) + count

    def report(self) -> SkewReport:
        keys = (self.keys, self.rows_of_keys)
        return SkewReport(self.rows, self.looked_at, self.hottest, keys, tuple(self.slots.tolist()))


def grouped_rows(rows: int, hashes: Hashes, routing: RoutingTable, seconds: float = 0.0) -> GroupedRows:
    """What was made from `rows` in `seconds`, by the hashes of its keys: some of them are looked at."""
    mask = some_keys(len(hashes))
    some = np.unique(hashes[(hashes & mask) == 0])
    counts = np.bincount(routing.owners[key_groups(some, routing.groups)], minlength=routing.slots)
    owners = counts * (int(mask) + 1)
    return GroupedRows(rows, int(owners.sum()), tuple(owners.tolist()), seconds)


@dataclass
class Shipment:
    """What an INGEST task has shipped of one stream."""

    keys: tuple[str, ...]
    """The route keys whose rows go by routing tables: only of those can copies be shared."""
    rows: int = 0
    """That travel."""
    shared: int = 0
    """That several of the route keys need: only these can be shipped once instead of often."""
    copies: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """By slot."""
    sampled: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    """The key groups of some shared rows, one column per route key."""
    looked_at: dict[str, int] = field(default_factory=dict)
    """Of some route keys: the rows of some of their keys, all of them that were there."""
    together: dict[tuple[str, str], int] = field(default_factory=dict)
    """(route key, other) -> those of the rows whose key lay in one key group of the other."""
    skews: dict[str, KeySkew] = field(default_factory=dict)
    """route key -> how its rows lie over keys and slots."""
    staying: dict[str, list[pa.Table]] = field(default_factory=dict)
    """grouping -> what does not travel: the task itself puts it into the state."""
    stayed: dict[str, GroupedRows] = field(default_factory=dict)
    """grouping -> of how many rows that was made."""
    made: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Grouping by values -> the groups that a task would have made of some rows, and how many rows these were."""

    def add(self, hashes: Sequence[Hashes], groups: Sequence[Groups], needed: npt.NDArray[np.int64] | None) -> None:
        """Looks at rows of the route keys. `needed`: by how many of them each is needed; None: by all."""
        if needed is not None:
            shared = needed > 1
            hashes, groups = [h[shared] for h in hashes], [g[shared] for g in groups]
        if not groups or len(groups[0]) == 0:
            return
        self.sampled.append(sample_groups(groups, SAMPLED, seed=self.shared))
        self.shared += len(groups[0])
        if not self.looked_at:
            self._look(hashes, groups)

    def report(self) -> ShipmentReport:
        sampled = np.concatenate([np.zeros((0, len(self.keys)), np.uint16), *self.sampled])
        return ShipmentReport(
            self.keys,
            self.rows,
            self.shared,
            tuple(self.copies.tolist()),
            sampled.astype("<u2").tobytes(),
            self.looked_at,
            self.together,
            self.made,
            self.stayed,
            {key: skew.report() for key, skew in self.skews.items()},
        )

    def _look(self, hashes: Sequence[Hashes], groups: Sequence[Groups]) -> None:
        """Once a task, and at a few route keys where there are many: others have their turn in other tasks."""
        n = len(self.keys)
        turn = int(hashes[0][0] % np.uint64(n))
        chosen = [(turn + i) % n for i in range(min(n, MOST_LOOKED_AT))]
        looked_at, _, together = keys_together([hashes[k] for k in chosen], [groups[k] for k in chosen])
        for i, k in enumerate(chosen):
            self.looked_at[self.keys[k]] = int(looked_at[i])
            for j, a in enumerate(chosen):
                self.together[self.keys[k], self.keys[a]] = int(together[i, j])


Counts = npt.NDArray[np.int64]


def groups_made(rows: pa.Table, times: Times, grouping: Grouping) -> tuple[int, int]:
    """How many groups of a grouping some of the rows would make, of those that it admits; and how many these are."""
    mask = admitted(Columns(rows), grouping.partials)
    if mask is not None:
        rows, times = rows.filter(pa.array(mask)), times[mask]
    if rows.num_rows == 0:
        return 0, 0
    hashes = hash_rows([rows.column(c) for c in (*grouping.keys, *grouping.values)], rows=rows.num_rows)
    hashes ^= Slices.of(times, grouping).key.values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    chosen = hashes[(hashes & some_keys(len(hashes))) == 0]
    return len(np.unique(chosen)), len(chosen)


def some_keys(rows: int) -> np.uint64:
    """Bits that are 0 in the hashes of about LOOKED_AT rows. Rows by key, not by chance: those of a key are all there
    or none. Low bits: the high ones make key groups."""
    every: np.uint64 = np.uint64(1 << max(0, (rows // LOOKED_AT).bit_length() - 1))
    return every - np.uint64(1)


def keys_together(hashes: Sequence[Hashes], groups: Sequence[Groups]) -> tuple[Counts, Counts, Counts]:
    """Whether the rows of a key under one route key have one key group under another, on some of the keys.

    Key groups are too coarse to tell: orders of a customer are spread over all of them, and so are the customers.
    But all rows of an order lie where their customer is. Gives, by route key, the rows and the keys that were looked
    at; and [k, a], the rows whose key under k has one key group under a.
    """
    n = len(hashes)
    looked_at, distinct, together = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((n, n), np.int64)
    for k in range(n):
        chosen = np.flatnonzero((hashes[k] & some_keys(len(hashes[k]))) == 0)
        chosen = chosen[np.argsort(hashes[k][chosen], kind="stable")]
        if len(chosen) == 0:
            continue
        keys = hashes[k][chosen]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        sizes = np.diff(np.append(starts, len(chosen)))
        looked_at[k], distinct[k] = len(chosen), len(starts)
        for a in range(n):
            others = groups[a][chosen]
            one = np.minimum.reduceat(others, starts) == np.maximum.reduceat(others, starts)
            together[k, a] = int(sizes[one].sum())
    return looked_at, distinct, together
