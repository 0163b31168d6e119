"""Unit: states that earlier releases pickled are read if they are plain; a pickle that asks for code is refused."""

from __future__ import annotations

import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from thalweg.clustering import Clustering
from thalweg.operate.pickled_state import FIRST, RefusedPickleError, read_pickled


class Code:
    """Pickled as a call."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


PLAIN = [
    None,
    True,
    1 << 80,
    (1.5, [2, {"x": {3, (4,)}}], frozenset({b"y"})),
    {(1, 2): Decimal("1.50")},
    [date(2024, 1, 1), time_of_day(1, 2), timedelta(1, 2, 3), datetime(2024, 1, 1, tzinfo=UTC)],
    [datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2), "X"))],
    [Counter("aab"), OrderedDict(a=1), deque([1, 2], 5)],
    defaultdict(list, {1: [2]}),
    [bytearray(b"x"), 2j],
]


@pytest.mark.parametrize("dumps", [partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL), cloudpickle.dumps])
@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_read(value: Any, dumps: Callable[[Any], bytes]) -> None:
    data = dumps(value)
    assert data.startswith(FIRST)
    read = read_pickled(data)
    assert repr(read) == repr(value)
    assert read == value


ARRAYS = [
    np.arange(6.0),
    np.arange(12)[::2],
    np.arange(6).reshape(2, 3).T,
    np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    np.array(3.0),
    np.zeros((0, 2), np.int8),
    np.array([1, 2], ">i4"),
    np.array(["a", "bcd"]),
    np.array([b"a", b"bcd"]),
    np.array(["2024-01-01", "NaT"], "M8[us]"),
    np.array([1, 2], "m8[25s]"),
    np.array([(1.5, [1, 2])], [("a", ">f8"), ("b", "<i4", (2,))]),
    np.array([True, False]),
    np.zeros(2, "V3"),
]


@pytest.mark.parametrize("protocol", [4, 5])  # in 4, an array gets its contents after it was made
@pytest.mark.parametrize("array", ARRAYS, ids=repr)
def test_arrays_are_read_wherever_they_lie(array: Any, protocol: int) -> None:
    value = {"a": (array, [array]), "d": deque([array], 3)}
    read = read_pickled(pickle.dumps(value, protocol))
    for found in (read["a"][0], read["a"][1][0], read["d"][0]):
        assert type(found) is np.ndarray
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()
        assert found.flags.writeable
    assert read["d"].maxlen == 3


@pytest.mark.parametrize("value", [np.float64(1.5), np.int8(3), np.bool_(True), np.str_("ä"), np.datetime64(5, "us")])
def test_scalars_of_numpy_are_read(value: Any) -> None:
    read = read_pickled(pickle.dumps({value: [value]}))
    assert read == {value: [value]}
    assert {type(key) for key in read} == {type(value)}


def test_names_of_numpy_1_are_known() -> None:
    data = pickle.dumps(np.float64(1.5), 4)
    assert b"\x8c\x16numpy._core.multiarray" in data
    older = data.replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
    unframed = older[:2] + older[11:]
    assert read_pickled(unframed) == 1.5


def test_values_of_arrow_as_earlier_releases_pickled_them() -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"x": [1, 2]})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    # GLOBAL, the bytes as the only argument, REDUCE.
    argument = b"B" + len(data).to_bytes(4, "little") + data + b"\x85R."
    assert read_pickled(b"\x80\x05cthalweg.operate.own\n_read_batch\n" + argument).equals(batch)
    assert read_pickled(b"\x80\x05cthalweg.operate.own\n_read_array\n" + argument).equals(batch.column(0))
    assert read_pickled(pickle.dumps(pa.scalar(7, pa.int32()))).equals(pa.scalar(7, pa.int32()))


# -- what is refused


@dataclass
class Range:
    low: float = 0.0


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Range(), "Range"),
        (Clustering(), "thalweg.clustering.Clustering"),
        (Code(eval, "1"), "builtins.eval"),
        (Code(getattr, [], "append"), "builtins.getattr"),
        (Code(getattr, ZoneInfo, "from_file"), "builtins.getattr"),
        (Code(cloudpickle.loads, b""), "loads"),
        (np.array([None]), "numpy.dtype"),
        (np.array([(None,)], [("a", "O")]), "numpy.dtype"),
        (print, "builtins.print"),
        (Path("x"), "pathlib"),
    ],
)
def test_anything_else_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(RefusedPickleError, match=named):
        read_pickled(pickle.dumps([1, value]))


@pytest.mark.parametrize("protocol", range(6))
def test_code_in_a_pickle_does_not_run(tmp_path: Path, protocol: int) -> None:
    ran = tmp_path / "ran"
    data = pickle.dumps([Code(os.system, f"touch {ran}")], protocol)
    with pytest.raises(RefusedPickleError, match=r"posix\.system"):
        read_pickled(data)
    assert not ran.exists()
    pickle.loads(data)
    assert ran.exists(), "it would have"


@pytest.mark.parametrize(
    "state",
    [
        (3, "|", None, ("a",), {"a": ("|O", 0)}, 8, 1, 0),  # a field that is no dtype of ours
        (3, "|", None, ("a",), {}, 8, 1, 0),
        (3, "|", ("|O", (1,)), None, None, 8, 1, 0),
        (3,),
    ],
)
def test_a_dtype_is_not_believed(state: tuple[Any, ...]) -> None:
    class Lie:
        def __reduce__(self) -> Any:
            return np.dtype, ("V8", False, True), state

    with pytest.raises(Exception, match=r"."):
        read_pickled(pickle.dumps(Lie()))


def test_a_field_beyond_the_end_of_its_record_is_refused() -> None:
    class Lie:
        def __reduce__(self) -> Any:
            return np.dtype, ("V8", False, True), (3, "|", None, ("a",), {"a": (np.dtype("f8"), 4096)}, 8, 1, 16)

    with pytest.raises(ValueError, match="itemsize"):
        read_pickled(pickle.dumps(Lie()))


def test_types_cannot_be_changed_by_a_pickle() -> None:
    """BUILD with two dictionaries sets attributes, of classes too."""
    for module, name in (("collections", "OrderedDict"), ("decimal", "Decimal"), ("datetime", "datetime")):
        crafted = b"\x80\x05c" + f"{module}\n{name}\n".encode() + b"N}X\x01\x00\x00\x00xK\x01s\x86b."
        with pytest.raises(TypeError, match="immutable type"):
            read_pickled(crafted)
