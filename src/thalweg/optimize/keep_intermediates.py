"""After orders, which say what is wanted; before trees, which look into what is kept: the two-way sub-joins of a
cohort whose rows are stored like those of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.model.probe import Intermediate
from thalweg.model.probe_order import Edge
from thalweg.optimize.draft import CohortNumbers, CohortOrders, Draft, JoinParts, again
from thalweg.optimize.order_probes import ordered, walked

KEEP_BELOW = 0.5
"""A sub-join of which a row finds at most that many partners is kept: it is smaller than both of its relations."""


def keep_intermediates(draft: Draft, last: Draft) -> Draft:
    kept = {
        ids: again(last.kept.get(ids), _keep, joins, draft.orders[ids].value, draft.numbers[ids].value)
        for ids, joins in draft.cohorts.items()
    }
    return replace(draft, kept=kept)


def _keep(joins: tuple[JoinParts, ...], orders: CohortOrders, numbers: CohortNumbers) -> tuple[Intermediate, ...]:
    """Those that were decided for; of others with three relations or more the smallest, if it yields little."""
    wanted: dict[tuple[Edge, ...], set[str]] = {}
    for id_, join in orders.decided.items():
        for pair in {found for order in join.orders.values() for found in order if len(found) > 1}:
            wanted.setdefault(join.among(pair), set()).add(id_)
    for parts in walked(joins):
        few = parts.id in orders.decided or len(parts.join.relations) < 3 or parts.join.kind != "inner"
        smallest = None if few else _smallest(parts, numbers.matches)
        if smallest is not None:
            wanted.setdefault(ordered(parts, {}, False).among(smallest[:2]), set()).add(parts.id)
    return tuple(
        _intermediate(edges[0], [join for join in joins if join.id in wanted[edges]]) for edges in sorted(wanted)
    )


def _smallest(parts: JoinParts, matches: Mapping[Edge, float]) -> Edge | None:
    growth = {edge: _growth(edge, matches) for edge in parts.edges}
    small = [(found, edge) for edge, found in growth.items() if found is not None and found <= KEEP_BELOW]
    return min(small)[1] if small else None


def _growth(edge: Edge, matches: Mapping[Edge, float]) -> float | None:
    """The most that a row of either side finds; None where that was not measured."""
    a, b, key = edge
    there, back = matches.get((a, b, key)), matches.get((b, a, key))
    return None if there is None or back is None else max(there, back)


def _intermediate(edge: Edge, joins: Sequence[JoinParts]) -> Intermediate:
    """Its name is that of its oldest query, so that it is the same store when another one is decided for."""
    id_ = "+" + named("m", edge, joins[0].id)
    return Intermediate(id_, (edge[0], edge[1]), _outward(edge, joins), tuple(join.id for join in joins))


def _outward(edge: Edge, joins: Sequence[JoinParts]) -> str:
    """The side that other relations are joined with."""
    for join in joins:
        for a, b, _ in join.edges:
            for name in edge[:2]:
                if (a == name) != (b == name) and {a, b} != set(edge[:2]):
                    return name
    return edge[0]
