"""Rows become keys: equal rows equal keys, whatever the layout, null a key of its own; names are checked."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg import ThalwegError
from thalweg.partition import create, keys_of, names

NULL = -3335678366873096957


def test_whole_numbers_are_their_own_keys() -> None:
    assert keys_of([pa.array([5, -7, 2**62])]).tolist() == [5, -7, 2**62]
    assert keys_of([np.array([5, -7], np.int8)]).tolist() == [5, -7]
    assert keys_of([np.array([1, 2**64 - 1], np.uint64)]).tolist() == [1, -1]
    assert keys_of([pa.array([True, False])]).tolist() == [1, 0]
    assert keys_of([np.array([True, False])]).tolist() == [1, 0]
    assert keys_of([pa.array([dt.date(1970, 1, 3)])]).tolist() == [2]
    instants = pa.array([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us"))
    assert keys_of([instants]).tolist() == [1_000_000]
    assert keys_of([instants.cast(pa.timestamp("us", "UTC"))]).tolist() == [1_000_000]
    assert keys_of([np.array(["1970-01-01T00:00:01", "NaT"], "M8[us]")]).tolist() == [1_000_000, NULL]
    assert keys_of([pa.array([1, 2], pa.duration("s"))]).tolist() == [1, 2]
    assert keys_of([pa.array([1, None, 1], pa.int32()).dictionary_encode()]).tolist() == [1, NULL, 1]


def test_plain_numbers_are_not_copied() -> None:
    numbers = np.arange(1000)
    assert np.shares_memory(keys_of([numbers]), numbers)
    assert keys_of([numbers]).tolist() == numbers.tolist()


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "int": (pa.int64(), [0, 1, -1, 2**63 - 1]),
    "string": (pa.string(), ["", "a", "b", "ab", "12345678", "123456789", "12345678\0", "\0", "ü" * 20]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"\0" * 8, b"\0" * 16]),
    "double": (pa.float64(), [0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-300]),
    "float": (pa.float32(), [0.0, 1.5, math.nan]),
    "decimal": (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal(10) ** 30]),
    "wide decimal": (pa.decimal256(60, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal(10) ** 50]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [dt.date(2020, 1, 1), dt.date(1960, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.string()}), [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_equal_keys_and_null_is_one_more(kind: str) -> None:
    arrow_type, distinct = KINDS[kind]
    values = [*distinct, None]
    rng = np.random.default_rng(1)
    places = rng.integers(0, len(values), 200)
    column = pa.array([values[place] for place in places], arrow_type)
    keys = keys_of([column])
    first = {place: keys[np.flatnonzero(places == place)[0]] for place in set(places.tolist())}
    assert [first[place] for place in places.tolist()] == keys.tolist()
    assert len(set(first.values())) == len(values)
    twice = keys_of([column, column])
    assert len(set(twice.tolist())) == len(values)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "struct"])
def test_layout_does_not_matter(kind: str) -> None:
    arrow_type, distinct = KINDS[kind]
    values = [None, *distinct, *distinct, None]
    whole = pa.array(values, arrow_type)
    keys = keys_of([whole]).tolist()
    assert keys_of([pa.chunked_array([whole[:2], whole[2:2], whole[2:]])]).tolist() == keys
    assert keys_of([pa.concat_arrays([whole, whole])[len(whole) :]]).tolist() == keys
    assert keys_of([whole[3:]]).tolist() == keys[3:]
    assert keys_of([pa.chunked_array([], arrow_type)]).tolist() == []
    assert keys_of([whole[:0]]).tolist() == []
    if kind not in ("double", "float"):  # Arrow's dictionaries tell NaNs apart no better than we do, but not zeros
        assert keys_of([whole.dictionary_encode()]).tolist() == keys


def test_kinds_of_strings_agree() -> None:
    values = ["a", None, "bc", "long enough not to be kept in place"]
    keys = keys_of([pa.array(values)]).tolist()
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        assert keys_of([pa.array(values).cast(kind)]).tolist() == keys
    assert keys_of([np.array(values, object)]).tolist() == keys
    assert keys_of([values]).tolist() == keys
    assert keys_of([pa.array([b"ab", b"cd"], pa.binary(2))]).tolist() == keys_of([["ab", "cd"]]).tolist()


def test_zeros_and_nans_are_one_group_each() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    keys = keys_of([np.concatenate([[0.0, -0.0], nans])])
    assert keys[0] == keys[1] != keys[2]
    assert len(set(keys[2:].tolist())) == 1
    assert keys_of([np.array([1.5, math.nan], np.float32)]).tolist() == keys_of([np.array([1.5, math.nan])]).tolist()


def test_several_columns_are_told_apart_by_place_and_null() -> None:
    left, right = pa.array([1, 2, 1, None, 1, None]), pa.array([2, 1, 2, 1, None, None])
    keys = keys_of([left, right]).tolist()
    assert keys[0] == keys[2]
    assert len(set(keys)) == 5
    mixed = keys_of([left, pa.array(["x"] * 6), np.arange(6) % 1])
    assert mixed[0] == mixed[2] != mixed[1]
    assert keys_of([pa.array(["ab", "a"]), pa.array(["c", "bc"])])[0] != keys_of([["a"], ["bc"]])[0]
    struct = pa.StructArray.from_arrays([left, right], ["l", "r"])
    assert keys_of([struct]).tolist() == keys


@settings(max_examples=examples(150))
@given(st.lists(st.text(max_size=30) | st.none(), max_size=60))
def test_strings_share_keys_only_when_equal(values: list[str | None]) -> None:
    keys = keys_of([pa.array(values, pa.string())])
    assert len(set(keys.tolist())) == len(set(values))
    assert len(set(zip(values, keys.tolist(), strict=True))) == len(set(values))


def test_hashes_are_pinned() -> None:
    """Tasks on different machines must agree on the candidates of a key."""
    assert keys_of([["", "a", "partition", None]]).tolist() == [
        -9181284954817830737,
        552207244051197286,
        8392873513006507839,
        6256037668516847236,
    ]
    assert keys_of([pa.array([1, None]), pa.array([1.5, None])]).tolist() == [
        -3488381113130172964,
        -8559671001846676060,
    ]


def test_nulls_are_partitioned_like_any_key() -> None:
    keys = keys_of([pa.array([1, None, None, 2, None])])
    for name in ("hash", "affinity", "affinity_count"):
        assigned = create(name, 8).assign(keys)
        assert assigned[1] == assigned[2] == assigned[4]


def test_columns_that_are_no_keys_are_refused() -> None:
    for columns in ([], [pa.array([1]), pa.array([1, 2])]):
        with pytest.raises(ThalwegError, match="columns"):
            keys_of(columns)
    for column in (pa.array([[1], [2]]), np.array([1j]), [1, "a"], object()):
        with pytest.raises(ThalwegError, match="column"):
            keys_of([column])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ThalwegError, match="no partitioner 'Hash'") as refused:
        create("Hash", 4)
    assert "affinity_count" in str(refused.value)
    assert {"shuffle", "hash", "partial_key", "cardinality", "affinity", "affinity_count", "hybrid"} <= set(names())
