"""Unit: users' own aggregates on the data path, without Spark: many batches against plain Python over all rows."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.engine.batch import blame
from thalweg.engine.functions import pickled
from thalweg.model.expr import Expr, quote
from thalweg.model.own import OWN, Functions, Own
from thalweg.model.plan import Plan
from thalweg.model.query import Aggregate, Output, Query, Window
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.operate.own import define, freeze
from thalweg.operate.shipping import unship
from thalweg.operate.slot import Clock, Held, SlotResult, run_slot
from thalweg.operate.source import Ingested, ingest_chunk
from thalweg.operate.windows import BEGINNING, needed_until
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.optimize.shipping import GroupingLoad

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "k": "int", "v": "bigint", "b": "string"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 2 * SECOND, SourceSpec("memory", {}))
TUMBLING, SLIDING = Window(10 * SECOND, 10 * SECOND), Window(24 * SECOND, 3 * SECOND)


def mean_of(state: tuple[float, int], batch: pa.RecordBatch) -> tuple[float, int]:
    return state[0] + (pc.sum(batch.column(0)).as_py() or 0), state[1] + len(batch) - batch.column(0).null_count


def add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


MEAN = Functions(lambda: (0.0, 0), mean_of, add, lambda s: s[0] / s[1] if s[1] else None)
MEDIAN = Functions(
    list, lambda s, b: s + b.column(0).drop_null().to_pylist(), lambda a, b: a + b, lambda s: median(s) if s else None
)
# Keeps Arrow arrays themselves as its state, and tells types and names.
TEXTS = Functions(
    list,
    lambda s, b: [*s, b.column("b")],
    lambda a, b: a + b,
    lambda s: sorted(x or "-" for a in s for x in a.to_pylist()),
)
SHAPE = Functions(str, lambda s, b: ", ".join(f"{f.name} {f.type}" for f in b.schema), max, str)


def call(name: str, version: str, type_: str, *args: str, where: str | None = None) -> Aggregate:
    exprs = tuple(Expr(quote(a), TYPES[a], (a,)) for a in args)
    condition = None if where is None else Expr(where, "boolean", ("v",))
    return Aggregate(OWN, exprs, type_, filter=condition, own=Own(name, args, version))


def query(name: str, window: Window, *aggregates: Aggregate) -> Query:
    outputs = [
        Output("w", Expr("window_start", "timestamp", ("window_start",))),
        Output("k", Expr("k0", "int", ("k0",))),
    ]
    outputs += [Output(f"x{i}", Expr(f"a{i}", a.type, (f"a{i}",), True)) for i, a in enumerate(aggregates)]
    return Query(name, "", "s", tuple(outputs), None, window, (Expr('"k"', "int", ("k",)),), aggregates)


def code(**functions: Functions) -> dict[str, bytes]:
    return {
        version: pickled(found, (found.init, found.update, found.merge, found.finish))
        for version, found in functions.items()
    }


def planned(queries: list[Query], functions: dict[str, bytes], groups_per_row: float = 0.1) -> Plan:
    registered = [Registered(q.name, q) for q in queries]
    plan = make_plan(registered, {"s": STREAM}, slots=1, groups=16)
    loads = {id_: GroupingLoad(groups_per_row) for id_ in plan.groupings}
    plan = make_plan(registered, {"s": STREAM}, slots=1, groups=16, loads=loads)
    return replace(plan, functions=functions)


class Run:
    """Batches in a row in one slot, their state kept in memory."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, Held]] = {}
        self.results: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.failures: dict[str, str] = {}
        self.closed, self.newest, self.number = BEGINNING, BEGINNING, 0

    def batch(self, plan: Plan, rows: pa.Table) -> None:
        define(plan)
        closing = max(self.closed, self.newest - 2 * SECOND)
        clock = Clock(self.number, {"s": self.closed}, {"s": closing})
        done = Ingested()
        for part in (rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2)):
            ingest_chunk(plan, "s", part, clock, done)
        arrived: dict[str, list[pa.Table]] = defaultdict(list)
        for id_, table in done.cells.get(0, []):
            arrived[id_].append(table)
        held: dict[str, list[Held]] = defaultdict(list)
        for grouping, bucket in self.held.values():
            held[grouping].append(bucket)
        nodes = {
            g: frozenset((s, h.span) for h in found for s in h.starts if h.span < 0) for g, found in held.items()
        }
        ready, _ = unship(plan, arrived, self.failures)
        outcome = run_slot(plan, clock, ready, held, nodes)
        self.failures |= done.failures | outcome.failures
        self._keep(plan, outcome, closing)
        self.closed, self.number = closing, self.number + 1
        self.newest = max(self.newest, done.max_time_us.get("s", BEGINNING))

    def _keep(self, plan: Plan, outcome: SlotResult, closing: int) -> None:
        for name, table in outcome.results:
            columns = [table.column(0).cast(pa.int64()), *table.columns[1:]]
            self.results[name] += zip(*(c.to_pylist() for c in columns), strict=True)
        for name in outcome.replaced:
            del self.held[name]
        for i, k in enumerate(outcome.kept):
            name, load = f"{self.number}-{i}", (lambda table=k.table: table)
            self.held[name] = (k.grouping, Held(name, k.level, k.span, k.starts, k.batch_from, True, load, load))
        windows = {id_: g.windows for id_, g in plan.groupings.items()}
        self.held = {
            name: (g, h)
            for name, (g, h) in self.held.items()
            if any(needed_until(s, windows[g]) > closing for s in h.starts)
        }


def random_rows(rng: random.Random, position: int, n: int) -> pa.Table:
    times = [position * 4 * SECOND - int(rng.expovariate(1) * SECOND) for _ in range(n)]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "k": pa.array([rng.choice([None, 1, 2]) for _ in range(n)], pa.int32()),
            "v": pa.array([rng.choice([None, *range(30)]) for _ in range(n)], pa.int64()),
            "b": pa.array([rng.choice([None, "x", "yy"]) for _ in range(n)], pa.string()),
        }
    )


Rows = list[dict[str, Any]]


def by_hand(
    window: Window, batches: list[pa.Table], values: Callable[[Rows], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """For every window that closes, the rows of the batches up to the one that closes it."""
    found: dict[tuple[int, Any], Rows] = defaultdict(list)
    newest = closed = BEGINNING
    for table in batches:
        for row in table.set_column(0, "ts", table.column("ts").cast(pa.int64())).to_pylist():
            w = row["ts"] - (row["ts"] - window.start_us) % window.slide_us
            for start in range(w, row["ts"] - window.range_us, -window.slide_us):
                if start + window.range_us > closed:
                    found[start, row["k"]].append(row)
        closed = max(closed, newest - 2 * SECOND)
        newest = max([newest, *table.column("ts").cast(pa.int64()).to_pylist()])
    return [(*place, *values(rows)) for place, rows in found.items() if place[0] + window.range_us <= closed]


def plain(rows: Rows) -> tuple[Any, ...]:
    known = [r["v"] for r in rows if r["v"] is not None]
    low = [v for v in known if v < 10]
    return (
        sum(known) / len(known) if known else None,
        median(low) if low else None,
        sorted(r["b"] or "-" for r in rows),
    )


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0], row[1] is None, row[1] or 0))


@pytest.mark.parametrize(("seed", "groups_per_row"), [(1, 0.1), (2, 0.1), (3, 1.0)])
def test_many_batches_equal_one_pass_over_all_rows(seed: int, groups_per_row: float) -> None:
    """Slices, nodes, compaction, late rows, NULLs, groups of which a FILTER admits nothing, rows shipped whole."""
    rng = random.Random(seed)
    calls = (
        call("mean", "v1", "double", "v"),
        call("median_", "v2", "double", "v", where='"v" < 10'),
        call("texts", "v3", "array<string>", "b"),
    )
    queries = [query("tumbling", TUMBLING, *calls), query("sliding", SLIDING, *calls)]
    plan = planned(queries, code(v1=MEAN, v2=MEDIAN, v3=TEXTS), groups_per_row)
    assert bool(plan.streams["s"].shipped) == (groups_per_row > 0.5)
    run, batches = Run(), [random_rows(rng, i, rng.choice([0, 3, 40])) for i in range(18)]
    for batch in batches:
        run.batch(plan, batch)
    assert not run.failures
    for q in queries:
        assert q.window is not None
        wanted = by_hand(q.window, batches, plain)
        assert len(wanted) > 10
        assert ordered(run.results[q.name]) == ordered(wanted)


def test_arguments_come_with_the_names_and_types_that_users_know() -> None:
    plan = planned([query("q", TUMBLING, call("shape", "v", "string", "ts", "v", "b"))], code(v=SHAPE))
    run = Run()
    for i in range(6):
        run.batch(plan, random_rows(random.Random(i), i, 20))
    assert {row[2] for row in run.results["q"]} == {"ts timestamp[us, tz=UTC], v int64, b string"}


def failing(step: str) -> Functions:
    def raises(*_: Any) -> Any:
        raise ValueError("no\nluck")

    return replace(MEAN, **{step: raises})


@pytest.mark.parametrize("step", ["init", "update", "merge", "finish"])
def test_code_that_raises_fails_its_own_query_only(step: str) -> None:
    bad = query("bad", SLIDING, call("bad", "bad", "double", "v"))
    good = query("good", SLIDING, call("mean", "good", "double", "v"))
    plan = planned([bad, good], code(bad=failing(step), good=MEAN))
    run, batches = Run(), [random_rows(random.Random(i), i, 30) for i in range(12)]
    for batch in batches:
        run.batch(plan, batch)
    shown = {"update", "finish"} if step == "init" else {step}
    said = {message.split(", line")[0] for message in run.failures.values()}
    assert said == {f"aggregate bad: {s} raised ValueError: no luck (test_own.py" for s in shown}
    assert blame(plan, run.failures).keys() == {"bad"}
    assert ordered(run.results["good"]) == ordered(by_hand(SLIDING, batches, lambda rows: plain(rows)[:1]))


def test_finish_sees_only_the_groups_of_its_query() -> None:
    """Queries are finished together; a state of no rows is nothing that this one can finish."""
    picky = replace(MEAN, finish=lambda s: s[0] / s[1])
    some = replace(
        query("some", TUMBLING, call("picky", "v1", "double", "v")),
        where=Expr('"k" = 1 AND "v" >= 0', "boolean", ("k", "v")),
    )
    plan = planned([some, query("all", TUMBLING, call("mean", "v2", "double", "v"))], code(v1=picky, v2=MEAN))
    run = Run()
    for i in range(8):
        run.batch(plan, random_rows(random.Random(i), i, 20))
    assert not run.failures
    assert {row[1] for row in run.results["some"]} == {1}
    assert {row[1] for row in run.results["all"]} == {None, 1, 2}


@pytest.mark.parametrize("value", ["text", 2.5, float("nan"), 1 << 70, {1}, [1]])
def test_a_value_of_another_type_fails_the_query(value: Any) -> None:
    odd = replace(MEAN, finish=lambda s: value)
    run, plan = Run(), planned([query("q", TUMBLING, call("odd", "v", "bigint", "v"))], code(v=odd))
    for i in range(6):
        run.batch(plan, random_rows(random.Random(i), i, 10))
    assert "which is not of the type bigint" in run.failures["q"]
    assert not run.results["q"]


def test_code_that_a_worker_cannot_load_fails_the_query() -> None:
    run, lost = Run(), b"cno_such_module\nthing\n."
    plan = planned([query("q", TUMBLING, call("lost", "v", "double", "v"))], {"v": lost})
    run.batch(plan, random_rows(random.Random(1), 1, 9))
    assert "aggregate lost: loading raised ModuleNotFoundError" in next(iter(run.failures.values()))


def test_state_goes_on_with_the_code_that_is_defined_now() -> None:
    """After a restart: the version names the state, the plan says what code stands for it."""
    q, run = query("q", TUMBLING, call("mean", "v", "double", "v")), Run()
    batches = [random_rows(random.Random(i), i, 20) for i in range(8)]
    doubled = replace(MEAN, finish=lambda s: 2 * s[0] / s[1] if s[1] else None)
    for i, batch in enumerate(batches):
        run.batch(planned([q], code(v=MEAN if i < 4 else doubled)), batch)
    wanted = ordered(by_hand(TUMBLING, batches, lambda rows: plain(rows)[:1]))
    factors = {got[2] / want[2] for got, want in zip(ordered(run.results["q"]), wanted, strict=True) if want[2]}
    assert factors == {1.0, 2.0}


def test_the_same_name_with_other_code_has_other_state() -> None:
    first, second = (query(n, TUMBLING, call("mean", n, "double", "v")) for n in ("v1", "v2"))
    again = query("v3", TUMBLING, call("mean", "v1", "double", "v"))
    plan = planned([first, second, again], {})
    names = {p.name for g in plan.groupings.values() for p in g.partials if p.own is not None}
    assert len(names) == 2, "one for each version; queries of the same version share theirs"


def test_a_coarser_grouping_is_not_rolled_up_through_users_code() -> None:
    fine = replace(query("fine", TUMBLING), keys=(Expr('"k"', "int", ("k",)), Expr('"b"', "string", ("b",))))
    coarse = query("coarse", TUMBLING, call("mean", "v", "double", "v"))
    plan = planned([fine, coarse], {})
    assert all(g.finer is None for g in plan.groupings.values())


def test_a_part_of_an_array_is_kept_without_the_rest() -> None:
    rows = pa.record_batch({"x": np.arange(100_000), "y": pa.array([str(i) for i in range(100_000)])})
    part = rows.slice(50_000, 3)
    state = {"rows": part, "column": part.column(1), "chunks": pa.chunked_array([part.column(0)])}
    kept = freeze(state)
    assert len(kept) < 3_000
    back = pickle.loads(kept)
    assert back["rows"].equals(part)
    assert back["column"].to_pylist() == ["50000", "50001", "50002"]
    assert back["chunks"].to_pylist() == [50_000, 50_001, 50_002]
