"""In which order the relations of a cohort stand, which decides who may look into a joined intermediate.

Rows of one batch find each other by one rule: a row finds new rows of relations that stand before its own, and only
old rows of those after it. An intermediate is one thing for a row that looks into it: so its relations must all stand
before the row's relation, or all after it. Which order of relations is best depends on who wants to look into what,
and never on their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import permutations

Look = tuple[str, tuple[str, ...]]
"""(relation, the relations of an intermediate): rows of the one look into the other."""
MOST_TRIED = 6
"""Relations of which every order is tried; of more, one is moved at a time."""


def can_find(order: Sequence[str], look: Look) -> bool:
    """Whether the order of relations lets rows of a relation look into an intermediate."""
    start, found = look
    places = [order.index(relation) for relation in found]
    return start not in found and not min(places) < order.index(start) < max(places)


def order_relations(relations: Iterable[str], looks: Collection[Look]) -> tuple[str, ...]:
    """The order that allows most of the looks; of equals the first by name. Without looks: by name."""
    names = sorted(set(relations))
    for part in _parts(looks):
        # A part fills the places that its relations have by name: no other part minds where they are.
        at = [place for place, name in enumerate(names) if name in part]
        inside = [look for look in looks if look[0] in part]
        for place, name in zip(at, _best(sorted(part), inside), strict=True):
            names[place] = name
    return tuple(names)


def every_order(relations: Iterable[str]) -> list[tuple[str, ...]]:
    """Every order of few relations, one of each two that are reversed: these allow the same looks."""
    return [order for order in permutations(sorted(relations)) if order[0] <= order[-1]]


def _best(names: Sequence[str], looks: Collection[Look]) -> Sequence[str]:
    def missed(order: Sequence[str]) -> int:
        return sum(not can_find(order, look) for look in looks)

    if len(names) <= MOST_TRIED:
        return min(every_order(names), key=missed)
    best, fewest, better = list(names), missed(names), True
    while better and fewest:
        better = False
        for name in names:
            rest = [other for other in best if other != name]
            tried = [[*rest[:i], name, *rest[i:]] for i in range(len(names))]
            moved = min(tried, key=missed)
            if missed(moved) < fewest:
                best, fewest, better = moved, missed(moved), True
    return best


def _parts(looks: Iterable[Look]) -> list[set[str]]:
    """Relations that looks tie together."""
    parts: list[set[str]] = []
    for start, found in sorted(set(looks)):
        joined = {start, *found}
        apart = []
        for part in parts:
            if part & joined:
                joined |= part
            else:
                apart.append(part)
        parts = [*apart, joined]
    return parts
