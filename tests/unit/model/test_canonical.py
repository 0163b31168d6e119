"""Unit: what ids are made of is what was declared, whatever classes and fields are called."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

from thalweg.errors import InternalError
from thalweg.model.canonical import canonical, named, write
from thalweg.model.expr import Expr
from thalweg.model.join import Atom
from thalweg.model.window import Window


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    IT = "it's"


class Pair(NamedTuple):
    a: int
    b: int


@dataclass(frozen=True)
class Undeclared:
    a: int


@canonical("Expr(sql, type=spark_type, columns=reads, fails=can_fail)")
@dataclass(frozen=True)
class Expression:
    """`Expr` with another name, other names of fields, in another order."""

    spark_type: str
    sql: str
    can_fail: bool = False
    reads: tuple[str, ...] = ()


@canonical("Window(range_us, slide_us=step_us, start_us, zone?, shifts=moves?)")
@dataclass(frozen=True)
class LaterWindow:
    """`Window` with fields that came later."""

    range_us: int
    step_us: int
    start_us: int = 0
    zone: str | None = None
    moves: tuple[int, ...] = field(default_factory=tuple)


PLAIN: list[Any] = [
    *("", "it's", 'a "b"', "both ' and \"", "né\n\t\\\x00", "\ud800", "日本"),
    *(0, -1, 2**70, True, False, None, 0.1, -0.0, 1e300, float("inf"), float("nan"), b"", b"\x00'"),
    *((), (1,), ((),), (1, "a"), (("a",), ("b", (None,))), [], [1], [("a", 1)], {}, {"a": (1,), ("b",): [2]}),
]


@pytest.mark.parametrize("value", PLAIN, ids=ascii)
def test_plain_values_are_written_as_the_language_does(value: Any) -> None:
    assert write(value) == repr(value)
    assert write((value, Window(1, 2))) == f"({value!r}, Window(range_us=1, slide_us=2, start_us=0))"


def test_equal_values_of_other_types_have_other_ids() -> None:
    ids = [named("p", (Atom("x", "=", value),)) for value in (1, 1.0, True)]
    assert len(set(ids)) == 3
    assert named("p", 0.0) != named("p", -0.0)


@pytest.mark.parametrize(("value", "text"), [(Number.ONE, "1"), (Word.IT, '"it\'s"'), (np.float64(0.25), "0.25")])
def test_a_subclass_is_written_as_what_it_is(value: object, text: str) -> None:
    assert write(value) == text
    assert write((value, "x")) == f"({text}, 'x')"


@pytest.mark.parametrize(
    "value",
    [Undeclared(1), {1}, frozenset({1}), object(), np.int64(1), Pair(1, 2), OrderedDict(), Undeclared, bytearray()],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_form_is_refused_by_name(value: object) -> None:
    for holder in (value, (1, value), [value], {"a": value}, Expr("a", "int", (value,))):  # type: ignore[arg-type]
        with pytest.raises(InternalError, match=rf"no id can be made from .*{type(value).__name__}") as refused:
            named("x", holder)
        assert "@canonical" in str(refused.value)


def test_renaming_changes_no_id() -> None:
    before, after = Expr('"a" + 1', "bigint", ("a",), True), Expression("bigint", '"a" + 1', True, ("a",))
    assert write(after) == write(before) == """Expr(sql='"a" + 1', type='bigint', columns=('a',), fails=True)"""
    assert named("c", after) == named("c", before)


def test_a_field_that_came_later_changes_no_id_at_its_default() -> None:
    assert write(LaterWindow(5, 2, 1)) == write(Window(5, 2, 1))
    assert write(LaterWindow(5, 2, zone="UTC")) == "Window(range_us=5, slide_us=2, start_us=0, zone='UTC')"
    assert write(LaterWindow(5, 2, moves=(1,))) == "Window(range_us=5, slide_us=2, start_us=0, shifts=(1,))"


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("Undeclared(b)", "each field of Undeclared once: a"),
        ("Undeclared(a, b)", "each field of Undeclared once: a"),
        ("Undeclared(a, b=a)", "each field of Undeclared once: a"),
        ("Undeclared(a?)", "a came later and has no default"),
        ("Undeclared(a", "not a form"),
        ("Undeclared(a=)", "not a form"),
        ("Undeclared(a,b)", "not a form"),
    ],
)
def test_a_form_has_each_field_once(form: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        canonical(form)(Undeclared)
