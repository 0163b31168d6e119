"""Golden: the ids of 400 queries are those under which running queries have their state.

An id that changes orphans what was kept under it: the query starts again with nothing. So `ids.txt` is not written
anew for a change of names in the code. Where an id has to change, the state needs a migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.golden.recorded_queries import FILE, WORLDS, Recorded, bind_world, load, record

from thalweg.aggregates.one_row import of_one_row
from thalweg.model.canonical import FORMS, canonical, named, write
from thalweg.model.expr import Expr, quote
from thalweg.model.join import joined_name
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.query import Query
from thalweg.optimize.planner import make_plan
from thalweg.optimize.weigh_orders import asked_of

IDS = Path(__file__).parent / "ids" / "ids.txt"
TOGETHER = "together"
"""In place of a query's name: the ids of all queries of the world in one plan."""
Ids = dict[str, dict[str, list[str]]]
"""query -> kind of thing -> ids."""


@pytest.fixture(scope="module")
def worlds(request: pytest.FixtureRequest, bless: bool) -> dict[str, Recorded]:
    if not FILE.exists():
        assert bless, f"{FILE} is missing: run pytest with --bless to record it"
        record(request.getfixturevalue("spark"))
    return load()


@pytest.fixture(scope="module")
def golden(bless: bool, worlds: dict[str, Recorded]) -> dict[str, Ids]:
    if bless:
        IDS.write_text("".join(_written(name, _ids_of_world(world)) for name, world in worlds.items()))
    found: dict[str, Ids] = {}
    for line in IDS.read_text().splitlines():
        world, query, kind, *ids = line.split()
        found.setdefault(world, {}).setdefault(query, {})[kind] = ids
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_ids_stay(worlds: dict[str, Recorded], golden: dict[str, Ids], name: str) -> None:
    changed = _first_change(golden[name], _ids_of_world(worlds[name]))
    if changed is not None:
        query, message = changed
        texts = [q.text for q in worlds[name].queries if q.name == query]
        pytest.fail(f"{name}, {query}: {message}\n{' '.join(texts)}", pytrace=False)


def test_there_are_enough_of_every_kind(worlds: dict[str, Recorded], golden: dict[str, Ids]) -> None:
    assert sum(len(world.queries) for world in worlds.values()) >= 400
    counts: dict[str, set[str]] = {}
    for world in golden.values():
        for query in world.values():
            for kind, ids in query.items():
                counts.setdefault(kind, set()).update(ids)
    least = {"joined": 50, "grouping": 100, "partial": 300, "column": 300, "predicate": 50, "index": 50, "edge": 30}
    least |= {"flag": 50, "asked": 30, "group": 20, "intermediate": 10, "function": 2, "plan": 400}
    assert {kind: len(counts[kind]) >= number for kind, number in least.items()} == dict.fromkeys(least, True)


@pytest.mark.parametrize("name", WORLDS)
def test_joined_streams_keep_their_names(worlds: dict[str, Recorded], name: str) -> None:
    joins = [(query, query.join) for query in worlds[name].queries if query.join is not None]
    assert {q.text: joined_name(join, q.time) for q, join in joins} == {q.text: q.stream for q, _ in joins}


@pytest.mark.slow
def test_ids_stay_whatever_is_renamed(worlds: dict[str, Recorded]) -> None:
    """Every class of a plan and of a join under another name, with other names of fields, in another order."""
    renaming = Renaming()
    for world in worlds.values():
        plan = _plan(world, world.queries, _little_found(_plan(world, world.queries)))
        assert write(renaming.of(plan)) == write(plan)
        for join in (query.join for query in world.queries if query.join is not None):
            parts = (join.equalities, join.bounds, join.tables, *(r.atoms for r in join.relations))
            assert named("x", renaming.of(parts)) == named("x", parts)
    declared = {cls.__name__ for cls in FORMS if cls.__module__.startswith("thalweg.")}
    assert {cls.__name__ for cls in renaming.twins} == declared, "a form that no recorded query needs"


class Renaming:
    def __init__(self) -> None:
        self.twins: dict[type, type] = {}

    def of(self, value: Any) -> Any:
        """The value with every dataclass in it replaced by its twin."""
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self.of(item) for item in value)
        if not is_dataclass(value):
            return value
        twin = self.twins.setdefault(type(value), self._twin(type(value)))
        return twin(**{f"renamed_{f.name}": self.of(getattr(value, f.name)) for f in fields(value)})

    def _twin(self, cls: type) -> type:
        known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
        names = [
            (f"renamed_{name}", Any, field(default=f.default, default_factory=f.default_factory))
            if f.default is MISSING
            else (f"renamed_{name}", Any, f.default)
            for name, f in reversed(known.items())
        ]
        twin = make_dataclass(f"Renamed{cls.__name__}", names, frozen=True, kw_only=True)
        return canonical(re.sub(r"(\w+)(?:=(\w+))?(?=[,?)])", _keep_label, FORMS[cls]))(twin)


def _keep_label(part: re.Match[str]) -> str:
    return f"{part[1]}=renamed_{part[2] or part[1]}"


@pytest.mark.parametrize("name", ["aggregations-1", "joins-1", "by-hand"])
def test_queries_are_bound_as_recorded(spark: SparkSession, worlds: dict[str, Recorded], name: str) -> None:
    """The texts of expressions are part of ids, too: new queries share what running ones keep. What takes values of
    one row is bound otherwise than when these were recorded."""
    world = worlds[name]
    for bound, recorded in zip(bind_world(name, spark).queries, world.queries, strict=True):
        time = recorded.time or world.streams[recorded.streams[0]].time
        aggregates = of_one_row(recorded.aggregates, Expr(quote(time), "timestamp", (time,)))
        assert bound == replace(recorded, aggregates=aggregates), bound.text


def _ids_of_world(world: Recorded) -> Ids:
    """Of each query alone, and of all of them together."""
    found = {query.name: _ids(_plan(world, [query])) for query in world.queries}
    plan = _plan(world, world.queries)
    keeping = _plan(world, world.queries, _little_found(plan))
    found[TOGETHER] = _ids(keeping) | {"plan": [plan.id, keeping.id]}
    return found


def _little_found(plan: Plan) -> JoinLoad:
    """As if joins yielded little: then a plan keeps intermediates."""
    edges = {edge for ordered in plan.joins.ordered.values() for edge in ordered.edges}
    pairs = [pair for a, b, key in edges for pair in ((a, b, key), (b, a, key))]
    return JoinLoad(matches=dict.fromkeys(sorted(pairs), 0.25))


def _plan(world: Recorded, queries: Iterable[Query], joins: JoinLoad | None = None) -> Plan:
    running = [RunningQuery(query.name, query) for query in queries]
    measured = PlanMeasurements(joins=joins or JoinLoad())
    return make_plan(PlanInput(running, world.streams, world.tables, measured, settings=PlanSettings(3)))


def _ids(plan: Plan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, id_ in _every_id(plan):
        ids = found.setdefault(kind, [])
        if id_ not in ids:
            ids.append(id_)
    return found


def _every_id(plan: Plan) -> Iterator[tuple[str, str]]:
    for stream in plan.streams.values():
        yield from (("column", computed.name) for computed in stream.computed)
    for grouping in plan.groupings.values():
        yield "grouping", grouping.id
        for partial in (*grouping.partials, *grouping.partials_for_others):
            yield "partial", partial.name
            if partial.own is not None:
                yield "function", partial.own.id
    for name, joined in plan.joins.joined.items():
        yield "joined", name
        yield from (("flag", flag) for _, flag in joined.flags)
        yield from (("predicate", predicate.id) for _, predicate in joined.alone if predicate is not None)
    for store in plan.joins.stores.values():
        yield from (("predicate", predicate.id) for predicate in store.predicates)
        yield from (("index", index.id) for index in store.indexes)
    for cohort in plan.joins.cohorts.values():
        yield "group", cohort.id
        yield from (("edge", node.edge) for tree in cohort.trees for node in tree.nodes())
        asked = [asked_of(known, found) for known, found in permutations(cohort.roles.values(), 2)]
        yield from (("asked", id_) for id_ in asked if id_)
    yield from (("intermediate", id_) for id_ in plan.joins.intermediates)
    yield "plan", plan.id


def _written(world: str, ids: Ids) -> str:
    lines = [(world, query, kind, *of) for query, kinds in ids.items() for kind, of in sorted(kinds.items())]
    return "".join(" ".join(line) + "\n" for line in lines)


def _first_change(before: Ids, now: Ids) -> tuple[str, str] | None:
    """(query, what changed), None if nothing did."""
    for query in {**before, **now}:
        was, is_ = before.get(query, {}), now.get(query, {})
        for kind in sorted({**was, **is_}, key=_parts_first):
            if was.get(kind) != is_.get(kind):
                return query, f"{kind}: {_first_difference(was.get(kind, []), is_.get(kind, []))}"
    return None


def _parts_first(kind: str) -> tuple[int, str]:
    """A changed part changes what is made of it: it is the part that a reader wants to see."""
    order = ("column", "predicate", "function", "partial", "joined", "flag", "grouping")
    return (order.index(kind) if kind in order else len(order) + (kind == "plan"), kind)


def _first_difference(was: list[str], is_: list[str]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), min(len(was), len(is_)))
    old, new = (ids[at] if at < len(ids) else "nothing" for ids in (was, is_))
    return f"{old} has become {new} (number {at + 1} of {len(was)})"
