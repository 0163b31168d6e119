"""The queries compiled: every connected sub-join once, under a number, with the moves that lead from one to the next.

A partial result, a store and a query are all sub-joins: relations and the predicates among them. So two queries
share a step exactly if both have the sub-joins before and after it and the one that is probed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from thalweg.optimize.probe_orders.model import JoinQuery, Predicate, Statistics, largest_store
from thalweg.optimize.probe_orders.validate import relation_of

Move = tuple[int, int]
"""(the sub-join that is probed, the sub-join that results)."""
JoinMoves = dict[int, list[Move]]
"""Partial result -> the moves from there; larger partial results first."""
MOST_PARTS = 256
"""Sub-joins of a query that are all looked at. It may have so many that there is no time: a clique of 8 has 255."""


@dataclass(frozen=True)
class JoinGraph:
    """A join as it is searched: which sub-joins its partial results can be, and the moves between them."""

    number: int
    starts: tuple[int, ...]
    """The sub-joins of one relation."""
    moves: JoinMoves
    whole: bool
    """Whether these are all moves there are."""


def bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class Space:
    """All queries and statistics as numbers. Queries that join the same relations by the same predicates are one."""

    def __init__(
        self,
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        materialize: bool | int,
        attributes: Iterable[str] = (),
        order: Sequence[str] | None = None,
    ) -> None:
        """`attributes`: more of them than the queries have, by which stores are partitioned for others.

        `order`: of the relations. A row finds an intermediate only if its relation is not between those of it.
        """
        self.queries = queries
        self.statistics = statistics
        self.materialize = materialize
        self.chi = float(statistics.parallelism)
        self.names = sorted({name for query in queries for name in query.relations})
        self.predicates: list[Predicate] = sorted({pair for query in queries for pair in query.predicates})
        self.relation_ids = {name: i for i, name in enumerate(self.names)}
        self._place = None if order is None else [order.index(name) for name in self.names]
        self._found: dict[tuple[int, int], bool] = {}
        self.predicate_ids = {predicate: i for i, predicate in enumerate(self.predicates)}
        self._rates = [statistics.rates[name] for name in self.names]
        self._shares = [statistics.selectivity[predicate] for predicate in self.predicates]
        self._sides: list[tuple[tuple[int, int], tuple[int, int]]] = [((0, 0), (0, 0))] * len(self.predicates)
        """Of each predicate, the attribute and its relation on either side."""
        joined = (side for predicate in self.predicates for side in predicate)
        self.attributes: list[str] = sorted({*joined, *attributes})
        self._attribute_ids = {name: i for i, name in enumerate(self.attributes)}
        self.relations: list[int] = []
        """Of each sub-join: its relations, as a mask."""
        self.conditions: list[int] = []
        """Its predicates, as a mask."""
        self.rows: list[float] = []
        self.sent: list[float] = []
        """Its rows of which one relation's row is the latest: what is sent on from here (CLASH Eq. 1, |join| / j)."""
        self.base: list[bool] = []
        """Whether it is one relation."""
        self.asked: list[int] = []
        """In how many different joins that are asked for it is a partial result."""
        self._numbers: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, Move], int] = {}
        self.graph_of: list[int] = []
        """Of each query, the sub-join that it is."""
        self.graphs: dict[int, JoinGraph] = {}
        """The different joins that are asked for."""
        self._home: dict[int, JoinGraph] = {}
        self._parts: dict[int, JoinGraph] = {}
        for query in queries:
            self._add(query)

    def _add(self, query: JoinQuery) -> None:
        for predicate in query.predicates:
            one, other = (
                (self._attribute_ids[side], self.relation_ids[relation_of(side, query.relations) or side])
                for side in predicate
            )
            self._sides[self.predicate_ids[predicate]] = one, other
        relations = [self.relation_ids[name] for name in query.relations]
        conditions = [self.predicate_ids[predicate] for predicate in query.predicates]
        number = self._number(sum(1 << i for i in relations), sum(1 << i for i in conditions))
        self.graph_of.append(number)
        if number not in self.graphs:
            graph = self.graphs[number] = self._compile(number, relations, conditions)
            for part in (number, *graph.moves):
                self.asked[part] += 1
                self._home.setdefault(part, graph)

    def _number(self, relations: int, conditions: int) -> int:
        key = relations, conditions
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            rows = 1.0
            for relation in bits(relations):
                rows *= self._rates[relation]
            for condition in bits(conditions):
                rows *= self._shares[condition]
            self.relations.append(relations)
            self.conditions.append(conditions)
            self.rows.append(rows)
            self.sent.append(rows / relations.bit_count())
            self.base.append(relations.bit_count() == 1)
            self.asked.append(0)
        return found

    def _compile(self, number: int, relations: list[int], conditions: list[int]) -> JoinGraph:
        place = {relation: i for i, relation in enumerate(relations)}
        near = [0] * len(relations)
        tied: list[list[tuple[int, int]]] = [[] for _ in relations]
        for condition in conditions:
            (_, one), (_, other) = self._sides[condition]
            i, j = place[one], place[other]
            near[i] |= 1 << j
            near[j] |= 1 << i
            tied[i].append((1 << j, 1 << condition))
            tied[j].append((1 << i, 1 << condition))
        local = _Local(relations, near, tied)
        masks = local.connected()
        if len(masks) > MOST_PARTS:
            return self._narrow(number, local)
        numbers = {mask: self._number(*parts) for mask, parts in masks.items()}
        largest = largest_store(self.materialize)
        stores = [mask for mask in masks if mask.bit_count() <= largest]
        moves: JoinMoves = {}
        for mask in sorted(masks, key=int.bit_count, reverse=True)[1:]:
            reach = local.reach(mask)
            moves[numbers[mask]] = [
                (numbers[store], numbers[mask | store]) for store in stores if store & reach and not store & mask
            ]
        starts = tuple(numbers[1 << i] for i in range(len(relations)))
        return JoinGraph(number, starts, moves, True)

    def _narrow(self, number: int, local: _Local) -> JoinGraph:
        """Of a very large query, one order from each relation: always to the relation that leaves fewest rows."""
        steps: dict[int, set[Move]] = {}
        starts = []
        for i in range(len(local.relations)):
            mask = 1 << i
            head = self._number(*local.described(mask))
            starts.append(head)
            while head != number:
                nearest = [1 << j for j in bits(local.reach(mask) & ~mask)]
                ranked = [(self.rows[self._number(*local.described(mask | bit))], bit) for bit in nearest]
                bit = min(ranked)[1]
                mask |= bit
                move = self._number(*local.described(bit)), self._number(*local.described(mask))
                steps.setdefault(head, set()).add(move)
                head = move[1]
        largest_first = sorted(steps, key=lambda part: -self.relations[part].bit_count())
        return JoinGraph(number, tuple(starts), {part: sorted(steps[part]) for part in largest_first}, False)

    def graph(self, number: int) -> JoinGraph:
        """A join that is asked for, or one of its sub-joins."""
        if number in self.graphs:
            return self.graphs[number]
        if number not in self._parts:
            home, outside = self._home[number], ~self.relations[number]
            moves = {
                head: [move for move in moves if not self.relations[move[1]] & outside]
                for head, moves in home.moves.items()
                if head != number and not self.relations[head] & outside
            }
            starts = tuple(start for start in home.starts if not self.relations[start] & outside)
            self._parts[number] = JoinGraph(number, starts, moves, home.whole)
        return self._parts[number]

    @cached_property
    def intermediates(self) -> list[int]:
        """Every sub-join of several relations that a probe order could use as a store."""
        stores = {store for graph in self.graphs.values() for moves in graph.moves.values() for store, _ in moves}
        return sorted(store for store in stores if not self.base[store])

    @cached_property
    def within(self) -> dict[int, list[int]]:
        """Store -> the joins asked for that could probe it."""
        found: dict[int, list[int]] = {}
        for graph in self.graphs.values():
            for store in graph.moves:
                found.setdefault(store, []).append(graph.number)
        return found

    @property
    def restricted(self) -> bool:
        """Whether it depends on the start which stores can be probed."""
        return self._place is not None

    def finds(self, start: int, store: int) -> bool:
        """Whether rows of the start may probe a store."""
        if self._place is None or self.base[store]:
            return True
        known = self._found.get((start, store))
        if known is None:
            (mine,) = bits(self.relations[start])
            places = [self._place[i] for i in bits(self.relations[store])]
            known = self._found[start, store] = not min(places) < self._place[mine] < max(places)
        return known

    def charge(self, store: int) -> float:
        """What it costs to send an intermediate result into its store, from all its relations together."""
        return self.statistics.storing * self.rows[store] if not self.base[store] else 0.0

    def known(self, head: int, move: Move) -> int:
        """The attributes of the probed store whose values the partial result knows, as a mask.

        They are those that it is joined by, and those that are equal to them inside the store.
        """
        mask = self._known.get((head, move))
        if mask is None:
            store, found = move
            inside, mask = self.conditions[store], 0
            for condition in bits(self.conditions[found] & ~self.conditions[head] & ~inside):
                for attribute, relation in self._sides[condition]:
                    if self.relations[store] >> relation & 1:
                        mask |= 1 << attribute
            mask = self._known[head, move] = self._closed(mask, inside)
        return mask

    def _closed(self, attributes: int, conditions: int) -> int:
        before = -1
        while attributes != before:
            before = attributes
            for condition in bits(conditions):
                (one, _), (other, _) = self._sides[condition]
                if (attributes >> one | attributes >> other) & 1:
                    attributes |= 1 << one | 1 << other
        return attributes

    @cached_property
    def partitions(self) -> dict[int, list[int]]:
        """Store -> the attributes it may be partitioned by: those that join it with a relation outside."""
        masks: dict[int, int] = {}
        for graph in self.graphs.values():
            conditions = bits(self.conditions[graph.number])
            for store in {store for moves in graph.moves.values() for store, _ in moves}:
                inside, mask = self.relations[store], masks.get(store, 0)
                for condition in conditions:
                    (one, owner), (other, others) = self._sides[condition]
                    within, beyond = inside >> owner & 1, inside >> others & 1
                    if within != beyond:
                        mask |= 1 << (one if within else other)
                masks[store] = mask
        return {store: bits(mask) for store, mask in masks.items()}

    @cached_property
    def likely_partitions(self) -> dict[int, int]:
        """Store -> the attribute that most of the rows know which might be sent to it first of all stores."""
        gains: dict[int, dict[int, float]] = {store: dict.fromkeys(a, 0.0) for store, a in self.partitions.items()}
        for graph in self.graphs.values():
            for start in graph.starts:
                for move in graph.moves.get(start, ()):
                    gain, known = gains[move[0]], self.known(start, move)
                    for attribute in gain:
                        gain[attribute] += self.sent[start] if known >> attribute & 1 else 0.0
        return {store: max(gain, key=lambda a: (gain[a], -a)) for store, gain in gains.items() if gain}

    def copies(self, head: int, move: Move, partition: int | None) -> float:
        """Chi of CLASH Eq. 1."""
        if self.chi == 1.0 or (partition is not None and self.known(head, move) >> partition & 1):
            return 1.0
        return self.chi

    def find(self, relations: Collection[str], predicates: Collection[Predicate]) -> int | None:
        """The number of a sub-join, if it is one of these queries'."""
        if not all(name in self.relation_ids for name in relations):
            return None
        if not all(predicate in self.predicate_ids for predicate in predicates):
            return None
        return self._numbers.get(
            (
                sum(1 << self.relation_ids[name] for name in relations),
                sum(1 << self.predicate_ids[predicate] for predicate in predicates),
            )
        )

    def identity(self, number: int) -> tuple[tuple[str, ...], tuple[Predicate, ...]]:
        """A sub-join in names."""
        return self.named(self.relations[number]), self.equalities(self.conditions[number])

    def named(self, relations: int) -> tuple[str, ...]:
        return tuple(self.names[i] for i in bits(relations))

    def equalities(self, conditions: int) -> tuple[Predicate, ...]:
        return tuple(self.predicates[i] for i in bits(conditions))


@dataclass(frozen=True)
class _Local:
    """One query, its relations numbered from 0, so that masks are small."""

    relations: list[int]
    near: list[int]
    """Relation -> the relations it is joined with, as a mask."""
    tied: list[list[tuple[int, int]]]
    """Relation -> for each of its predicates: the other relation, and the predicate, as masks."""

    def reach(self, mask: int) -> int:
        found = 0
        for i in bits(mask):
            found |= self.near[i]
        return found

    def connected(self) -> dict[int, tuple[int, int]]:
        """Every connected set of relations, or more than are looked at; with what each is over all queries."""
        found = {1 << i: (1 << relation, 0) for i, relation in enumerate(self.relations)}
        for mask in list(found):
            self._grow(mask, found)
        return found

    def _grow(self, mask: int, found: dict[int, tuple[int, int]]) -> None:
        for i in bits(self.reach(mask) & ~mask):
            larger = mask | 1 << i
            if larger not in found and len(found) <= MOST_PARTS:
                relations, conditions = found[mask]
                for other, condition in self.tied[i]:
                    if other & mask:
                        conditions |= condition
                found[larger] = relations | 1 << self.relations[i], conditions
                self._grow(larger, found)

    def described(self, mask: int) -> tuple[int, int]:
        """The relations and predicates of a sub-join, as masks over all queries."""
        relations = conditions = 0
        for i in bits(mask):
            relations |= 1 << self.relations[i]
            for other, condition in self.tied[i]:
                if other & mask:
                    conditions |= condition
        return relations, conditions
