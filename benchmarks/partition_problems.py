"""Partitioning problems by seed: streams whose route keys say the same, say nothing of each other, or change.

A row is made by a latent *entity* (a household, an order, a device). Every route key sees the entity through a
seeded function of its own, as a hash would show it: an entity has some key groups of each route key to itself, or
shares a group with other entities when there are more of them than groups. Noise rows have no entity: their
route keys are drawn apart, so that they share only what chance brings together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse  # type: ignore[import-untyped]

from thalweg.optimize.slot_assignment import Problem

Groups = NDArray[np.int64]
RouteKey = tuple[str, str]
DENSE_KEYS = 8
"""Up to so many route keys every pair is counted; beyond, each key with the two before and the two after it."""


@dataclass(frozen=True)
class Point:
    """One stream, as Fig. 8 of SASPAR names its inputs: queries (here route keys), partitions (slots), key groups."""

    keys: int
    slots: int
    groups: int
    entities: float = 0.25
    """Per key group. Up to one, some assignment sends every row that is not noise once; above, entities tangle."""
    noise: float = 0.1
    """Share of the rows that no entity made."""
    skew: float = 0.5
    """Zipf's exponent of the entities."""
    moved: float = 0.0
    """Share of the entities that each route key sees in other key groups than it would with 0: the shift."""
    rows: int = 100_000
    seed: int = 1

    @property
    def name(self) -> str:
        return f"{self.keys}q {self.slots}p {self.groups}g"

    @property
    def lat_proc(self) -> float:
        """So that perfect balance costs a quarter of all unshared copies, and one slot for everything never pays."""
        return self.slots / 4

    @property
    def kind(self) -> str:
        words = ["independent" if self.noise == 1 else "tangled" if self.entities > 1 else "correlated"]
        return ", ".join(words + ["shifted"] * (self.moved > 0))


FIG8 = tuple(
    Point(*sizes)
    for sizes in (
        (2, 4, 32),
        (2, 4, 64),
        (4, 4, 64),
        (4, 8, 64),
        (4, 16, 64),
        (8, 16, 128),
        (16, 32, 256),
        (32, 32, 512),
        (64, 64, 1024),
    )
)
TANGLED = tuple(replace(point, entities=4.0) for point in FIG8)
INDEPENDENT = tuple(replace(point, noise=1.0) for point in FIG8)


def shifted(point: Point, moved: float = 0.5) -> Point:
    """The same stream later: entities as frequent as before, but much of what went together no longer does."""
    return replace(point, moved=moved)


def make_problem(point: Point) -> Problem:
    rows, _ = make_rows(point)
    keys = [("s", f"k{i:02}") for i in range(point.keys)]
    return count_rows({"s": (keys, rows)}, point.slots, point.groups, lat_proc=point.lat_proc)


def make_rows(point: Point) -> tuple[Groups, Groups]:
    """Rows x route keys -> key group, and the entity of each row (-1: noise)."""
    rng = np.random.default_rng([point.seed, 0])
    entities = entities_of(point)
    weights = 1.0 / np.arange(1, entities + 1) ** point.skew
    entity = rng.choice(entities, point.rows, p=weights / weights.sum())
    which = rng.integers(0, 1 << 30, point.rows)
    noise = rng.random(point.rows) < point.noise
    rows = np.empty((point.rows, point.keys), dtype=np.int64)
    for key in range(point.keys):
        seen = seen_as(point, key)
        rows[:, key] = seen[entity, which % seen.shape[1]]
        which = rng.permutation(which)
        rows[noise, key] = rng.integers(0, point.groups, int(noise.sum()))
    return rows, np.where(noise, -1, entity)


def entities_of(point: Point) -> int:
    return max(1, round(point.entities * point.groups))


def seen_as(point: Point, key: int) -> Groups:
    """Entities x (groups that each has): how a route key sees the entities; a moved one is seen as another was."""
    rng = np.random.default_rng([point.seed, 1, key])
    entities = entities_of(point)
    if entities <= point.groups:
        width = point.groups // entities
        seen = rng.permutation(point.groups)[: entities * width].reshape(entities, width)
    else:
        seen = rng.integers(0, point.groups, (entities, 1))
    moved = np.flatnonzero(rng.random(entities) < point.moved)
    seen[moved] = seen[rng.permutation(moved)]
    return seen


def planted(point: Point) -> dict[RouteKey, Groups] | None:
    """The assignment that follows the entities, heaviest first to the least loaded slot; None where they tangle."""
    if point.entities > 1 or point.noise == 1:
        return None
    _, entity = make_rows(point)
    sizes = np.bincount(entity[entity >= 0], minlength=entities_of(point)).astype(float)
    home = heaviest_first(sizes, point.slots)
    found = {}
    for key in range(point.keys):
        seen = seen_as(point, key)
        slots = np.arange(point.groups, dtype=np.int64) * point.slots // point.groups
        slots[seen] = home[:, np.newaxis]
        found["s", f"k{key:02}"] = slots
    return found


def heaviest_first(sizes: NDArray[np.float64], slots: int) -> Groups:
    """List scheduling: each, heaviest first, to the slot that has least so far."""
    load = np.zeros(slots)
    found = np.zeros(len(sizes), dtype=np.int64)
    for each in np.argsort(-sizes, kind="stable"):
        found[each] = slot = int(load.argmin())
        load[slot] += sizes[each]
    return found


def tpch(
    *, orders: int, slots: int = 8, groups: int = 64, rows: int = 100_000, basket: int | None = None, seed: int = 1
) -> Problem:
    """LINEITEM by order, part and customer beside ORDERS by order and customer, joined on the order.

    With about as many `orders` as key groups the keys are correlated; with the millions of the benchmark a key group
    holds so many of them that hashing leaves nothing in common, though the customer depends on the order alone.
    `basket` parts a customer has of its own (None: any part, as TPC-H draws them).
    """
    rng = np.random.default_rng([seed, 2])
    customers, parts = max(1, orders // 10), max(1, orders // 7)
    customer_of = rng.integers(0, customers, orders)
    hashed = {name: rng.integers(0, groups, n) for name, n in (("o", orders), ("p", parts), ("c", customers))}
    order = rng.integers(0, orders, rows)
    part = rng.integers(0, parts, rows)
    if basket is not None:
        likes = rng.integers(0, parts, (customers, basket))
        part = likes[customer_of[order], part % basket]
    lines = np.stack([hashed["o"][order], hashed["p"][part], hashed["c"][customer_of[order]]], axis=1)
    every = np.unique(order)
    heads = np.stack([hashed["o"][every], hashed["c"][customer_of[every]]], axis=1)
    item, head = "lineitem", "orders"
    return count_rows(
        {
            item: ([(item, "l_orderkey"), (item, "l_partkey"), (item, "o_custkey")], lines),
            head: ([(head, "o_orderkey"), (head, "o_custkey")], heads),
        },
        slots,
        groups,
        equal=[((item, "l_orderkey"), (head, "o_orderkey"))],
        lat_proc=slots / 4,
    )


def tpch_few() -> Problem:
    return tpch(orders=96, basket=4)


def tpch_many() -> Problem:
    return tpch(orders=1_000_000)


def count_rows(
    streams: Mapping[str, tuple[list[RouteKey], Groups]],
    slots: int,
    groups: int,
    *,
    equal: Iterable[tuple[RouteKey, RouteKey]] = (),
    lat_proc: float,
) -> Problem:
    """The problem that these rows pose."""
    counts, joint = {}, {}
    for keys, rows in streams.values():
        for i, key in enumerate(keys):
            counts[key] = np.bincount(rows[:, i], minlength=groups).astype(float)
        for i, j in partners(len(keys)):
            cells = np.bincount(rows[:, i] * groups + rows[:, j], minlength=groups * groups).astype(float)
            table = cells.reshape(groups, groups)
            joint[keys[i], keys[j]] = table if len(keys) <= DENSE_KEYS else sparse.csr_matrix(table)
    return Problem(slots=slots, counts=counts, joint=joint, equal=list(equal), lat_proc=lat_proc)


def partners(keys: int) -> Iterator[tuple[int, int]]:
    """The pairs whose joint counts are known: all of few, four for each of many."""
    if keys <= DENSE_KEYS:
        yield from combinations(range(keys), 2)
    else:
        for i in range(keys):
            for step in (1, 2):
                yield tuple(sorted((i, (i + step) % keys)))  # type: ignore[misc]
