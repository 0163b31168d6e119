"""After orders and intermediates, of which trees are made: a cohort's queries become probe trees, one for each
relation, with the probes that decide on rows without a partner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from thalweg.model.canonical import named
from thalweg.model.probe import Cohort, Decision, Intermediate, Role
from thalweg.model.probe_order import OrderedJoin
from thalweg.optimize.draft import CohortOrders, Draft, GrownCohort, JoinParts, again
from thalweg.optimize.order_probes import ordered
from thalweg.optimize.probe_trees import BoundJoin, TreeBuilder, stages


def grow_probe_trees(draft: Draft, last: Draft) -> Draft:
    ready = draft.given.measurements.joins.ready
    grown = {}
    for ids, joins in draft.cohorts.items():
        kept = draft.kept[ids].value
        usable = {m.id: tuple(ready[m.id]) for m in kept if m.id in ready}
        given = joins, draft.roles[ids].value, draft.orders[ids].value, kept, usable
        grown[ids] = again(last.grown.get(ids), _grow, *given)
    return replace(draft, grown=grown)


def _grow(
    joins: tuple[JoinParts, ...],
    roles: Mapping[str, Role],
    orders: CohortOrders,
    kept: tuple[Intermediate, ...],
    ready: Mapping[str, Sequence[str]],
) -> GrownCohort:
    ids = tuple(join.id for join in joins)
    bounds = {join.id: BoundJoin(join.join, join.query.stream, join.edges, join.far) for join in joins}
    builder = TreeBuilder(ids, bounds, orders.orders, kept, ready, _uses(orders.decided, kept))
    trees = builder.trees()
    streams = tuple(tuple(sorted(join.join.streams)) for join in joins)
    roles = {**roles, **{m.id: Role(m.id, m.id, ()) for m in kept}}
    cohort = Cohort(named("group", ids), ids, streams, roles, trees)
    roots = [node for tree in trees for node in tree.children]
    return GrownCohort(
        cohort,
        _noted(joins, orders.decided, builder, kept),
        tuple(decision for join in joins for decision in _decisions(cohort, join, builder)),
        max((int(node.moves) + stages(node) for node in roots), default=1),
    )


def _uses(decided: Mapping[str, OrderedJoin], kept: Sequence[Intermediate]) -> dict[tuple[str, str], list[str]]:
    """(query, start) -> the intermediates in its order."""
    return {
        (id_, start): [m.id for m in kept if tuple(sorted(m.relations)) in order and id_ in m.queries]
        for id_, join in decided.items()
        for start, order in join.orders.items()
    }


def _noted(
    joins: tuple[JoinParts, ...],
    decided: Mapping[str, OrderedJoin],
    builder: TreeBuilder,
    kept: Sequence[Intermediate],
) -> dict[str, OrderedJoin]:
    """What was decided is noted as it was, the orders of others as they are walked in this batch."""
    pairs = {m.id: tuple(sorted(m.relations)) for m in kept}
    found = {}
    for join in joins:
        if join.join.kind == "inner":
            walks = {
                r.name: tuple(pairs.get(token, (token,)) for token in builder.paths[join.id, r.name][1:])
                for r in join.join.relations
            }
            found[join.id] = decided.get(join.id) or ordered(join, walks, False)
    return found


def _decisions(cohort: Cohort, join: JoinParts, builder: TreeBuilder) -> list[Decision]:
    found = []
    for name in join.join.preserved:
        (other,) = (r.name for r in join.join.relations if r.name != name)
        found.append(
            Decision(
                cohort.id,
                join.id,
                join.query.stream,
                builder.decision(join.id, name, other),
                name,
                join.join.relation(name).stream,
                tuple(sorted(join.join.streams)),
                join.far[name, other],
                join.far[other, name],
                join.complete_from,
            )
        )
    return found
