"""Differential: grouping by direct address and by DuckDB give the same partials."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.aggregates.contract import ComputedColumns, presence
from thalweg.aggregates.families import take_apart
from thalweg.model.columns import START
from thalweg.model.expr import Expr, quote
from thalweg.model.failure import Failures
from thalweg.model.plan import Grouping
from thalweg.model.query import Aggregate
from thalweg.model.window import Window
from thalweg.operate import classes, columns, dense, dense_kernels
from thalweg.operate.combine import Slices, combine, combine_dense
from thalweg.operate.lanes import unpacked

SECOND = 1_000_000
FLAGS = ("yes", "rare", "never", "often")
STEPS = tuple(f"below{i}" for i in range(40))
KINDS = {
    "k": "int",
    "day": "date",
    "x": "bigint",
    "y": "double",
    "t": "timestamp",
    **dict.fromkeys((*FLAGS, *STEPS), "boolean"),
}
AGGREGATES = [
    ("count", "x", "bigint"),
    ("sum", "x", "bigint"),
    ("sum", "y", "double"),
    ("avg", "x", "double"),
    ("min", "y", "double"),
    ("max", "x", "bigint"),
    ("max", "t", "timestamp"),
    ("min", "day", "date"),
]


def column(name: str) -> Expr:
    return Expr(quote(name), KINDS[name], (name,))


def rows(rng: random.Random, n: int) -> pa.Table:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.2 else value

    return pa.table(
        {
            "k": pa.array([rng.randint(-3, 5) for _ in range(n)], pa.int32()),
            "day": pa.array([rng.randint(19_000, 19_003) for _ in range(n)], pa.int32()).cast(pa.date32()),
            "x": pa.array([maybe(rng.randint(-(10**6), 10**6)) for _ in range(n)], pa.int64()),
            "y": pa.array([maybe(rng.randint(-400, 400) / 4) for _ in range(n)], pa.float64()),
            "t": pa.array([maybe(rng.randint(0, 10**12)) for _ in range(n)], pa.int64()).cast(pa.timestamp("us")),
            "yes": pa.array([maybe(rng.random() < 0.5) for _ in range(n)], pa.bool_()),
            "rare": pa.array([maybe(rng.random() < 0.02) for _ in range(n)], pa.bool_()),
            "never": pa.array([False] * n, pa.bool_()),
            "often": pa.array([rng.random() < 0.9 for _ in range(n)], pa.bool_()),
        }
    )


def grouping(keys: tuple[str, ...], filters: list[Expr | None]) -> Grouping:
    columns = ComputedColumns({})
    partials = {}
    for where in filters:
        present = presence(None if where is None else columns.of(where))
        partials[present.name] = present
        for function, name, kind in AGGREGATES:
            for p in take_apart(Aggregate(function, (column(name),), kind), where, "t", columns).partials:
                partials[p.name] = p
    return Grouping("g", "s", keys, (), tuple(partials.values()), (Window(5, 5),), 5 * SECOND, 0)


def as_rows(table: pa.Table, names: list[str]) -> list[tuple]:
    return sorted(zip(*(table.column(n).to_pylist() for n in names), strict=True), key=repr)


@pytest.mark.parametrize("seed", range(20))
def test_direct_address_equals_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    table = rows(rng, rng.choice([1, 7, 300]))
    where = [None] if seed % 3 == 0 else [column("yes")] if seed % 3 == 1 else [None, column("yes")]
    check_against_duckdb(rng, table, grouping(rng.choice([(), ("k",), ("day", "k")]), where))


@pytest.mark.parametrize("seed", range(20))
def test_many_filters_equal_duckdb(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    by_class = []
    original = dense._apart
    monkeypatch.setattr(dense, "_apart", lambda *args: by_class.append(1) or original(*args))
    filters = [column(flag) for flag in rng.sample(FLAGS, rng.choice([3, 4]))] + [None] * rng.choice([0, 1])
    few = seed % 4 == 0
    check_against_duckdb(rng, rows(rng, 20 if few else 3000), grouping(rng.choice([(), ("k",)]), filters))
    assert bool(by_class) != few


@pytest.mark.slow
def test_forty_thresholds_are_forty_classes() -> None:
    rng = random.Random(1)
    table = rows(rng, 20_000)
    for i, step in enumerate(STEPS):
        table = table.append_column(step, pc.less(table.column("x"), -(10**6) + (i + 1) * 49_000))
    found = columns.Columns(table).classes(STEPS)
    assert found is not None
    assert found.count == 40  # and those that are below none
    check_against_duckdb(rng, table, grouping((), [column(step) for step in STEPS]))


def test_rows_that_no_filter_admits_make_no_group() -> None:
    table = rows(random.Random(1), 500)
    for flag in ("yes", "rare"):
        table = table.drop_columns([flag]).append_column(flag, table.column("never"))
    check_against_duckdb(random.Random(1), table, grouping(("k",), [column(f) for f in ("never", "yes", "rare")]))


@pytest.mark.parametrize("first", [0, 20, 32, 52])
def test_every_filter_has_a_say_in_where_its_sets_are_looked_for(first: int) -> None:
    mask = 4 * classes.MOST_CLASSES - 1
    slots = {int(dense_kernels._slot(np.uint64(v << first), np.uint64(mask))) for v in range(1, mask + 1)}
    assert len(slots) > mask / 2


def test_classes_of_the_last_of_64_filters_are_told_apart() -> None:
    rng = random.Random(3)
    names = tuple(f"f{i}" for i in range(64))
    table = pa.table(
        {name: [rng.random() < 0.5 if i >= 54 else False for _ in range(60_000)] for i, name in enumerate(names)}
    )
    found = columns.Columns(table).classes(names)
    assert found is not None
    assert found.count == 1023


def test_too_many_classes_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "MOST_CLASSES", 3)
    rng = random.Random(2)
    table = rows(rng, 3000)
    assert columns.Columns(table).classes(FLAGS) is None
    check_against_duckdb(rng, table, grouping(("k",), [column(flag) for flag in FLAGS]))


def check_against_duckdb(rng: random.Random, table: pa.Table, group: Grouping) -> None:
    times = [rng.randint(-20, 60) * SECOND // 2 for _ in range(table.num_rows)]
    slices = Slices.of(pa.array(times, pa.int64()).to_numpy(), group)
    made = combine_dense(columns.Columns(table), slices, group)
    assert made is not None
    direct = unpacked(made)
    failures: Failures = {}
    hashed = combine(table.append_column(START, pa.array(slices.starts)), group, failures)
    assert not failures
    assert set(direct.schema.names) == set(hashed.schema.names)
    direct = direct.select(hashed.schema.names)
    assert direct.schema.types == hashed.schema.types
    assert as_rows(direct, hashed.schema.names) == as_rows(hashed, hashed.schema.names)


@pytest.mark.parametrize("bad", ["null key", "wide key", "text", "NaN", "overflow"])
def test_what_does_not_lend_itself_is_left_to_duckdb(bad: str) -> None:
    table = rows(random.Random(1), 50)
    group = grouping(("k",), [None])
    if bad == "null key":
        table = table.set_column(0, "k", pa.array([None] + [1] * 49, pa.int32()))
    elif bad == "wide key":
        table = table.set_column(0, "k", pa.array([0, 2**31 - 1] * 25, pa.int32()))
    elif bad == "text":
        table = table.set_column(0, "k", pa.array(["a"] * 50))
    elif bad == "NaN":
        table = table.set_column(3, "y", pa.array([float("nan")] * 50))
    else:
        table = table.set_column(2, "x", pa.array([2**62] * 50, pa.int64()))
    slices = Slices.of(pa.array([0] * 50, pa.int64()).to_numpy(), group)
    assert combine_dense(columns.Columns(table), slices, group) is None


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us")],
)
@pytest.mark.parametrize(("start", "length"), [(0, 40), (3, 20), (9, 1), (17, 0), (8, 32)])
def test_values_and_which_are_null(kind: pa.DataType, start: int, length: int) -> None:
    """Wherever in its buffers a column begins, and whatever lies there for NULL."""
    listed = [None if i % 3 == 1 else i - 20 for i in range(40)]
    whole = pa.array([7 if x is None else x for x in listed], pa.int32(), mask=np.array([x is None for x in listed]))
    numbers = whole.cast(kind) if not pa.types.is_timestamp(kind) else whole.cast(pa.int64()).cast(kind)
    for column in (
        pa.chunked_array([numbers.slice(start, length)]),
        pa.chunked_array(
            [numbers.slice(start, length // 2), numbers.slice(start + length // 2, length - length // 2)]
        ),
    ):
        found = columns.as_values(column)
        assert found is not None
        values, valid = found
        wanted = listed[start : start + length]
        assert values.tolist() == [0 if x is None else x for x in wanted]
        assert (valid.tolist() if valid.size else [True] * length) == [x is not None for x in wanted]
