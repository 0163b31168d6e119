"""After cohorts, because orders are shared within one; before intermediates, because a decided order says which it
wants: in which order an arriving row of each relation looks for partners.

Orders that were decided stand. New queries beside such are attached to them, as far as their streams have been
measured. All others have the default order of what was measured so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thalweg.errors import ThalwegError
from thalweg.model.join_statistics import Estimate, PredicateSample
from thalweg.model.probe import Predicate, Role, Want
from thalweg.model.probe_order import Edge, OrderedJoin, OrdersByStart
from thalweg.optimize.default_probe_orders import Shape, Sizes, choose_orders
from thalweg.optimize.draft import CohortNumbers, CohortOrders, Draft, JoinParts, again
from thalweg.optimize.weigh_orders import attached, partners, rows_of, statistics_of

MOST_ATTACHED = 8
"""Queries of a cohort that are attached in one batch: each takes some 5 to 40 ms in a cohort of 64. Others wait."""


def order_probes(draft: Draft, last: Draft) -> Draft:
    load = draft.given.measurements.joins
    roles, numbers, orders = {}, {}, {}
    for ids, joins in draft.cohorts.items():
        decided = {id_: load.orders[id_] for id_ in ids if id_ in load.orders}
        roles[ids] = again(last.roles.get(ids), roles_of, joins)
        measured = load.estimates, load.samples, load.matches
        numbers[ids] = again(last.numbers.get(ids), _numbers, joins, roles[ids].value, *measured)
        orders[ids] = again(last.orders.get(ids), _orders, joins, numbers[ids].value, decided)
    return replace(draft, roles=roles, numbers=numbers, orders=orders)


def roles_of(joins: tuple[JoinParts, ...]) -> dict[str, Role]:
    """What a cohort asks of each relation, in the order of the relations."""
    names = sorted({(r.name, r.stream) for join in joins for r in join.join.relations})
    return {name: _role(name, stream, joins) for name, stream in names}


def _role(name: str, stream: str, joins: tuple[JoinParts, ...]) -> Role:
    predicates: dict[str, Predicate | None] = {"": None}
    asking: dict[tuple[str, tuple[str, ...]], int] = {}
    """(predicate, columns) -> the queries that ask this."""
    for bit, join in enumerate(joins):
        if name in join.predicates:
            predicate = join.predicates[name]
            columns = tuple(sorted(join.columns[name] | keys_of(join, name)))
            asked = ("" if predicate is None else predicate.id, columns)
            predicates[asked[0]] = predicate
            asking[asked] = asking.get(asked, 0) | 1 << bit
    wants = (Want(queries, predicates[id_], columns) for (id_, columns), queries in asking.items())
    return Role(name, stream, tuple(wants))


def keys_of(join: JoinParts, name: str) -> set[str]:
    """The relation's columns that are equal to others'."""
    found: set[str] = set()
    for edge, (left, right) in join.edges.items():
        found.update(left if edge[0] == name else right if edge[1] == name else ())
    return found


def _numbers(
    joins: tuple[JoinParts, ...],
    roles: Mapping[str, Role],
    estimates: Mapping[str, Estimate],
    samples: Mapping[str, PredicateSample],
    matches: Mapping[Edge, float],
) -> CohortNumbers:
    edges = sorted({edge for join in walked(joins) for edge in join.edges})
    found = partners(edges, roles, estimates, samples)
    both = [pair for a, b, key in edges for pair in ((a, b, key), (b, a, key))]
    recent = {pair: matches[pair] for pair in both if pair in matches}
    return CohortNumbers(rows_of(roles.values(), estimates, samples), found, {**recent, **found})


def _orders(
    joins: tuple[JoinParts, ...], numbers: CohortNumbers, orders: Mapping[str, OrdersByStart]
) -> CohortOrders:
    """`orders`: those that were decided, by query."""
    decided = _decided(joins, numbers, orders)
    rest = [join for join in walked(joins) if join.id not in decided]
    shapes = [Shape(j.id, tuple(r.name for r in j.join.relations), frozenset(j.edges)) for j in rest]
    found = choose_orders(shapes, Sizes({}, numbers.matches))
    for id_, join in decided.items():
        found |= {(id_, start): join.flat(start, order) for start, order in join.orders.items()}
    return CohortOrders(decided, found)


def walked(joins: tuple[JoinParts, ...]) -> list[JoinParts]:
    """Those whose tuples come from probe trees. Semi and anti joins only ask whether there is a partner."""
    return [join for join in joins if join.join.kind in ("inner", "outer")]


def ordered(join: JoinParts, orders: OrdersByStart, decided: bool) -> OrderedJoin:
    relations = tuple(sorted(r.name for r in join.join.relations))
    return OrderedJoin(relations, tuple(sorted(join.edges)), orders, decided)


def _decided(
    joins: tuple[JoinParts, ...], numbers: CohortNumbers, orders: Mapping[str, OrdersByStart]
) -> dict[str, OrderedJoin]:
    """The queries of a cohort whose orders were decided, and new ones attached to them."""
    found, new = {}, {}
    for join in joins:
        if join.join.kind == "inner":
            of = ordered(join, orders.get(join.id, {}), True)
            if set(of.orders) == set(of.relations) and all(of.admits(*o) for o in of.orders.items()):
                found[join.id] = of
            else:
                new[join.id] = replace(of, orders={})
    return found | _attached(found, new, numbers)


def _attached(
    running: Mapping[str, OrderedJoin], new: Mapping[str, OrderedJoin], numbers: CohortNumbers
) -> dict[str, OrderedJoin]:
    """New queries with orders beside those that run, as far as their streams have been measured."""
    measured = [id_ for id_, of in new.items() if numbers.rows.keys() >= {*of.relations}]
    known = {id_: new[id_] for id_ in measured[:MOST_ATTACHED]}
    if not running or not known:
        return {}
    stats = statistics_of([*running.values(), *known.values()], numbers.rows, numbers.partners)
    try:
        chosen = {} if stats is None else attached(running, known, stats)
    except ThalwegError:  # numbers that the optimiser refuses: the order is then what it is without a decision
        return {}
    return {id_: replace(known[id_], orders=orders) for id_, orders in chosen.items()}
