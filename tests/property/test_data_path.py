"""Property: many batches in a row in the calling process, against one grouping over all rows.

Windows of many shapes on common slices, late rows, nodes, compaction, key groups that move, slots that come and go,
keys that partitioners split, queries that are dropped, restarts: whatever happens in between, a window's result is
that of the rows that had come before it closed.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.model.expr import Expr, quote
from thalweg.model.partitioning import Partitioning
from thalweg.model.plan import Plan, route_keys, shipped_keys
from thalweg.model.plan_input import GroupingLoad
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import BEGINNING, Window
from thalweg.operate import finish, pre_aggregate
from thalweg.partition import names

pytestmark = pytest.mark.slow

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "a": "int", "b": "string", "v": "bigint"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 3 * SECOND, SourceSpec("memory", {}))
WINDOWS = (
    Window(10 * SECOND, 10 * SECOND),
    Window(20 * SECOND, 5 * SECOND),
    Window(60 * SECOND, SECOND),
    Window(7 * SECOND, 7 * SECOND),
    Window(32 * SECOND, 2 * SECOND, SECOND),
)


def column(name: str) -> Expr:
    return Expr(quote(name), TYPES[name], (name,))


AGGREGATES = (
    Aggregate("count_all", (), "bigint"),
    Aggregate("sum", (column("v"),), "bigint"),
    Aggregate("max", (column("v"),), "bigint"),
    Aggregate("min", (column("b"),), "string"),
    Aggregate("percentile", (column("v"),), "double", parameters=(0.5,)),
    Aggregate("count_distinct", (column("b"),), "bigint"),
    Aggregate("stddev_pop", (column("v"),), "double"),
    Aggregate("avg", (column("v"),), "double"),
)
SIMPLE = (*AGGREGATES[:3], AGGREGATES[-1])


def query(
    name: str, keys: tuple[str, ...], window: Window, limit: int | None, aggregates: Sequence[Aggregate]
) -> Query:
    """Of all rows or of those with v below a limit, written as `frontend` writes it or, an odd one, otherwise."""
    outputs = [Output("w", Expr("window_start", "timestamp", ("window_start",)))]
    outputs += [Output(k, Expr(f"k{i}", TYPES[k], (f"k{i}",))) for i, k in enumerate(keys)]
    outputs += [Output(f"x{i}", Expr(f"a{i}", a.type, (f"a{i}",))) for i, a in enumerate(aggregates)]
    text = f'"v" < {limit}' if limit is not None and limit % 2 else f'("v" < CAST({limit} AS BIGINT))'
    where = None if limit is None else Expr(text, "boolean", ("v",))
    return Query(name, "", "s", tuple(outputs), where, window, tuple(column(k) for k in keys), tuple(aggregates))


def random_aggregates(rng: random.Random) -> Sequence[Aggregate]:
    return rng.choice([SIMPLE, AGGREGATES, rng.sample(AGGREGATES, rng.randint(1, 4))])


def random_batch(rng: random.Random, position: int, nulls: bool, seconds: int = 4) -> pa.Table:
    """Keys without NULLs take the way of direct address, those with them DuckDB's."""
    n = rng.choice([0, 1, 5, 40, 120])
    newest = position * seconds * SECOND
    times = [newest - int(rng.expovariate(1 / 4) * SECOND) for _ in range(n)]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "a": pa.array([rng.choice([None if nulls else 7, 1, 2, 3]) for _ in range(n)], pa.int32()),
            "b": pa.array([rng.choice([None, "x", "y", "zz"]) for _ in range(n)], pa.string()),
            "v": pa.array([rng.randrange(100) for _ in range(n)], pa.int64()),
        }
    )


@dataclass
class History:
    """What came in, batch by batch, and what had closed by the end of each."""

    batches: list[pa.Table] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    newest: int | None = None

    def run(self, pipeline: LocalPipeline, batch: pa.Table, pieces: int = 2) -> None:
        """One batch, which closes what the batches before it have let pass."""
        closed = self.marks[-1] if self.marks else BEGINNING
        passed = BEGINNING if self.newest is None else self.newest // 1000 * 1000 - STREAM.delay_us
        pipeline.append("s", batch, pieces)
        assert pipeline.run()
        self.batches.append(batch)
        self.marks.append(max(closed, passed))
        if batch.num_rows:
            latest = pc.max(batch.column("ts").cast(pa.int64())).as_py()
            self.newest = latest if self.newest is None else max(self.newest, latest)


def random_assignment(rng: random.Random, plan: Plan) -> dict[str, list[int]]:
    """Key groups anywhere, other ones in every batch, and some route keys hashed."""
    keys = [name for name in sorted(route_keys(plan)) if rng.random() < 0.7]
    return {name: [rng.randrange(plan.slots) for _ in range(plan.groups)] for name in keys}


def random_follows(rng: random.Random, plan: Plan) -> dict[str, str]:
    keys = sorted(shipped_keys(plan, plan.streams["s"]))
    leader = rng.choice([*keys, None])
    return {key: leader for key in keys if leader is not None and key != leader and rng.random() < 0.7}


def random_partitioners(rng: random.Random, plan: Plan) -> dict[str, str]:
    """Any of them, for any route key, another one in every batch: keys lie whole or in pieces, wherever."""
    return {
        key: rng.choice([*names(), "local", "hash"])
        for key in shipped_keys(plan, plan.streams["s"])
        if rng.random() < 0.5
    }


def decide_randomly(rng: random.Random, pipeline: LocalPipeline, partitioners: bool) -> None:
    """How many slots, and what goes where: another way in every batch."""
    if rng.random() < 0.6:  # where their number changes, nothing is dealt out by partitioners
        pipeline.batches.adaptations.change("slot_count", slots=rng.choice([1, 2, 3]))
    # Where groups are many, slots make them from whole rows.
    loads = {id_: GroupingLoad(rng.choice([0.1, 1.0])) for id_ in sorted(pipeline.preview({}).groupings)}
    plan = pipeline.preview(loads)
    pipeline.decide(
        loads=loads,
        partitioning=Partitioning(random_assignment(rng, plan), random_follows(rng, plan), plan.slots),
        partitioners=random_partitioners(rng, plan) if partitioners else {},
    )


def expected_rows(q: Query, batches: list[pa.Table], marks: list[int]) -> list[tuple]:
    """By hand: for every window, the rows of the batches up to the one that closes it."""
    rows = defaultdict(list)
    limit = None if q.where is None else int(re.findall(r"\d+", q.where.sql)[0])
    names = [k.columns[0] for k in q.keys]
    for number, table in enumerate(batches):
        closed = marks[number - 1] if number else BEGINNING
        for row in table.set_column(0, "ts", table.column("ts").cast(pa.int64())).to_pylist():
            if limit is not None and row["v"] >= limit:
                continue
            w = row["ts"] - (row["ts"] - q.window.start_us) % q.window.slide_us
            while w + q.window.range_us > row["ts"]:
                if w + q.window.range_us > closed:
                    rows[(w, *(row[n] for n in names))].append(row)
                w -= q.window.slide_us
    return [
        (w, *keys, *(value_by_hand(aggregate.function, members) for aggregate in q.aggregates))
        for (w, *keys), members in rows.items()
        if w + q.window.range_us <= marks[-1]
    ]


def value_by_hand(function: str, members: list[dict[str, Any]]) -> Any:
    values = [m["v"] for m in members]
    texts = [m["b"] for m in members if m["b"] is not None]
    match function:
        case "count_all":
            return len(values)
        case "sum":
            return sum(values)
        case "max":
            return max(values)
        case "min":
            return min(texts, default=None)
        case "percentile":
            return float(median(values))
        case "avg":
            return sum(values) / len(values)
        case "count_distinct":
            return len(set(texts))
        case "stddev_pop":
            mean = sum(values) / len(values)
            return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    raise AssertionError(function)


def assert_same(q: Query, actual: list[tuple], wanted: list[tuple]) -> None:
    keys = 1 + len(q.keys)

    def order(row: tuple) -> tuple:
        return tuple((x is None, x or 0) if not isinstance(x, str) else (False, x) for x in row[:keys])

    actual, wanted = sorted(actual, key=order), sorted(wanted, key=order)
    assert [exact(row) for row in actual] == [exact(row) for row in wanted], f"{q.name} {q.window}"
    found, given = ([x for row in rows for x in row if isinstance(x, float)] for rows in (actual, wanted))
    np.testing.assert_allclose(found, given, rtol=1e-9, atol=1e-9)


def exact(row: tuple) -> tuple:
    return tuple("about" if isinstance(x, float) else x for x in row)


BATCHES = 10


@pytest.mark.parametrize("seed", range(56))
def test_windows_equal_one_grouping_over_all_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    queries = [
        query(
            f"q{i}",
            rng.choice([(), ("a",), ("a", "b"), ("a", "v")]),
            rng.choice(WINDOWS),
            rng.choice([None, None, 50, 45]),
            random_aggregates(rng),
        )
        for i in range(rng.choice([1, 2, 2, 3, 3, 4, 5]))
    ]
    tasks, seconds = rng.choice([1, 2, 2, 3]), rng.choice([4, 8, 12])
    history, ended = History(), {q.name: BATCHES for q in queries}
    with closing(LocalPipeline(tmp_path, [STREAM], queries, tasks=tasks, groups=16, shuffled=rng)) as pipeline:
        for number in range(BATCHES):
            batch = random_batch(rng, number, seed % 2 == 0, seconds)
            if len(pipeline.queries) > 1 and rng.random() < 0.08:
                # Slices and nodes of those that stay may change with it; their results may not.
                dropped = rng.choice(list(pipeline.queries))
                pipeline.drop(dropped)
                ended[dropped] = number
            if rng.random() < 0.08:
                pipeline.reopen()
            # Partials may wait in the state for their windows, whoever has made them, or travel at once.
            monkeypatch.setattr(pre_aggregate, "STAYING_FROM", rng.choice([0, 2000, 1 << 20]))
            decide_randomly(rng, pipeline, partitioners=seed % 2 == 1)
            history.run(pipeline, batch.slice(0, None if number < BATCHES - 1 else 0), pieces=rng.randint(1, 4))
        assert not pipeline.failures()
        for q in queries:
            until = ended[q.name]
            wanted = expected_rows(q, history.batches[:until], history.marks[:until]) if until else []
            assert_same(q, pipeline.rows(q.name), wanted)


def test_windows_of_keys_counts_and_sums_need_no_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `chosen` knows is what `finish` writes: if one changed alone, results would stay right, but cost more."""
    monkeypatch.delattr(finish._Statement, "text")
    rng, history = random.Random(7), History()
    queries = [query(f"q{i}", ("a",), WINDOWS[i], limit, SIMPLE) for i, limit in enumerate((None, 50))]
    with closing(LocalPipeline(tmp_path, [STREAM], queries, groups=16)) as pipeline:
        for number in range(10):
            history.run(pipeline, random_batch(rng, number, nulls=False))
        for q in queries:
            rows = expected_rows(q, history.batches, history.marks)
            assert len(rows) > 5
            assert_same(q, pipeline.rows(q.name), rows)


def test_a_sum_that_overflows_in_one_slot_leaves_no_hole_in_the_others_windows(tmp_path: Path) -> None:
    """Nodes are common to all slots. A slot that cannot merge one has to have it all the same."""
    count, total = Aggregate("count_all", (), "bigint"), Aggregate("sum", (column("v"),), "bigint")
    start = Output("w", Expr("window_start", "timestamp", ("window_start",)))
    outputs = (start, Output("a", Expr("k0", "int", ("k0",))), Output("x", Expr("a0", "bigint", ("a0",), True)))
    keys = (column("a"),)
    good = Query("good", "", "s", outputs, None, Window(24 * SECOND, 3 * SECOND), keys, (count,))
    history, bad = History(), 0
    with closing(LocalPipeline(tmp_path, [STREAM], [good], groups=16)) as pipeline:
        for number in range(44):
            if len(pipeline.queries) < 2:  # one that was stopped comes again
                bad += 1
                pipeline.create(
                    Query(f"bad{bad}", "", "s", outputs, None, Window(60 * SECOND, 60 * SECOND), keys, (total,))
                )
            values = [2**62 if a == 1 and 2 < number % 20 < 10 else 1 for a in range(8)]
            batch = pa.table(
                {
                    "ts": pa.array([number * 3 * SECOND] * 8, pa.int64()).cast(pa.timestamp("us")),
                    "a": pa.array(range(8), pa.int32()),
                    "b": pa.array(["x"] * 8),
                    "v": pa.array(values, pa.int64()),
                }
            )
            history.run(pipeline, batch)
        blamed = pipeline.failures()
        counts = {(w, a): n for w, a, n in pipeline.rows("good")}
    assert len(blamed) > 1
    assert all(name.startswith("bad") for name in blamed)
    assert len(counts) > 200
    full = {(w, a): n for (w, a), n in counts.items() if w >= 0}
    assert {key: n for key, n in full.items() if n != 8} == {}
