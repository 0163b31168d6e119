"""Differential: query sets of buckets by pieces, by bits of this or of earlier releases, and plain loops agree."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.plain_atoms import holds
from tests.support.read_table import Reader

from thalweg.model.bucket import Layout, RowBucket, Section
from thalweg.model.join import Atom
from thalweg.model.probe import Cohort, Index, Predicate, Role, Store, Want
from thalweg.operate import marks
from thalweg.operate.predicates import PredicateIndex
from thalweg.operate.store import BITS, SETS, Rows, Sampled, choose_rows, numbers

KEY = Index("i", ("k",), "k", exact=True)
OPS = ("=", "<", "<=", ">", ">=")
KINDS = {"i": pa.int32(), "l": pa.int64(), "f": pa.float32(), "d": pa.float64(), "t": pa.timestamp("us")}
COMPUTED = ("c1", "c2")
NAN = float("nan")
NEEDS = ((("r", "s"), 1), (("r", "u"), 1))


def random_atom(rng: random.Random) -> Atom:
    column = rng.choice([*KINDS])
    floating = column in "fd"
    value = rng.choice([NAN, -0.0, 0.5, *range(-3, 12)]) if floating else rng.choice([-(2**63), 2**63, *range(12)])
    return Atom(column, rng.choice(OPS), float(value) if floating else value)


def random_predicate(rng: random.Random, number: int) -> Predicate:
    atoms = tuple(random_atom(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
    computed = (rng.choice(COMPUTED),) if not atoms or rng.random() < 0.1 else ()
    return Predicate(f"p{number}", atoms, computed)


def random_rows(rng: random.Random, count: int) -> pa.Table:
    def values(kind: pa.DataType) -> list[Any]:
        chosen = [None, 0, 1, 5, *range(-2, 12)]
        if pa.types.is_floating(kind):
            return [
                v if v is None else float(v) for v in (rng.choice([*chosen, NAN, -0.0, 0.5]) for _ in range(count))
            ]
        return [rng.choice(chosen) for _ in range(count)]

    columns = {name: pa.array(values(kind), kind) for name, kind in KINDS.items()}
    columns |= {
        name: pa.array([rng.choice((True, False, None)) for _ in range(count)], pa.bool_()) for name in COMPUTED
    }
    times = pa.array([rng.randrange(100) for _ in range(count)], pa.int64()).cast(pa.timestamp("us"))
    return pa.table({**columns, "k": pa.array(range(count), pa.int64()), "ts": times}).combine_chunks()


def satisfies(row: dict[str, Any], predicate: Predicate | None) -> bool:
    if predicate is None:
        return True
    return all(holds(row[a.column], a) for a in predicate.atoms) and all(row[c] is True for c in predicate.computed)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    for name in ("t", "ts"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
    return table.to_pylist()


def random_store(rng: random.Random, predicates: Sequence[Predicate], keeps_all: bool) -> Store:
    """Some of the columns that predicates read are kept, others not."""
    kept = [c for c in (*KINDS, *COMPUTED) if rng.random() < rng.choice((0.2, 0.9))]
    return Store("r", "ts", ("k", "ts", *kept), tuple(predicates), keeps_all, (KEY,), NEEDS)


def as_of_old(store: Store, table: pa.Table, rows: pa.Table) -> pa.Table:
    """As earlier releases kept rows: a bit of every predicate."""
    if BITS in table.column_names:
        table = table.drop_columns([BITS])
    bits = PredicateIndex(store.predicates).evaluate(rows)
    packed = pa.Array.from_buffers(pa.binary(bits.shape[1]), len(bits), [None, pa.py_buffer(bits)])
    return table.append_column(BITS, packed) if bits.shape[1] else table


def bucket_of(store: Store, then: Store, rows: pa.Table, old: bool, closed: dict[str, int]) -> tuple[Rows, list[int]]:
    """Rows as the store of an earlier plan has kept them, seen by that of today; and which they are."""
    table = choose_rows(then, rows, Sampled())
    chosen = table.column("k").to_pylist()
    layout = Layout.of(then, closed)
    if old:
        table = as_of_old(then, table, rows.take(pa.array(chosen, pa.int64())))
        layout = Layout(layout.predicates, layout.keeps_all, 0, 0, closed)
    section = Section("f", "r", 0, 0, table.num_rows, 0)
    held = RowBucket(
        section=section,
        relation="r",
        level=0,
        batch_from=0,
        batch_to=0,
        place=0,
        indexes={},
        layout=layout,
        columns=tuple(table.column_names),
    )
    return Rows(store, held, Reader(table.combine_chunks()), True), chosen


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_query_sets_equal_plain_comparisons(monkeypatch: pytest.MonkeyPatch, seed: int, old: bool) -> None:
    rng = random.Random(f"{seed} {old}")
    monkeypatch.setattr(marks, "FEW", rng.choice((0, 0, 4096)))
    monkeypatch.setattr(marks, "WORTH", rng.choice((0, 1, 4)))
    if rng.random() < 0.2:
        monkeypatch.setattr(marks, "_SHORT", 0)
    earlier = [random_predicate(rng, i) for i in range(rng.choice((1, 9, 70, 500)))]
    later = [random_predicate(rng, len(earlier) + i) for i in range(rng.choice((0, 3)))]
    rows = random_rows(rng, rng.choice((1, 30, 400)))
    then = random_store(rng, earlier, rng.random() < 0.5)
    now = random_store(rng, [*rng.sample(earlier, rng.randint(1, len(earlier))), *later], rng.random() < 0.5)
    closed = {"r": rng.choice((-5, 30)), "s": 50, "u": rng.choice((-5, 20))}
    bucket, chosen = bucket_of(now, then, rows, old, closed)
    cohort, role = random_cohort(rng, now)
    made = bucket.marks(cohort, role)
    expected = plain_sets(plain_rows(rows.take(pa.array(chosen, pa.int64()))), bucket, cohort, role)
    assert made.allowed == sum(w.queries for w in role.wants if can_serve(bucket, then, w))
    for _ in range(5):
        some = rng.sample(range(len(chosen)), rng.randint(0, min(len(chosen), rng.choice((2, 400)))))
        assert made.of(np.array(some, dtype=np.uint32)).tolist() == [expected[row] for row in some]
    first = rng.randint(0, len(chosen))
    last = rng.randint(first, len(chosen))
    assert made.over(first, last)[first:last].tolist() == expected[first:last]
    assert made.over(0, len(chosen)).tolist() == expected


def random_cohort(rng: random.Random, store: Store) -> tuple[Cohort, Role]:
    """Queries that share a predicate are one want; some have none, where all rows are kept."""
    count = rng.randint(1, 64)
    asked: dict[Predicate | None, int] = {}
    some = [*store.predicates, *([None] if store.keeps_all else [])]
    for bit in range(count):
        predicate = rng.choice(some)
        asked[predicate] = asked.get(predicate, 0) | 1 << bit
    wants = tuple(
        Want(queries, predicate, tuple(rng.sample([*store.columns], rng.choice((0, 0, 1)))))
        for predicate, queries in asked.items()
    )
    streams = tuple(rng.choice((("r", "s"), ("r", "u"))) for _ in range(count))
    role = Role("r", "r", wants)
    return Cohort("g", tuple(f"q{i}" for i in range(count)), streams, {"r": role}, ()), role


def can_serve(bucket: Rows, then: Store, want: Want) -> bool:
    columns, predicate = set(bucket.bucket.columns), want.predicate
    if not columns.issuperset(want.columns):
        return False
    if predicate is None:
        return then.keeps_all
    return predicate in then.predicates or (then.keeps_all and columns.issuperset(predicate.reads))


def plain_sets(rows: list[dict[str, Any]], bucket: Rows, cohort: Cohort, role: Role) -> list[int]:
    found = []
    for row in rows:
        queries = sum(w.queries for w in role.wants if satisfies(row, w.predicate))
        for bit, streams in enumerate(cohort.streams):
            if row["ts"] <= bucket.layout.threshold(streams):
                queries &= ~(1 << bit)
        found.append(queries & sum(w.queries for w in role.wants if bucket.usable(Role("r", "r", (w,)))))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_an_intermediate_have_their_sets_with_them(seed: int) -> None:
    rng = random.Random(seed)
    then = tuple(rng.sample([f"q{i}" for i in range(64)], 40))
    now = tuple(rng.sample([f"q{i}" for i in range(70)], 64))
    sets = [rng.getrandbits(40) for _ in range(300)]
    table = pa.table({"k": range(300), "ts": range(300), SETS: pa.array(sets, pa.uint64())})
    store = Store("+m", "ts", ("k", "ts"), (), True, (KEY,), NEEDS)
    bucket, _ = bucket_of(store, store, pa.table({"k": range(300), "ts": range(300)}), False, {})
    held = RowBucket(
        **{f: getattr(bucket.bucket, f) for f in RowBucket.__struct_fields__ if f not in ("layout", "columns")},
        layout=Layout((), True, 0, 0, {}, then),
        columns=("k", "ts", SETS),
    )
    cohort = Cohort("g", now, (("r", "s"),) * 64, {}, ())
    made = Rows(store, held, Reader(table), False).marks(cohort, Role("+m", "+m", ()))
    expected = [sum(1 << now.index(q) for b, q in enumerate(then) if s >> b & 1 and q in now) for s in sets]
    assert made.over(0, 300).tolist() == expected
    assert made.of(np.array([7, 3], dtype=np.uint32)).tolist() == [expected[7], expected[3]]


class Holes(Reader):
    """Of a table whose rows are there once somebody has needed them."""

    def __init__(self, table: pa.Table) -> None:
        self._whole = {
            name: numbers(column).copy() for name, column in zip(table.column_names, table.columns, strict=True)
        }
        self._there = {name: np.zeros_like(values) for name, values in self._whole.items()}
        arrays = [
            pa.Array.from_buffers(kind, table.num_rows, [None, pa.py_buffer(self._there[name])])
            for name, kind in zip(table.column_names, table.schema.types, strict=True)
        ]
        super().__init__(pa.table(dict(zip(table.column_names, arrays, strict=True))))

    def need(self, columns: Iterable[str], rows: Sequence[tuple[int, int]]) -> None:
        for name in columns:
            for first, last in rows:
                self._there[name][first:last] = self._whole[name][first:last]


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_not_there_are_not_marked(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(marks, "FEW", rng.choice((0, 50)))
    table = pa.table({"i": pa.array([rng.randrange(1, 9) for _ in range(500)], pa.int32()), "ts": range(100, 600)})
    table = table.append_column("k", table.column("ts"))
    predicates = [Predicate(f"p{i}", (Atom("i", rng.choice(OPS), rng.randrange(9)),)) for i in range(20)]
    store = Store("r", "ts", ("k", "ts", "i"), tuple(predicates), True, (KEY,), NEEDS)
    bucket, _ = bucket_of(store, store, table, False, {"r": 300, "s": 400, "u": 0})
    role = Role("r", "r", tuple(Want(1 << bit, predicate, ()) for bit, predicate in enumerate(predicates)))
    cohort = Cohort("g", tuple(map(str, range(20))), (("r", "s"),) * 20, {"r": role}, ())
    rows = Rows(store, bucket.bucket, Holes(table), False)
    expected = plain_sets(table.to_pylist(), bucket, cohort, role)
    for _ in range(40):
        first = rng.randrange(500)
        last = min(500, first + rng.choice((1, 20, 200)))
        made = rows.marks(cohort, role)
        if rng.random() < 0.5:
            assert made.over(first, last)[first:last].tolist() == expected[first:last]
            continue
        rows.stored.need(("i", "ts"), [(first, last), (0, 3)])
        some = [*rng.sample(range(first, last), min(3, last - first)), 1]
        assert made.of(np.array(some, dtype=np.uint32)).tolist() == [expected[row] for row in some]
