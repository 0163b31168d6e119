"""Property: a state is read as it was written, types and all; what has no encoding is refused by name."""

from __future__ import annotations

import math
import struct
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from thalweg.model.aggregate_state import MARK, UnfitStateError, decode, encode


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down. One NaN is as good as another."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return one == other or (math.isnan(one) and math.isnan(other))
        case complex():
            return same([one.real, one.imag], [other.real, other.imag])
        case Decimal():
            return str(one) == str(other)
        case datetime() | time_of_day():
            return repr(one) == repr(other)
        case list() | tuple() | deque():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
        case np.ndarray():
            return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        case np.generic():
            return one.dtype == other.dtype and one.tobytes() == other.tobytes()
        case set() | frozenset():
            return len(one) == len(other) and all(any(same(a, b) for b in other) for a in one)
    return bool(one == other)


ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3, seconds=7)), timezone(timedelta(hours=2), "X"), ZoneInfo("UTC")]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-(1 << 63) - 1, -(1 << 63), (1 << 63) - 1, (1 << 64) - 1, 1 << 64, 1 << 900, -(1 << 900)]),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.decimals().filter(lambda value: not value.is_snan()),
)
HASHABLE: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(SCALARS, st.tuples(HASHABLE, HASHABLE), st.frozensets(HASHABLE, max_size=3))
)
NUMPY = arrays.arrays(
    st.one_of(arrays.scalar_dtypes(), arrays.array_dtypes()), arrays.array_shapes(min_dims=0, min_side=0, max_side=3)
)
VALUES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        HASHABLE,
        NUMPY,
        NUMPY.filter(lambda array: array.size > 0).map(lambda array: array.flat[0]),
        st.lists(VALUES, max_size=3),
        st.lists(VALUES, max_size=3).map(tuple),
        st.lists(VALUES, max_size=3).map(lambda values: deque(values, 9)),
        st.dictionaries(HASHABLE, VALUES, max_size=3),
        st.dictionaries(HASHABLE, VALUES, max_size=3).map(OrderedDict),
        st.sets(HASHABLE, max_size=3),
    )
)


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    data = encode(value)
    assert data[:1] == MARK
    assert same(decode(data), value)


@pytest.mark.parametrize(
    "value",
    [
        ((), [], {}, set(), frozenset(), [()], ([],), {(): {}}),
        {1: (2, [3, (4, {5, (6, frozenset({7}))})]), (8, (9,)): {"x": {None: b""}}, None: 1 << 70, 1.5: True},
        [1, 2, 1 << 64, None],
        {1 << 70: 1, 2: 3},
        [True, 1, 1.0, "1", b"1", Decimal("1.00")],
        Counter({"a": 2, ("b", 1): 0}),
        defaultdict(list, {1: [2]}),
        defaultdict(None, {1: 2}),
        deque([1, (2,)]),
        bytearray(b"abc"),
        [float("nan"), float("inf"), -0.0, Decimal("NaN"), Decimal("-0E+7")],
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        [np.float64(1.5), np.int8(-1), np.bool_(True), np.str_("ä"), np.datetime64("2024-01-01", "us")],
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)[::2],
        np.zeros(2, [("a", ">f8"), ("b", "<i4", (2,))]),
        np.array(["a", "bcd"]),
        date(1, 1, 1),
    ],
)
def test_examples(value: Any) -> None:
    read = decode(encode(value))
    assert same(read, value)
    assert getattr(read, "default_factory", None) is getattr(value, "default_factory", None)


def test_numbers_and_arrays_keep_their_signs() -> None:
    assert struct.pack("d", decode(encode(-0.0))) == struct.pack("d", -0.0)


@pytest.mark.parametrize("value", [np.zeros(3), [np.zeros(3)], bytearray(3)])
def test_what_is_read_can_be_changed(value: Any) -> None:
    read = decode(encode(value))
    changed = read[0] if isinstance(read, list) else read
    changed[0] = 1
    assert changed[0] == 1


@pytest.mark.parametrize(
    "value",
    [
        pa.array([1, None, 3]),
        pa.array([["a"], None]),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([{"x": 1, "y": "z"}]),
        pa.array([], pa.float32()),
        pa.nulls(3),
        pa.chunked_array([[1, 2], [3]]),
        pa.chunked_array([], pa.int8()),
        pa.record_batch({"x": [1, 2], "y": ["a", None]}),
        pa.table({"x": [1, 2], "y": ["a", None]}).replace_schema_metadata({"k": "v"}),
        pa.table({"x": pa.array([], pa.string())}),
        pa.scalar(1, pa.int32()),
        pa.scalar(None, pa.string()),
        pa.scalar(Decimal("1.50"), pa.decimal128(10, 2)),
        pa.scalar([1, 2]),
        pa.scalar({"x": 1}),
        pa.scalar(datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_values_of_arrow(value: Any) -> None:
    read, _ = decode(encode((value, 1)))
    assert type(read) is type(value)
    assert read.equals(value)
    schema = getattr(value, "schema", None)
    assert schema is None or read.schema.equals(schema, check_metadata=True)


def test_a_part_of_an_array_is_kept_without_the_rest() -> None:
    rows = pa.record_batch({"x": np.arange(100_000), "y": pa.array([str(i) for i in range(100_000)])})
    part = rows.slice(50_000, 3)
    state = {"rows": part, "column": part.column(1), "chunks": pa.chunked_array([part.column(0)])}
    kept = encode(state)
    assert len(kept) < 3_000
    back = decode(kept)
    assert back["rows"].equals(part)
    assert back["column"].to_pylist() == ["50000", "50001", "50002"]
    assert back["chunks"].to_pylist() == [50_000, 50_001, 50_002]


# -- what is refused


@dataclass
class Pair:
    one: int = 1


class Record(msgspec.Struct):
    one: int = 1


class Colour(IntEnum):
    RED = 1


class Text(str):
    pass


class Measure(np.float64):
    pass


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Pair(), "Pair"),
        (Record(), "Record"),
        (Colour.RED, "Colour"),
        (Text("a"), "Text"),
        (Measure(1), "Measure"),
        (Point(1, 2), "Point"),
        (UUID(int=1), "uuid.UUID"),
        (len, "builtin_function_or_method"),
        (Pair, "builtins.type"),
        (msgspec.msgpack.Ext(1, b""), "Ext"),
        (msgspec.Raw(b"\xc0"), "Raw"),
        (memoryview(b"a"), "memoryview"),
        (np.array([None]), "a NumPy array of object"),
        (np.zeros(1, [("a", "O")]), "a NumPy array of"),
        (np.array(["a"], "T"), "a NumPy array of StringDType"),
        (np.ma.array([1]), "MaskedArray"),
        (defaultdict(lambda: 1), "a defaultdict of <lambda>"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [1, (v,)], lambda v: {"k": {"x": v}}, lambda v: [1 << 80, v]]
)
def test_other_types_are_refused_by_name(value: Any, named: str, wrap: Any) -> None:
    with pytest.raises(UnfitStateError, match=named):
        encode(wrap(value))


def extension(code: int, value: Any) -> bytes:
    return MARK + msgspec.msgpack.encode(msgspec.msgpack.Ext(code, encode(value)[1:]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x05N.",
        b"\x02\xc0",
        MARK,
        MARK + b"\xc1",
        MARK + b"\xc0\xc0",
        MARK + b"\x91" * 1_000_000 + b"\xc0",
        extension(99, None),
        extension(2, [[1]]),  # a set of lists
        extension(14, "../../etc/passwd"),
        extension(17, ["eval", {}]),
        extension(32, ["|O", [1], bytes(8)]),
        extension(32, [[("a", "|O")], [1], bytes(8)]),
        extension(32, ["<f8", [1 << 40], bytes(8)]),
        extension(33, ["|O", [], bytes(8)]),
        extension(51, b"not Arrow"),
    ],
)
def test_what_no_state_looks_like_raises(data: bytes) -> None:
    with pytest.raises(Exception, match=r"."):
        decode(data)


@given(st.binary())
def test_any_bytes_are_read_or_raise(data: bytes) -> None:
    try:
        read = decode(MARK + data)
    except Exception:
        return
    encode(read)


def test_lists_of_numbers_cost_no_python_for_each() -> None:
    numbers = [float(i) for i in range(100_000)]
    began = time.thread_time()
    assert decode(encode(numbers)) == numbers
    assert time.thread_time() - began < 0.1
