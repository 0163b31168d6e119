"""Rows that slots need whole: each is shipped once per slot, whatever number of route keys wants it there.

INGEST knows for every row which route keys need it and where; a copy carries a small mask of those it serves in
its slot. The slot takes the copies of each route key out of what arrived and makes its groupings from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.address import Address, Partials, WholeRows
from thalweg.model.columns import GROUP, SERVES, key
from thalweg.model.failure import Failures
from thalweg.model.partitioning import LOCAL
from thalweg.model.plan import Grouping, Plan, StreamPlan, shipped_keys
from thalweg.model.report import GroupedRows
from thalweg.operate.columns import Columns
from thalweg.operate.combine import Slices, admitted, make
from thalweg.operate.partitioners import TaskPartitioners
from thalweg.operate.shipment import KeySkew, Shipment, grouped_rows, groups_made
from thalweg.route.hash import Hashes, hash_rows, key_groups
from thalweg.route.router import router_for
from thalweg.route.table import routing_table

Groups = npt.NDArray[np.uint16]
Times = npt.NDArray[np.int64]


def ship(
    plan: Plan,
    stream: StreamPlan,
    rows: pa.Table,
    times: Times,
    closing_us: int,
    shipment: Shipment,
    partitioners: TaskPartitioners,
    failures: Failures,
) -> list[pa.Table]:
    """For each slot the rows that it needs, with what they serve there; an empty table where it needs none."""
    keys = shipped_keys(plan, stream)
    hashes = [_hashes(rows, groupings[0].keys) for groupings in keys.values()]
    groups = [key_groups(h, plan.groups) for h in hashes]
    needs = [_admitted(Columns(rows), groupings) for groupings in keys.values()]
    closing = times < closing_us
    ways = _Ways(plan, list(keys), groups, closing)
    for k, name in enumerate(keys):
        mine = needs[k]
        some = (hashes[k], groups[k]) if mine is None else (hashes[k][mine], groups[k][mine])
        shipment.skews.setdefault(name, KeySkew()).add(*some, routing_table(plan, name))
        if plan.partitioners.get(name) == LOCAL:
            stays = ~closing if mine is None else mine & ~closing
            _stay(plan, keys[name], rows, times, hashes[k], stays, shipment, failures)
            needs[k] = closing if mine is None else mine & closing
        elif name in plan.partitioners:
            ways.deal(k, hashes[k], mine, partitioners)
    for grouping in (g for found in keys.values() for g in found if g.values and g.id not in shipment.made):
        shipment.made[grouping.id] = groups_made(rows, times, grouping)
    if len(shipment.copies) == 0:
        shipment.copies = np.zeros(plan.slots, np.int64)
    if not any(mask is None or mask.any() for mask in needs):
        return []
    dealt = router_for(ways.tables(), plan.slots).deal(ways.groups, needs)
    routed = [k for k, name in enumerate(keys) if name not in plan.partitioners]
    shipment.add([hashes[k] for k in routed], [groups[k] for k in routed], _needed([needs[k] for k in routed]))
    travelling = _needed(needs)
    shipment.rows += rows.num_rows if travelling is None else int(np.count_nonzero(travelling))
    shipment.copies = shipment.copies + np.diff(dealt.offsets)
    wanted = rows.select(stream.shipped_columns).combine_chunks()
    pieces = []
    for start, end in pairwise(dealt.offsets.tolist()):
        piece = wanted.take(pa.array(dealt.rows[start:end]))
        pieces.append(piece.append_column(SERVES, pa.array(dealt.serves[start:end])) if len(keys) > 1 else piece)
    return pieces


def _stay(
    plan: Plan,
    groupings: Sequence[Grouping],
    rows: pa.Table,
    times: Times,
    hashes: Hashes,
    stays: npt.NDArray[np.bool_],
    shipment: Shipment,
    failures: Failures,
) -> None:
    """Makes groupings of the rows that do not travel."""
    if not stays.all():
        rows, times, hashes = rows.filter(pa.array(stays)), times[stays], hashes[stays]
    if rows.num_rows == 0:
        return
    columns = Columns(rows)
    for grouping in groupings:
        table = make(columns, Slices.of(times, grouping), grouping, failures)
        of_rows = grouping.rows_are_partials and table.num_rows == rows.num_rows
        found = hashes if of_rows else _hashes(table, [key(i) for i in range(len(grouping.keys))])
        groups = pa.array(key_groups(found, plan.groups))
        shipment.staying.setdefault(grouping.id, []).append(table.append_column(GROUP, groups))
        made = grouped_rows(rows.num_rows, found, routing_table(plan, grouping.route_key))
        known = shipment.stayed.get(grouping.id)
        shipment.stayed[grouping.id] = made if known is None else known + made


def _needed(admitted: Sequence[npt.NDArray[np.bool_] | None]) -> npt.NDArray[np.int64] | None:
    """By how many route keys each row is needed; None where all need all."""
    masks = [mask for mask in admitted if mask is not None]
    if not masks:
        return None
    needed = np.full(len(masks[0]), len(admitted) - len(masks), np.int64)
    for mask in masks:
        needed += mask
    return needed


class _Ways:
    """For each route key the rows' key groups and the slots of these. Rows that go elsewhere, with another route key
    or where a partitioner sends them, have numbers above those of the key groups.

    Rows of windows that close in this batch are finished in it, so they always go where they belong.
    """

    def __init__(
        self, plan: Plan, keys: Sequence[str], groups: Sequence[Groups], closing: npt.NDArray[np.bool_]
    ) -> None:
        self.plan, self.keys, self.closing = plan, keys, closing
        self.owned = [routing_table(plan, name).assignment for name in keys]
        self.further = list(self.owned)
        self.groups = list(groups)
        for k, leader in enumerate(plan.co_located_with.get(name) for name in keys):
            if leader is not None:
                led = keys.index(leader)
                self.further[k] = self.owned[led]
                self.groups[k] = np.where(closing, groups[k], groups[led] + np.uint16(plan.groups))

    def deal(
        self, k: int, hashes: Hashes, needed: npt.NDArray[np.bool_] | None, partitioners: TaskPartitioners
    ) -> None:
        """Sends the rows of route key k where its partitioner says."""
        free = ~self.closing if needed is None else needed & ~self.closing
        slots = partitioners.assign(self.plan, self.keys[k], hashes if free.all() else hashes[free])
        groups = self.groups[k].copy()
        groups[free] = slots + 2 * self.plan.groups
        self.groups[k] = groups

    def tables(self) -> tuple[tuple[int, ...], ...]:
        if not self.plan.co_located_with and not self.plan.partitioners:
            return tuple(self.owned)
        slots = tuple(range(self.plan.slots))
        return tuple(own + far + slots for own, far in zip(self.owned, self.further, strict=True))


def unship(
    plan: Plan, arrived: Mapping[Address, Sequence[pa.Table]], failures: Failures
) -> tuple[dict[str, list[pa.Table]], dict[str, GroupedRows]]:
    """What has arrived in a slot, by grouping: rows that were shipped whole made into all that needs them."""
    ready = {address.grouping: list(tables) for address, tables in arrived.items() if isinstance(address, Partials)}
    served: dict[str, GroupedRows] = {}
    for address, tables in arrived.items():
        if isinstance(address, WholeRows):
            stream = plan.streams[address.stream]
            rows = pa.concat_tables(tables)
            for bit, groupings in enumerate(shipped_keys(plan, stream).values()):
                mine = _serving(rows, bit)
                if mine.num_rows == 0:
                    continue
                times, columns = mine.column(stream.stream.time).cast(pa.int64()).to_numpy(), Columns(mine)
                for grouping in groupings:
                    table = make(columns, Slices.of(times, grouping), grouping, failures)
                    hashes = _hashes(table, [key(i) for i in range(len(grouping.keys))])
                    groups = key_groups(hashes, plan.groups)
                    ready.setdefault(grouping.id, []).append(table.append_column(GROUP, pa.array(groups)))
                    served[grouping.id] = grouped_rows(mine.num_rows, hashes, routing_table(plan, grouping.route_key))
    return ready, served


def _hashes(rows: pa.Table, columns: Sequence[str]) -> Hashes:
    return hash_rows([rows.column(c) for c in columns], rows=rows.num_rows)


def _admitted(rows: Columns, groupings: Sequence[Grouping]) -> npt.NDArray[np.bool_] | None:
    """The rows that some query of these groupings admits; None for all."""
    found: npt.NDArray[np.bool_] | None = None
    for grouping in groupings:
        mask = admitted(rows, grouping.partials)
        if mask is None:
            return None
        found = mask if found is None else found | mask
    return found


def _serving(rows: pa.Table, bit: int) -> pa.Table:
    if SERVES not in rows.column_names:
        return rows
    serves = rows.column(SERVES).to_numpy()
    mine = (serves & serves.dtype.type(1 << bit)) != 0
    rows = rows.drop_columns([SERVES])
    return rows if mine.all() else rows.filter(pa.array(mine))
