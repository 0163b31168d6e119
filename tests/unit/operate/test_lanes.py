"""Differential: partials as lanes against partials as columns, which DuckDB merges."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.model.columns import GROUP, START, WINDOW, key
from thalweg.model.plan import Grouping, Partial
from thalweg.model.window import Window
from thalweg.operate import combine, duck, lanes
from thalweg.operate.combine import merge_text, roll_up
from thalweg.operate.merge_slices import SliceTable, merge_dense, merge_stretches, whole
from thalweg.route.bucket import order_by_group

SECOND = 1_000_000
TYPES = {
    "count": ("BIGINT",),
    "sum": ("BIGINT", "DOUBLE"),
    **dict.fromkeys(("min", "max"), ("TINYINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP")),
}


COUNTS = (0, 1, 100, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32)


def random_partials(rng: random.Random, count: int) -> list[Partial]:
    found = []
    for i in range(count):
        op = rng.choice(sorted(TYPES))
        merge = "sum" if op in ("count", "sum") else op
        type_ = rng.choice(TYPES[op])
        found.append(Partial(f"p{i}", "", None, f'CAST({merge}("p{i}") AS {type_})', type_, op=op))
    return found


def random_value(rng: random.Random, partial: Partial, nulls: float) -> Any:
    if partial.op != "count" and rng.random() < nulls:
        return None
    if partial.type in ("FLOAT", "DOUBLE"):
        special = () if partial.op == "sum" else (math.nan, math.inf, -math.inf, -0.0)
        return rng.choice((*special, *(rng.randint(-40, 40) / 4 for _ in range(4))))
    if partial.op == "count":
        return rng.choice(COUNTS[: rng.randint(1, len(COUNTS))])
    return rng.randint(0, 100)


def column_of(rng: random.Random, partial: Partial, rows: int, nulls: float) -> pa.Array:
    kind = duck.arrow_type(partial.type)
    values = [random_value(rng, partial, nulls) for _ in range(rows)]
    number = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    return pa.array(values, number).cast(kind)


def bucket(rng: random.Random, partials: Sequence[Partial], rows: int, starts: Sequence[int]) -> pa.Table:
    """Partials as columns."""
    keys = [rng.randint(-2, 3) for _ in range(rows)]
    table = pa.table(
        {
            START: pa.array(rng.choices(starts, k=rows), pa.int64()),
            key(0): pa.array(keys, pa.int32()),
            GROUP: pa.array([k % 7 for k in keys], pa.uint16()),
        }
    )
    nulls = rng.choice((0.0, 0.2))
    for p in partials:
        table = table.append_column(p.name, column_of(rng, p, rows, nulls))
    return table


def grouping_of(partials: Sequence[Partial]) -> Grouping:
    return Grouping("g", "s", ("k",), (), tuple(partials), (Window(SECOND, SECOND),), SECOND, 0)


def listed(table: pa.Table, names: Sequence[str]) -> list[str]:
    def plain(value: Any) -> Any:
        return 0.0 if isinstance(value, float) and value == 0 else value

    columns = [table.column(n).to_pylist() for n in names]
    return sorted(repr([plain(v) for v in row]) for row in zip(*columns, strict=True))


def chunked(rng: random.Random, table: pa.Table) -> pa.Table:
    at = rng.randint(0, table.num_rows)
    return pa.concat_tables([table.slice(0, at), table.slice(at)])


@pytest.mark.parametrize("seed", range(12))
def test_lanes_are_the_columns_that_they_were(seed: int) -> None:
    """However rows are moved."""
    rng = random.Random(seed)
    partials = random_partials(rng, rng.choice((1, 5, 60)))
    table = bucket(rng, partials, rng.choice((0, 1, 50)), (0, SECOND))
    packed = lanes.packed(table, partials)
    assert packed.num_columns <= 3 + len({(p.op, p.type) for p in partials})
    names = table.column_names
    groups = table.column(GROUP).to_numpy()
    picked = pa.array([rng.randrange(max(1, table.num_rows)) for _ in range(table.num_rows // 2)], pa.int64())
    for wanted, found in (
        (table, packed),
        (table.take(picked), packed.take(picked)),
        (table.slice(3, 20), packed.slice(3, 20)),
        (order_by_group(table, groups, 7)[0], order_by_group(packed, groups, 7)[0]),
        (table, pa.ipc.open_stream(_written(packed)).read_all()),
        (table.slice(2), pa.ipc.open_stream(_written(packed.slice(2))).read_all()),
    ):
        found = lanes.unpacked(chunked(rng, found))
        assert set(found.column_names) == set(names)
        assert found.select(names).schema.types == table.schema.types
        assert listed(found, names) == listed(wanted, names)
    some = rng.sample([p.name for p in partials], rng.randint(1, len(partials)))
    assert lanes.unpacked(packed, some).column_names[3:] != [] or not some
    assert lanes.partial_names(packed) >= {p.name for p in partials}


def _written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def random_slices(
    rng: random.Random, partials: Sequence[Partial], starts: Sequence[int], most: int
) -> list[SliceTable]:
    """Of batches with fewer queries and with more, some as columns, as an earlier release wrote them."""
    found = []
    for _ in range(rng.randint(1, 5)):
        some = rng.sample(list(partials), rng.randint(1, len(partials)))
        table = bucket(rng, some, rng.randint(1, most), starts)
        if rng.random() < 0.7:
            table = chunked(rng, lanes.packed(table, some))
        found.append(SliceTable(table, SECOND, tuple(starts), new=False))
    return found


@pytest.mark.parametrize("seed", range(16))
def test_merged_lanes_are_what_duckdb_merges(seed: int) -> None:
    rng = random.Random(seed)
    partials = random_partials(rng, rng.choice((1, 2, 8, 100)))
    check_merged(rng, partials, rng.choice((1, 10, 60)))


@pytest.mark.slow
def test_five_hundred_partials_are_what_duckdb_merges() -> None:
    rng = random.Random(1)
    check_merged(rng, random_partials(rng, 500), 60)


def check_merged(rng: random.Random, partials: Sequence[Partial], most: int) -> None:
    grouping, starts = grouping_of(partials), [0, SECOND, 2 * SECOND]
    slices = random_slices(rng, partials, starts, most)
    wanted = rng.sample(list(partials), rng.randint(1, len(partials)))
    cover = [(s, SECOND, w) for w in (0, SECOND) for s in starts if w <= s < w + 2 * SECOND]
    made = merge_dense(grouping, slices, cover, wanted)
    assert made is not None
    by, names = [f'"{WINDOW}"', f'"{key(0)}"'], [WINDOW, key(0), *(p.name for p in wanted)]
    parts = pa.table({START: [s for s, _, _ in cover], WINDOW: [w for _, _, w in cover]})
    text = merge_text(f'(SELECT * FROM held JOIN part USING ("{START}"))', by, by, wanted)
    expected = duck.run(text, held=whole(grouping, slices), part=parts)
    assert made.select(names).schema.types == expected.select(names).schema.types
    assert listed(made, names) == listed(expected, names)


@pytest.mark.parametrize("seed", range(10))
def test_buckets_of_different_lanes_become_one(seed: int) -> None:
    rng = random.Random(seed)
    partials, starts = random_partials(rng, rng.choice((1, 5, 40))), [0, SECOND, 2 * SECOND]
    grouping, kept = grouping_of(partials), starts[1:]
    slices = random_slices(rng, partials, starts, 30)
    merged = merge_stretches(grouping, slices, [(s, SECOND, s) for s in kept])
    assert merged is not None
    known = set[str]().union(*(lanes.partial_names(part.table) for part in slices))
    there = [p for p in partials if p.name in known]
    names = [f'"{name}"' for name in (START, key(0), GROUP)]
    held = whole(grouping, slices)
    held = held.filter(pc.is_in(held.column(START), pa.array(kept)))
    expected = duck.run(merge_text("held", names, names, there), held=held)
    columns = [START, key(0), GROUP, *(p.name for p in there)]
    assert merged.num_columns <= 3 + len({(p.op, p.type) for p in there})
    assert listed(lanes.unpacked(merged), columns) == listed(expected, columns)


@pytest.mark.parametrize("seed", range(6))
def test_lanes_rolled_up_are_what_duckdb_rolls_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    partials = random_partials(rng, 12)
    own, extra = partials[:8], partials[8:]
    source = Grouping("f", "s", ("k",), (), tuple(own), (), SECOND, 0, partials_for_others=tuple(extra))
    coarse = Grouping("c", "s", (), (), tuple(partials[2:9]), (), 2 * SECOND, 0, "f", tuple(partials[10:]))
    table = bucket(rng, partials, 50, [0, SECOND, 2 * SECOND, 3 * SECOND])
    finer = lanes.packed(table, own, extra)
    names = [START, *(p.name for p in (*coarse.partials, *coarse.partials_for_others))]
    direct = roll_up(finer, coarse, source)
    monkeypatch.setattr(combine, "_roll_up_dense", lambda *_: None)
    hashed = roll_up(finer, coarse, source)
    assert direct.schema.equals(hashed.schema, check_metadata=True)
    assert listed(lanes.unpacked(direct), names) == listed(lanes.unpacked(hashed), names)
    sent = lanes.without_extra(direct, coarse.partials_for_others)
    assert lanes.partial_names(sent) & {p.name for p in extra} == {p.name for p in extra[:1]}


def test_sums_that_may_overflow_are_left_to_duckdb() -> None:
    (total,) = [Partial("p0", "", None, "sum(p0)", "BIGINT", op="sum")]
    table = pa.table({START: [0, 0], key(0): [1, 1], "p0": [2**62, 2**62]})
    held = [SliceTable(table, SECOND, (0,), new=False)]
    assert merge_dense(grouping_of([total]), held, [(0, SECOND, 0)], [total]) is None


def test_what_is_no_plain_number_stays_a_column() -> None:
    partials = [Partial("t", "", None, "max(t)", "VARCHAR", op="max"), Partial("m", "", None, "m(m)", "DOUBLE")]
    table = pa.table({START: [0], key(0): [1], "t": ["x"], "m": [1.5]})
    assert lanes.packed(table, partials) is table
    assert not lanes.by_kind(partials)


def test_tables_of_other_lanes_are_put_together() -> None:
    """Arrow takes their columns for alike: lists of the same size."""
    one, two = (Partial(name, "", None, f"sum({name})", "BIGINT", op="sum") for name in ("p1", "p2"))
    tables = [lanes.packed(pa.table({"p1": [1, 2]}), [one]), lanes.packed(pa.table({"p2": [3]}), [two])]
    found = lanes.unpacked(lanes.concat(tables, [one, two]))
    assert found.to_pylist() == [{"p1": 1, "p2": None}, {"p1": 2, "p2": None}, {"p1": None, "p2": 3}]
    assert lanes.concat(tables[:1], [one]).equals(tables[0])


@pytest.mark.parametrize(
    ("most", "type_"),
    [
        *((0, pa.uint8()), (255, pa.uint8()), (256, pa.uint16()), (65_535, pa.uint16()), (65_536, pa.uint32())),
        *((2**32 - 1, pa.uint32()), (2**32, pa.int64()), (2**63 - 1, pa.int64()), (-1, pa.int64())),
    ],
)
def test_counts_have_as_many_bytes_as_the_greatest_needs(most: int, type_: pa.DataType) -> None:
    partials = [Partial(name, "", None, f"sum({name})", "BIGINT", op="count") for name in ("p1", "p2")]
    table = pa.table({"p1": [0, most, 1], "p2": pa.array([0, None, 0], pa.int64())})
    found = lanes.packed(table, partials)
    assert [field.type.value_type for field in found.schema] == [type_]
    assert lanes.unpacked(found).equals(table)
    again = lanes.concat([found, lanes.packed(pa.table({"p1": [2**40], "p2": [0]}), partials)], partials)
    assert lanes.unpacked(again).to_pylist() == [*table.to_pylist(), {"p1": 2**40, "p2": 0}]
