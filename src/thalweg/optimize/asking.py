"""What many queries ask, each thing once: in the order of the first query that asks it, and there in the query's own.

That order is the plan's, so it has to be the same however queries came and went. A query that comes or goes costs
what it asks: of all that others ask, only things that it was or becomes the first to ask are put elsewhere.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Thing = TypeVar("Thing", bound=Hashable)
Users = Mapping[Thing, tuple[str, ...]]
"""Who asks for what: the ids of queries, in their order."""
Asks = Mapping[str, Sequence[Thing]]
"""By query, what it asks, each thing once."""


@dataclass(frozen=True)
class AskingOrder(Generic[Thing]):
    ranks: Mapping[str, int]
    """Of the queries that there are."""
    tail: int
    """From this rank on nobody was known."""
    asked: Callable[[str], Sequence[Thing]]
    """What a query asks."""

    def of(self, thing: Thing, first: str) -> tuple[int, int]:
        return self.ranks[first], self.asked(first).index(thing)


def ask_otherwise(
    known: Users[Thing], gone: Asks[Thing], new: Asks[Thing], order: AskingOrder[Thing]
) -> dict[Thing, tuple[str, ...]]:
    """Who asks for what once these queries have gone and those have come."""
    users, moved = dict(known), set[Thing]()
    for id_, things in gone.items():
        for thing in things:
            before = users.pop(thing) if users[thing] == (id_,) else users[thing]
            if thing in users:
                at = before.index(id_)
                users[thing] = before[:at] + before[at + 1 :]
                moved |= {thing} if at == 0 else set()
    for id_, things in new.items():
        rank = order.ranks[id_]
        for thing in things:
            there = users.get(thing, ())
            at = len(there) if rank >= order.tail else bisect(there, rank, key=order.ranks.__getitem__)
            users[thing] = (*there[:at], id_, *there[at:])
            if at == 0 and rank < order.tail:
                moved.add(thing)
    return _in_order(users, {thing for thing in moved if thing in users}, order)


def _in_order(
    users: dict[Thing, tuple[str, ...]], moved: set[Thing], order: AskingOrder[Thing]
) -> dict[Thing, tuple[str, ...]]:
    """All but `moved` are in order."""
    if not moved:
        return users
    things = [thing for thing in users if thing not in moved]
    for thing in moved:
        place = bisect(things, order.of(thing, users[thing][0]), key=lambda t: order.of(t, users[t][0]))
        things.insert(place, thing)
    return {thing: users[thing] for thing in things}
