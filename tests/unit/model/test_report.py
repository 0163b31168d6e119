"""Unit: what tasks tell comes to the driver as it was told, whatever it is; and nothing else passes for it."""

from __future__ import annotations

import collections.abc
import dataclasses
import random
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from thalweg.model.failure import OfColumn, OfPartial, OfQuery, failed_columns
from thalweg.model.message import decode, encode
from thalweg.model.report import IngestReport, SlotReport
from thalweg.partition import create
from thalweg.partition.cooperative import Learned
from thalweg.partition.dalton import Dalton


def draw(kind: Any, rng: random.Random) -> Any:
    """Some value of a type as reports have them."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return rng.choice([None, 1, "text", [1, 2], {"a": 1.5}])
    if origin in (types.UnionType, typing.Union):
        return draw(rng.choice(of), rng)
    if origin in (dict, collections.abc.Mapping):
        return {draw(of[0], rng): draw(of[1], rng) for _ in range(rng.randrange(3))}
    if origin is tuple and of[-1] is not ...:
        return tuple(draw(one, rng) for one in of)
    if origin in (list, tuple):
        return origin(draw(of[0], rng) for _ in range(rng.randrange(3)))
    if kind in PLAIN:
        return PLAIN[kind](rng)
    hints = typing.get_type_hints(kind)
    return kind(**{name: draw(hints[name], rng) for name in hints if not name.startswith("_")})


PLAIN: dict[Any, Callable[[random.Random], Any]] = {
    int: lambda rng: rng.choice([0, 1, -1, 2**63 - 1, -(2**63), 2**64 - 1]),
    float: lambda rng: rng.choice([0.0, -1.5, 1e300]),
    bool: lambda rng: rng.random() < 0.5,
    str: lambda rng: rng.choice(["", "q@1", "a|b/c", "s(k)", "\u00e9"]),
    bytes: lambda rng: rng.randbytes(rng.randrange(20)),
    types.NoneType: lambda rng: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [IngestReport, SlotReport])
def test_reports_come_as_they_were(kind: type[Any]) -> None:
    for seed in range(200):
        report = draw(kind, random.Random(seed))
        assert decode(encode(report), kind) == report


def test_what_is_something_else_is_refused() -> None:
    for value in ({"task": 1}, ["one"], [1, {"s": "many"}], [1, {}, {}, {}, {}, {}, {}, {}, {"?": 1}]):
        with pytest.raises(msgspec.ValidationError):
            decode(encode(value), IngestReport)


@pytest.mark.slow
def test_what_a_partitioner_has_learned() -> None:
    dalton = create("dalton", 4, cooperative=True, member=1)
    assert isinstance(dalton, Dalton)
    dalton.assign(np.random.default_rng(1).zipf(1.3, 50_000).astype(np.int64))
    told = dalton.export()
    found = Learned.from_bytes(told.to_bytes())
    for one, other in zip(_arrays(told), _arrays(found), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert len(told.keys)


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    found: list[np.ndarray[Any, Any]] = []
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        found += _arrays(part) if dataclasses.is_dataclass(part) else [np.asarray(part)]
    return found


def test_the_failed_columns_of_a_stream() -> None:
    failures = {OfColumn("s", "a"): "x", OfColumn("t", "b"): "x", OfPartial("s", "c"): "x", OfQuery("s"): "x"}
    assert failed_columns(failures, "s") == {"a"}
