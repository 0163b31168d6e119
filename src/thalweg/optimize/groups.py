"""Which queries run together: AJoin's query groups, by the cost of sharing against running apart.

A shared run finds the pairs of all its queries' rows, also those that serve nobody: a row that only one query
wants meets a row that only another one wants. So queries whose predicates meet share, and others run apart.
How often predicates meet is read off sampled rows. A query whose predicates have not been sampled yet is shared
eagerly with the group that has most in common with it, and judged when it has been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thalweg.model.join_statistics import Sample
from thalweg.model.probe import GROUP_SIZE

KEEP = 1.1
"""Running groups cost at most this much more than new ones would, or they are regrouped: noise flips no plan."""
FULL_RUN = 0.5
"""All groups are looked at again once this share of the queries has been created or dropped."""
UNMEASURED_RATE = 1000.0

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]
Ids = NDArray[np.intp]


@dataclass(frozen=True)
class Demand:
    """What one query asks: its relations, its edges, the predicate it has on each relation."""

    query: str
    relations: tuple[str, ...]
    """Sorted."""
    edges: frozenset[str]
    """Its two-way sub-joins: a pair of relations and a key. Queries that have none in common never share a group."""
    predicates: Mapping[str, str]
    """Relation -> predicate; a relation of which every row is wanted is missing."""


Sides = tuple[tuple[str, str], tuple[str, str]]
"""The two ends of an edge: (relation, key), as `Sample.distinct` names the key."""


def form_groups(
    demands: Sequence[Demand],
    samples: Mapping[str, Sample],
    current: Sequence[Sequence[str]] = (),
    *,
    sides: Mapping[str, Sides] | None = None,
    held: Mapping[str, float] | None = None,
    fixed: float = 0.0,
) -> tuple[list[tuple[str, ...]], list[str]]:
    """The groups, each in the order of the demands, and why some run apart.

    `samples` are by relation, `sides` by edge; without the sides of its edges a query counts as unmeasured.
    `held` says how many batches' rows the store of a relation holds (missing: 1): every new row meets those.
    `fixed` is what a join costs however few rows it has, in rows: the paper's Eq. 2 has no such term.
    `current` are the groups that run. Those that lose or take in a query are looked at together; each of the
    others is asked only whether it is better split: so a query that was shared eagerly comes to be judged.
    """
    costs = _Costs(demands, samples, sides or {}, held or {}, fixed)
    number = {demand.query: i for i, demand in enumerate(demands)}
    running = {name for names in current for name in names}
    full = len(running ^ number.keys()) > FULL_RUN * max(len(running), len(number))
    kept: list[list[int]] = []
    touched: list[list[int]] = []
    loose = set(number.values())
    for names in current:
        members = costs.compatible(sorted(loose & {number[name] for name in names if name in number}))
        loose -= set(members)
        parts = None if full else _regroup(costs, [members])
        if parts is not None:
            members = max(parts, key=len)
            loose |= {query for part in parts if part is not members for query in part}
        if members:
            (touched if full or len(members) < len(set(names)) else kept).append(members)
    groups = _settle(costs, kept + touched, loose)
    if current:
        same, others = _divide(groups, kept)
        groups = same + (_regroup(costs, others) or others)
    groups = sorted(sorted(group) for group in groups)
    names_of = [tuple(demands[query].query for query in group) for group in groups]
    return names_of, _explain(costs, groups, names_of)


def _divide(groups: list[list[int]], kept: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The groups that are among `kept` as they were, and the others."""
    before = {frozenset(group) for group in kept}
    same = [group for group in groups if frozenset(group) in before]
    return same, [group for group in groups if frozenset(group) not in before]


def _regroup(costs: _Costs, groups: list[list[int]]) -> list[list[int]] | None:
    """The same queries in new groups where that is worth it."""
    known = [[query for query in group if costs.measured[query]] for group in groups]
    better = _settle(costs, [], {query for group in known for query in group})
    if sum(map(costs.of_group, known)) <= KEEP * sum(map(costs.of_group, better)):
        return None
    unknown = {query for group in groups for query in group if not costs.measured[query]}
    return _settle(costs, better, unknown)


def _settle(costs: _Costs, running: list[list[int]], queries: set[int]) -> list[list[int]]:
    """The groups after `queries` have been placed in running and new ones (AJoin Fig. 7a).

    A new group starts from the pair that gains most, not from the one with the best ratio: where two joins differ
    in size, two queries that share a small one perfectly would keep each other from sharing the large one.
    """
    loose = np.zeros(costs.count, bool)
    loose[list(queries)] = True
    groups = [_Group(costs, members, loose) for members in running]
    _absorb(groups, loose)
    pool = np.flatnonzero(loose & costs.measured)
    gains = costs.gains[np.ix_(pool, pool)]
    while gains.max(initial=0.0) > 0.0:
        first, second = divmod(int(gains.argmax()), len(pool))
        seed = [int(pool[first]), int(pool[second])]
        loose[seed] = False
        group = _Group(costs, seed, loose)
        _absorb([group], loose)
        taken = ~loose[pool]
        gains[taken] = gains[:, taken] = 0.0
        groups.append(group)
    groups += [_Group(costs, [int(query)], loose) for query in pool if loose[query]]
    for query in np.flatnonzero(loose & ~costs.measured).tolist():
        _share_eagerly(costs, groups, query, loose)
    return [group.members for group in groups]


def _absorb(groups: list[_Group], loose: NDArray[np.bool_]) -> None:
    """Takes loose queries into the groups, the greatest gain first, while sharing is cheaper than running apart."""
    if not groups:
        return
    gains = np.stack([group.gains_of(loose) for group in groups])
    while gains.max(initial=0.0) > 0.0:
        place, query = divmod(int(gains.argmax()), gains.shape[1])
        loose[query] = False
        groups[place].add(query, loose)
        gains[:, query] = 0.0
        gains[place] = groups[place].gains_of(loose)


def _share_eagerly(costs: _Costs, groups: list[_Group], query: int, loose: NDArray[np.bool_]) -> None:
    """Into the group that has most edges in common with the query: AJoin's first phase."""
    open_groups = [group for group in groups if group.admits(query)]
    if open_groups:
        max(open_groups, key=lambda group: len(group.edges & costs.edges_of[query])).add(query, loose)
    else:
        groups.append(_Group(costs, [query], loose))


def _explain(costs: _Costs, groups: list[list[int]], names: list[tuple[str, ...]]) -> list[str]:
    """Of each group, why it does not share with the one that is nearest to it."""
    where = np.zeros(costs.count, np.intp)
    for i, group in enumerate(groups):
        where[group] = i
    apart = [costs.of_group(group) for group in groups]
    notes: dict[frozenset[int], str] = {}
    for i, group in enumerate(groups):
        ratios = np.where(where == i, np.inf, costs.ratios[group].min(axis=0))
        j = int(where[ratios.argmin()])
        if np.isinf(ratios.min()) or frozenset((i, j)) in notes:
            continue
        ratio = costs.of_group(group + groups[j]) / (apart[i] + apart[j])
        who = f"{_name(names[i])} {'runs' if len(group) == 1 else 'run'} apart from {_name(names[j])}"
        if ratio >= 1.0:
            notes[frozenset((i, j))] = f"{who}: sharing would cost {ratio:.2f}x"
        elif len(group) + len(groups[j]) > GROUP_SIZE:
            notes[frozenset((i, j))] = f"{who}: a group holds at most {GROUP_SIZE} queries"
    return list(notes.values())


def _name(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


class _Rows:
    """The sampled rows of one relation: a row of bits for each predicate, and a last one for no predicate."""

    def __init__(self, sample: Sample | None) -> None:
        self.rate = max(sample.rate, 1.0) if sample else UNMEASURED_RATE
        self.distinct = sample.distinct if sample else {}
        # Without sampled rows there is one that satisfies nothing, and no predicate is measured.
        rows, predicates = (sample.rows, sample.predicates) if sample and sample.rows else ((0,), ())
        self.bit = {predicate: i for i, predicate in enumerate(predicates)}
        self.scale = self.rate / len(rows)
        width = len(predicates) // 8 + 1
        packed = np.frombuffer(b"".join(row.to_bytes(width, "little") for row in rows), np.uint8)
        satisfied = np.ones((len(predicates) + 1, -(-len(rows) // 64) * 64), bool)
        satisfied[:, len(rows) :] = False
        satisfied[:-1, : len(rows)] = np.unpackbits(
            packed.reshape(-1, width), axis=1, count=len(predicates), bitorder="little"
        ).T
        self.bits: Bits = np.packbits(satisfied, axis=1).view(np.uint64)

    def knows(self, predicate: str | None) -> bool:
        return predicate is None or predicate in self.bit

    def asked(self, predicate: str | None) -> int:
        return self.bit[predicate] if predicate is not None else len(self.bit)

    def cardinality(self, counts: Floats) -> Floats:
        """Rows per batch. Of a predicate that no sampled row satisfies, half a sampled row is expected."""
        return np.maximum(counts, 0.5) * self.scale


def _counts(bits: Bits) -> Floats:
    counts: Floats = np.bitwise_count(bits).sum(axis=-1, dtype=np.float64)
    return counts


class _Edge:
    """A two-way join with the measured queries that ask for it."""

    def __init__(
        self,
        sides: Sides,
        rows: Mapping[str, _Rows],
        held: Mapping[str, float],
        fixed: float,
        members: list[tuple[int, Demand]],
    ) -> None:
        self.fixed = fixed
        self.queries: Ids = np.array([query for query, _ in members], np.intp)
        self.place = {query: i for i, (query, _) in enumerate(members)}
        self.rows = [rows[relation] for relation, _ in sides]
        self.asked = [
            np.array([rows[relation].asked(demand.predicates.get(relation)) for _, demand in members], np.intp)
            for relation, _ in sides
        ]
        self.keys = [max(rows[r].distinct.get(key, rows[r].rate), 1.0) for r, key in sides]
        # The new rows of either side meet the rows that were there on the other, and each other.
        self.meetings = held.get(sides[0][0], 1.0) + held.get(sides[1][0], 1.0) - 1.0
        self.alone = self.cost(*self.wanted(slice(None)))

    def union(self, queries: Iterable[int]) -> list[Bits]:
        """The sampled rows of either side that some of the queries want."""
        at = [self.place[query] for query in queries]
        return [np.bitwise_or.reduce(bits, axis=0) for bits in self.wanted(at)]

    def wanted(self, at: Ids | list[int] | slice) -> list[Bits]:
        """The sampled rows of either side, for each of the queries at these places."""
        return [rows.bits[asked[at]] for rows, asked in zip(self.rows, self.asked, strict=True)]

    def cost(self, left: Bits, right: Bits) -> Floats:
        """Of joins whose sides are given as sampled rows."""
        return self.price(*(r.cardinality(_counts(b)) for r, b in zip(self.rows, (left, right), strict=True)))

    def price(self, left: Floats, right: Floats) -> Floats:
        """AJoin Eq. 2: index both sides, intersect the keys, find the pairs."""
        keys = np.minimum(np.minimum(left, self.keys[0]), np.minimum(right, self.keys[1]))
        return self.fixed + left + right + keys + left * right * self.meetings / max(self.keys)

    def shared(self) -> Floats:
        """The cost of each two of its queries together."""
        unions = []
        for rows, asked in zip(self.rows, self.asked, strict=True):
            distinct, back = np.unique(asked, return_inverse=True)
            bits = rows.bits[distinct]
            # AJoin Eq. 1, counted on the rows. A product of matrices would do; its threads fight over busy cores.
            counts = np.stack([_counts(bits | one) for one in bits])
            unions.append(rows.cardinality(counts)[np.ix_(back, back)])
        return self.price(*unions)


class _Costs:
    """The costs of all queries. A query is its place among the demands."""

    def __init__(
        self,
        demands: Sequence[Demand],
        samples: Mapping[str, Sample],
        sides: Mapping[str, Sides],
        held: Mapping[str, float],
        fixed: float,
    ) -> None:
        self.count = len(demands)
        self.edges_of = [demand.edges for demand in demands]
        rows = {
            relation: _Rows(samples.get(relation)) for relation in {r for ends in sides.values() for r, _ in ends}
        }
        self.measured = np.array(
            [
                d.edges <= sides.keys()
                and all(rows[relation].knows(d.predicates.get(relation)) for e in d.edges for relation, _ in sides[e])
                for d in demands
            ],
            bool,
        )
        column = {edge: i for i, edge in enumerate(sorted(frozenset().union(*self.edges_of)))}
        members: dict[str, list[tuple[int, Demand]]] = {}
        asks = np.zeros((self.count, len(column)), np.float32)
        for query, demand in enumerate(demands):
            asks[query, [column[edge] for edge in demand.edges]] = 1
            for edge in demand.edges if self.measured[query] else ():
                members.setdefault(edge, []).append((query, demand))
        self.edges = {
            edge: _Edge(sides[edge], rows, held, fixed, queries) for edge, queries in sorted(members.items())
        }
        self.common = asks @ asks.T > 0
        """Which queries have an edge in common."""

    @cached_property
    def pairs(self) -> tuple[Floats, Floats]:
        """The cost of each two queries together, and apart, over their common edges; 0 where nothing is known."""
        shared, apart = np.zeros((2, self.count, self.count))
        for edge in self.edges.values():
            at = np.ix_(edge.queries, edge.queries)
            shared[at] += edge.shared()
            apart[at] += edge.alone[:, None] + edge.alone
        np.fill_diagonal(shared, 0.0)
        np.fill_diagonal(apart, 0.0)
        return shared, apart

    @cached_property
    def gains(self) -> Floats:
        """What each two queries gain by running together."""
        shared, apart = self.pairs
        return apart - shared

    @cached_property
    def ratios(self) -> Floats:
        """The cost of each two queries together against apart; infinite where nothing is known."""
        shared, apart = self.pairs
        return np.divide(shared, apart, out=np.full_like(shared, np.inf), where=apart > 0.0)

    def of_group(self, members: Iterable[int]) -> float:
        """Of the measured ones among the members, run together."""
        return sum(float(self.edges[name].cost(*union)) for name, union in self.unions(members).items())

    def unions(self, members: Iterable[int]) -> dict[str, list[Bits]]:
        """Edge -> the sampled rows of either side that some measured member wants."""
        asking: dict[str, list[int]] = {}
        for query in members:
            for name in self.edges_of[query] if self.measured[query] else ():
                asking.setdefault(name, []).append(query)
        return {name: self.edges[name].union(queries) for name, queries in sorted(asking.items())}

    def compatible(self, queries: list[int]) -> list[int]:
        """As many of the queries, first come, as may be one group."""
        taken: list[int] = []
        for query in queries:
            if len(taken) < GROUP_SIZE and self.common[query, taken].all():
                taken.append(query)
        return taken


class _Group:
    """A group that grows: what it would gain by each loose query is kept current edge by edge."""

    def __init__(self, costs: _Costs, members: Iterable[int], loose: NDArray[np.bool_]) -> None:
        self.costs = costs
        self.members = list(members)
        self.edges = frozenset[str]().union(*(costs.edges_of[query] for query in self.members))
        self._open: NDArray[np.bool_] = np.logical_and.reduce(costs.common[self.members], axis=0)
        self._unions = costs.unions(self.members)
        self._gains: dict[str, Floats] = {}
        self._gain = np.zeros(costs.count)
        for name in self._unions:
            self._weigh(name, loose)

    def admits(self, query: int) -> bool:
        return len(self.members) < GROUP_SIZE and bool(self._open[query])

    def add(self, query: int, loose: NDArray[np.bool_]) -> None:
        self.members.append(query)
        self.edges |= self.costs.edges_of[query]
        self._open &= self.costs.common[query]
        for name, bits in self.costs.unions([query]).items():
            self._unions[name] = [a | b for a, b in zip(self._unions.get(name, bits), bits, strict=True)]
            self._weigh(name, loose)

    def gains_of(self, loose: NDArray[np.bool_]) -> Floats:
        """What running apart costs more than sharing, for each loose query that may join; 0 for the others."""
        if len(self.members) >= GROUP_SIZE:
            return np.zeros_like(self._gain)
        return np.where(loose & self._open, self._gain, 0.0)

    def _weigh(self, name: str, loose: NDArray[np.bool_]) -> None:
        edge, union = self.costs.edges[name], self._unions[name]
        at = np.flatnonzero(loose[edge.queries])
        wider = [wanted | bits for wanted, bits in zip(edge.wanted(at), union, strict=True)]
        gain = np.zeros_like(self._gain)
        gain[edge.queries[at]] = edge.cost(*union) + edge.alone[at] - edge.cost(*wider)
        self._gain += gain - self._gains.get(name, 0.0)
        self._gains[name] = gain
