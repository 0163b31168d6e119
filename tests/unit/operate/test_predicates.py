"""Differential: the index over constants and a plain loop over atoms agree."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_atoms import holds
from tests.support.profiles import examples

from thalweg.model.join import Atom
from thalweg.model.probe import Predicate
from thalweg.operate.predicates import PredicateIndex, any_of

OPS = ["=", "<", "<=", ">", ">="]
NAN, INF = float("nan"), float("inf")
INT64 = (-(2**63), 2**63 - 1)


def plain(predicates: list[Predicate], rows: pa.Table) -> list[list[bool]]:
    lines = [dict(zip(rows.column_names, line, strict=True)) for line in zip(*(_plain(c) for c in rows), strict=True)]
    return [
        [all(holds(r[a.column], a) for a in p.atoms) and all(r[c] is True for c in p.computed) for p in predicates]
        for r in lines
    ]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.to_pylist()


def check(predicates: list[Predicate], rows: pa.Table) -> np.ndarray:
    index = PredicateIndex(predicates)
    bits = index.evaluate(rows)
    assert bits.dtype == np.uint8
    assert bits.shape == (rows.num_rows, -(-len(predicates) // 8))
    expected = plain(predicates, rows)
    unpacked = np.unpackbits(bits, axis=1, bitorder="little").astype(bool)
    assert unpacked[:, : len(predicates)].tolist() == expected
    assert not unpacked[:, len(predicates) :].any()
    assert any_of(bits).tolist() == index.find_any(rows).tolist() == [any(line) for line in expected]
    assert sets_of(index, predicates[:64], rows).tolist() == [
        sum(holds << i for i, holds in enumerate(line[:64])) for line in expected
    ]
    return bits


def sets_of(index: PredicateIndex, predicates: list[Predicate], rows: pa.Table) -> np.ndarray:
    """The predicates as queries, each a bit: by a table over the lines of each column."""
    table = index.table([(predicate, 1 << i) for i, predicate in enumerate(predicates)])
    found = np.full(rows.num_rows, (1 << len(predicates)) - 1, dtype=np.uint64)
    for name in index.columns:
        found &= table[index.find_lines(name, rows.column(name))]
    return found


INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63, pa.date32(): 31, pa.timestamp("us"): 63}


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_whole_numbers_and_constants_beyond_their_range(kind: pa.DataType) -> None:
    top = 1 << INTEGERS[kind]
    plain_kind = {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width, kind)
    values = [-top, -top + 1, -2, -1, 0, 1, 2, None, top - 2, top - 1]
    constants = [-(2**70), -(2**63), -top - 1, -top, -1, 0, 1, top - 1, top, 2**63 - 1, 2**63, 2**70]
    predicates = [Predicate(f"{op}{c}", (Atom("x", op, c),)) for op in OPS for c in constants]
    check(predicates, pa.table({"x": pa.array(values, plain_kind).cast(kind)}))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_floats_compare_as_in_spark(kind: pa.DataType) -> None:
    values = [NAN, -NAN, INF, -INF, 0.0, -0.0, 0.1, 1e-45, 5e-324, 1.5, -1.5, 3e38, None]
    constants = [NAN, INF, -INF, 0.0, -0.0, 0.1, float(np.float32(0.1)), 1.5, 1e300, -1e300]
    predicates = [Predicate(f"{op}{c}", (Atom("x", op, c),)) for op in OPS for c in constants]
    check(predicates, pa.table({"x": pa.array(values, kind)}))


def test_a_float_is_widened_before_it_is_compared() -> None:
    rows = pa.table({"x": pa.array([0.1], pa.float32())})
    predicates = [Predicate("a", (Atom("x", "=", 0.1),)), Predicate("b", (Atom("x", ">", 0.1),))]
    assert PredicateIndex(predicates).evaluate(rows).tolist() == [[0b10]]


@pytest.mark.parametrize("constant", [NAN, 2**80], ids=str)
def test_a_column_whose_only_constant_is_no_place_in_its_domain(constant: float) -> None:
    kind = pa.float64() if isinstance(constant, float) else pa.int64()
    predicates = [Predicate(op, (Atom("x", op, constant),)) for op in OPS]
    check(predicates, pa.table({"x": pa.array([0, 1, None, -1], kind)}))


@st.composite
def cases(draw: Any) -> tuple[list[Predicate], pa.Table]:
    small = st.integers(-4, 4)
    numbers = st.one_of(small, st.integers(*INT64))
    floats = st.one_of(small.map(float), st.sampled_from([-0.0, NAN, INF, -INF]), st.floats())
    atoms = st.one_of(
        st.builds(Atom, st.sampled_from(["i", "l"]), st.sampled_from(OPS), numbers),
        st.builds(Atom, st.sampled_from(["f", "d"]), st.sampled_from(OPS), floats),
    )
    computed = st.lists(st.sampled_from(["yes", "no"]), max_size=1).map(tuple)
    predicate = st.builds(Predicate, st.just("p"), st.lists(atoms, max_size=4).map(tuple), computed)
    kinds: dict[str, tuple[pa.DataType, Any]] = {
        "i": (pa.int32(), st.one_of(small, st.integers(-(2**31), 2**31 - 1))),
        "l": (pa.int64(), numbers),
        "f": (pa.float32(), st.one_of(small.map(float), st.sampled_from([-0.0, NAN]), st.floats(width=32))),
        "d": (pa.float64(), floats),
        "yes": (pa.bool_(), st.booleans()),
        "no": (pa.bool_(), st.booleans()),
    }
    n = draw(st.integers(0, 12))
    cut = draw(st.integers(0, n))
    columns = {}
    for name, (kind, values) in kinds.items():
        drawn = pa.array(draw(st.lists(st.none() | values, min_size=n, max_size=n)), kind)
        columns[name] = pa.chunked_array([drawn[:cut], drawn[cut:]])
    return draw(st.lists(predicate, max_size=20)), pa.table(columns)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(cases())
def test_index_equals_plain_comparisons(case: tuple[list[Predicate], pa.Table]) -> None:
    check(*case)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 9, 63, 64, 65, 130, 200])
def test_many_predicates_over_more_than_a_block_of_rows(count: int) -> None:
    rng = random.Random(count)
    rows = pa.table(
        {
            "a": pa.array([None if rng.random() < 0.1 else rng.randrange(50) for _ in range(2500)], pa.int16()),
            "b": pa.array([rng.randrange(50) for _ in range(2500)], pa.int64()),
        }
    )
    predicates = [
        Predicate(str(i), tuple(Atom(rng.choice("ab"), rng.choice(OPS), rng.randrange(50)) for _ in range(2)))
        for i in range(count)
    ]
    check(predicates, rows)


def test_no_rows_and_no_predicates() -> None:
    rows = pa.table({"x": pa.array([1, 2], pa.int32())})
    assert check([], rows).shape == (2, 0)
    assert check([Predicate("p", (Atom("x", "=", 1),))], rows[:0]).shape == (0, 1)
    assert check([Predicate("all", ())], rows).tolist() == [[1], [1]]


def test_all_null() -> None:
    rows = pa.table({"x": pa.nulls(9, pa.int32()), "c": pa.nulls(9, pa.bool_())})
    predicates = [Predicate("x", (Atom("x", ">=", INT64[0]),)), Predicate("c", (), ("c",)), Predicate("all", ())]
    assert check(predicates, rows).tolist() == [[0b100]] * 9


def test_slices_are_read_from_where_they_begin() -> None:
    whole = pa.table({"x": pa.array([None, 5, 1, None, 5, 2, 5, None, None, 5, 3], pa.int32())})
    check([Predicate("p", (Atom("x", "=", 5),))], whole[3:10])


def test_constants_of_another_type_are_refused() -> None:
    predicates = [Predicate("p", (Atom("x", "=", 5),))]
    with pytest.raises(TypeError, match="x"):
        PredicateIndex(predicates).evaluate(pa.table({"x": pa.array([5.0])}))
    with pytest.raises(TypeError, match="timestamp"):
        PredicateIndex(predicates).evaluate(pa.table({"x": pa.array([5], pa.timestamp("ms"))}))
