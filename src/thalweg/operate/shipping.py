"""Rows that slots need whole: each is shipped once per slot, whatever number of route keys wants it there.

INGEST knows for every row which route keys need it and where; a copy carries a small mask of those it serves in
its slot. The slot takes the copies of each route key out of what arrived and makes its groupings from them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.plan import Grouping, Plan, StreamPlan, shipped_keys
from thalweg.operate import dense
from thalweg.operate.columns import GROUP, SERVES, key
from thalweg.operate.combine import Slices, admitting, make
from thalweg.operate.compute import Failures
from thalweg.route.hash import Hashes, hash_rows, key_groups
from thalweg.route.router import router_for, sample_groups
from thalweg.route.table import routing_table

SHIPPED = "rows of "
"""What the name of a table of shipped rows starts with; the stream follows. Groupings have other names."""
SAMPLED = 8192
"""Rows of one chunk whose key groups are sampled: what the partitioning is optimised by."""
LOOKED_AT = 4096
"""Rows of one chunk, about, whose keys are followed from route key to route key."""
MOST_LOOKED_AT = 8
"""Route keys of one task that are followed: pairs are many."""

Groups = npt.NDArray[np.uint16]
Times = npt.NDArray[np.int64]


@dataclass
class Shipment:
    """What an INGEST task has shipped of one stream."""

    keys: tuple[str, ...]
    rows: int = 0
    """That some route key needs."""
    shared: int = 0
    """That several need: only these can be shipped once instead of often."""
    copies: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """By slot."""
    sampled: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    """The key groups of some shared rows, one column per route key."""
    looked_at: dict[str, int] = field(default_factory=dict)
    """Of some route keys: the rows of some of their keys, all of them that were there."""
    distinct: dict[str, int] = field(default_factory=dict)
    """How many keys these were."""
    together: dict[tuple[str, str], int] = field(default_factory=dict)
    """(route key, other) -> those of the rows whose key lay in one key group of the other."""

    def add(self, hashes: Sequence[Hashes], groups: Sequence[Groups], needed: npt.NDArray[np.int64] | None) -> None:
        """Takes note of a chunk of rows. `needed`: by how many route keys each is needed; None: by all."""
        if needed is not None:
            self.rows += int(np.count_nonzero(needed))
            shared = needed > 1
            hashes, groups = [h[shared] for h in hashes], [g[shared] for g in groups]
        else:
            self.rows += len(groups[0])
        if len(groups[0]) == 0:
            return
        self.sampled.append(sample_groups(groups, SAMPLED, seed=self.shared))
        self.shared += len(groups[0])
        if not self.looked_at:
            self._look(hashes, groups)

    def to_json(self) -> dict[str, Any]:
        sampled = np.concatenate([np.zeros((0, len(self.keys)), np.uint16), *self.sampled])
        return {
            "keys": list(self.keys),
            "rows": self.rows,
            "shared": self.shared,
            "copies": self.copies.tolist(),
            "sampled": base64.b85encode(sampled.astype("<u2").tobytes()).decode(),
            "looked_at": self.looked_at,
            "distinct": self.distinct,
            "together": [[k, a, rows] for (k, a), rows in self.together.items()],
        }

    def _look(self, hashes: Sequence[Hashes], groups: Sequence[Groups]) -> None:
        """Once a task, and at a few route keys where there are many: others have their turn in other tasks."""
        n = len(self.keys)
        turn = int(hashes[0][0] % np.uint64(n))
        chosen = [(turn + i) % n for i in range(min(n, MOST_LOOKED_AT))]
        looked_at, distinct, together = keys_together([hashes[k] for k in chosen], [groups[k] for k in chosen])
        for i, k in enumerate(chosen):
            self.looked_at[self.keys[k]], self.distinct[self.keys[k]] = int(looked_at[i]), int(distinct[i])
            for j, a in enumerate(chosen):
                self.together[self.keys[k], self.keys[a]] = int(together[i, j])


Counts = npt.NDArray[np.int64]


def keys_together(hashes: Sequence[Hashes], groups: Sequence[Groups]) -> tuple[Counts, Counts, Counts]:
    """Whether the rows of a key under one route key have one key group under another, on some of the keys.

    Key groups are too coarse to tell: orders of a customer are spread over all of them, and so are the customers.
    But all rows of an order lie where their customer is. Gives, by route key, the rows and the keys that were looked
    at; and [k, a], the rows whose key under k has one key group under a.
    """
    n = len(hashes)
    looked_at, distinct, together = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((n, n), np.int64)
    for k in range(n):
        # Rows by key, not by chance: those of a key are all there or none. Low bits: the high ones make groups.
        every = np.uint64(1 << max(0, (len(hashes[k]) // LOOKED_AT).bit_length() - 1))
        chosen = np.flatnonzero((hashes[k] & (every - np.uint64(1))) == 0)
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


def ship(
    plan: Plan, stream: StreamPlan, rows: pa.Table, times: Times, closing_us: int, shipment: Shipment
) -> list[pa.Table]:
    """For each slot the rows that it needs, with what they serve there; an empty table where it needs none."""
    keys = shipped_keys(plan, stream)
    hashes = [_hashes(rows, groupings[0].keys) for groupings in keys.values()]
    groups = [key_groups(h, plan.groups) for h in hashes]
    admitted = [_admitted(rows, groupings) for groupings in keys.values()]
    ways, tables = _ways(plan, list(keys), groups, times < closing_us)
    dealt = router_for(tables, plan.slots).deal(ways, admitted)
    shipment.add(hashes, groups, _needed(admitted))
    copies = np.diff(dealt.offsets)
    shipment.copies = copies if len(shipment.copies) == 0 else shipment.copies + copies
    wanted = rows.select(stream.shipped_columns).combine_chunks()
    pieces = []
    for start, end in pairwise(dealt.offsets.tolist()):
        piece = wanted.take(pa.array(dealt.rows[start:end]))
        pieces.append(piece.append_column(SERVES, pa.array(dealt.serves[start:end])) if len(keys) > 1 else piece)
    return pieces


def _needed(admitted: Sequence[npt.NDArray[np.bool_] | None]) -> npt.NDArray[np.int64] | None:
    """By how many route keys each row is needed; None where all need all."""
    masks = [mask for mask in admitted if mask is not None]
    if not masks:
        return None
    needed = np.full(len(masks[0]), len(admitted) - len(masks), np.int64)
    for mask in masks:
        needed += mask
    return needed


def _ways(
    plan: Plan, keys: Sequence[str], groups: Sequence[Groups], closing: npt.NDArray[np.bool_]
) -> tuple[list[Groups], tuple[tuple[int, ...], ...]]:
    """For each route key the rows' key groups and the slots of these.

    One that follows another has the key groups of both: rows of windows that close in this batch are finished in it,
    so they go where they belong.
    """
    owned = [routing_table(plan, key).assignment for key in keys]
    leaders = [plan.follows.get(key) for key in keys]
    if not any(leaders):
        return list(groups), tuple(owned)
    ways, tables = list(groups), [table + table for table in owned]
    for k, leader in enumerate(leaders):
        if leader is not None:
            led = keys.index(leader)
            ways[k] = np.where(closing, groups[k], groups[led] + np.uint16(plan.groups))
            tables[k] = owned[k] + owned[led]
    return ways, tuple(tables)


def unship(
    plan: Plan, arrived: Mapping[str, Sequence[pa.Table]], failures: Failures
) -> tuple[dict[str, list[pa.Table]], int]:
    """What has arrived in a slot, by grouping: rows that were shipped whole made into all that needs them.

    Also the number of rows that these were made from, counted for each of them.
    """
    ready = {name: list(tables) for name, tables in arrived.items() if not name.startswith(SHIPPED)}
    served = 0
    for name, tables in arrived.items():
        if name.startswith(SHIPPED):
            stream = plan.streams[name.removeprefix(SHIPPED)]
            rows = pa.concat_tables(tables)
            for bit, groupings in enumerate(shipped_keys(plan, stream).values()):
                mine = _serving(rows, bit)
                if mine.num_rows == 0:
                    continue
                times, columns = mine.column(stream.stream.time).cast(pa.int64()).to_numpy(), dense.Columns(mine)
                served += mine.num_rows * len(groupings)
                for grouping in groupings:
                    table = make(mine, columns, Slices.of(times, grouping), grouping, failures)
                    groups = key_groups(_hashes(table, [key(i) for i in range(len(grouping.keys))]), plan.groups)
                    ready.setdefault(grouping.id, []).append(table.append_column(GROUP, pa.array(groups)))
    return ready, served


def _hashes(rows: pa.Table, columns: Sequence[str]) -> Hashes:
    return hash_rows([rows.column(c) for c in columns], rows=rows.num_rows)


def _admitted(rows: pa.Table, groupings: Sequence[Grouping]) -> npt.NDArray[np.bool_] | None:
    """The rows that some query of these groupings admits; None for all."""
    filters: set[str] = set()
    for grouping in groupings:
        named = admitting(grouping.partials)
        if not named:
            return None
        filters.update(named)
    admitted = np.zeros(rows.num_rows, dtype=bool)
    for name in sorted(filters):
        admitted |= pc.fill_null(rows.column(name), False).to_numpy()
    return admitted


def _serving(rows: pa.Table, bit: int) -> pa.Table:
    if SERVES not in rows.column_names:
        return rows
    serves = rows.column(SERVES).to_numpy()
    mine = (serves & serves.dtype.type(1 << bit)) != 0
    rows = rows.drop_columns([SERVES])
    return rows if mine.all() else rows.filter(pa.array(mine))
