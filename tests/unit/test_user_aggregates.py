"""Unit: users' own aggregates are checked when they are defined, and queries keep the definition they began with."""

from __future__ import annotations

import datetime
import math
import threading
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import thalweg
from thalweg import user_aggregates
from thalweg.errors import ThalwegError
from thalweg.model.own import OWN, Own
from thalweg.model.query import Aggregate, Query, query_from_json
from thalweg.user_aggregates import InUse, aggregate


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(user_aggregates, "_defined", {})


def define(name: Any = "mine", value: Any = 0.0, **options: Any) -> None:
    aggregate(name, lambda: value, lambda s, b: s, lambda a, b: a, lambda s: s, **options)


def query(version: str, type_: str = "double") -> Query:
    call = Aggregate(OWN, (), type_, own=Own("mine", ("x",), version))
    return Query("q", "SELECT", "s", (), aggregates=(call,))


@pytest.mark.parametrize("name", ["", "a b", "1st", None, 7, "my.mean", "ä"])
def test_a_name_is_an_identifier(name: Any) -> None:
    with pytest.raises(ThalwegError, match="letters, digits and _"):
        define(name)


@pytest.mark.parametrize("name", ["sum", "SUM", "upper", "window", "cast", "select", "filter", "median", "date"])
def test_a_name_that_sql_knows_is_refused(name: str) -> None:
    with pytest.raises(ThalwegError, match="meaning in SQL already"):
        define(name)


def test_each_function_must_be_one() -> None:
    with pytest.raises(ThalwegError, match="merge is 3, not a function"):
        aggregate("mine", lambda: 0, lambda s, b: s, 3, lambda s: s)  # type: ignore[arg-type]
    assert InUse().offered() == {}


def test_functions_that_cannot_travel_are_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(ThalwegError, match="cannot be sent to workers"):
        aggregate("mine", lambda: 0, lambda s, b: lock.locked(), lambda a, b: a, lambda s: s)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (0, "bigint"),
        (0.0, "double"),
        (True, "boolean"),
        ("", "string"),
        (b"", "binary"),
        (datetime.date(2024, 1, 1), "date"),
        (datetime.datetime(2024, 1, 1), "timestamp_ntz"),
        (datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "timestamp"),
        (pa.scalar(1, pa.int32()), "int"),
        (pa.scalar(Decimal("1.50"), pa.decimal128(10, 2)), "decimal(10,2)"),
        (pa.scalar(None, pa.string()), "string"),
        ([1, 2], "array<bigint>"),
        ([["a"]], "array<array<string>>"),
    ],
)
def test_the_type_is_that_of_no_rows(value: Any, type_: str) -> None:
    define(value=value)
    assert InUse().offered()["mine"].type == type_


@pytest.mark.parametrize("value", [None, pa.scalar(None), [], [None], Decimal("1.5"), object(), {"a": 1}])
def test_a_type_that_cannot_be_told_is_asked_for(value: Any) -> None:
    with pytest.raises(ThalwegError, match="does not say what type it gives") as caught:
        define(value=value)
    assert "returns='double'" in str(caught.value)


def test_a_finish_that_fails_without_rows_is_asked_for_its_type() -> None:
    with pytest.raises(ThalwegError, match="ZeroDivisionError"):
        aggregate("mine", lambda: 0, lambda s, b: s, lambda a, b: a, lambda s: 1 / s)
    aggregate("mine", lambda: 0, lambda s, b: s, lambda a, b: a, lambda s: 1 / s, returns="double")


@pytest.mark.parametrize(
    ("returns", "type_"),
    [
        ("double", "double"),
        (" DECIMAL(10, 2)", "decimal(10,2)"),
        ("varchar(5)", "string"),
        ("Array<Array<bigint>>", "array<array<bigint>>"),
        ("array< int >", "array<int>"),
    ],
)
def test_a_type_may_be_named(returns: str, type_: str) -> None:
    define(value=None, returns=returns)
    assert InUse().offered()["mine"].type == type_


@pytest.mark.parametrize("returns", ["", "number", "array<>", "array<int", "double double", "map<int,int>", 5])
def test_a_type_that_is_none_is_refused(returns: Any) -> None:
    with pytest.raises(ThalwegError, match="the aggregate 'mine' cannot be defined: returns"):
        define(returns=returns)


@dataclass
class Sum:
    total: float = 0.0


def define_class(**options: Any) -> None:
    aggregate("mine", Sum, lambda s, b: s, lambda a, b: a, lambda s: s.total, **options)


def test_a_state_of_a_class_is_refused_without_encode_and_decode() -> None:
    for options in ({}, {"returns": "double"}):
        with pytest.raises(
            ThalwegError, match=r"aggregate mine: its state holds .*\.Sum, which cannot be kept"
        ) as caught:
            define_class(**options)
        assert "give encode= and decode=" in str(caught.value)
    assert InUse().offered() == {}
    define_class(encode=lambda s: s.total, decode=Sum)
    assert InUse().offered()["mine"].type == "double"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encode": lambda s: s.total}, "encode and decode belong together"),
        ({"decode": Sum}, "encode and decode belong together"),
        ({"encode": 3, "decode": Sum}, "encode is 3, not a function"),
        ({"encode": lambda s: s, "decode": lambda v: v}, "its state holds a value of"),
        ({"encode": lambda s: s.nothing, "decode": Sum}, "AttributeError"),
        ({"encode": lambda s: s.total, "decode": lambda v: v.total}, "AttributeError"),
    ],
)
def test_encode_and_decode_are_tried(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ThalwegError, match=said):
        define_class(**options)


def test_an_init_that_fails_here_may_work_on_workers() -> None:
    aggregate("mine", lambda: 1 / 0, lambda s, b: s, lambda a, b: a, lambda s: s, returns="double")


def test_the_version_of_the_same_code_stays() -> None:
    """Queries of one version share their states, also with those that an earlier release created."""
    aggregate("mine", float, math.fsum, max, float)
    assert InUse().offered()["mine"].version == "3daa47f6e70c58ef"
    aggregate("mine", float, math.fsum, max, float, encode=float, decode=float)
    assert InUse().offered()["mine"].version != "3daa47f6e70c58ef"


def test_names_have_no_case_and_can_be_defined_again() -> None:
    define("Mine", 0.0)
    first = InUse().offered()
    define("mine", 1.0)
    second = InUse().offered()
    assert set(first) == set(second) == {"mine"}
    assert first["mine"].version != second["mine"].version


def test_a_query_keeps_the_definition_it_began_with() -> None:
    session = InUse()
    define(value=0.0)
    old = session.offered()["mine"]
    session.take(query(old.version), session.offered())
    define(value=1.0)
    new = session.offered()["mine"]
    session.take(query(new.version), session.offered())
    assert session.code([query(old.version), query(new.version)]) == {old.version: old.code, new.version: new.code}


def test_after_a_restart_a_query_goes_on_with_what_is_defined_now() -> None:
    define(value=0.0)
    old = InUse().offered()["mine"]
    define(value=1.0)
    session = InUse()
    session.take(query(old.version), session.offered())
    assert session.code([query(old.version)]) == {old.version: session.offered()["mine"].code}
    define(value=0.0)
    again = session.offered()["mine"]
    assert again.version != old.version, "in this session the old version stands for other code"
    assert again.code == old.code


def test_a_query_that_nobody_took_up_is_taken_up_by_the_batch_that_runs_it() -> None:
    with pytest.raises(ThalwegError, match="query 'q' uses the aggregate 'mine'"):
        InUse().code([query("v")])
    define(value=0.0)
    assert InUse().code([query("v")]) == {"v": InUse().offered()["mine"].code}


def test_a_missing_definition_names_query_and_aggregate() -> None:
    with pytest.raises(ThalwegError, match="query 'q' uses the aggregate 'mine'") as caught:
        InUse().take(query("v"), {})
    assert "thalweg.aggregate('mine', ...) first" in str(caught.value)


def test_another_type_than_before_is_refused() -> None:
    define(value="")
    with pytest.raises(ThalwegError, match="type double, which is now string"):
        InUse().take(query("v"), InUse().offered())


def test_a_query_is_the_same_whichever_version_it_was_created_with() -> None:
    first, second = query("v1"), query("v2")
    assert first == second
    assert query_from_json(msgspec.to_builtins(first)).aggregates[0].own == Own("mine", ("x",), "v1")
    assert query_from_json(msgspec.to_builtins(first)).aggregates[0].own.version == "v1"  # type: ignore[union-attr]
    older = msgspec.to_builtins(replace(first, aggregates=(Aggregate("count_all", (), "bigint"),)))
    del older["aggregates"][0]["own"]
    assert query_from_json(older).aggregates[0].own is None


def test_it_is_public() -> None:
    assert thalweg.aggregate is aggregate
    assert thalweg.clustering.define is not None
