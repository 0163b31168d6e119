"""Property: the join data path without Spark. Random joins, batches, slots, regrouping and intermediates against
DuckDB over the same rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from thalweg.engine.changelog import Moment
from thalweg.engine.joinload import join_load, next_join_load, next_stores
from thalweg.engine.joinplanning import JoinPlanner, JoinPlanning
from thalweg.engine.stores import SlotJoins, sampled, store_rows
from thalweg.engine.tasks import Work
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Bound, Equality, Join, KeyPart, Relation, joined_column
from thalweg.model.ordering import Ordering
from thalweg.model.plan import Plan, route_keys, slot_stages
from thalweg.model.query import Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.observe.stopwatch import Stopwatch
from thalweg.operate import laid
from thalweg.operate.join import SAMPLED
from thalweg.operate.slot import Clock
from thalweg.operate.source import Ingested, ingest_chunk
from thalweg.operate.windows import BEGINNING
from thalweg.optimize import joining
from thalweg.optimize.grouping import Registered, make_plan
from thalweg.state.manifest import Manifest, StoreBucket
from thalweg.testing.unsettled import random_ordering

COLUMNS = ("k", "x", "y")
SCHEMA = Schema((*(Field(c, "int" if c == "k" else "bigint") for c in COLUMNS), Field("ts", "timestamp")))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "abcd"}
SECOND = 1_000_000
SLOTS = 3
TELLING = (101, 104, 109, 116, 125, 127, 134, 146, 148, 152, 167, 171)
"""Worlds in which it shows if intermediates are looked into too early, or by rows of relations between their own."""


def column(name: str, kind: str = "bigint") -> Expr:
    return Expr(quote(name), kind, (name,))


def random_atoms(rng: random.Random) -> tuple[Atom, ...]:
    if rng.random() < 0.6:
        return ()
    return (Atom(rng.choice(COLUMNS), rng.choice(("<", ">=", "=")), rng.randint(0, 6)),)


def random_query(rng: random.Random, number: int, edges: list[tuple[str, str, str, str]]) -> Query:
    """A connected choice of the world's edges, so that queries overlap; sometimes a stream with itself."""
    start = rng.choice(edges)
    chosen = [start]
    names = {start[0], start[1]}
    for _ in range(rng.randint(0, 2)):
        more = [e for e in edges if (e[0] in names) != (e[1] in names)]
        if more:
            chosen.append(rng.choice(more))
            names |= {chosen[-1][0], chosen[-1][1]}
    relations = tuple(
        Relation(
            name,
            name.split("#")[0],
            (Atom(rng.choice(COLUMNS), rng.choice(("<", ">=", "=")), rng.randint(0, 6)),)
            if rng.random() < 0.4
            else (),
        )
        for name in sorted(names)
    )
    equalities = tuple(
        Equality(KeyPart(a, column(ca, "bigint")), KeyPart(b, column(cb, "bigint")))
        for a, b, ca, cb in sorted(chosen)
    )
    bounds = tuple(
        Bound(a, b, rng.choice((-3, -1, 0)) * SECOND, rng.choice((0, 1, 2)) * SECOND) for a, b, _, _ in sorted(chosen)
    )
    outputs = tuple(
        Output(f"{r.name}_{c}", column(joined_column(r.name, c))) for r in relations for c in rng.sample(COLUMNS, 2)
    )
    join = Join(relations, equalities, bounds)
    signature = repr((names, equalities))
    return Query(f"q{number}", "", f"j_{signature}", outputs, join=join)


def expected(query: Query, rows: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """The query as batch SQL over the rows that are not late for it."""
    join = query.join
    assert join is not None
    tables = ", ".join(f'rows_{r.stream} AS "{r.name}"' for r in join.relations)
    where = [
        f'"{e.left.relation}".{e.left.expr.sql} = "{e.right.relation}".{e.right.expr.sql}' for e in join.equalities
    ]
    for b in join.bounds:
        apart = f'epoch_us("{b.right}".ts) - epoch_us("{b.left}".ts)'
        where.append(f"{apart} BETWEEN {b.low_us} AND {b.high_us}")
    where += [f'"{r.name}".{a.column} {a.op} {a.value}' for r in join.relations for a in r.atoms]
    selected = []
    for output in query.outputs:
        relation, own = output.expr.columns[0].rsplit(".", 1)
        selected.append(f'"{relation}".{own}')
    con = duckdb.connect()
    for name, table in rows.items():
        con.register(f"rows_{name}", table)
    return Counter(con.execute(f"SELECT {', '.join(selected)} FROM {tables} WHERE {' AND '.join(where)}").fetchall())


def make_rows(
    rng: random.Random, batch: int, count: int, most_x: int = 9, most_y: int = 9, seconds: int = 4
) -> pa.Table:
    """A batch of so many seconds."""

    def value(most: int) -> int | None:
        return None if rng.random() < 0.05 else min(rng.randint(0, most), rng.randint(0, most))

    late = [rng.choice((0, 0, 0, 0, 5)) for _ in range(count)]
    times = [
        (batch * seconds + rng.randint(0, seconds) - late[i]) * SECOND + rng.randint(0, 3) * 250_000
        for i in range(count)
    ]
    return pa.table(
        {
            "k": pa.array([value(7) for _ in range(count)], pa.int32()),
            "x": pa.array([value(most_x) for _ in range(count)], pa.int64()),
            "y": pa.array([value(most_y) for _ in range(count)], pa.int64()),
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
        }
    )


@dataclass
class World:
    """The driver's part: plans, clocks, manifests."""

    directory: Path
    queries: dict[str, Query]
    manifest: Manifest = field(default_factory=lambda: Manifest(-1, 256, "test"))
    newest: dict[str, int] = field(default_factory=dict)
    results: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    counted: dict[str, dict[str, list[pa.Table]]] = field(default_factory=dict)
    """query -> stream -> the rows that are not late for it."""
    intermediates_used: int = 0
    unsettled: bool = False
    """Whether every batch has other orders and intermediates, at random."""
    may_fail: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    orders_seen: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    probed: list[dict[str, list[int]]] = field(default_factory=list)
    """What the probes of every batch have counted."""
    planner: JoinPlanner = field(default_factory=lambda: JoinPlanner(None))
    """Decides about orders as in the engine, if it is given settings."""

    def run(self, rng: random.Random, batch: int, rows: dict[str, pa.Table]) -> None:
        ordering = self.planner.take(self.manifest)
        load = join_load(self.manifest.extra.get("joins", {}), ordering)
        registered = [Registered(id_, q) for id_, q in self.queries.items()]
        if self.unsettled:
            ordered = make_plan(registered, STREAMS, slots=SLOTS, joins=load).joins.ordered
            if rng.random() < 0.5:  # else once more as before: intermediates have time to fill
                ordering = ordering.changed_by(random_ordering(rng, ordered), batch)
            load = join_load(self.manifest.extra.get("joins", {}), ordering)
        plan = make_plan(registered, STREAMS, slots=SLOTS, joins=load)
        # Key groups anywhere, others in every batch: a switch of the partitioning loses and doubles nothing.
        moved = {key: [rng.randrange(SLOTS) for _ in range(plan.groups)] for key in sorted(route_keys(plan))}
        # And some of them probed by all slots in turn.
        spread = {key: rng.sample(range(plan.groups), 100) for key in sorted(moved) if rng.random() < 0.6}
        plan = make_plan(registered, STREAMS, slots=SLOTS, joins=load, assignment=moved, spread=spread)
        closed = self.manifest.extra.get("closed", {})
        names = [*STREAMS, *plan.joins.joined]
        clock = Clock(
            batch,
            {n: closed.get(n, BEGINNING) for n in names},
            {n: max(closed.get(n, BEGINNING), self.newest.get(n, BEGINNING)) for n in names},
        )
        self._count_rows(clock, rows)
        stores: dict[str, list[StoreBucket]] = {}
        for bucket in self.manifest.stores:
            stores.setdefault(bucket.stream, []).append(bucket)
        work = Work(str(self.directory), clock, tasks=2, stores=stores, stages=slot_stages(plan))
        new, samples = self._ingest(rng, plan, work, rows)
        made, probes, replaced = self._slots(plan, work, new)
        self.probed.append(probes)
        self._commit(plan, clock, [*new, *made], replaced, probes, samples, ordering)
        self.planner.observe(plan, self.manifest)
        self.planner.wait()
        for id_, join in plan.joins.ordered.items():
            for start, order in join.orders.items():
                self.orders_seen.setdefault((id_, start), set()).add(order)
        self.intermediates_used += sum(
            n.relation.startswith("+") for g in plan.joins.groups.values() for t in g.trees for n in t.nodes()
        )

    def pass_time(self, rows: dict[str, pa.Table]) -> None:
        for name, table in rows.items():
            if table.num_rows:
                latest = max(table.column("ts").cast(pa.int64()).to_pylist())
                self.newest[name] = max(self.newest.get(name, BEGINNING), latest)

    def _count_rows(self, clock: Clock, rows: dict[str, pa.Table]) -> None:
        for id_, query in self.queries.items():
            threshold = min(clock.closed_us[s] for s in query.streams)
            for stream in query.streams:
                times = rows[stream].column("ts").cast(pa.int64()).to_numpy()
                kept = rows[stream].filter(pa.array(times > threshold))
                self.counted.setdefault(id_, {}).setdefault(stream, []).append(kept)

    def _ingest(
        self, rng: random.Random, plan: Plan, work: Work, rows: dict[str, pa.Table]
    ) -> tuple[list[StoreBucket], dict[str, Any]]:
        new: list[StoreBucket] = []
        samples: dict[str, Any] = {}
        for part in range(2):
            done = Ingested()
            for name, table in rows.items():
                if name in plan.streams:
                    cut = table.num_rows // 2
                    piece = table.slice(0, cut) if part == 0 else table.slice(cut)
                    ingest_chunk(plan, name, piece.select(plan.streams[name].columns), work.clock, done)
            buckets = store_rows(plan, work, done.stored)
            new += [replace(b, part=b.part + (part << 20)) for b in buckets]
            samples |= sampled(plan, done, buckets)
        rng.shuffle(new)
        return new, samples

    def _emit(self, query: str, table: pa.Table) -> None:
        columns = [c.to_pylist() for c in table.columns]
        self.results.setdefault(query, Counter()).update(zip(*columns, strict=True))

    def _slots(
        self, plan: Plan, work: Work, new: list[StoreBucket]
    ) -> tuple[list[StoreBucket], dict[str, list[int]], set[str]]:
        known, made = list(new), []
        probes: dict[str, list[int]] = {}
        replaced: set[str] = set()
        tuples: dict[int, list[tuple[str, pa.Table]]] = {}
        for stage in range(1, work.stages + 1):
            sent: dict[int, list[tuple[str, pa.Table]]] = {}
            kept = []
            for slot in range(plan.slots):
                joins = SlotJoins(plan, replace(work, stage=stage), known, Stopwatch())
                result = joins.run(slot, tuples.get(slot, []), self._emit)
                assert self.may_fail or not result.failures
                self.failures |= result.failures
                for to, tables in result.tuples.items():
                    sent.setdefault(to, []).extend(tables)
                kept += result.kept
                report = joins.keep(slot)
                made += [StoreBucket.from_json(b) for b in report["stores"]]
                replaced |= set(report["stores_replaced"])
                for name, (a, b) in result.counts.items():
                    counts = probes.setdefault(name, [0, 0])
                    counts[0], counts[1] = counts[0] + a, counts[1] + b
            known, made, tuples = known + kept, made + kept, sent
        assert not tuples
        return made, probes, replaced

    def _commit(
        self,
        plan: Plan,
        clock: Clock,
        made: list[StoreBucket],
        replaced: set[str],
        probes: dict[str, list[int]],
        samples: dict[str, Any],
        ordering: Ordering,
    ) -> None:
        moment = Moment(clock.batch, dict(self.newest), {})
        stores, held_from = next_stores(self.manifest, plan, clock, made, replaced, moment, {}, {})
        load = next_join_load(
            self.manifest.extra.get("joins", {}), plan, clock.batch, probes, samples, stores, epoch=2
        )
        extra = {"closed": dict(clock.closing_us), "held_from": held_from, "joins": load}
        extra["ordering"] = ordering.after(plan.joins.ordered).to_json()
        self.manifest = Manifest(clock.batch, 256, "test", stores=stores, extra=json.loads(json.dumps(extra)))


def random_edges(rng: random.Random) -> list[tuple[str, str, str, str]]:
    edges = []
    for _ in range(6):
        a, b = sorted(rng.sample([*STREAMS, "a#2"], 2))
        if b != "a#2" or a == "a":
            edges.append((a, b, rng.choice(COLUMNS[1:]), rng.choice(COLUMNS[1:])))
    return edges


def play(tmp_path: Path, seed: int, *, unsettled: bool = False, batches: int = 6) -> World:
    rng = random.Random(seed)
    edges = random_edges(rng)
    queries = {f"q{i}@{i}": random_query(rng, i, edges) for i in range(rng.randint(1, 6))}
    world = World(tmp_path, queries, unsettled=unsettled)
    for batch in range(batches):
        if batch == 3 and len(world.queries) > 1:
            dropped = rng.choice(list(world.queries))
            world.queries = {id_: q for id_, q in world.queries.items() if id_ != dropped}
            world.results.pop(dropped, None)
            world.counted.pop(dropped, None)
        rows = {name: make_rows(rng, batch, rng.choice((0, 15, 40))) for name in STREAMS}
        world.run(rng, batch, rows)
        world.pass_time(rows)
    return world


@pytest.mark.parametrize("keep_below", [0.0, 100.0])
@pytest.mark.parametrize("seed", range(12))
def test_joins_equal_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, keep_below: float) -> None:
    monkeypatch.setattr(joining, "KEEP_BELOW", keep_below)
    # Buckets of a few rows would hardly ever be laid out: never, always, and as long as there is room.
    few, worth, most = ((9999, 4, 9999), (1, 999, 9999), (1, 999, 25))[seed % 3]
    for name, value in (("FEW", few), ("WORTH", worth), ("MOST", most)):
        monkeypatch.setattr(laid, name, value)
    world = play(tmp_path, seed)
    for id_, query in world.queries.items():
        rows = {stream: pa.concat_tables(tables) for stream, tables in world.counted[id_].items()}
        assert world.results.get(id_, Counter()) == expected(query, rows), query.join


def test_intermediates_are_kept_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above means something: with a generous rule, rows are found in intermediates."""
    monkeypatch.setattr(joining, "KEEP_BELOW", 100.0)
    assert sum(play(tmp_path / str(seed), seed).intermediates_used for seed in range(6)) > 0


@pytest.mark.parametrize("seed", TELLING)
def test_other_orders_and_intermediates_in_every_batch(tmp_path: Path, seed: int) -> None:
    """An order says which probes are made, not what is stored: it may change at any batch boundary."""
    world = play(tmp_path, seed, unsettled=True, batches=9)
    for id_, query in world.queries.items():
        rows = {stream: pa.concat_tables(tables) for stream, tables in world.counted[id_].items()}
        assert world.results.get(id_, Counter()) == expected(query, rows), query.join


def test_orders_and_intermediates_do_change(tmp_path: Path) -> None:
    """The comparison above means something: queries had several orders, and rows were found in intermediates."""
    worlds = [play(tmp_path / str(seed), seed, unsettled=True, batches=9) for seed in TELLING[:3]]
    assert max(len(orders) for world in worlds for orders in world.orders_seen.values()) > 2
    assert sum(world.intermediates_used for world in worlds) > 0


# -- queries that come and go


STRETCH = 5
"""Batches after which keys that matched seldom match often, and the other way round."""


@dataclass
class Company(World):
    """Queries of which some come and some go at every batch boundary."""

    past: dict[str, list[tuple[pa.Table, dict[str, int]]]] = field(default_factory=dict)
    """stream -> the rows of every batch, and how far streams had closed when they came."""
    since: dict[str, int] = field(default_factory=dict)
    gone: dict[str, tuple[Query, int]] = field(default_factory=dict)
    """query -> what it was, and the batch that was the first without it."""

    def _count_rows(self, clock: Clock, rows: dict[str, pa.Table]) -> None:
        for name, table in rows.items():
            self.past.setdefault(name, []).append((table, dict(clock.closed_us)))

    def change(self, rng: random.Random, batch: int, edges: list[tuple[str, str, str, str]]) -> None:
        running = list(self.queries)
        for id_ in rng.sample(running, rng.choice((0, 0, 1, 2)) if len(running) > 3 else 0):
            self.gone[id_] = self.queries.pop(id_), batch
        for _ in range(rng.choice((0, 1, 1, 2)) if batch else 4):
            number = len(self.since)
            self.queries[f"q{number}@{number}"] = random_query(rng, number, edges)
            self.since[f"q{number}@{number}"] = batch

    def rows_for(self, query: Query, first: int, until: int) -> dict[str, pa.Table]:
        """The rows of some batches that are not late for the query."""
        found = {}
        for stream in query.streams:
            tables = []
            for table, closed in self.past[stream][first:until]:
                threshold = min(closed[s] for s in query.streams)
                tables.append(table.filter(pa.array(table.column("ts").cast(pa.int64()).to_numpy() > threshold)))
            found[stream] = pa.concat_tables(tables) if tables else self.past[stream][0][0].slice(0, 0)
        return found

    def check(self) -> None:
        """All pairs of rows since a query's creation have come, and pairs of old rows with new ones may have."""
        ended = len(next(iter(self.past.values())))
        lived = {**{id_: (query, ended) for id_, query in self.queries.items()}, **self.gone}
        for id_, (query, until) in lived.items():
            since, given = self.since[id_], self.results.get(id_, Counter())
            must = expected(query, self.rows_for(query, since, until))
            may = expected(query, self.rows_for(query, 0, until)) - expected(query, self.rows_for(query, 0, since))
            assert must <= given <= may, (id_, since, until, query.join, must - given, given - may)


def play_company(tmp_path: Path, seed: int, *, planned: bool, batches: int = 16) -> Company:
    rng = random.Random(f"company {seed}")
    edges = random_edges(rng)
    world = Company(tmp_path, {}, unsettled=not planned)
    if planned:
        world.planner = JoinPlanner(JoinPlanning(epoch=2, budget_seconds=10.0))
    for batch in range(batches):
        world.change(rng, batch, edges)
        seldom = batch // STRETCH % 2 == 0
        rows = {
            name: make_rows(rng, batch, rng.choice((10, 20, 40)), *((20, 5) if seldom else (5, 20)), seconds=2)
            for name in STREAMS
        }
        world.run(rng, batch, rows)
        world.pass_time(rows)
    return world


@pytest.mark.parametrize(("seed", "planned"), [(2, True), (0, False)])
def test_queries_come_and_go_while_orders_change(tmp_path: Path, seed: int, planned: bool) -> None:
    """As the planner decides, or at random. Worlds in which orders do change and rows are found in intermediates; in
    the first it shows if these are looked into too early."""
    world = play_company(tmp_path, seed, planned=planned)
    world.check()
    assert max(len(orders) for orders in world.orders_seen.values()) > 1
    assert Ordering.from_json(world.manifest.extra["ordering"]).switches > 0 or not planned
    assert world.intermediates_used > 0


# -- edges that are only compared beside others


TRIANGLE = (("a", "b", "x"), ("a", "c", "y"), ("b", "c", "x"))


def run_triangle(tmp_path: Path) -> World:
    rng = random.Random(5)
    relations = tuple(Relation(name, name, (Atom("k", "<", 5),) if name == "b" else ()) for name in "abc")
    join = Join(
        relations,
        tuple(Equality(KeyPart(one, column(key)), KeyPart(other, column(key))) for one, other, key in TRIANGLE),
        tuple(Bound(one, other, -2 * SECOND, 2 * SECOND) for one, other, _ in TRIANGLE),
    )
    outputs = tuple(Output(name, column(joined_column(name, "k"))) for name in "abc")
    world = World(tmp_path, {"q@1": Query("q", "", "j", outputs, join=join)})
    for batch in range(4):
        rows = {name: make_rows(rng, batch, 40 if name in "abc" else 0) for name in STREAMS}
        world.run(rng, batch, rows)
        world.pass_time(rows)
    come = world.counted["q@1"]
    assert world.results["q@1"] == expected(world.queries["q@1"], {s: pa.concat_tables(t) for s, t in come.items()})
    return world


def test_of_an_edge_with_too_many_partners_fewer_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = counted_rows(run_triangle(tmp_path / "all"))
    monkeypatch.setattr("thalweg.operate.join.MOST_COUNTED", 2)
    few = counted_rows(run_triangle(tmp_path / "few"))
    assert 0 < few[0] < whole[0]
    assert 0 < few[1] < whole[1]


def counted_rows(world: World) -> tuple[int, int]:
    """Rows that were only counted, and the partners that they found."""
    counts = [of for probes in world.probed for name, of in probes.items() if name.endswith(f"|{SAMPLED}")]
    return sum(looked for looked, _ in counts), sum(found for _, found in counts)


def test_an_edge_that_closes_a_cycle_is_counted(tmp_path: Path) -> None:
    """Some rows look along it and go nowhere: here all, so what they find can be told exactly."""
    world = run_triangle(tmp_path)
    come, checked = world.counted["q@1"], 0
    for batch, probes in enumerate(world.probed[1:], 1):
        for name, (_, found) in probes.items():
            _, one, other, _, width = name.split("|")
            if width == SAMPLED:
                con = duckdb.connect()
                con.register("mine", come[one][batch])
                con.register("theirs", pa.concat_tables(come[other][:batch]))
                key = next(key for a, b, key in TRIANGLE if (a, b) == (one, other))
                asked = {"a": "TRUE", "b": "{}.k < 5", "c": "TRUE"}
                text = f"SELECT count(*) FROM mine m JOIN theirs o USING ({key}) WHERE {asked[one].format('m')}"
                text += f" AND {asked[other].format('o')} AND abs(epoch_us(o.ts) - epoch_us(m.ts)) <= {2 * SECOND}"
                assert con.execute(text).fetchall() == [(found,)]
                checked += found
    assert checked


# -- keys that are too frequent


def _pairs_of(number: int, atoms: tuple[Atom, ...]) -> Query:
    relations = (Relation("a", "a", atoms), Relation("b", "b"))
    equality = Equality(KeyPart("a", column("x")), KeyPart("b", column("x")))
    join = Join(relations, (equality,), (Bound("a", "b", -9 * SECOND, 9 * SECOND),))
    outputs = tuple(Output(name, column(joined_column(name, "y"))) for name in "ab")
    return Query(f"q{number}", "", "j", outputs, join=join)


@pytest.mark.parametrize("wide", [{3}, {0, 7}, set(range(8))])
def test_a_key_that_is_too_frequent_stops_only_whom_it_is_too_frequent_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: set[int]
) -> None:
    monkeypatch.setattr("thalweg.operate.join.PAIR_LIMIT", 60)
    atoms = (Atom("k", "=", 0),)
    queries = {f"q{i}@{i}": _pairs_of(i, () if i in wide else atoms) for i in range(8)}
    plan = make_plan([Registered(id_, q) for id_, q in queries.items()], STREAMS, slots=SLOTS)
    assert [len(group.queries) for group in plan.joins.groups.values()] == [8]
    world = World(tmp_path, queries, may_fail=True)
    count = 40
    rows = {
        name: pa.table(
            {
                "k": pa.array([i % 20 for i in range(count)], pa.int32()),
                "x": pa.array([5] * count, pa.int64()),
                "y": pa.array(range(count), pa.int64()),
                "ts": pa.array([i * 1000 for i in range(count)], pa.int64()).cast(pa.timestamp("us")),
            }
        ).slice(0, count if name in "ab" else 0)
        for name in STREAMS
    }
    world.run(random.Random(1), 0, rows)
    assert world.failures.keys() == {f"q{i}@{i}" for i in wide}
    assert all("x = 5 is too frequent" in said for said in world.failures.values())
    for id_ in queries.keys() - world.failures.keys():
        come = {stream: pa.concat_tables(tables) for stream, tables in world.counted[id_].items()}
        assert world.results[id_] == expected(queries[id_], come)
        assert world.results[id_].total() == 2 * count
