"""A solution while it is being made: the probe trees of all targets, with what each of their steps costs.

A target is a join and one of its relations: the probe order by which an arriving row of that relation finds the join.
Queries have a target for each relation, and so has every intermediate store that is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import fsum

from thalweg.optimize.probe_orders.space import Move, Space

Target = tuple[int, int]
"""(sub-join, start: the sub-join of one relation)."""
Path = tuple[Move, ...]
WORTH = 1e-9
"""A change must save this share of the cost, so that rounding changes nothing."""


@dataclass(eq=False)
class ForestNode:
    """A step of a probe tree. The root stands for the arrival of a row."""

    head: int
    """The partial result before the step; of the root, the start."""
    move: Move
    parent: ForestNode | None
    price: float = 0.0
    """What the step costs as the stores are partitioned now."""
    users: int = 0
    children: dict[Move, ForestNode] = field(default_factory=dict)

    @property
    def result(self) -> int:
        return self.move[1]

    @property
    def path(self) -> Path:
        """The steps from the arrival to here."""
        moves: list[Move] = []
        node: ForestNode | None = self
        while node is not None and node.parent is not None:
            moves.append(node.move)
            node = node.parent
        return tuple(reversed(moves))


@dataclass
class ProbeForest:
    """Probe trees, the stores that are kept besides base relations, and how stores are partitioned."""

    space: Space
    roots: dict[int, ForestNode] = field(default_factory=dict)
    leaves: dict[Target, ForestNode] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    """Intermediate stores."""
    partition: dict[int, int] = field(default_factory=dict)
    probes: dict[int, dict[ForestNode, None]] = field(default_factory=dict)
    """Store -> the steps that probe it, in the order in which they came: a set would sum in any order."""
    cost: float = 0.0

    def price(self, head: int, move: Move) -> float:
        """CLASH Eq. 1: the term of one step."""
        sent = self.space.sent[head]
        if self.space.chi == 1.0:
            return sent
        return sent * self.space.copies(head, move, self.partition.get(move[0]))

    def root(self, start: int) -> ForestNode:
        if start not in self.roots:
            self.roots[start] = ForestNode(start, (start, start), None)
        return self.roots[start]

    def put(self, target: Target, path: Path) -> None:
        """Installs a probe order; steps that others have installed cost nothing more."""
        node = self.root(target[1])
        for move in path:
            child = node.children.get(move)
            if child is None:
                child = node.children[move] = ForestNode(node.result, move, node, self.price(node.result, move))
                self.probes.setdefault(move[0], {})[child] = None
                self.cost += child.price
            child.users += 1
            node = child
        self.leaves[target] = node

    def take(self, target: Target) -> Path:
        """Removes a probe order, with the steps that nobody else uses, and gives it back."""
        leaf = self.leaves.pop(target)
        node: ForestNode | None = leaf
        while node is not None and node.parent is not None:
            node.users -= 1
            if not node.users:
                self.cost -= node.price
                del node.parent.children[node.move]
                del self.probes[node.move[0]][node]
            node = node.parent
        return leaf.path

    def keep(self, store: int) -> None:
        self.kept.add(store)
        self.cost += self.space.charge(store)

    def drop(self, store: int) -> None:
        self.kept.remove(store)
        self.cost -= self.space.charge(store)

    def shed(self, spare: Collection[int | None] = ()) -> None:
        """Gives up stores that no query probes, not even through a store that it probes; not those to spare."""
        asked = {number for number, _ in self.leaves if number in self.space.graphs}
        needed: set[int] = set()
        new, seen = list(asked), set(asked)
        while new:
            number = new.pop()
            paths = (self.leaves[number, start].path for start in self.space.graph(number).starts)
            probed = {store for path in paths for store, _ in path if not self.space.base[store]}
            needed |= probed
            new += probed - seen
            seen |= probed
        for store in sorted(self.kept - needed - {*spare}):
            self.drop(store)
            for start in self.space.graph(store).starts if store not in asked else ():
                self.take((store, start))

    def partition_by(self, store: int, attribute: int) -> None:
        self.partition[store] = attribute
        for node in self.probes.get(store, ()):
            price = self.price(node.head, node.move)
            self.cost += price - node.price
            node.price = price

    def probe_cost(self, store: int, attribute: int) -> float:
        """What the probes of a store, as they are, would cost if it were partitioned by this attribute."""
        space = self.space
        return sum(
            space.sent[node.head] * space.copies(node.head, node.move, attribute)
            for node in self.probes.get(store, ())
        )

    def total(self) -> float:
        """The cost, added up anew."""
        steps = (node.price for nodes in self.probes.values() for node in nodes)
        return fsum((*steps, *(self.space.charge(store) for store in self.kept)))

    def adopt(self, other: ProbeForest) -> None:
        """Takes over what another forest has installed for other joins, which have nothing in common with these."""
        for store in sorted(other.kept):
            self.keep(store)
        self.partition.update(
            (store, other.partition[store])
            for store, nodes in other.probes.items()
            if nodes and store in other.partition
        )
        for target, leaf in other.leaves.items():
            self.put(target, leaf.path)

    def copy(self) -> ProbeForest:
        twin = ProbeForest(self.space, kept=set(self.kept), partition=dict(self.partition))
        twin.cost = fsum(self.space.charge(store) for store in self.kept)
        for target, leaf in self.leaves.items():
            twin.put(target, leaf.path)
        return twin
