"""What the queries cost apart, each planned by itself: the measure of what sharing saves."""

from __future__ import annotations

from math import fsum
from typing import Any

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.cascade import solve_space
from thalweg.optimize.probe_orders.model import JoinQuery, Statistics
from thalweg.optimize.probe_orders.space import Space
from thalweg.optimize.probe_orders.validate import relation_of

SECONDS = 10.0
"""How long all of them may take. Up to then each is solved to the optimum."""

Shape = Any
"""Nested tuples of numbers and strings. Queries of equal shape differ in names only."""


def cost_separately(queries: tuple[JoinQuery, ...], stats: Statistics, materialize: bool | int) -> float:
    """The sum of the costs of each query planned by itself. Queries that differ in names only are planned once."""
    shapes = [shape_of(query, stats) for query in queries]
    costs: dict[Shape, float] = {}
    deadline = Deadline.after(SECONDS)
    for query, shape in zip(queries, shapes, strict=True):
        if shape not in costs:
            space = Space((query,), stats, materialize)
            left = len(queries) - len(costs)
            costs[shape] = solve_space(space, "auto", deadline.share(2.0 / (left + 1)))[0].total()
    return fsum(costs[shape] for shape in shapes)


def shape_of(query: JoinQuery, stats: Statistics) -> Shape:
    """Equal for queries that differ in names only; those with cycles have their names in it.

    Relations, attributes and predicates are the nodes of a graph. If that is a tree, it is written as nested sorted
    tuples (the tree isomorphism of Aho, Hopcroft and Ullman), the least of those with a relation as the root.
    """
    near: dict[str, list[str]] = {name: [] for name in query.relations}
    labels: dict[str, float | str] = {name: stats.rates[name] for name in query.relations}
    for i, predicate in enumerate(query.predicates):
        node = f"predicate {i}"
        labels[node] = stats.selectivity[predicate]
        for side in predicate:
            relation = relation_of(side, query.relations) or ""
            attribute = f"attribute {side}"
            if attribute not in near:
                labels[attribute] = ""
                near[attribute] = [relation]
                near[relation].append(attribute)
            near[attribute].append(node)
            near.setdefault(node, []).append(attribute)
    if sum(len(others) for others in near.values()) != 2 * (len(near) - 1):
        return query.relations, query.predicates

    def told(node: str, above: str) -> Shape:
        below = sorted((told(other, node) for other in near[node] if other != above), key=repr)
        return labels[node], tuple(below)

    return min((told(name, "") for name in query.relations), key=repr)
