"""Property: the data path without Spark, many batches in a row, against one grouping over all rows.

Windows of many shapes on common slices, late rows, nodes, compaction, key groups that move, slots that come and go,
keys that partitioners split:
whatever happens in between, a window's result is that of the rows that had come before it closed.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.engine.movement import Movement
from thalweg.model.expr import Expr, quote
from thalweg.model.plan import Plan, route_keys, shipped_keys
from thalweg.model.query import Aggregate, Output, Query, Window
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.operate import finish, source
from thalweg.operate.columns import GROUP, START
from thalweg.operate.partitioners import Partitioners
from thalweg.operate.shipping import unship
from thalweg.operate.slot import Clock, Held, Kept, run_slot
from thalweg.operate.source import Ingested, ingest_chunk
from thalweg.operate.windows import BEGINNING, needed_until
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.optimize.shipping import GroupingLoad
from thalweg.partition import names
from thalweg.partition.cooperative import Policy, merge
from thalweg.route.bucket import order_by_group, slice_groups
from thalweg.route.table import routing_table

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


def query(name: str, keys: tuple[str, ...], window: Window, limit: int | None, simple: bool) -> Query:
    """Count, sum, least, median and distinct values, of all rows or of those with v below a limit."""
    v, b = column("v"), column("b")
    aggregates = (
        Aggregate("count_all", (), "bigint"),
        Aggregate("sum", (v,), "bigint"),
        Aggregate("max", (v,), "bigint"),
        Aggregate("min", (b,), "string"),
        Aggregate("percentile", (v,), "double", parameters=(0.5,)),
        Aggregate("count_distinct", (b,), "bigint"),
        Aggregate("stddev_pop", (v,), "double"),
    )
    if simple:
        aggregates = (aggregates[0], aggregates[1], aggregates[2])
    outputs = [Output("w", Expr("window_start", "timestamp", ("window_start",)))]
    outputs += [Output(k, Expr(f"k{i}", TYPES[k], (f"k{i}",))) for i, k in enumerate(keys)]
    outputs += [Output(f"x{i}", Expr(f"a{i}", a.type, (f"a{i}",))) for i, a in enumerate(aggregates)]
    where = None if limit is None else Expr(f'"v" < {limit}', "boolean", ("v",))
    return Query(name, "", "s", tuple(outputs), where, window, tuple(column(k) for k in keys), aggregates)


def random_batch(rng: random.Random, position: int, nulls: bool) -> pa.Table:
    """Keys without NULLs take the way of direct address, those with them DuckDB's."""
    n = rng.choice([0, 1, 5, 40, 120])
    newest = position * 4 * SECOND
    times = [newest - int(rng.expovariate(1 / 4) * SECOND) for _ in range(n)]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "a": pa.array([rng.choice([None if nulls else 7, 1, 2, 3]) for _ in range(n)], pa.int32()),
            "b": pa.array([rng.choice([None, "x", "y", "zz"]) for _ in range(n)], pa.string()),
            "v": pa.array([rng.randrange(100) for _ in range(n)], pa.int64()),
        }
    )


class State:
    """The buckets between batches, kept in memory instead of files."""

    def __init__(self) -> None:
        self.buckets: dict[str, tuple[Kept, pa.Table, np.ndarray]] = {}

    def held(self, plan: Plan, slot: int) -> dict[str, list[Held]]:
        found: dict[str, list[Held]] = defaultdict(list)
        for name, (kept, table, offsets) in self.buckets.items():
            if kept.grouping not in plan.groupings:
                continue
            routing = routing_table(plan, plan.groupings[kept.grouping].route_key)
            mine = slice_groups(table, offsets, routing.slot_ranges(slot))
            owners = np.unique(routing.owners[np.diff(offsets) > 0])
            wrote = int(name.split("-")[1]) % plan.slots == slot
            if mine.num_rows or (len(owners) > 1 and wrote):
                whole = slot == owners[0] if len(owners) == 1 else wrote
                loads = (lambda m=mine: m, lambda t=table: t)
                found[kept.grouping].append(
                    Held(name, kept.level, kept.span, kept.starts, kept.batch_from, whole, *loads)
                )
        return found

    def nodes(self) -> dict[str, frozenset[tuple[int, int]]]:
        found: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for kept, _, _ in self.buckets.values():
            found[kept.grouping].update((s, kept.span) for s in kept.starts if kept.span < 0)
        return {grouping: frozenset(nodes) for grouping, nodes in found.items()}

    def add(self, plan: Plan, name: str, kept: Kept) -> None:
        table, offsets = order_by_group(kept.table, kept.table.column(GROUP).to_numpy(), plan.groups)
        self.buckets[name] = (kept, table, offsets)

    def expire(self, plan: Plan, closing: int) -> None:
        self.buckets = {
            name: bucket
            for name, bucket in self.buckets.items()
            if bucket[0].grouping in plan.groupings
            and any(needed_until(s, plan.groupings[bucket[0].grouping].windows) > closing for s in bucket[0].starts)
        }


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


def run_batch(
    plan: Plan, clock: Clock, batch: pa.Table, state: State, policies: dict[str, Policy]
) -> dict[str, list[pa.Table]]:
    """One batch in two INGEST tasks and as many slots as the plan says."""
    results: dict[str, list[pa.Table]] = defaultdict(list)
    tasks = [Ingested(partitioners=Partitioners(policies, i)) for i in range(2)]
    half = batch.num_rows // 2
    for done, part in zip(tasks, (batch.slice(0, half), batch.slice(half)), strict=True):
        ingest_chunk(plan, "s", part, clock, done)
        assert not done.failures
    learned, moved = defaultdict(list), Movement()
    for done in tasks:
        shipped = {name: json.loads(json.dumps(shipment.to_json())) for name, shipment in done.shipments.items()}
        moved.add_ingested({"shipped": shipped, "learned": {}, "probing": {}, "ship_seconds": 0.0})
        for key, found in done.partitioners.learned().items():
            learned[key].append(found)
    policies |= {key: merge(found) for key, found in learned.items()}
    kept, replaced, nodes = [], [], state.nodes()
    for slot in range(plan.slots):
        arrived: dict[str, list[pa.Table]] = defaultdict(list)
        for done in tasks:
            for id_, table in done.cells.get(slot, []):
                arrived[id_].append(table)
        ready, _ = unship(plan, arrived, failures := {})
        assert not failures
        outcome = run_slot(plan, clock, ready, state.held(plan, slot), nodes)
        assert not outcome.failures
        for name, table in outcome.results:
            results[name].append(table)
        replaced += outcome.replaced  # the other slots still read them
        kept += [(f"{clock.batch}-{slot}-{i}", k) for i, k in enumerate(outcome.kept)]
    for task, done in enumerate(tasks):
        staying = [done.staying, *(shipment.staying for shipment in done.shipments.values())]
        for id_, tables in (item for of_all in staying for item in of_all.items()):
            starts = tuple(sorted({start for table in tables for start in table.column(START).to_pylist()}))
            stayed = Kept(id_, 0, plan.groupings[id_].slice_us, starts, clock.batch, pa.concat_tables(tables))
            kept.append((f"{clock.batch}-{task % plan.slots}-{task}-{id_}", stayed))
    for name in replaced:
        del state.buckets[name]
    for name, k in kept:
        state.add(plan, name, k)
    state.expire(plan, clock.closing_us["s"])
    return results


def expected_rows(q: Query, batches: list[pa.Table], marks: list[int]) -> list[tuple]:
    """By hand: for every window, the rows of the batches up to the one that closes it."""
    rows = defaultdict(list)
    limit = None if q.where is None else int(q.where.sql.rsplit(" ", 1)[1])
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
    out = []
    for (w, *keys), members in rows.items():
        if w + q.window.range_us <= marks[-1]:
            values = [m["v"] for m in members]
            texts = [m["b"] for m in members if m["b"] is not None]
            row = (w, *keys, len(members), sum(values), max(values))
            if len(q.aggregates) > 3:
                spread = float(np.std(values))
                row += (min(texts, default=None), float(np.median(values)), len(set(texts)), spread)
            out.append(row)
    return out


def as_rows(tables: list[pa.Table]) -> list[tuple]:
    if not tables:
        return []
    table = pa.concat_tables(tables)
    columns = [table.column(0).cast(pa.int64()), *(table.column(i) for i in range(1, table.num_columns))]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


def assert_same(actual: list[tuple], wanted: list[tuple], label: str) -> None:
    def order(row: tuple) -> tuple:
        return tuple((x is None, str(x)) for x in row[:-1])

    actual, wanted = sorted(actual, key=order), sorted(wanted, key=order)
    assert [r[:-1] for r in actual] == [r[:-1] for r in wanted], label
    np.testing.assert_allclose([r[-1] for r in actual], [r[-1] for r in wanted], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(16))
def test_windows_equal_one_grouping_over_all_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    queries = [
        query(
            f"q{i}",
            rng.choice([(), ("a",), ("a", "b"), ("a", "v")]),
            rng.choice(WINDOWS),
            rng.choice([None, None, 50]),
            simple=seed % 3 == 0,
        )
        for i in range(rng.randint(1, 5))
    ]
    registered = [Registered(q.name, q) for q in queries]
    state, results, batches, marks = State(), defaultdict(list), [], []
    newest, closed = None, BEGINNING
    policies: dict[str, Policy] = {}
    for number in range(30):
        batch = random_batch(rng, number, seed % 2 == 0).slice(0, None if number < 29 else 0)
        if len(registered) > 1 and rng.random() < 0.08:
            # Slices and nodes of those that stay may change with it; their results may not.
            registered.pop(rng.randrange(len(registered)))
        slots = rng.choice([1, 2, 3])
        # Partials may wait in the state for their windows, whoever has made them, or travel at once.
        monkeypatch.setattr(source, "STAYING_FROM", rng.choice([0, 2000, 1 << 20]))
        plan = make_plan(registered, {"s": STREAM}, slots=slots, groups=16)
        # Where groups are many, slots make them from whole rows; that too may change from batch to batch.
        many = {id_: GroupingLoad(rng.choice([0.1, 1.0])) for id_ in sorted(plan.groupings)}
        plan = make_plan(registered, {"s": STREAM}, slots=slots, groups=16, loads=many)
        plan = make_plan(
            registered,
            {"s": STREAM},
            slots=slots,
            groups=16,
            loads=many,
            assignment=random_assignment(rng, plan),
            follows=random_follows(rng, plan),
            partitioners=random_partitioners(rng, plan) if seed % 2 else {},
        )
        closing = closed if newest is None else max(closed, newest // 1000 * 1000 - STREAM.delay_us)
        clock = Clock(number, {"s": closed}, {"s": closing})
        for name, tables in run_batch(plan, clock, batch, state, policies).items():
            results[name] += tables
        batches.append(batch)
        marks.append(closing)
        closed = closing
        if batch.num_rows:
            newest = max(newest or 0, pc.max(batch.column("ts").cast(pa.int64())).as_py())
    for q in [entry.query for entry in registered]:
        assert_same(as_rows(results[q.name]), expected_rows(q, batches, marks), f"{q.name} {q.window}")


def test_windows_of_keys_counts_and_sums_need_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `chosen` knows is what `finish` writes: if one changed alone, results would stay right, but cost more."""
    monkeypatch.delattr(finish._Statement, "text")
    rng = random.Random(7)
    queries = [query(f"q{i}", ("a",), WINDOWS[i], limit, simple=True) for i, limit in enumerate((None, 50))]
    plan = make_plan([Registered(q.name, q) for q in queries], {"s": STREAM}, slots=2, groups=16)
    state, results, batches, marks = State(), defaultdict(list), [], []
    for number in range(12):
        batch = random_batch(rng, number, nulls=False)
        closed = marks[-1] if marks else BEGINNING
        clock = Clock(number, {"s": closed}, {"s": max(closed, (number - 3) * 4 * SECOND)})
        for name, tables in run_batch(plan, clock, batch, state, {}).items():
            results[name] += tables
        batches.append(batch)
        marks.append(clock.closing_us["s"])
    for q in queries:
        rows = expected_rows(q, batches, marks)
        assert len(rows) > 5
        assert_same(as_rows(results[q.name]), rows, q.name)


def test_a_sum_that_overflows_in_one_slot_leaves_no_hole_in_the_others_windows() -> None:
    """Nodes are common to all slots. A slot that cannot merge one has to have it all the same."""
    count, total = Aggregate("count_all", (), "bigint"), Aggregate("sum", (column("v"),), "bigint")
    start = Output("w", Expr("window_start", "timestamp", ("window_start",)))
    outputs = (start, Output("a", Expr("k0", "int", ("k0",))), Output("x", Expr("a0", "bigint", ("a0",), True)))
    keys = (column("a"),)
    good = Query("good", "", "s", outputs, None, Window(24 * SECOND, 3 * SECOND), keys, (count,))
    bad = Query("bad", "", "s", outputs, None, Window(60 * SECOND, 60 * SECOND), keys, (total,))
    registered = [Registered(q.name, q) for q in (good, bad)]
    state, counts, blamed, closed = State(), {}, {}, BEGINNING
    for number in range(40):
        plan = make_plan(registered, {"s": STREAM}, slots=2, groups=16)
        values = [2**62 if a == 1 and 2 < number < 10 else 1 for a in range(8)]
        batch = pa.table(
            {
                "ts": pa.array([number * 3 * SECOND] * 8, pa.int64()).cast(pa.timestamp("us")),
                "a": pa.array(range(8), pa.int32()),
                "b": pa.array(["x"] * 8),
                "v": pa.array(values, pa.int64()),
            }
        )
        closing = max(closed, (number - 1) * 3 * SECOND - STREAM.delay_us)
        done, clock = Ingested(), Clock(number, {"s": closed}, {"s": closing})
        ingest_chunk(plan, "s", batch, clock, done)
        nodes, kept, replaced = state.nodes(), [], []
        for slot in range(2):
            arrived = {id_: [t for name, t in done.cells.get(slot, []) if name == id_] for id_ in plan.groupings}
            outcome = run_slot(plan, clock, arrived, state.held(plan, slot), nodes)
            blamed |= outcome.failures
            for name, table in outcome.results:
                if name == "good":
                    counts |= {(w, a): n for w, a, n in as_rows([table])}
            kept += [(f"{number}-{slot}-{i}", k) for i, k in enumerate(outcome.kept)]
            replaced += outcome.replaced
        for name in replaced:
            del state.buckets[name]
        for name, k in kept:
            state.add(plan, name, k)
        state.expire(plan, closing)
        closed = closing
    assert set(blamed) == {"bad"}
    assert len(counts) > 200
    full = {(w, a): n for (w, a), n in counts.items() if w >= 0}
    assert {key: n for key, n in full.items() if n != 8} == {}
