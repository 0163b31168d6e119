"""What a store keeps of a row so that it can be told which predicates the row satisfies."""

from __future__ import annotations

import pytest

from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Equality, Join, KeyPart, Relation, TimeBound, joined_column
from thalweg.model.plan_input import PlanInput, PlanSettings, RunningQuery
from thalweg.model.probe import Store
from thalweg.model.query import Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.optimize.planner import make_plan

TYPES = {"ts": "timestamp", "k": "int", "v": "int", "w": "double"}
SCHEMA = Schema(tuple(Field(name, type_) for name, type_ in TYPES.items()))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "rs"}


def column(name: str) -> Expr:
    return Expr(quote(name), "int", (name,))


def join(number: int, column_asked: str, selects: str = "k", where: Expr | None = None) -> RunningQuery:
    value = float(number) if column_asked == "w" else number
    asked = Relation("r", "r", (Atom(column_asked, "<", value),), where)
    equality = Equality(KeyPart("r", column("k")), KeyPart("s", column("k")))
    outputs = (Output("x", column(joined_column("r", selects))),)
    of = Join((asked, Relation("s", "s")), (equality,), (TimeBound("r", "s", -1, 1),))
    return RunningQuery(f"q{number}", Query(f"q{number}", "", "j", outputs, join=of))


def store_of_r(*queries: RunningQuery) -> Store:
    return make_plan(PlanInput(queries, STREAMS, settings=PlanSettings(2))).joins.stores["r"]


@pytest.mark.parametrize(("asked", "enough"), [("v", 32), ("w", 64)])
def test_a_column_is_kept_for_predicates_once_their_bits_would_take_as_much(asked: str, enough: int) -> None:
    few = store_of_r(*(join(i, asked) for i in range(enough - 1)))
    assert asked not in few.columns
    assert few.marked == few.predicates
    many = store_of_r(*(join(i, asked) for i in range(enough)))
    assert asked in many.columns
    assert many.marked == ()
    assert len(many.predicates) == enough


def test_what_a_kept_column_tells_needs_no_bit() -> None:
    store = store_of_r(join(1, "v", selects="v"), join(2, "k"))
    assert len(store.predicates) == 2
    assert store.marked == ()


def test_an_expression_keeps_its_bit() -> None:
    where = Expr('("v" % 2 = 1)', "boolean", ("v",))
    store = store_of_r(join(1, "k"), join(2, "k", where=where))
    assert [len(predicate.computed) for predicate in store.marked] == [1]
