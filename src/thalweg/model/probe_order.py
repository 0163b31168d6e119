"""In which order rows of joined streams look for partners: as it was decided, and as EXPLAIN tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from thalweg.model.canonical import canonical

Edge = tuple[str, str, str]
"""(relation, relation, key): a two-way sub-join. The key names what is equal on both sides."""
Found = tuple[str, ...]
"""What one step finds: a relation, or the two relations of a joined intermediate."""
ProbeOrder = tuple[Found, ...]
OrdersByStart = Mapping[str, ProbeOrder]
"""Start relation -> the steps of its rows."""


@canonical("Ordered(relations, edges, orders, decided)")
@dataclass(frozen=True)
class OrderedJoin:
    """An inner join and the order that it has in a plan."""

    relations: tuple[str, ...]
    edges: tuple[Edge, ...]
    orders: OrdersByStart
    decided: bool
    """Whether the order comes from a decision, or from what was measured so far."""

    def among(self, relations: Iterable[str]) -> tuple[Edge, ...]:
        """The edges between two of these relations."""
        known = set(relations)
        return tuple(edge for edge in self.edges if edge[0] in known and edge[1] in known)

    def reaches(self, known: Iterable[str], found: Found) -> bool:
        """Whether some edge leads from what is known to what is found."""
        near = set(known)
        return any((a in near and b in found) or (b in near and a in found) for a, b, _ in self.edges)

    def admits(self, start: str, order: ProbeOrder) -> bool:
        """Whether the order leads from the start along edges to every other relation, once each."""
        known = [start]
        for found in order:
            whole = len(found) == 1 or len(self.among(found)) > 0
            if not whole or not self.reaches(known, found):
                return False
            known += found
        return sorted(known) == sorted(self.relations)

    def flat(self, start: str, order: ProbeOrder) -> tuple[str, ...]:
        """The order with every intermediate taken apart: the side that is reached first, then the other."""
        known = [start]
        for found in order:
            known += sorted(found, key=lambda r: not self.reaches(known, (r,)))
        return tuple(known[1:])


class OrdersInForce(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The orders that are in force, and where they come from."""

    orders: Mapping[str, OrdersByStart] = {}
    """By query."""
    planned: tuple[str, ...] = ()
    """The queries that were planned together the last time."""
    switched: int | None = None
    """The batch that was the first to run with the last decision."""
    switches: int = 0
    reason: str = ""
    """Of the last decision."""
    changes: tuple[str, ...] = ()
    """What it changed."""
    epoch: int = 0
    """How many had ended when it was asked for: what was measured later is not in it."""

    def changed_by(self, other: OrdersInForce, batch: int) -> OrdersInForce:
        """With the orders of a newer decision; queries that it does not know keep theirs.

        One that changes nothing only says that the orders are good as they are.
        """
        orders, epoch = {**self.orders, **other.orders}, max(self.epoch, other.epoch)
        if not other.changes:
            return replace(self, orders=orders, planned=other.planned, epoch=epoch)
        return OrdersInForce(orders, other.planned, batch, self.switches + 1, other.reason, other.changes, epoch)

    def after(self, ordered: Mapping[str, OrderedJoin]) -> OrdersInForce:
        """As the plan of a batch leaves it: without queries that have gone, with those that were attached."""
        orders = {query: of.orders for query, of in ordered.items() if of.decided}
        return replace(self, orders=orders)


@dataclass(frozen=True)
class CohortCost:
    """What a cohort costs, in tuples sent per batch."""

    queries: tuple[str, ...]
    now: float
    """As the statistics in force predict."""
    apart: float
    """With each query planned by itself."""


@dataclass(frozen=True)
class OrderingReport:
    """For EXPLAIN and progress."""

    epoch: int = 0
    asked: str = ""
    """When and why the planner was asked the last time."""
    answer: str = ""
    switches: int = 0
    switched: int | None = None
    reason: str = ""
    changes: tuple[str, ...] = ()
    groups: tuple[CohortCost, ...] = ()
    """Of cohorts. Users read it in progress() by this name."""
    sent: Mapping[str, float] = field(default_factory=dict)
    """Cohort -> tuples sent per batch, as measured."""
