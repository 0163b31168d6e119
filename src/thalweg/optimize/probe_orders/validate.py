"""Checks what join planning is given, and brings it into one form."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence

from thalweg import errors
from thalweg.optimize.probe_orders.model import JoinQuery, Predicate, Statistics

METHODS = ("auto", "ilp", "dp")
AGREE = 1e-9
"""Two selectivities of one predicate, given either way round, may differ by this share."""
MOST = 1e150
"""Larger results are refused: sums of them are to be numbers too."""


def check_queries(queries: Iterable[JoinQuery]) -> tuple[JoinQuery, ...]:
    """The queries with their predicates sorted, each once, or an error that says what is wrong with which."""
    checked: dict[str, JoinQuery] = {}
    for query in queries:
        found = check_query(query)
        if found.name in checked:
            raise errors.bad_join_query(found.name, "there are two queries of this name")
        checked[found.name] = found
    return tuple(checked.values())


def check_query(query: JoinQuery) -> JoinQuery:
    if not isinstance(query, JoinQuery):
        raise errors.bad_join_query(query, "it is no JoinQuery")
    relations = tuple(query.relations)
    if isinstance(query.relations, str) or not all(isinstance(name, str) for name in relations):
        raise errors.bad_join_query(query.name, "its relations are no names")
    if not relations:
        raise errors.bad_join_query(query.name, "it has no relation")
    if len(set(relations)) < len(relations):
        twice = next(name for name in relations if relations.count(name) > 1)
        reason = f"it has relation {twice!r} twice"
        raise errors.bad_join_query(query.name, reason, "give the stream a name of its own in each place")
    predicates = {_predicate(query.name, relations, given): None for given in query.predicates}
    checked = JoinQuery(query.name, relations, tuple(sorted(predicates)))
    _check_connected(checked)
    return checked


def check_order(order: Sequence[str], queries: Iterable[JoinQuery]) -> tuple[str, ...]:
    """An order of relations that has each of the queries' once."""
    named = tuple(order)
    missing = sorted({name for query in queries for name in query.relations} - {*named})
    if missing or len({*named}) < len(named):
        reason = f"{missing[0]!r} is not in it" if missing else "it has a relation twice"
        raise errors.bad_join_query("order", f"the order of relations is not one: {reason}")
    return named


def relation_of(attribute: str, relations: Collection[str]) -> str | None:
    """The relation whose attribute it is; of two, the longer name, so that names may have dots."""
    name = attribute.rpartition(".")[0]
    while name and name not in relations:
        name = name.rpartition(".")[0]
    return name or None


def _predicate(query: str, relations: tuple[str, ...], given: object) -> Predicate:
    if not (isinstance(given, Sequence) and len(given) == 2 and all(isinstance(side, str) for side in given)):
        raise errors.bad_join_query(query, f"{given!r} is no predicate", 'a predicate is ("R.a", "S.a")')
    sides = str(given[0]), str(given[1])
    owners = [relation_of(side, relations) for side in sides]
    for side, owner in zip(sides, owners, strict=True):
        if owner is None:
            reason = f"{side} in its predicates is an attribute of none of its relations"
            raise errors.bad_join_query(query, reason, f"its relations are {', '.join(relations)}")
    if owners[0] == owners[1]:
        reason = f"{sides[0]} = {sides[1]} compares a relation with itself"
        raise errors.bad_join_query(query, reason, "filter the stream before the join")
    return (sides[0], sides[1]) if sides[0] <= sides[1] else (sides[1], sides[0])


def _check_connected(query: JoinQuery) -> None:
    near: dict[str, set[str]] = {name: set() for name in query.relations}
    for first, second in query.predicates:
        one, other = relation_of(first, query.relations), relation_of(second, query.relations)
        if one is not None and other is not None:
            near[one].add(other)
            near[other].add(one)
    parts: list[list[str]] = []
    left = dict.fromkeys(query.relations)
    while left:
        part = [next(iter(left))]
        for name in part:
            part += [other for other in sorted(near[name]) if other not in part]
        parts.append([name for name in query.relations if name in part])
        left = {name: None for name in left if name not in part}
    if len(parts) > 1:
        raise errors.disconnected_join(query.name, [", ".join(part) for part in parts])


def check_statistics(statistics: Statistics, queries: Sequence[JoinQuery]) -> Statistics:
    """The statistics that the queries need, every predicate the way round that the queries have it."""
    check_number("parallelism", statistics.parallelism, 1.0)
    check_number("storing", statistics.storing, 0.0)
    known = _selectivities(statistics.selectivity)
    rates: dict[str, float] = {}
    selectivity: dict[Predicate, float] = {}
    for query in queries:
        for relation in query.relations:
            if relation not in statistics.rates:
                raise errors.missing_rate(query.name, relation)
            check_number(f"the rate of {relation}", statistics.rates[relation], 0.0)
            rates[relation] = float(statistics.rates[relation])
        for predicate in query.predicates:
            if predicate not in known:
                raise errors.missing_selectivity(query.name, predicate)
            selectivity[predicate] = known[predicate]
        largest = math.prod(max(rates[name], 1.0) for name in query.relations)
        largest *= math.prod(max(selectivity[predicate], 1.0) for predicate in query.predicates)
        if not largest < MOST:
            raise errors.bad_join_query(query.name, "its rates are too large to be multiplied")
    return Statistics(rates, selectivity, float(statistics.parallelism), float(statistics.storing))


def _selectivities(given: Mapping[Predicate, float]) -> dict[Predicate, float]:
    known: dict[Predicate, float] = {}
    for predicate, share in given.items():
        if not (isinstance(predicate, tuple) and len(predicate) == 2):
            raise errors.bad_join_planning("a key of selectivity", predicate, 'a predicate like ("R.a", "S.a")')
        check_number(f"the selectivity of {predicate[0]} = {predicate[1]}", share, 0.0)
        key = predicate if predicate[0] <= predicate[1] else (predicate[1], predicate[0])
        before = known.setdefault(key, float(share))
        if abs(before - float(share)) > AGREE * max(before, float(share)):
            raise errors.bad_join_planning(
                f"the selectivity of {key[0]} = {key[1]}", (before, share), "the same either way round"
            )
    return known


def check_number(name: str, value: object, least: float) -> None:
    if not isinstance(value, numbers.Real) or not least <= float(value) < math.inf:
        raise errors.bad_join_planning(name, value, f"a number of {least:g} or more")


def check_method(method: object) -> None:
    if method not in METHODS:
        raise errors.bad_join_planning("method", method, " or ".join(repr(name) for name in METHODS))
